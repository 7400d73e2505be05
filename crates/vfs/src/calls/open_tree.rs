//! open_tree(2) with `OPEN_TREE_CLONE`: a copy of a tree of mounts, which only the open file leads to.
//!
//! It lives while a file is open in it, or it is otherwise used, and becomes part of the run's tree by
//! move_mount(2).

use lp_abi::linux::{
    AT_EMPTY_PATH, AT_NO_AUTOMOUNT, AT_SYMLINK_NOFOLLOW, O_CLOEXEC, O_NOFOLLOW, O_PATH, OPEN_TREE_CLONE,
};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::sync::Ordering;
use lp_region::{DirentId, FileId, InodeRef, MountId};

use crate::caller::task::{Place, Task};
use crate::calls::mount_at::{in_one_shape, may_mount};
use crate::calls::open::{self, Opened};
use crate::calls::{mount, target};
use crate::lane::pin;
use crate::life::mount_peers::Peers;
use crate::life::mount_tree;
use crate::life::{mount_end, open_file};
use crate::names::walk::{Found, PathBuffer};

/// `AT_RECURSIVE`.
const RECURSIVE: u32 = 0x8000;
/// The flags of the call.
const KNOWN: u32 =
    OPEN_TREE_CLONE | O_CLOEXEC | AT_EMPTY_PATH | AT_NO_AUTOMOUNT | AT_SYMLINK_NOFOLLOW | RECURSIVE;

/// Copies what is mounted where a path leads, and opens the copy as with `O_PATH`. The door installs the
/// file.
///
/// # Errors
/// Those of path_resolution(7) and open_tree(2).
pub fn copy(task: &Task<'_>, at: (Fd, UserPtr), flags: u32) -> Result<Place<FileId>> {
    if flags & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    may_mount(task)?;
    if at.1.is_null() {
        return Err(Errno::EFAULT);
    }
    in_one_shape(task, || {
        let from = match target::found(task, at, flags, PathBuffer::Path)? {
            Place::Inside(found) => found,
            Place::Outside(outside) => return Ok(Place::Outside(outside)),
        };
        copy_found(task, &from, flags & RECURSIVE != 0).map(Place::Inside)
    })
}

/// Takes `O_NOFOLLOW`, by which it was opened, from the flags of an open file: open_tree(2) leaves `O_PATH`
/// alone.
pub fn shed_nofollow(task: &Task<'_>, fd: Fd) {
    if let Ok(held) = task.fget(fd) {
        held.file.flags.fetch_and(!O_NOFOLLOW, Ordering::Relaxed); // Relaxed: one word.
    }
}

/// The kernel's open_detached_copy.
fn copy_found(task: &Task<'_>, from: &Found, recursive: bool) -> Result<FileId> {
    mount_end::collect(task);
    let mut opened: Option<FileId> = None;
    let made = mount_tree::change(task, |tree| {
        opened.take().into_iter().for_each(|file| open_file::discard(task, file));
        let mut peers = Peers::of(task);
        let list = mount::copy(task, tree, &mut peers, (from, recursive))?;
        // Before the copy exists: it is used from the start.
        opened = Some(open_top(task, list.at(0), from.inode)?);
        Ok(tree.set_adrift(&peers, &list))
    });
    held(task, made, opened)
}

/// The open file that holds a tree that was to be made, unless that failed.
pub(super) fn held(task: &Task<'_>, made: Result<()>, opened: Option<FileId>) -> Result<FileId> {
    if made.is_err() {
        opened.into_iter().for_each(|file| open_file::discard(task, file));
    }
    made.and_then(|()| opened.ok_or(Errno::ESTALE))
}

/// Opens the root of a mount that is being made.
pub(super) fn open_top(task: &Task<'_>, mount: MountId, inode: InodeRef) -> Result<FileId> {
    let pin = pin::hold(task, pin::slot::OPEN, inode).map_err(|_| Errno::ENOENT)?;
    let found = Found { inode, dirent: DirentId::NONE, parent: inode.id, mount };
    match open::found(task, pin, &found, (O_PATH, 0))? {
        Opened::File(file) | Opened::Watched(file) | Opened::WatchedCut(file) => Ok(file),
        Opened::HostNode(_) => Err(Errno::EINVAL),
    }
}
