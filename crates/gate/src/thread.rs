//! [`Thread`]: what the gate keeps for each thread of the process.

use core::cell::{Cell, UnsafeCell};
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use lp_abi::linux::{
    __NR_gettid, __NR_mmap, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE, SIG_SETMASK,
};
use lp_vfs::task::Task;

use crate::deferred::{Deferred, Notes};
use crate::home::home;
use crate::signal::{self, Actions};
use crate::{hooks, report, tls};

/// A thread's record: private to the process, like `task_struct`. Made at the thread's first call through the gate.
///
/// Its own thread alone touches it. A child that shares memory with its parent until it execs (vfork, posix_spawn) runs
/// on the parent's thread-local storage, so it is given a record of its own for that time; see [`crate::process`].
#[repr(C)]
pub struct Thread {
    /// The record for a child that is about to start on this thread's memory. Read by the entry.
    pub(crate) child: *mut Thread,
    /// Where the entry returns to, kept here while parent and child use the same stack.
    pub(crate) return_to: usize,
    /// In a child's record: its parent's; else null.
    pub parent: *mut Thread,
    /// In a child's record: nonzero when it starts on a stack of its own.
    pub(crate) own_stack: u64,
    /// Nonzero while a child is made from a site on a small stack: both sides use the stack in their record meanwhile.
    pub(crate) switched: u64,
    /// The signal mask to go back to once `current` is right on both sides.
    pub(crate) share_mask: u64,
    /// Next record in the list of unused ones.
    next: *mut Thread,
    /// The actions of signals: the process's, or the child's own.
    pub(crate) actions: *const Actions,
    /// The kernel's thread id.
    pub tid: u32,
    /// Set when the running handler makes the kernel's call; see [`crate::count`].
    pub crossed: Cell<bool>,
    /// The task by which the thread makes calls on the file system; null until the high half has put one into
    /// `task_room` (or elsewhere), and always in a process without a region.
    pub task: *mut Task<'static>,
    /// Signals whose handlers wait for the end of the call.
    pub(crate) deferred: Deferred,
    /// Where a fault was that may have been mended by another thread; see [`hooks::fault`].
    pub(crate) unclear_fault: usize,
    /// The process slot of the child that a fork under way will make.
    pub forked: u32,
    /// Where [`Self::task`] may live. Not touched by the low half.
    pub task_room: MaybeUninit<Task<'static>>,
    /// Room for a new environment; see [`crate::exec_env`].
    pub(crate) exec: crate::exec_env::Room,
    /// Room for the arguments of a script's interpreter.
    pub(crate) arguments: crate::exec_env::Room,
    /// [`Self::actions`] of a child that shares memory.
    pub(crate) own_actions: Actions,
    /// Three path buffers for handlers. Not touched by the low half, but for [`crate::exec`].
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
/// Guards [`UNUSED`]; held with signals blocked or in the gate, for a few instructions.
static UNUSED_LOCK: AtomicU32 = AtomicU32::new(0);
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
    tls::set_current(thread);
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
        tls::set_current(thread);
        // SAFETY: the record is this thread's, and current.
        hooks::thread_start(unsafe { &mut *thread });
    }
    signal::set_mask(SIG_SETMASK, before);
}

/// Makes the first thread's record `current` again for that thread: the loader of glibc before 2.35 sets the thread's
/// storage up anew when auditors have used it already (its bug 28096).
fn restore_first() -> bool {
    // SAFETY: the record is that thread's own, and nobody else changes the fields looked at.
    let is_first = unsafe { !(*first()).task.is_null() && (*first()).tid == own_tid() };
    if is_first {
        tls::set_current(first());
    }
    is_first
}

/// An unused record, ready for use; `None` without memory. The caller is in the gate or has signals blocked.
pub(crate) fn take() -> Option<*mut Thread> {
    lock();
    let mut thread = UNUSED.load(Ordering::Relaxed); // Relaxed: guarded by the lock.
    if !thread.is_null() {
        // SAFETY: records in the list are valid and nobody else's.
        UNUSED.store(unsafe { (*thread).next }, Ordering::Relaxed);
    }
    unlock();
    if thread.is_null() {
        let protection = PROT_READ | PROT_WRITE;
        let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        // SAFETY: a new mapping.
        let address =
            unsafe { lp_abi::syscall!(__NR_mmap, 0, STRIDE, protection, flags, usize::MAX, 0) }.ok()?;
        thread = address as *mut Thread;
    }
    // SAFETY: it is zeroed or was in use before, and is nobody else's.
    unsafe { prepare(thread) };
    Some(thread)
}

/// Gives a record back. The caller does not use it any more.
pub(crate) fn give_back(thread: *mut Thread) {
    if core::ptr::eq(thread, first()) {
        return;
    }
    lock();
    // SAFETY: the record is the caller's to give.
    unsafe { (*thread).next = UNUSED.load(Ordering::Relaxed) };
    UNUSED.store(thread, Ordering::Relaxed);
    unlock();
}

/// In the child of a fork: the other threads are gone, whatever they held.
pub(crate) fn after_fork_child() {
    UNUSED_LOCK.store(0, Ordering::Relaxed);
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
        (*thread).actions = crate::signal::process_actions();
        (*thread).tid = own_tid();
        (*thread).task = null_mut();
        (*thread).deferred.reset();
        (*thread).unclear_fault = 0;
    }
}

pub(crate) fn own_tid() -> u32 {
    // SAFETY: no effect.
    unsafe { lp_abi::syscall!(__NR_gettid) }.unwrap_or(0) as u32
}

fn lock() {
    // PAIRS: the release in `unlock`.
    while UNUSED_LOCK.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        core::hint::spin_loop();
    }
}

fn unlock() {
    // PAIRS: the acquire in `lock`.
    UNUSED_LOCK.store(0, Ordering::Release);
}
