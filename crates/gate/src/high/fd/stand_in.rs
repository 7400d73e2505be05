//! Stand-ins for files of ours in calls on descriptors of another kind: sockets, timers, contexts.
//!
//! No file of ours is what such a call expects. The kernel, asked with a descriptor that is not what the call
//! expects either, refuses the call, and finds what else is wrong with it in its own order. `O_PATH`
//! descriptors need no stand-in: their placeholder is one, too.

use lp_abi::Fd;
use lp_vfs::flight;
use lp_vfs::table::entry;
use lp_vfs::task::Task;

use crate::high::fd::{descriptor, placeholder};

/// A number that is never open. Unlike -1 it does not ask signalfd(2) for a new descriptor.
pub(crate) const CLOSED: Fd = Fd::new(i32::MAX);

/// An open regular file without content, of which the program knows nothing.
pub(crate) fn file(task: &Task) -> Fd {
    flight::descriptor(task).unwrap_or(task.region.life_fd())
}

/// The kernel's descriptor for the call, if `fd` is a file of ours or one of the gate's own, which look
/// closed. `None` if the kernel has `fd` itself, or a parked placeholder there, which it refuses like a
/// closed number.
#[inline]
pub(crate) fn of(task: &Task, fd: Fd) -> Option<Fd> {
    match descriptor::word(task, fd) {
        0 => placeholder::is_guarded(task, fd).then_some(CLOSED),
        word if word & entry::DATA == 0 => None,
        _ if descriptor::is_path(task, fd) => Some(fd),
        _ => Some(file(task)),
    }
}

/// Makes the call on a stand-in and returns from the handler, if the descriptor has one.
macro_rules! stand_in_returns {
    ($task:expr, $fd:expr, $nr:expr $(, $arg:expr)* $(,)?) => {
        if let Some(other) = $crate::high::fd::stand_in::of($task, $fd) {
            return $crate::high::frame::handler::kernel!($nr, other $(, $arg)*);
        }
    };
}
pub(crate) use stand_in_returns;
