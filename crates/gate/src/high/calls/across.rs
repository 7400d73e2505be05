//! link(2) and rename(2) with one path in a mount and one on the host: `EXDEV`, and the errors that the
//! kernel finds first.
//!
//! The kernel resolves both paths before it compares their file systems (`do_linkat`, `do_renameat2` in
//! fs/namei.c), so a missing component on either side takes precedence.

use core::cell::Cell;

use lp_abi::linux::{
    __NR_linkat, __NR_newfstatat, AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW, RENAME_EXCHANGE, RENAME_NOREPLACE,
    S_IFDIR, S_IFMT, stat,
};
use lp_abi::{Errno, Fd, Result};
use lp_region::sync::Ordering;
use lp_region::{InodeId, ucopy};
use lp_vfs::task::Task;
use lp_vfs::{target, writer};

use crate::high::frame::at::{At, Last, Which, buffer, copy_last_component, path_in};
use crate::high::frame::handler::{failed_with, kernel};
use crate::high::route::path::one;

/// The result of link(2) of `old` to `new`: both must resolve, and the new name must be free.
#[cold]
pub(crate) fn link(task: &Task, old: At, new: At, flags: u32, last: Last) -> isize {
    let found = look(task, old, flags, last);
    if found != 0 {
        return found;
    }
    let (name, has_slash) = match without_slashes(new) {
        Ok(name) => name,
        Err(errno) => return errno.to_ret(),
    };
    match look(task, name, AT_SYMLINK_NOFOLLOW, Last::Link) {
        0 => Errno::EEXIST.to_ret(),
        missing if failed_with(missing, Errno::ENOENT) => match parents(task, [new]) {
            // Only a directory could get such a name.
            exdev if has_slash && failed_with(exdev, Errno::EXDEV) => Errno::ENOENT.to_ret(),
            exdev if failed_with(exdev, Errno::EXDEV) && is_read_only(task, new) => Errno::EROFS.to_ret(),
            other => other,
        },
        other => other,
    }
}

/// A name that rename(2) takes or gives.
struct Moved {
    /// The device of its directory, if that is one of the host's.
    device: Option<u64>,
    /// The root directory of the mount of the command line whose name it is.
    root: Option<InodeId>,
    /// Whether it is `.` or `..`.
    is_dots: bool,
}

/// The result of rename(2) of `old` to `new`, which has been `refused` with `EXDEV`, `EBUSY` or `EEXIST`: a missing
/// parent directory comes first, and the name of a mount of the command line is one of a host directory.
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

/// `EXDEV`, unless the directory of one of the paths is missing.
fn parents<const N: usize>(task: &Task, paths: [At; N]) -> isize {
    let failed = paths.into_iter().map(|at| parent(task, at)).find(|found| *found != 0);
    failed.unwrap_or(Errno::EXDEV.to_ret())
}

/// 0 if the directory of a path exists; else the error.
pub(crate) fn parent(task: &Task, at: At) -> isize {
    match directory(at) {
        Ok(Some(directory)) => look(task, directory, 0, Last::Follow),
        Ok(None) => 0,
        Err(errno) => errno.to_ret(),
    }
}

/// Whether the mount in which a path makes a name is read-only, whoever asks.
fn is_read_only(task: &Task, at: At) -> bool {
    let Ok(Some(parent)) = directory(at) else { return false };
    let ours =
        |at: At| target::at(task, at.dirfd, at.path, 0, |_, _, mount| writer::begin(task, mount).map(drop));
    // The kernel says so before it finds that a file without a place is on another file system. The file is
    // the one that shows that the process lives, which is never in a mount.
    let host = |_: At| {
        let nowhere = task.region.life_fd().link();
        kernel!(__NR_linkat, Fd::CWD, nowhere.as_ptr(), at.dirfd, at.path, AT_SYMLINK_FOLLOW)
    };
    failed_with(one(task, parent, Last::Follow, ours, host), Errno::EROFS)
}

/// A path without its trailing slashes, in the second buffer, and whether it had some.
fn without_slashes(at: At) -> Result<(At, bool)> {
    let text = buffer(Which::Second);
    // SAFETY: the gate's fault handler is installed.
    let length = unsafe { ucopy::string(text, at.path.as_ptr()) }?;
    let end = text[..length].iter().rposition(|byte| *byte != b'/').map_or(length, |last| last + 1);
    text[end] = 0;
    Ok((At { dirfd: at.dirfd, path: path_in(text) }, end < length))
}

/// The path of a path's parent with `/.` appended, so that a non-directory is refused. In the second buffer.
/// `None` for the root directory.
fn directory(at: At) -> Result<Option<At>> {
    const AS_DIRECTORY: &[u8] = b"/.\0";
    let text = buffer(Which::Second);
    // SAFETY: the gate's fault handler is installed.
    let length = unsafe { ucopy::string(text, at.path.as_ptr()) }?;
    let name_end = text[..length].iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let name_start = text[..name_end].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    if name_end == 0 {
        return if length == 0 { Err(Errno::ENOENT) } else { Ok(None) };
    }
    if name_start == 0 {
        text[..2].copy_from_slice(b".\0");
    } else {
        // The name and its NUL leave enough space, unless the name is one byte long.
        let end = name_start - 1;
        let to = text.get_mut(end..end + AS_DIRECTORY.len()).ok_or(Errno::ENAMETOOLONG)?;
        to.copy_from_slice(AS_DIRECTORY);
    }
    Ok(Some(At { dirfd: at.dirfd, path: path_in(text) }))
}

/// 0 if a path leads to a directory, whether ours or the host's; else the error.
pub(crate) fn directory_at(task: &Task, at: At) -> isize {
    let mode = Cell::new(0);
    match look_for(task, at, 0, Last::Follow, &mode) {
        0 if mode.get() & S_IFMT != S_IFDIR => Errno::ENOTDIR.to_ret(),
        done => done,
    }
}

/// 0 if the path exists, whether ours or the host's; else the error.
pub(crate) fn look(task: &Task, at: At, flags: u32, last: Last) -> isize {
    look_for(task, at, flags, last, &Cell::new(0))
}

/// [`look`], which sets `mode` to that of what exists.
fn look_for(task: &Task, at: At, flags: u32, last: Last, mode: &Cell<u32>) -> isize {
    let flags = match last.follows() {
        true => flags & !lp_abi::linux::AT_SYMLINK_FOLLOW,
        false => flags | AT_SYMLINK_NOFOLLOW,
    };
    let ours = |at: At| {
        target::at(task, at.dirfd, at.path, flags, |_, inode, _| {
            mode.set(inode.mode.load(Ordering::Relaxed)); // Relaxed: the type does not change.
            Ok(())
        })
    };
    let host = |at: At| {
        // SAFETY: zeros are a valid `stat`, and the kernel fills it in.
        let mut found: stat = unsafe { core::mem::zeroed() };
        let done = kernel!(__NR_newfstatat, at.dirfd, at.path, &raw mut found, flags);
        mode.set(found.st_mode);
        done
    };
    one(task, at, last, ours, host)
}
