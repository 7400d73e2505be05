//! [`Thread`]: what the gate keeps for each thread of the process.

use core::cell::{Cell, UnsafeCell};
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use lp_abi::linux::{
    __NR_gettid, __NR_mmap, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE, SIG_SETMASK,
};
use lp_region::process::Process;
use lp_vfs::task::Task;

use crate::high::above;
use crate::low::live::deferred::{Deferred, Notes};
use crate::low::live::signal;
use crate::low::live::signal::Actions;
use crate::low::thread::home::home;
use crate::low::thread::tls;
use crate::low::tools::report;

/// A thread's record: private to the process, like `task_struct`. Made at the thread's first call through the gate.
///
/// Its own thread alone touches it. A child that shares memory with its parent until it execs (vfork, posix_spawn) runs
/// on the parent's thread-local storage, so it is given a record of its own for that time; see [`crate::low::live::process`].
#[repr(C)]
pub struct Thread {
    /// The record for a child that is about to start on this thread's memory. Read by the entry.
    pub(crate) child: *mut Thread,
    /// Where the entry returns to, kept here while parent and child use the same stack.
    pub(crate) return_to: usize,
    /// In a child's record: its parent's; else null.
    pub parent: *mut Thread,
    /// Nonzero when the child that is made starts on a stack of its own: in the child's record if it shares
    /// memory with its parent, else in its maker's.
    pub(crate) own_stack: u64,
    /// Nonzero while a child is made from a site on a small stack: both sides use the stack in their record meanwhile.
    pub(crate) switched: u64,
    /// The call that makes a child as the kernel gets it: number and three arguments; and those that the
    /// program gave.
    pub(crate) share_call: [usize; 4],
    pub(crate) share_given: [usize; 3],
    /// Whether the child that is made shares the kernel's table of descriptors.
    pub(crate) shares_table: bool,
    /// Credentials of the thread's own, once it has some; the memory stays with the record.
    pub(crate) credentials: *mut Process,
    /// The record of clone3(2) that the kernel gets in the place of the program's.
    pub(crate) clone_args: [u64; 16],
    /// The signal mask to go back to once `current` is right on both sides.
    pub(crate) share_mask: u64,
    /// Next record in the list of unused ones.
    next: *mut Thread,
    /// The actions of signals: the process's, or the child's own.
    pub(crate) actions: *const Actions,
    /// The kernel's thread id.
    pub tid: u32,
    /// In a limited process, the number of the call that is being answered; see [`crate::high::table::limited`].
    pub(crate) limited_to: u32,
    /// Set when the running handler makes the kernel's call; see [`crate::high::table::count`].
    pub crossed: Cell<bool>,
    /// The task by which the thread makes calls on the file system; null until the high half has put one into
    /// `task_room` (or elsewhere), and always in a process without a region.
    pub task: *mut Task<'static>,
    /// Signals whose handlers wait for the end of the call.
    pub(crate) deferred: Deferred,
    /// Where a fault was that may have been mended by another thread; see [`above::fault`].
    pub(crate) unclear_fault: usize,
    /// The process slot of the child that a fork under way will make.
    pub forked: u32,
    /// The words of a thread of a static program; see [`tls`].
    pub(crate) words: tls::Words,
    /// Where [`Self::task`] may live. Not touched by the low half.
    pub task_room: MaybeUninit<Task<'static>>,
    /// Room for a new environment; see [`crate::low::exec::environment`].
    pub(crate) exec: crate::low::exec::environment::Room,
    /// Room for the arguments of a script's interpreter.
    pub(crate) arguments: crate::low::exec::environment::Room,
    /// [`Self::actions`] of a child that shares memory.
    pub(crate) own_actions: Actions,
    /// Three path buffers for handlers. Not touched by the low half, but for [`crate::low::exec::run`].
    pub scratch: [UnsafeCell<[u8; 4096]>; 3],
    /// What is known of the signals in [`Self::deferred`].
    pub(crate) notes: Notes,
    /// The stack on which calls of objects with small stacks run.
    pub(crate) stack: Stack,
}

/// Bytes of [`Thread::stack`].
pub(crate) const STACK: usize = 64 << 10;

/// A stack. Touched only where it is used.
#[repr(C, align(16))]
pub(crate) struct Stack(UnsafeCell<MaybeUninit<[u8; STACK]>>);

/// Unused records, a stack.
static UNUSED: AtomicPtr<Thread> = AtomicPtr::new(null_mut());
/// Records of a limited process that were never used: the first, and where the last one ends.
static READY: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// How many it has.
const READY_RECORDS: usize = 256;
/// Bytes from one record to the next in a mapping.
const STRIDE: usize = size_of::<Thread>().next_multiple_of(4096);

