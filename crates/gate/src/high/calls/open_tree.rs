//! open_tree(2).

use lp_abi::linux::{
    __NR_open_tree, AT_EMPTY_PATH, AT_NO_AUTOMOUNT, AT_SYMLINK_NOFOLLOW, O_CLOEXEC, O_NOFOLLOW, O_PATH,
    OPEN_TREE_CLONE,
};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_vfs::open_tree;
use lp_vfs::task::{Place, Task};

use crate::high::calls::chmod::last_of;
use crate::high::calls::open::{How, install, open_routed, reopen};
use crate::high::calls::refused::at_path;
use crate::high::calls::stat::is_empty;
use crate::high::fd::placeholder;
use crate::high::frame::at::{At, Last};
use crate::high::frame::handler::{handlers, kernel};
use crate::high::route::path::{may_be_ours, one};

/// Flags with which it only opens a path.
const PLAIN: u32 = AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | O_CLOEXEC;

handlers! {
    /// open_tree(2). Without OPEN_TREE_CLONE it opens a path as O_PATH does.
    fn open_tree(task, dirfd: Fd, path: UserPtr, flags: u32) {
        placeholder::flush(task);
        let at = At { dirfd, path };
        let host = |at: At| kernel!(__NR_open_tree, at.dirfd, at.path, flags);
        if flags & OPEN_TREE_CLONE != 0 {
            return one(task, at, last_of(flags), |at| copy(task, at, flags), host);
        }
        let is_ours = may_be_ours(task, at, Last::Follow);
        if is_ours && flags & !PLAIN != 0 {
            return Errno::EINVAL.to_ret();
        }
        if !is_ours {
            return at_path(task, at, flags, Errno::EPERM, host);
        }
        let nofollow = if flags & AT_SYMLINK_NOFOLLOW != 0 { O_NOFOLLOW } else { 0 };
        let how = How::plain(O_PATH | nofollow | flags & O_CLOEXEC, 0);
        if flags & AT_EMPTY_PATH != 0 && is_empty(path) {
            return reopen(task, dirfd, &how);
        }
        open_routed(task, at, &how)
    }
}

/// Opens a copy of what is mounted where a path leads.
fn copy(task: &'static Task<'static>, at: At, flags: u32) -> Result<Place<isize>> {
    let number = placeholder::allocate(task, 0)?;
    let left = match open_tree::copy(task, (at.dirfd, at.path), flags) {
        Ok(Place::Inside(file)) => return Ok(Place::Inside(install(task, number, file, flags))),
        Ok(Place::Outside(outside)) => Ok(Place::Outside(outside)),
        Err(errno) => Err(errno),
    };
    placeholder::release(task, number);
    left
}
