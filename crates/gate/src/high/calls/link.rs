//! link(2), linkat(2), symlink(2), symlinkat(2), readlink(2), readlinkat(2).

use lp_abi::linux::{__NR_linkat, __NR_readlinkat, __NR_symlinkat, AT_EMPTY_PATH, AT_SYMLINK_FOLLOW};
use lp_abi::{Errno, Fd, UserPtr};
use lp_region::ucopy;
use lp_vfs::task::Task;
use lp_vfs::{link, readlink, symlink};

use crate::high::calls::across;
use crate::high::frame::at::{At, EMPTY, Last, Route, Which};
use crate::high::frame::handler::{given_slice, handlers, kernel, ret};
use crate::high::route::magic;
use crate::high::route::pair::{Pair, two};
use crate::high::route::path::{one, plainly_hosts, route};

handlers! {
    /// link(2).
    fn link(task, old: UserPtr, new: UserPtr) {
        make_link(task, At::cwd(old), At::cwd(new), 0)
    }

    /// linkat(2).
    fn linkat(task, olddir: Fd, old: UserPtr, newdir: Fd, new: UserPtr, flags: u32) {
        if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
            return Errno::EINVAL.to_ret();
        }
        // Unlike stat(2), linkat takes no null pointer for an empty path.
        if old.is_null() {
            return Errno::EFAULT.to_ret();
        }
        make_link(task, At { dirfd: olddir, path: old }, At { dirfd: newdir, path: new }, flags)
    }

    /// symlink(2).
    fn symlink(task, target: UserPtr, path: UserPtr) {
        make_symlink(task, target, At::cwd(path))
    }

    /// symlinkat(2).
    fn symlinkat(task, target: UserPtr, dirfd: Fd, path: UserPtr) {
        make_symlink(task, target, At { dirfd, path })
    }

    /// readlink(2).
    fn readlink(task, path: UserPtr, buf: UserPtr, size: i32) {
        read_link(task, At::cwd(path), buf, size)
    }

    /// readlinkat(2).
    fn readlinkat(task, dirfd: Fd, path: UserPtr, buf: UserPtr, size: i32) {
        read_link(task, At { dirfd, path }, buf, size)
    }
}

fn make_link(task: &Task, old: At, new: At, flags: u32) -> isize {
    let last = if flags & AT_SYMLINK_FOLLOW != 0 { Last::Follow } else { Last::Link };
    // An O_TMPFILE file gets its name through /proc/self/fd.
    if last.follows()
        && let Route::Itself(fd, None) = route(task, Which::First, old, last)
    {
        let named = At { dirfd: fd, path: EMPTY };
        return make_link(task, named, new, AT_EMPTY_PATH);
    }
    let ours = |a: At, b: At| link::linkat(task, a.dirfd, a.path, b.dirfd, b.path, flags);
    let host = |a: At, b: At| kernel!(__NR_linkat, a.dirfd, a.path, b.dirfd, b.path, flags);
    let first = |old: At| across::look(task, old, flags, last);
    let done = two(task, Pair { paths: [old, new], last, ours: &ours, host: &host, first: &first });
    if done == Errno::EXDEV.to_ret() { across::link(task, old, new, flags, last) } else { done }
}

fn make_symlink(task: &Task, target: UserPtr, at: At) -> isize {
    let ours = |at: At| symlink::symlinkat(task, target, at.dirfd, at.path);
    one(task, at, Last::Name, ours, |at| kernel!(__NR_symlinkat, target, at.dirfd, at.path))
}

fn read_link(task: &Task, at: At, buf: UserPtr, size: i32) -> isize {
    if size <= 0 {
        return Errno::EINVAL.to_ret();
    }
    let plainly = || kernel!(__NR_readlinkat, at.dirfd, at.path, buf, size);
    if let Some(done) = plainly_hosts(task, at, Last::Link, plainly) {
        return done;
    }
    let room = given_slice(buf.addr(), size as usize);
    let ours = |at: At| readlink::readlinkat(task, at.dirfd, at.path, room);
    let host = |at: At| match magic::readlink(task, at) {
        Some(text) => ret(text.and_then(|text| {
            let length = text.len().min(size as usize);
            // SAFETY: the text is at least `length` bytes long; the copy routine handles bad pointers.
            unsafe { ucopy::copy(buf.as_ptr(), text.as_ptr(), length) }.map(|()| length)
        })),
        None => kernel!(__NR_readlinkat, at.dirfd, at.path, buf, size),
    };
    one(task, at, Last::Link, ours, host)
}
