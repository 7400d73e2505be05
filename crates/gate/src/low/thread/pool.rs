//! Thread records: the first thread's, new ones, and unused ones kept for other threads.

use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use lp_abi::Errno;
use lp_abi::linux::{
    __NR_getpid, __NR_gettid, __NR_mmap, __NR_tgkill, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ,
    PROT_WRITE,
};

use crate::low::thread::record::Thread;
use crate::low::thread::{current, home};

/// Stack of unused records.
static UNUSED: AtomicPtr<Thread> = AtomicPtr::new(null_mut());

/// Last of all records that were ever made, each of which names the one before.
static ALL: AtomicPtr<Thread> = AtomicPtr::new(null_mut());

/// Records reserved for a limited process and never used: the next one, and the end of the last.
static READY: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// Number of records reserved.
const READY_RECORDS: usize = 256;

/// Bytes from one record to the next in a mapping.
const STRIDE: usize = size_of::<Thread>().next_multiple_of(4096);

/// The record of the first thread.
fn first() -> *mut Thread {
    // SAFETY: only the address of a field is taken, within the home.
    unsafe { (&raw mut (*home::home()).first).cast() }
}

/// Makes the first thread's record `current`. Called once, by attach.
pub(crate) fn start_first() -> *mut Thread {
    let thread = first();
    // SAFETY: the record is zeroed, as `prepare` requires, and not in use.
    unsafe { prepare(thread) };
    list(thread);
    current::enter(thread);
    thread
}

/// Adds a record that was just made to the list of all.
fn list(thread: *mut Thread) {
    let mut last = ALL.load(Ordering::Relaxed);
    loop {
        // SAFETY: the record is the caller's, and nobody else changes this field.
        unsafe { (*thread).older.set(last) };
        // PAIRS: the acquire in `each`.
        match ALL.compare_exchange_weak(last, thread, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => last = now,
        }
    }
}

/// Calls `work` on every record of the process's memory, in use or not. Only atomics of it may be accessed.
pub(crate) fn each(work: impl Fn(*mut Thread)) {
    let mut thread = ALL.load(Ordering::Acquire); // PAIRS: the release in `list`.
    while !thread.is_null() {
        work(thread);
        // SAFETY: records are never unmapped, and the field does not change once the record is in the list.
        thread = unsafe { (*thread).older.get() };
    }
}

/// Makes the first thread's record `current` again on that thread. The loader of glibc before 2.35 sets the
/// thread's storage up anew after auditors have used it (glibc bug 28096).
pub(crate) fn restore_first() -> bool {
    // SAFETY: the record is that thread's own, and nobody else changes these fields.
    let is_first = unsafe { !(*first()).task.get().is_null() && (*first()).tid.get() == own_tid() };
    if is_first {
        current::enter(first());
    }
    is_first
}

/// An unused record, ready for use; `None` if memory is exhausted.
pub(crate) fn take() -> Option<*mut Thread> {
    let thread = match take_unused() {
        Some(thread) => thread,
        None => {
            let new = take_ready().or_else(make)?;
            list(new);
            new
        }
    };
    // SAFETY: the record is zeroed or was used before, and belongs to this thread alone.
    unsafe { prepare(thread) };
    Some(thread)
}

/// The first record in the list that its last thread does not use any more.
///
/// Takes the whole list at once and puts back all but that record, so a signal handler that interrupts this
/// finds the list either empty or whole.
fn take_unused() -> Option<*mut Thread> {
    // PAIRS: the release in `push`.
    let mut rest = UNUSED.swap(null_mut(), Ordering::Acquire);
    let (mut found, mut before) = (null_mut::<Thread>(), null_mut::<Thread>());
    while !rest.is_null() {
        let record = rest;
        // SAFETY: records taken from the list are valid and belong to the taker alone.
        unsafe {
            rest = (*record).next.get();
            if has_ended((*record).tid.get()) {
                found = record;
                break;
            }
            (*record).next.set(before);
        }
        before = record;
    }
    push(before);
    push(rest);
    (!found.is_null()).then_some(found)
}

/// Whether the thread has ended that returned its record: until then it may run on the record's stack. A
/// limited process makes no call for that.
fn has_ended(tid: u32) -> bool {
    // SAFETY: neither call takes pointers, and no signal is sent.
    let asked = || unsafe { lp_abi::syscall!(__NR_tgkill, lp_abi::syscall!(__NR_getpid)?, tid, 0) };
    tid == 0 || lp_abi::sys::is_limited() || asked() == Err(Errno::ESRCH)
}

