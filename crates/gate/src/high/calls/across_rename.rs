//! rename(2) with one path in a mount and one on the host, or with the name of a mount: `EXDEV`, and the
//! errors that the kernel finds first.
//!
//! The name of a mount of the command line is one in a directory of the host, as that of a mount point is
//! (`do_renameat2` and `vfs_rename` in fs/namei.c).

use core::cell::Cell;

use lp_abi::Errno;
use lp_abi::linux::{
    __NR_newfstatat, AT_SYMLINK_NOFOLLOW, RENAME_EXCHANGE, RENAME_NOREPLACE, S_IFDIR, S_IFMT, stat,
};
use lp_region::InodeId;
use lp_vfs::target;
use lp_vfs::task::Task;

use crate::high::calls::across::{directory, look_for, parents, without_slashes};
use crate::high::frame::at::{At, Last, Which, copy_last_component};
use crate::high::frame::handler::{failed_with, kernel};
use crate::high::route::path::one;

/// A name that rename(2) takes or gives.
struct Moved {
    /// The device of its directory, if that is one of the host's.
    device: Option<u64>,
    /// The root directory of the mount of the command line whose name it is.
    root: Option<InodeId>,
    /// Whether it is `.` or `..`.
    is_dots: bool,
}

/// The result of rename(2) of `old` to `new`, which has been `refused` with `EXDEV`, `EBUSY` or `EEXIST`: a
/// missing parent directory comes first, and the name of a mount of the command line is one of a host
/// directory.
#[cold]
pub(crate) fn rename(task: &Task, old: At, new: At, flags: u32, refused: isize) -> isize {
    let exdev = parents(task, [old, new]);
    if !failed_with(exdev, Errno::EXDEV) {
        return exdev;
    }
    let [from, to] = [old, new].map(|at| moved(task, at));
    if [&from, &to].into_iter().all(|name| name.root.is_none() && !name.is_dots) {
        return refused;
    }
    if from.device != to.device {
        return exdev;
    }
    if from.root.is_some() && from.root == to.root && flags & RENAME_NOREPLACE == 0 {
        return 0;
    }
    busy(task, [old, new], [from.is_dots, to.is_dots], flags).to_ret()
}

fn moved(task: &Task, at: At) -> Moved {
    let is_dots = matches!(copy_last_component(Which::Second, at), b"." | b"..");
    let device = device_of_parent(task, at);
    // What is ours and has its name in a host directory is a mount.
    let root = device.and_then(|_| {
        let (name, _) = without_slashes(at).ok()?;
        let root = Cell::new(None);
        let ours = |at: At| {
            target::at(task, at.dirfd, at.path, AT_SYMLINK_NOFOLLOW, |id, _, _| {
                root.set(Some(id));
                Ok(())
            })
        };
        one(task, name, Last::Link, ours, |_| Errno::ENOENT.to_ret());
        root.get()
    });
    Moved { device, root, is_dots }
}

/// The device of the directory that has a path's last name, if it is one of the host's.
fn device_of_parent(task: &Task, at: At) -> Option<u64> {
    let directory = directory(at).ok()??;
    let device = Cell::new(None);
    let ours = |at: At| target::at(task, at.dirfd, at.path, 0, |_, _, _| Ok(()));
    let host = |at: At| {
        // SAFETY: zeros are a valid `stat`, and the kernel fills it in.
        let mut found: stat = unsafe { core::mem::zeroed() };
        let done = kernel!(__NR_newfstatat, at.dirfd, at.path, &raw mut found, 0);
        device.set((done == 0).then_some(found.st_dev));
        done
    };
    (one(task, directory, Last::Follow, ours, host) == 0).then(|| device.get()).flatten()
}

/// Why a name cannot be moved to another, of which one is that of a mount, or consists of `dots`.
fn busy(task: &Task, [old, new]: [At; 2], dots: [bool; 2], flags: u32) -> Errno {
    let is_directory = |at: At| {
        let (mode, (name, has_slash)) = (Cell::new(0), without_slashes(at)?);
        match look_for(task, name, 0, Last::Link, &mode) {
            0 => Ok((mode.get() & S_IFMT == S_IFDIR, has_slash)),
            failed => Err(Errno::new(-failed as i32)),
        }
    };
    let mode = flags & (RENAME_NOREPLACE | RENAME_EXCHANGE);
    match dots {
        [true, _] => return Errno::EBUSY,
        [false, true] if mode == RENAME_NOREPLACE => return Errno::EEXIST,
        [false, true] => return Errno::EBUSY,
        [false, false] => {}
    }
    match (mode, is_directory(old), is_directory(new)) {
        (_, Err(errno), _) => errno,
        (RENAME_NOREPLACE, _, Ok(_)) => Errno::EEXIST,
        (RENAME_EXCHANGE, _, Err(errno)) => errno,
        (_, _, Err(errno)) if errno != Errno::ENOENT => errno,
        (_, Ok((false, true)), _) => Errno::ENOTDIR,
        (0, Ok((false, _)), Ok((_, true))) => Errno::ENOTDIR,
        (0, Ok((true, _)), Ok((false, _))) => Errno::ENOTDIR,
        (0, Ok((false, _)), Ok((true, _))) => Errno::EISDIR,
        _ => Errno::EBUSY,
    }
}
