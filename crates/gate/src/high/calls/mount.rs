//! mount(2), umount2(2), move_mount(2), mount_setattr(2).

use core::cell::Cell;

use lp_abi::linux::*;
use lp_abi::{Errno, Fd, Result, UserPtr, UserSlice};
use lp_vfs::mount::{self, MountArguments};
use lp_vfs::table::{self, entry};
use lp_vfs::task::{Place, Task};
use lp_vfs::walk::{self, Follow};
use lp_vfs::{fsmount, mount_setattr, move_mount, umount};

use crate::high::calls::across;
use crate::high::calls::chmod::last_of;
use crate::high::calls::dup::replace_by_ours;
use crate::high::calls::open_ours::install;
use crate::high::calls::refused::{at_path, concerns, mentions_mount};
use crate::high::calls::stat::is_empty;
use crate::high::fd::{made, mark, placeholder};
use crate::high::frame::at::{At, EMPTY, Last, Route, Which};
use crate::high::frame::handler::{failed_with, handlers, kernel};
use crate::high::life::way;
use crate::high::route::pair::{Pair, two};
use crate::high::route::path::{is_base_ours, one, route};

/// What mount(2) takes its source for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SourceUse {
    /// It is ignored: a remount, or a change of propagation.
    None,
    /// A bind mount, or a move: what is mounted.
    Path,
    /// A new file system: a device if the type needs one, else a name to show.
    Device,
}

/// As the kernel's path_mount distinguishes the operations.
fn use_of_source(flags: u32) -> SourceUse {
    let types = MS_SHARED | MS_PRIVATE | MS_SLAVE | MS_UNBINDABLE;
    match flags {
        _ if flags & MS_REMOUNT != 0 => SourceUse::None,
        _ if flags & MS_BIND != 0 => SourceUse::Path,
        _ if flags & types != 0 => SourceUse::None,
        _ if flags & MS_MOVE != 0 => SourceUse::Path,
        _ => SourceUse::Device,
    }
}

/// Whether the kernel finds a block device by a path of ours: its working directory is another one than that
/// of a process in a mount.
fn is_device(source: UserPtr) -> bool {
    let mut found = core::mem::MaybeUninit::<stat>::zeroed();
    // SAFETY: the kernel reads the program's path and fills the record in; zeros are a valid record too.
    let found =
        unsafe { lp_abi::syscall!(__NR_stat, source, found.as_mut_ptr()).map(|_| found.assume_init()) };
    found.is_ok_and(|found| found.st_mode & S_IFMT == S_IFBLK)
}

/// The error for mounting something of ours on what a path of the host's names: first what is wrong with the
/// path. Nothing can be mounted on a symbolic link, to which a magic link leads.
fn not_on_host(at: At, on_link: &Cell<bool>) -> Errno {
    let mut found = core::mem::MaybeUninit::<stat>::zeroed();
    // SAFETY: the kernel reads the program's path and fills the record in; zeros are a valid record too.
    let found =
        unsafe { lp_abi::syscall!(__NR_stat, at.path, found.as_mut_ptr()).map(|_| found.assume_init()) };
    match found {
        Err(errno) => errno,
        Ok(found) if found.st_mode & S_IFMT == S_IFLNK => {
            on_link.set(true);
            Errno::ENOENT
        }
        Ok(_) => Errno::EPERM,
    }
}

