//! Whose a descriptor is: one load tells.

use lp_abi::{Errno, Fd};
use lp_region::sync::Ordering;
use lp_vfs::table::{self, entry};
use lp_vfs::task::Task;

use crate::high::fd::placeholder;
use crate::low::dispatch::NOT_OURS;

/// The table's word for `fd`; 0 for what cannot be ours.
#[inline(always)]
pub fn word(task: &Task, fd: Fd) -> u64 {
    // Relaxed: the call that uses the word pins and checks what it names.
    table::covered(task, fd).map_or(0, |word| word.load(Ordering::Relaxed))
}

/// Whether `fd` is an open file of ours that the file system itself answers for.
#[inline(always)]
pub fn is_file(task: &Task, fd: Fd) -> bool {
    word(task, fd) & (entry::OPEN | entry::HOST) == entry::OPEN
}

/// Whether `fd` is open and in our table: a file of ours, or the host's object behind a FIFO of ours.
#[inline(always)]
pub fn is_listed(task: &Task, fd: Fd) -> bool {
    word(task, fd) & entry::OPEN != 0
}

/// Whether `fd` looks closed to the program: a parked placeholder, or a descriptor of the gate's own.
#[inline]
pub fn is_hidden(task: &Task, fd: Fd) -> bool {
    word(task, fd) & (entry::OPEN | entry::PARKED) == entry::PARKED || placeholder::is_guarded(task, fd)
}

/// What a call that the file system does not answer for `fd` gets: `EBADF` on a hidden one, else the kernel.
#[cold]
pub fn other(task: &Task, fd: Fd) -> isize {
    if is_hidden(task, fd) { Errno::EBADF.to_ret() } else { NOT_OURS }
}

/// Goes on only with a file of ours; returns from the handler otherwise, with `other` for what the table has a word for.
macro_rules! file_or_return {
    ($task:expr, $fd:expr) => {
        file_or_return!($task, $fd, $crate::high::fd::descriptor::other($task, $fd))
    };
    ($task:expr, $fd:expr, $other:expr) => {
        let word = $crate::high::fd::descriptor::word($task, $fd);
        if word & (lp_vfs::table::entry::OPEN | lp_vfs::table::entry::HOST) != lp_vfs::table::entry::OPEN {
            // One test on the way of a call that is not ours.
            if word == 0 {
                return $crate::low::dispatch::NOT_OURS;
            }
            return $other;
        }
    };
}
pub(crate) use file_or_return;

/// Goes on only with a descriptor in our table, the host's objects behind inodes of ours among them: calls on
/// attributes. Returns from the handler otherwise.
macro_rules! listed_or_return {
    ($task:expr, $fd:expr) => {
        let word = $crate::high::fd::descriptor::word($task, $fd);
        if word & lp_vfs::table::entry::OPEN == 0 {
            if word == 0 {
                return $crate::low::dispatch::NOT_OURS;
            }
            return $crate::high::fd::descriptor::other($task, $fd);
        }
    };
}
pub(crate) use listed_or_return;
