//! open_tree(2), open_tree_attr(2).

use core::cell::Cell;

use lp_abi::linux::{
    __NR_open_tree, __NR_open_tree_attr, AT_EMPTY_PATH, AT_NO_AUTOMOUNT, AT_SYMLINK_NOFOLLOW, O_CLOEXEC,
    O_NOFOLLOW, O_PATH, OPEN_TREE_CLONE,
};
use lp_abi::{Errno, Fd, Result, UserPtr, UserSlice};
use lp_vfs::task::{Place, Task};
use lp_vfs::{mount_setattr, open_tree};

use crate::high::calls::chmod::last_of;
use crate::high::calls::open::{open_routed, reopen};
use crate::high::calls::open_how::How;
use crate::high::calls::open_ours::install;
use crate::high::calls::refused::at_path;
use crate::high::calls::stat::is_empty;
use crate::high::fd::placeholder;
use crate::high::frame::at::{At, DOT, EMPTY, Last};
use crate::high::frame::handler::{handlers, kernel};
use crate::high::route::path::{may_be_ours, one};

/// Flags with which it only opens a path.
const PLAIN: u32 = AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | O_CLOEXEC;

/// `AT_RECURSIVE`.
const RECURSIVE: u32 = 0x8000;

handlers! {
    /// open_tree(2). Without OPEN_TREE_CLONE it opens a path as O_PATH does.
    fn open_tree(task, dirfd: Fd, path: UserPtr, flags: u32) {
        let host = |at: At| kernel!(__NR_open_tree, at.dirfd, at.path, flags);
        open(task, At { dirfd, path }, flags, host)
    }

    /// open_tree_attr(2): open_tree(2), and mount_setattr(2) of what that has opened.
    fn open_tree_attr(task, dirfd: Fd, path: UserPtr, flags: u32, attributes: UserSlice) {
        let (start, length) = (attributes.start(), attributes.len());
        if start.is_null() && length != 0 {
            return Errno::EINVAL.to_ret();
        }
        let is_hosts = Cell::new(false);
        let host = |at: At| {
            is_hosts.set(true);
            kernel!(__NR_open_tree_attr, at.dirfd, at.path, flags, start, length)
        };
        let opened = open(task, At { dirfd, path }, flags, host);
        if opened < 0 || is_hosts.get() || start.is_null() {
            return opened;
        }
        let fd = Fd::new(opened as i32);
        let how = AT_EMPTY_PATH | flags & RECURSIVE;
        if let Err(errno) = mount_setattr::mount_setattr(task, (fd, EMPTY), how, attributes) {
            let _ = placeholder::close(task, fd);
            return errno.to_ret();
        }
        opened
    }
}

/// open_tree(2); `host` is the kernel's call.
fn open(task: &'static Task<'static>, at: At, flags: u32, host: impl Fn(At) -> isize) -> isize {
    placeholder::flush(task);
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
    if at.path.is_null() {
        return Errno::EFAULT.to_ret();
    }
    let nofollow = if flags & AT_SYMLINK_NOFOLLOW != 0 { O_NOFOLLOW } else { 0 };
    let how = How::plain(O_PATH | nofollow | flags & O_CLOEXEC, 0);
    let opened = match flags & AT_EMPTY_PATH != 0 && is_empty(at.path) {
        true if at.dirfd == Fd::CWD => open_routed(task, At::cwd(DOT), &how),
        true => reopen(task, at.dirfd, &how),
        false => open_routed(task, at, &how),
    };
    if nofollow != 0 && opened >= 0 {
        open_tree::shed_nofollow(task, Fd::new(opened as i32));
    }
    opened
}

/// Opens a copy of what is mounted where a path leads.
fn copy(task: &'static Task<'static>, at: At, flags: u32) -> Result<Place<isize>> {
    let number = placeholder::allocate_lowest(task)?;
    let left = match open_tree::copy(task, (at.dirfd, at.path), flags) {
        Ok(Place::Inside(file)) => return Ok(Place::Inside(install(task, number, file, flags))),
        Ok(Place::Outside(outside)) => Ok(Place::Outside(outside)),
        Err(errno) => Err(errno),
    };
    placeholder::release(task, number);
    left
}