handlers! {
    /// mount(2). Nothing of ours can be mounted on the host.
    fn mount(task, source: UserPtr, path: UserPtr, kind: UserPtr, flags: usize, data: UserPtr) {
        way::before_losing(task);
        let call = MountArguments { source, kind, flags: flags as u32, data };
        let on_link = Cell::new(false);
        let ours = |at: At| match on_link.get() {
            // Where the link leads does not matter.
            true => Err(Errno::ENOENT),
            false => mount::mount(task, at.dirfd, at.path, &call),
        };
        let host = |at: At| {
            let is_ours = || !source.is_null() && !is_empty(source) && concerns(task, At::cwd(source));
            match use_of_source(flags as u32) {
                _ if mentions_mount(data) => Errno::EPERM.to_ret(),
                SourceUse::Path if is_ours() => not_on_host(at, &on_link).to_ret(),
                SourceUse::Device if is_ours() && is_device(source) => Errno::ENOTBLK.to_ret(),
                use_of => match kernel!(__NR_mount, source, at.path, kind, flags, data) {
                    // The type needs a device, and the kernel does not find a file of ours.
                    done if failed_with(done, Errno::ENOENT) && use_of == SourceUse::Device && is_ours() => {
                        at_path(task, At::cwd(source), 0, Errno::ENOTBLK, |_| done)
                    }
                    done => done,
                },
            }
        };
        one(task, At::cwd(path), Last::Follow, ours, host)
    }

    /// umount2(2).
    fn umount2(task, path: UserPtr, flags: u32) {
        way::before_losing(task);
        let last = if flags & UMOUNT_NOFOLLOW != 0 { Last::Link } else { Last::Follow };
        let ours = |at: At| umount::umount2(task, at.dirfd, at.path, flags);
        one(task, At::cwd(path), last, ours, |at| kernel!(__NR_umount2, at.path, flags))
    }

    /// move_mount(2).
    fn move_mount(task, from_fd: Fd, from: UserPtr, to_fd: Fd, to: UserPtr, flags: u32) {
        way::before_losing(task);
        let pair = [At { dirfd: from_fd, path: from }, At { dirfd: to_fd, path: to }];
        if flags & MOVE_MOUNT_F_EMPTY_PATH != 0
            && is_empty(from)
            && let Err(errno) = adopt(task, from_fd, pair[1], flags)
        {
            return errno.to_ret();
        }
        let ours = |from: At, to: At| {
            move_mount::move_mount(task, (from.dirfd, from.path), (to.dirfd, to.path), flags)
        };
        let host = |from: At, to: At| kernel!(__NR_move_mount, from.dirfd, from.path, to.dirfd, to.path, flags);
        // The kernel walks to the place first.
        let pair = Pair { paths: pair, last: Last::Follow, ours: &ours, host: &host, first: &|_| 0 };
        match two(task, pair) {
            // One is the host's. The kernel looks for both before it compares them.
            mixed if failed_with(mixed, Errno::EXDEV) => {
                if let Err(errno) = move_mount::may_move(task, flags) {
                    return errno.to_ret();
                }
                let look = |(at, flags, follow, empty): (At, u32, u32, u32)| {
                    let is_absent = flags & empty != 0 && at.path.is_null();
                    let at = if is_absent { At { path: EMPTY, ..at } } else { at };
                    let last = if flags & follow != 0 { Last::Follow } else { Last::Link };
                    across::look(task, at, if flags & empty != 0 { AT_EMPTY_PATH } else { 0 }, last)
                };
                let to = (pair.paths[1], flags, MOVE_MOUNT_T_SYMLINKS, MOVE_MOUNT_T_EMPTY_PATH);
                let from = (pair.paths[0], flags, MOVE_MOUNT_F_SYMLINKS, MOVE_MOUNT_F_EMPTY_PATH);
                let failed = [to, from].into_iter().map(look).find(|found| *found != 0);
                failed.unwrap_or(Errno::EINVAL.to_ret())
            }
            done => done,
        }
    }

    /// mount_setattr(2).
    fn mount_setattr(task, dirfd: Fd, path: UserPtr, flags: u32, attributes: UserSlice) {
        let ours = |at: At| mount_setattr::mount_setattr(task, (at.dirfd, at.path), flags, attributes);
        let (start, length) = (attributes.start(), attributes.len());
        let host = |at: At| kernel!(__NR_mount_setattr, at.dirfd, at.path, flags, start, length);
        one(task, At { dirfd, path }, last_of(flags), ours, host)
    }
}

/// Makes a file system of the kernel's, if fsmount(2) has made `fd` of a tmpfs and it is to go to a place in
/// a mount, one of ours, whose descriptor `fd` becomes.
///
/// # Errors
/// Those of the target's path; `EINVAL` if that is no directory; those of making a file system.
fn adopt(task: &'static Task<'static>, fd: Fd, to: At, flags: u32) -> Result<()> {
    let is_made = !is_base_ours(task, fd) && made::is_one(fd);
    if !is_made || !is_directory_of_ours(task, to, flags)? {
        return Ok(());
    }
    let number = placeholder::allocate_lowest(task)?;
    let file = match made::with(fd, |like| fsmount::make(task, like)) {
        Some(Ok(file)) => file,
        failed => {
            placeholder::release(task, number);
            return failed.map_or(Ok(()), |made| made.map(|_| ()));
        }
    };
    Errno::from_ret(install(task, number, file, 0))?;
    // SAFETY: takes no pointers.
    let own = unsafe { lp_abi::syscall!(__NR_fcntl, fd, F_GETFD) }.unwrap_or(0);
    let cloexec = if own as u32 & FD_CLOEXEC != 0 { entry::CLOEXEC } else { 0 };
    mark::forget(task, fd);
    let replaced = replace_by_ours(task, number, fd, cloexec);
    table::take_out(task, number, |place| placeholder::vacate(task, number, place))?;
    replaced.map(|_| ())
}

/// Whether the target of move_mount(2) is a directory of ours.
fn is_directory_of_ours(task: &Task, to: At, flags: u32) -> Result<bool> {
    if flags & MOVE_MOUNT_T_EMPTY_PATH != 0 && is_empty(to.path) {
        return Ok(is_base_ours(task, to.dirfd));
    }
    let (last, follow) = match flags & MOVE_MOUNT_T_SYMLINKS {
        0 => (Last::Link, Follow::No),
        _ => (Last::Follow, Follow::Link),
    };
    let Route::Ours(at) = route(task, Which::Second, to, last) else { return Ok(false) };
    match walk::inode(task, at.dirfd, at.path, follow)? {
        Place::Outside(_) => Ok(false),
        Place::Inside(found) if task.region.inode(found.inode.id).is_dir() => Ok(true),
        Place::Inside(_) => Err(Errno::EINVAL),
    }
}
