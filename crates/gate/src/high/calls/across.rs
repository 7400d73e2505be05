//! link(2) with one path in a mount and one on the host: `EXDEV`, and the errors that the kernel finds first.
//! `across_rename.rs` has rename(2).
//!
//! The kernel resolves both paths before it compares their file systems (`do_linkat`, `do_renameat2` in
//! fs/namei.c), so a missing component on either side takes precedence.

use core::cell::Cell;

use lp_abi::linux::{
    __NR_linkat, __NR_newfstatat, AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW, S_IFDIR, S_IFMT, stat,
};
use lp_abi::{Errno, Fd, Result};
use lp_region::sync::Ordering;
use lp_region::{InodeId, ucopy};
use lp_vfs::task::Task;
use lp_vfs::{target, writer};

use crate::high::frame::at::{At, Last, Which, buffer, path_in};
use crate::high::frame::handler::{failed_with, kernel, ret};
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
pub(super) fn without_slashes(at: At) -> Result<(At, bool)> {
    let text = buffer(Which::Second);
    // SAFETY: the gate's fault handler is installed.
    let length = unsafe { ucopy::string(text, at.path.as_ptr()) }?;
    let end = text[..length].iter().rposition(|byte| *byte != b'/').map_or(length, |last| last + 1);
    text[end] = 0;
    Ok((At { dirfd: at.dirfd, path: path_in(text) }, end < length))
}

/// The path of a path's parent with `/.` appended, so that a non-directory is refused. In the second buffer.
/// `None` for the root directory.
pub(super) fn directory(at: At) -> Result<Option<At>> {
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

/// What a path leads to.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    mode: u32,
    pub(super) place: SeenIn,
}

/// Where that is.
#[derive(Clone, Copy)]
pub(super) enum SeenIn {
    /// On this device of the host.
    Host(u64),
    /// In a mount.
    Mount(InodeId),
}

impl Seen {
    pub(super) fn is_directory(self) -> bool {
        self.mode & S_IFMT == S_IFDIR
    }
}

/// 0 if a path leads to a directory, whether ours or the host's; else the error.
pub(crate) fn directory_at(task: &Task, at: At) -> isize {
    match find(task, at, 0, Last::Follow) {
        Ok(seen) if !seen.is_directory() => Errno::ENOTDIR.to_ret(),
        found => ret(found.map(|_| 0)),
    }
}

/// 0 if the path exists, whether ours or the host's; else the error.
pub(crate) fn look(task: &Task, at: At, flags: u32, last: Last) -> isize {
    ret(find(task, at, flags, last).map(|_| 0))
}

/// What a path leads to, whether ours or the host's.
///
/// # Errors
/// Those of path_resolution(7).
pub(super) fn find(task: &Task, at: At, flags: u32, last: Last) -> Result<Seen> {
    let flags = match last.follows() {
        true => flags & !lp_abi::linux::AT_SYMLINK_FOLLOW,
        false => flags | AT_SYMLINK_NOFOLLOW,
    };
    let seen = Cell::new(None);
    let ours = |at: At| {
        target::at(task, at.dirfd, at.path, flags, |id, inode, _| {
            let mode = inode.mode.load(Ordering::Relaxed); // Relaxed: the type does not change.
            seen.set(Some(Seen { mode, place: SeenIn::Mount(id) }));
            Ok(())
        })
    };
    let host = |at: At| {
        // SAFETY: zeros are a valid `stat`, and the kernel fills it in.
        let mut found: stat = unsafe { core::mem::zeroed() };
        let done = kernel!(__NR_newfstatat, at.dirfd, at.path, &raw mut found, flags);
        seen.set(Some(Seen { mode: found.st_mode, place: SeenIn::Host(found.st_dev) }));
        done
    };
    Errno::from_ret(one(task, at, last, ours, host))?;
    seen.get().ok_or(Errno::ENOENT)
}