impl Thread {
    /// Bytes of the fields that every process touches.
    pub(crate) const HEAD: usize =
        core::mem::offset_of!(Thread, task_room) + core::mem::offset_of!(Task<'static>, prefixes);
}

/// The record of the first thread.
fn first() -> *mut Thread {
    // SAFETY: an address in the process's home.
    unsafe { (&raw mut (*home()).first).cast() }
}

/// Makes the first thread's record `current`. Called once, by attach.
pub(crate) fn start_first() -> *mut Thread {
    let thread = first();
    // SAFETY: zeroed, as `prepare` wants, and not in use.
    unsafe { prepare(thread) };
    tls::enter(thread);
    thread
}

/// Makes a record for the calling thread, which has none.
///
/// A signal handler may get there first: signals are blocked while it is made.
#[cold]
pub(crate) extern "sysv64" fn start_slow() {
    let before = signal::set_mask(SIG_SETMASK, u64::MAX);
    if tls::current().is_null() && !restore_first() {
        let Some(thread) = take() else {
            report::refuse(&[b"no memory for a thread's record"]);
        };
        // In a limited process no signal is blocked, and a handler may have been here meanwhile.
        if !tls::current().is_null() {
            return give_back(thread);
        }
        tls::enter(thread);
        // SAFETY: the record is this thread's, and current.
        above::thread_start(unsafe { &mut *thread });
    }
    signal::set_mask(SIG_SETMASK, before);
}

/// Makes the first thread's record `current` again for that thread: the loader of glibc before 2.35 sets the thread's
/// storage up anew when auditors have used it already (its bug 28096).
fn restore_first() -> bool {
    // SAFETY: the record is that thread's own, and nobody else changes the fields looked at.
    let is_first = unsafe { !(*first()).task.is_null() && (*first()).tid == own_tid() };
    if is_first {
        tls::enter(first());
    }
    is_first
}

/// An unused record, ready for use; `None` without memory.
///
/// A handler that interrupts this finds the list empty or whole: the list is taken as one, and put back but
/// for its first.
pub(crate) fn take() -> Option<*mut Thread> {
    // PAIRS: the release in `push`.
    let first = UNUSED.swap(null_mut(), Ordering::Acquire);
    let thread = if first.is_null() {
        take_ready().or_else(make)?
    } else {
        // SAFETY: records in the list are valid and nobody else's once taken.
        push(unsafe { (*first).next });
        first
    };
    // SAFETY: it is zeroed or was in use before, and is nobody else's.
    unsafe { prepare(thread) };
    Some(thread)
}

/// A new record.
fn make() -> Option<*mut Thread> {
    let (protection, flags) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    // SAFETY: a new mapping, of zeros.
    let address = unsafe { lp_abi::syscall!(__NR_mmap, 0, STRIDE, protection, flags, usize::MAX, 0) }.ok()?;
    Some(address as *mut Thread)
}

/// One of those that [`keep_ready`] has made.
fn take_ready() -> Option<*mut Thread> {
    // Relaxed, both: set while there was one thread that could limit the process.
    let end = READY[1].load(Ordering::Relaxed);
    let next = |at: usize| (at < end).then_some(at + STRIDE);
    READY[0].fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok().map(|at| at as *mut Thread)
}

/// Makes addresses for records of threads to come: the process will not get any more.
pub(crate) fn keep_ready() {
    // Relaxed, all: as in `take_ready`.
    if READY[0].load(Ordering::Relaxed) < READY[1].load(Ordering::Relaxed) {
        return;
    }
    let (protection, flags) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    for count in [READY_RECORDS, READY_RECORDS / 16] {
        let bytes = count * STRIDE;
        // SAFETY: a new mapping, of zeros; memory comes as it is touched.
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

/// Gives a record back. The caller does not use it any more.
pub(crate) fn give_back(thread: *mut Thread) {
    if core::ptr::eq(thread, first()) {
        return;
    }
    // SAFETY: the record is the caller's to give.
    unsafe { (*thread).next = null_mut() };
    push(thread);
}

/// Puts a list of records in front of the unused ones.
fn push(list: *mut Thread) {
    if list.is_null() {
        return;
    }
    let mut last = list;
    // SAFETY: the records are the caller's.
    unsafe {
        while !(*last).next.is_null() {
            last = (*last).next;
        }
        let mut head = UNUSED.load(Ordering::Relaxed);
        loop {
            (*last).next = head;
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
    // SAFETY: current is this thread's own.
    unsafe { (*tls::current()).tid = own_tid() };
}

/// # Safety
/// `thread` is a record of zeros or one that was prepared before, and in nobody's use.
unsafe fn prepare(thread: *mut Thread) {
    // SAFETY: the caller's promise; fields are set one by one, so that pages of buffers stay untouched.
    unsafe {
        (*thread).child = null_mut();
        (*thread).parent = null_mut();
        (*thread).own_stack = 0;
        (*thread).switched = 0;
        (*thread).actions = crate::low::live::signal::process_actions();
        (*thread).tid = own_tid();
        (*thread).limited_to = 0;
        (*thread).task = null_mut();
        (*thread).deferred.reset();
        (*thread).unclear_fault = 0;
    }
}

pub(crate) fn own_tid() -> u32 {
    // SAFETY: no effect.
    unsafe { lp_abi::syscall!(__NR_gettid) }.unwrap_or(0) as u32
}
