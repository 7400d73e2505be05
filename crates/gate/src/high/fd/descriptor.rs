//! Decides with one load whether a descriptor is ours.

use lp_abi::linux::{__NR_getpid, __NR_kcmp};
use lp_abi::{Errno, Fd};
use lp_region::ProcessId;
use lp_region::records::file_mode;
use lp_region::sync::Ordering;
use lp_vfs::table::{FdTable, entry};
use lp_vfs::task::Task;

use crate::high::fd::placeholder;
use crate::low::dispatch::NOT_OURS;

/// `KCMP_FILE` of linux/kcmp.h.
const KCMP_FILE: u32 = 0;

/// The table's word for `fd`; 0 if `fd` cannot be ours.
#[inline(always)]
pub(crate) fn word(task: &Task, fd: Fd) -> u64 {
    // Relaxed: the call that uses the word pins and validates the open file.
    task.table.covered(fd).map_or(0, |word| word.load(Ordering::Relaxed))
}

/// Whether `fd` is an open file of ours that the file system itself answers.
#[inline(always)]
pub(crate) fn is_file(task: &Task, fd: Fd) -> bool {
    word(task, fd) & entry::DATA != 0
}

/// Whether `fd` is open and in our table: a file of ours, or the host object behind a FIFO of ours.
#[inline(always)]
pub(crate) fn is_listed(task: &Task, fd: Fd) -> bool {
    word(task, fd) & entry::OPEN != 0
}

/// Whether a file of ours was opened with `O_PATH`.
pub(crate) fn is_path(task: &Task, fd: Fd) -> bool {
    // Relaxed: immutable.
    task.fget(fd).is_ok_and(|held| held.file.mode.load(Ordering::Relaxed) & file_mode::PATH != 0)
}

/// Whether `fd` must look closed to the program: a parked placeholder, or one of the gate's own descriptors.
#[inline]
pub(crate) fn is_hidden(task: &Task, fd: Fd) -> bool {
    word(task, fd) & (entry::OPEN | entry::PARKED) == entry::PARKED || placeholder::is_guarded(task, fd)
}

/// [`is_hidden`] for a descriptor of any process of the run.
#[cold]
pub(crate) fn is_hidden_in(task: &Task, process: ProcessId, fd: Fd) -> bool {
    // Relaxed: one word. Another process may open or close the number at any time.
    let word = FdTable::of(task.region, process).entry(fd).map_or(0, |word| word.load(Ordering::Relaxed));
    word & (entry::OPEN | entry::PARKED) == entry::PARKED
        || placeholder::is_guarded_in(task, task.region.process(process), fd)
}

/// Whether two descriptors of the kernel's are one open file.
#[cold]
pub(crate) fn is_same_file(one: Fd, other: Fd) -> bool {
    if one == other {
        return true;
    }
    // SAFETY: neither call takes a pointer.
    unsafe {
        let Ok(pid) = lp_abi::syscall!(__NR_getpid) else { return false };
        lp_abi::syscall!(__NR_kcmp, pid, pid, KCMP_FILE, one, other) == Ok(0)
    }
}

/// The result for an `fd` that the file system does not answer: `EBADF` if it is hidden, else the kernel's.
#[cold]
pub(crate) fn other(task: &Task, fd: Fd) -> isize {
    if is_hidden(task, fd) { Errno::EBADF.to_ret() } else { NOT_OURS }
}

/// [`other`] for a call that the kernel refuses on an `O_PATH` descriptor as on a closed one, in the order of
/// errors that it has: a parked placeholder is one.
#[cold]
pub(crate) fn without_data(task: &Task, fd: Fd) -> isize {
    if placeholder::is_guarded(task, fd) { Errno::EBADF.to_ret() } else { NOT_OURS }
}

/// Continues only with a file of ours. Otherwise returns from the handler, with `other` if the table has a
/// word for the descriptor.
macro_rules! file_or_return {
    ($task:expr, $fd:expr) => {
        file_or_return!($task, $fd, $crate::high::fd::descriptor::without_data($task, $fd))
    };
    ($task:expr, $fd:expr, $other:expr) => {
        let word = $crate::high::fd::descriptor::word($task, $fd);
        if word & lp_vfs::table::entry::DATA == 0 {
            // One test on the path of a call that is not ours.
            if word == 0 {
                return $crate::low::dispatch::NOT_OURS;
            }
            return $other;
        }
    };
}
pub(crate) use file_or_return;

/// For calls on attributes: continues only with a descriptor in our table, which includes host objects behind
/// inodes of ours. Otherwise returns from the handler.
macro_rules! listed_or_return {
    ($task:expr, $fd:expr) => {
        listed_or_return!($task, $fd, $crate::high::fd::descriptor::other($task, $fd))
    };
    ($task:expr, $fd:expr, $other:expr) => {
        let word = $crate::high::fd::descriptor::word($task, $fd);
        if word & lp_vfs::table::entry::OPEN == 0 {
            if word == 0 {
                return $crate::low::dispatch::NOT_OURS;
            }
            return $other;
        }
    };
}
pub(crate) use listed_or_return;
