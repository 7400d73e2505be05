//! SIGBUS, by which a process learns that a hole is touched: while it has holes, the signal is not blocked.
//!
//! A fault must reach the process, and the kernel must not meet a hole on the program's behalf:
//! - While a process has holes, SIGBUS is not blocked (rt_sigprocmask(2)). Where a thread
//!   has blocked it before, nothing stays a hole.
//! - While a process has holes, its calls go through a table of their own, which gives pages to
//!   memory that a call names.

use core::ffi::CStr;

use lp_abi::linux::{
    __NR_close, __NR_getdents64, __NR_open, __NR_rt_sigprocmask, O_CLOEXEC, O_DIRECTORY, O_RDONLY, SIG_BLOCK,
    SIGBUS,
};
use lp_abi::{Errno, Result, dirent64};
use lp_region::sync::{AtomicU32, Ordering, heavy_barrier};
use lp_vfs::task::Task;

use crate::High;
use crate::low::above::Above;
use crate::low::cover::patch;
use crate::low::thread::current;
use crate::low::tools::status;

/// The process has holes, or is about to.
static HAS_HOLES: AtomicU32 = AtomicU32::new(0);

/// Whether the process has holes. A thread that blocks SIGBUS asks again afterwards ([`may_exist`]).
#[inline]
pub(crate) fn exist() -> bool {
    // PAIRS: the exchanges below; system calls lie between this and the mask that it is about.
    HAS_HOLES.load(Ordering::Acquire) != 0
}

/// Before the process gets a hole: whether it may.
pub(crate) fn may_exist(task: &Task) -> bool {
    if exist() {
        return true;
    }
    // Another table already stands between the program and its calls.
    if task.run.stats.load(Ordering::Relaxed) != 0 {
        return false; // Relaxed: immutable.
    }
    // Before the masks are looked at: a thread that blocks SIGBUS either is seen here, or sees this after it
    // has blocked it. PAIRS: the acquire in `exist`.
    HAS_HOLES.swap(1, Ordering::AcqRel);
    // Relaxed: a thread that is made from here on inherits its creator's mask.
    let is_alone = task.process.threads.load(Ordering::Relaxed) == 0;
    let others_block = || !heavy_barrier() || thread_blocks_faults() != Ok(false);
    if blocks_faults() || !is_alone && others_block() {
        HAS_HOLES.swap(0, Ordering::AcqRel);
        return false;
    }
    apply();
    true
}

/// After holes may have gone, with their list locked: `left` of them are left.
pub(crate) fn settle(left: usize) {
    if exist() && left == 0 {
        HAS_HOLES.swap(0, Ordering::AcqRel); // PAIRS: the acquire in `exist`.
        apply();
    }
}

/// Selects the table for the process's calls.
fn apply() {
    // SAFETY: null or the calling thread's own record.
    if let Some(thread) = unsafe { current::thread().as_ref() } {
        patch::change_calls(&High::calls(thread));
    }
}

const BUS: u64 = 1 << (SIGBUS - 1);

/// The signals of a mask that holes raise.
pub(crate) const fn faults(mask: u64) -> u64 {
    mask & BUS
}

/// Whether this thread blocks SIGBUS.
fn blocks_faults() -> bool {
    let mut mask = 0u64;
    // SAFETY: the kernel writes one word.
    let _ = unsafe { lp_abi::syscall!(__NR_rt_sigprocmask, SIG_BLOCK, 0, &raw mut mask, 8) };
    mask & BUS != 0
}

/// Whether a thread of the process blocks SIGBUS.
///
/// # Errors
/// Those of open(2) and of getdents(2); `EPERM` if a filter that the process has installed may not allow
/// them.
fn thread_blocks_faults() -> Result<bool> {
    if status::is_filtered() {
        return Err(Errno::EPERM);
    }
    // SAFETY: the path is NUL-terminated, and the open changes nothing.
    let tasks = unsafe {
        lp_abi::syscall!(__NR_open, c"/proc/self/task".as_ptr(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)
    }?;
    let found = any_blocks_faults(tasks);
    // SAFETY: the descriptor was opened above.
    let _ = unsafe { lp_abi::syscall!(__NR_close, tasks) };
    found
}

fn any_blocks_faults(tasks: usize) -> Result<bool> {
    let mut room = [0u64; 128];
    loop {
        // SAFETY: the kernel writes within `room`.
        let got = unsafe { lp_abi::syscall!(__NR_getdents64, tasks, room.as_mut_ptr(), size_of_val(&room)) }?;
        if got == 0 {
            return Ok(false);
        }
        // SAFETY: the bytes of `room`, any of which are valid.
        let bytes = unsafe { core::slice::from_raw_parts(room.as_ptr().cast::<u8>(), got) };
        if dirent64::names(bytes).any(|(_, number)| one_blocks_faults(tasks, number)) {
            return Ok(true);
        }
    }
}

/// Whether the thread with this number blocks SIGBUS. A thread that has ended does not.
fn one_blocks_faults(tasks: usize, number: &CStr) -> bool {
    const STATUS: &[u8] = b"/status\0";
    let mut path = [0u8; 32];
    let number = number.to_bytes();
    let length = number.len().min(path.len() - STATUS.len());
    path[..length].copy_from_slice(&number[..length]);
    path[length..length + STATUS.len()].copy_from_slice(STATUS);
    status::field(tasks as isize, &path, b"\nSigBlk:\t").is_some_and(|mask| mask & BUS != 0)
}
