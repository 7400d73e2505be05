//! setxattr(2), getxattr(2), listxattr(2), removexattr(2), their variants for links and descriptors, and
//! those with `at`.

use lp_abi::linux::*;
use lp_abi::{Errno, Fd, PAGE_SIZE, Result, UserPtr, UserSlice};
use lp_region::{extensible, ucopy};
use lp_vfs::task::Task;
use lp_vfs::xattr::{self, XattrValue};

use crate::high::calls::chmod::last_of;
use crate::high::calls::stat::is_empty;
use crate::high::fd::descriptor::{self, listed_or_return};
use crate::high::frame::at::{At, DOT};
use crate::high::frame::handler::{given_slice, handlers, kernel, ret};
use crate::high::route::path::{hosts, is_base_ours, one};

/// `AT_SYMLINK_NOFOLLOW`, for calls whose names start with `l`.
const LINK: u32 = AT_SYMLINK_NOFOLLOW;

handlers! {
    /// setxattr(2).
    fn setxattr(task, path: UserPtr, name: UserPtr, value: UserSlice, flags: u32) {
        set(task, At::cwd(path), 0, name, XattrValue { bytes: value, flags })
    }

    /// lsetxattr(2).
    fn lsetxattr(task, path: UserPtr, name: UserPtr, value: UserSlice, flags: u32) {
        set(task, At::cwd(path), LINK, name, XattrValue { bytes: value, flags })
    }

    /// fsetxattr(2).
    fn fsetxattr(task, fd: Fd, name: UserPtr, value: UserSlice, flags: u32) {
        listed_or_return!(task, fd, descriptor::without_data(task, fd));
        ret(xattr::fsetxattr(task, fd, name, XattrValue { bytes: value, flags }))
    }

    /// getxattr(2).
    fn getxattr(task, path: UserPtr, name: UserPtr, to: UserSlice) {
        get(task, At::cwd(path), 0, name, to)
    }

    /// lgetxattr(2).
    fn lgetxattr(task, path: UserPtr, name: UserPtr, to: UserSlice) {
        get(task, At::cwd(path), LINK, name, to)
    }

    /// fgetxattr(2).
    fn fgetxattr(task, fd: Fd, name: UserPtr, to: UserSlice) {
        listed_or_return!(task, fd, descriptor::without_data(task, fd));
        ret(xattr::fgetxattr(task, fd, name, to))
    }

    /// listxattr(2).
    fn listxattr(task, path: UserPtr, to: UserSlice) {
        list(task, At::cwd(path), 0, to)
    }

    /// llistxattr(2).
    fn llistxattr(task, path: UserPtr, to: UserSlice) {
        list(task, At::cwd(path), LINK, to)
    }

    /// flistxattr(2).
    fn flistxattr(task, fd: Fd, to: UserSlice) {
        listed_or_return!(task, fd, descriptor::without_data(task, fd));
        ret(xattr::flistxattr(task, fd, to))
    }

    /// removexattr(2).
    fn removexattr(task, path: UserPtr, name: UserPtr) {
        remove(task, At::cwd(path), 0, name)
    }

    /// lremovexattr(2).
    fn lremovexattr(task, path: UserPtr, name: UserPtr) {
        remove(task, At::cwd(path), LINK, name)
    }

    /// fremovexattr(2).
    fn fremovexattr(task, fd: Fd, name: UserPtr) {
        listed_or_return!(task, fd, descriptor::without_data(task, fd));
        ret(xattr::fremovexattr(task, fd, name))
    }

    /// setxattrat(2).
    fn setxattrat(task, dirfd: Fd, path: UserPtr, flags: u32, name: UserPtr, args: *const Args, size: usize) {
        let host = |at: At| kernel!(__NR_setxattrat, at.dirfd, at.path, flags, name, args, size);
        with_args(task, At { dirfd, path }, flags, args, size, &host, &|at, args| {
            let value = XattrValue { bytes: args.bytes(), flags: args.flags };
            match at {
                Target::Descriptor => ret(xattr::fsetxattr(task, dirfd, name, value)),
                Target::Path(at) => set(task, at, flags, name, value),
            }
        })
    }

    /// getxattrat(2).
    fn getxattrat(task, dirfd: Fd, path: UserPtr, flags: u32, name: UserPtr, args: *const Args, size: usize) {
        let host = |at: At| kernel!(__NR_getxattrat, at.dirfd, at.path, flags, name, args, size);
        with_args(task, At { dirfd, path }, flags, args, size, &host, &|at, args| {
            if args.flags != 0 {
                return Errno::EINVAL.to_ret();
            }
            let room = args.bytes();
            match at {
                Target::Descriptor => ret(xattr::fgetxattr(task, dirfd, name, room)),
                Target::Path(at) => get(task, at, flags, name, room),
            }
        })
    }

    /// listxattrat(2).
    fn listxattrat(task, dirfd: Fd, path: UserPtr, flags: u32, room: UserSlice) {
        match target(task, At { dirfd, path }, flags) {
            Ok(Target::Descriptor) => ret(xattr::flistxattr(task, dirfd, room)),
            Ok(Target::Path(at)) => list(task, at, flags, room),
            Err(errno) => errno.to_ret(),
        }
    }

    /// removexattrat(2).
    fn removexattrat(task, dirfd: Fd, path: UserPtr, flags: u32, name: UserPtr) {
        match target(task, At { dirfd, path }, flags) {
            Ok(Target::Descriptor) => ret(xattr::fremovexattr(task, dirfd, name)),
            Ok(Target::Path(at)) => remove(task, at, flags, name),
            Err(errno) => errno.to_ret(),
        }
    }
}