/// A new record.
fn make() -> Option<*mut Thread> {
    let (protection, flags) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    // SAFETY: a new mapping, of zeros.
    let address = unsafe { lp_abi::syscall!(__NR_mmap, 0, STRIDE, protection, flags, usize::MAX, 0) }.ok()?;
    Some(address as *mut Thread)
}

/// A record that [`keep_ready`] reserved.
fn take_ready() -> Option<*mut Thread> {
    // Relaxed, both: stored while the process had one thread that could limit it.
    let end = READY[1].load(Ordering::Relaxed);
    let next = |at: usize| (at < end).then_some(at + STRIDE);
    READY[0].fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok().map(|at| at as *mut Thread)
}

/// Reserves addresses for the records of future threads: a limited process cannot map more.
pub(crate) fn keep_ready() {
    // Relaxed, all: stored while the process had one thread that could limit it.
    if READY[0].load(Ordering::Relaxed) < READY[1].load(Ordering::Relaxed) {
        return;
    }
    let (protection, flags) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    for count in [READY_RECORDS, READY_RECORDS / 16] {
        let bytes = count * STRIDE;
        // SAFETY: a new mapping, zeroed; memory is allocated as it is touched.
        if let Ok(at) = unsafe { lp_abi::syscall!(__NR_mmap, 0, bytes, protection, flags, usize::MAX, 0) } {
            READY[0].store(at, Ordering::Relaxed);
            READY[1].store(at + bytes, Ordering::Relaxed);
            return;
        }
    }
}

/// Whether another thread would find a record in a limited process.
pub(crate) fn are_ready() -> bool {
    !UNUSED.load(Ordering::Relaxed).is_null()
        || READY[0].load(Ordering::Relaxed) < READY[1].load(Ordering::Relaxed)
}

/// Returns a record that nobody uses to the pool.
pub(crate) fn give_back(thread: *mut Thread) {
    // SAFETY: the record is the caller's to give.
    unsafe { (*thread).tid.set(0) };
    leave(thread);
}

/// Returns its record for the calling thread, which may use only its stack from here on, until the thread's
/// end.
pub(crate) fn leave(thread: *mut Thread) {
    if core::ptr::eq(thread, first()) {
        return;
    }
    // SAFETY: the record is the caller's to give.
    unsafe { (*thread).next.set(null_mut()) };
    push(thread);
}

/// Pushes a list of records onto the stack of unused ones.
fn push(list: *mut Thread) {
    if list.is_null() {
        return;
    }
    let mut last = list;
    // SAFETY: the records belong to the caller.
    unsafe {
        while !(*last).next.get().is_null() {
            last = (*last).next.get();
        }
        let mut head = UNUSED.load(Ordering::Relaxed);
        loop {
            (*last).next.set(head);
            // PAIRS: the acquire in `take`.
            match UNUSED.compare_exchange_weak(head, list, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }
}

/// In the child of a fork: the other threads are gone, whatever they held.
pub(crate) fn after_fork_child() {
    // SAFETY: `current` is this thread's own record.
    unsafe { (*current::thread()).tid.set(own_tid()) };
}

/// Initialises a record for its next thread.
///
/// # Safety
/// `thread` must be a zeroed or previously prepared record that nobody uses.
unsafe fn prepare(thread: *mut Thread) {
    // SAFETY: the caller guarantees a zeroed or previously prepared record that nobody uses. Fields are set
    // one by one, so that pages of buffers stay untouched.
    unsafe {
        (*thread).child.set(null_mut());
        (*thread).parent.set(null());
        (*thread).lends_words.set(0);
        (*thread).own_stack.set(0);
        (*thread).switched.set(0);
        (*thread).actions.set(home::actions());
        (*thread).tid.set(own_tid());
        (*thread).limited_to.set(0);
        (*thread).task.set(null_mut());
        (*thread).deferred.reset();
        (*thread).unclear_fault.set(0);
        (*thread).refused.set(0);
    }
}

pub(crate) fn own_tid() -> u32 {
    // SAFETY: gettid(2) takes no pointers.
    unsafe { lp_abi::syscall!(__NR_gettid) }.unwrap_or(0) as u32
}
