//! file_getattr(2), file_setattr(2).

use lp_abi::linux::{__NR_file_getattr, __NR_file_setattr, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW};
use lp_abi::{Errno, Fd, UserPtr, UserSlice};
use lp_vfs::file_attr;
use lp_vfs::task::Task;

use crate::high::calls::chmod::last_of;
use crate::high::calls::stat::is_empty;
use crate::high::frame::at::{At, EMPTY};
use crate::high::frame::handler::{handlers, kernel};
use crate::high::route::path::{is_base_ours, one};

handlers! {
    /// file_getattr(2).
    fn file_getattr(task, dirfd: Fd, path: UserPtr, to: UserSlice, flags: u32) {
        let Some(at) = target(task, At { dirfd, path }, flags) else { return Errno::EINVAL.to_ret() };
        let ours = |at: At| file_attr::file_getattr(task, at.dirfd, at.path, to, flags);
        let host = |at: At| kernel!(__NR_file_getattr, at.dirfd, at.path, to.start(), to.len(), flags);
        one(task, at, last_of(flags), ours, host)
    }

    /// file_setattr(2).
    fn file_setattr(task, dirfd: Fd, path: UserPtr, from: UserSlice, flags: u32) {
        let Some(at) = target(task, At { dirfd, path }, flags) else { return Errno::EINVAL.to_ret() };
        let ours = |at: At| file_attr::file_setattr(task, at.dirfd, at.path, from, flags);
        let host = |at: At| kernel!(__NR_file_setattr, at.dirfd, at.path, from.start(), from.len(), flags);
        one(task, at, last_of(flags), ours, host)
    }
}

/// What a call applies to: NULL is an empty path where an empty one is accepted. `None` for unknown flags.
fn target(task: &Task, at: At, flags: u32) -> Option<At> {
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return None;
    }
    let itself = flags & AT_EMPTY_PATH != 0 && is_empty(at.path) && is_base_ours(task, at.dirfd);
    Some(if itself { At { dirfd: at.dirfd, path: EMPTY } } else { at })
}
