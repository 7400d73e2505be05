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
use lp_region::ucopy;
use lp_vfs::task::Task;
use lp_vfs::{target, writer};

use crate::high::frame::at::{At, Last, Route, Which, buffer, path_in};
use crate::high::frame::handler::{failed_with, kernel};
use crate::high::route::path::{one, route};
use crate::high::run::mounts::mounts;

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

/// The result of rename(2) of `old` to `new`: both parent directories must exist, and the name of a mount of the
/// command line, which is one of its host directory, is busy.
#[cold]
pub(crate) fn rename(task: &Task, old: At, new: At, flags: u32) -> isize {
    match parents(task, [old, new]) {
        exdev if failed_with(exdev, Errno::EXDEV) && is_beside_mount(task, [old, new]) => {
            busy(task, old, new, flags).to_ret()
        }
        other => other,
    }
}

/// Whether one of the paths is that of a mount of the command line, and the other such a path, or one of the
/// host's, on the same file system of the host.
fn is_beside_mount(task: &Task, paths: [At; 2]) -> bool {
    let sides = paths.map(|at| match route(task, Which::First, at, Last::Name) {
        Route::Host => Some(false),
        Route::Ours(inside) => is_mounts(inside).then_some(true),
        _ => None,
    });
    let device = |at: At| {
        let directory = directory(at).ok()??;
        // SAFETY: zeros are a valid `stat`, and the kernel fills it in.
        let mut found: stat = unsafe { core::mem::zeroed() };
        let done = kernel!(__NR_newfstatat, directory.dirfd, directory.path, &raw mut found, 0);
        (done == 0).then_some(found.st_dev)
    };
    match sides {
        [Some(old), Some(new)] => (old || new) && device(paths[0]) == device(paths[1]),
        _ => false,
    }
}

/// Whether a path, which leads from the host into a mount, ends there.
fn is_mounts(at: At) -> bool {
    let text = buffer(Which::Second);
    // SAFETY: the gate's fault handler is installed.
    let length = unsafe { ucopy::string(text, at.path.as_ptr()) }.unwrap_or(0);
    let end = text[..length].iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    mounts().paths().contains(&&text[..end])
}

/// Why a name in the host's directory cannot be moved to or from that of a mount.
fn busy(task: &Task, old: At, new: At, flags: u32) -> Errno {
    let mode = Cell::new(0);
    if look_for(task, old, 0, Last::Link, &mode) != 0 {
        return Errno::ENOENT;
    }
    let is_there = look(task, new, 0, Last::Link) == 0;
    match flags & (RENAME_NOREPLACE | RENAME_EXCHANGE) {
        RENAME_NOREPLACE if is_there => Errno::EEXIST,
        RENAME_EXCHANGE if !is_there => Errno::ENOENT,
        0 if is_there && mode.get() & S_IFMT != S_IFDIR => Errno::EISDIR,
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