/// `struct xattr_args` of linux/xattr.h.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Args {
    value: u64,
    size: u32,
    flags: u32,
}

impl Args {
    fn bytes(&self) -> UserSlice {
        given_slice(self.value as usize, self.size as usize)
    }
}

/// What a call with `at` applies to.
enum Target {
    /// The descriptor itself, which is ours; or the working directory, which only some of the calls accept as
    /// a descriptor.
    Descriptor,
    /// A path.
    Path(At),
}

fn target(task: &Task, at: At, flags: u32) -> Result<Target> {
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let itself = flags & AT_EMPTY_PATH != 0 && is_empty(at.path) && is_base_ours(task, at.dirfd);
    Ok(if itself { Target::Descriptor } else { Target::Path(at) })
}

/// Makes a call that takes [`Args`]: `host` if the path is the host's, whatever the arguments.
fn with_args(
    task: &Task,
    at: At,
    flags: u32,
    args: *const Args,
    size: usize,
    host: &dyn Fn(At) -> isize,
    work: &dyn Fn(Target, Args) -> isize,
) -> isize {
    if size < size_of::<Args>() {
        return Errno::EINVAL.to_ret();
    }
    if size > PAGE_SIZE {
        return Errno::E2BIG.to_ret();
    }
    // SAFETY: the copy routine handles bad pointers; every bit pattern is a valid argument.
    let given = unsafe { ucopy::get(args) }.and_then(|given| {
        extensible::all_zero(given_slice(args as usize, size).skip(size_of::<Args>())).map(|()| given)
    });
    let given = match given {
        Ok(given) => given,
        Err(errno) => return errno.to_ret(),
    };
    let target = match target(task, at, flags) {
        Ok(Target::Descriptor) if at.dirfd == Fd::CWD => Target::Path(At::cwd(DOT)),
        Ok(target) => target,
        Err(errno) => return errno.to_ret(),
    };
    if let Target::Path(at) = target
        && let Some(done) = hosts(task, at, last_of(flags), host)
    {
        return done;
    }
    work(target, given)
}

fn set(task: &Task, at: At, flags: u32, name: UserPtr, value: XattrValue) -> isize {
    let (from, size, how) = (value.bytes.start(), value.bytes.len(), value.flags);
    let host = |at: At| match plain(at, flags) {
        Some(true) => kernel!(__NR_setxattr, at.path, name, from, size, how),
        Some(false) => kernel!(__NR_lsetxattr, at.path, name, from, size, how),
        None => {
            let args = Args { value: from.addr() as u64, size: size as u32, flags: how };
            kernel!(__NR_setxattrat, at.dirfd, at.path, flags, name, &raw const args, size_of::<Args>())
        }
    };
    let ours = |at: At| xattr::setxattr(task, at.dirfd, at.path, flags, name, value);
    one(task, at, last_of(flags), ours, host)
}

fn get(task: &Task, at: At, flags: u32, name: UserPtr, room: UserSlice) -> isize {
    let (to, size) = (room.start(), room.len());
    let host = |at: At| match plain(at, flags) {
        Some(true) => kernel!(__NR_getxattr, at.path, name, to, size),
        Some(false) => kernel!(__NR_lgetxattr, at.path, name, to, size),
        None => {
            let args = Args { value: to.addr() as u64, size: size as u32, flags: 0 };
            kernel!(__NR_getxattrat, at.dirfd, at.path, flags, name, &raw const args, size_of::<Args>())
        }
    };
    let ours = |at: At| xattr::getxattr(task, at.dirfd, at.path, flags, name, room);
    one(task, at, last_of(flags), ours, host)
}

fn list(task: &Task, at: At, flags: u32, room: UserSlice) -> isize {
    let host = |at: At| match plain(at, flags) {
        Some(true) => kernel!(__NR_listxattr, at.path, room.start(), room.len()),
        Some(false) => kernel!(__NR_llistxattr, at.path, room.start(), room.len()),
        None => kernel!(__NR_listxattrat, at.dirfd, at.path, flags, room.start(), room.len()),
    };
    let ours = |at: At| xattr::listxattr(task, at.dirfd, at.path, flags, room);
    one(task, at, last_of(flags), ours, host)
}

fn remove(task: &Task, at: At, flags: u32, name: UserPtr) -> isize {
    let host = |at: At| match plain(at, flags) {
        Some(true) => kernel!(__NR_removexattr, at.path, name),
        Some(false) => kernel!(__NR_lremovexattr, at.path, name),
        None => kernel!(__NR_removexattrat, at.dirfd, at.path, flags, name),
    };
    let ours = |at: At| xattr::removexattr(task, at.dirfd, at.path, flags, name);
    one(task, at, last_of(flags), ours, host)
}

/// For a call on the host that does not need the `at` variant, which kernels before 6.13 lack: whether it
/// follows links. `None` if it needs the variant.
fn plain(at: At, flags: u32) -> Option<bool> {
    (at.dirfd == Fd::CWD && flags & AT_EMPTY_PATH == 0).then_some(flags & AT_SYMLINK_NOFOLLOW == 0)
}
