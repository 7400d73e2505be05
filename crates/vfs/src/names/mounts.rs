//! Where our file systems appear in the host's tree: which absolute paths lead into one, and back out.

use core::slice;

use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering;
use lp_region::{InodeId, InodeRef};

use crate::caller::task::Task;

/// What an absolute path leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Crossing {
    /// Into a mount: its root, and how many bytes of the path led there.
    Inside {
        /// The root.
        root: InodeRef,
        /// Bytes of the path up to the end of the mount's own path.
        walked: usize,
    },
    /// Nowhere near.
    Outside,
}

/// Finds the mount that an absolute path leads into.
///
/// The host's part of the path is taken by its letters: `.`, `..` and double slashes are understood, the host's
/// symbolic links are not.
///
/// # Safety
/// `length` bytes of text stand at `path`, then a NUL and [`crate::caller::task::SLACK`] bytes: all readable
/// through the pointer, and unchanged meanwhile.
#[inline]
pub(crate) unsafe fn enter(task: &Task<'_>, path: *const u8, length: usize) -> Crossing {
    // SAFETY: a NUL and SLACK bytes follow the text.
    let word = unsafe { path.cast::<u64>().read_unaligned() };
    if task.prefix.starts(word) {
        return Crossing::Inside { root: root(task, 0), walked: task.prefix.length() };
    }
    // SAFETY: that much text stands there and does not change.
    enter_slow(task, unsafe { slice::from_raw_parts(path, length) })
}

#[inline(never)]
fn enter_slow(task: &Task<'_>, path: &[u8]) -> Crossing {
    match longest(task, path) {
        Some((mount, walked)) => Crossing::Inside { root: root(task, mount), walked },
        None if is_plain(path) => Crossing::Outside,
        None => enter_crooked(task, path),
    }
}

/// The mount whose path is the longest beginning of `path`.
fn longest(task: &Task<'_>, path: &[u8]) -> Option<(usize, usize)> {
    let mut best = None;
    // Relaxed: immutable while the run lives.
    let count = task.run.mount_count.load(Ordering::Relaxed) as usize;
    for (mount, at) in task.run.mounts.iter().take(count).enumerate() {
        let at = at.get();
        let leads = path.starts_with(at) && matches!(path.get(at.len()), None | Some(b'/'));
        if leads && best.is_none_or(|(_, length)| length < at.len()) {
            best = Some((mount, at.len()));
        }
    }
    best
}

/// Whether a path has no `.`, no `..` and no empty component: nothing for [`enter_crooked`].
fn is_plain(path: &[u8]) -> bool {
    let mut after_slash = false;
    for (index, byte) in path.iter().enumerate() {
        if after_slash && matches!(byte, b'/' | b'.') {
            let rest = &path[index..];
            let special = [&b"/"[..], b"./", b"../"].iter().any(|start| rest.starts_with(start));
            if special || matches!(rest, b"." | b"..") {
                return false;
            }
        }
        after_slash = *byte == b'/';
    }
    true
}

/// Follows the path by its letters until it stands on a mount.
#[cold]
fn enter_crooked(task: &Task<'_>, path: &[u8]) -> Crossing {
    // SAFETY: the buffer is the task's; whoever left a path in it has used it by now.
    let normal = unsafe { &mut *task.scratch.outside.get() };
    let mut length = 0;
    let mut walked = 0;
    while walked < path.len() {
        let start = walked + path[walked..].iter().take_while(|byte| **byte == b'/').count();
        let name = path[start..].split(|byte| *byte == b'/').next().unwrap_or_default();
        walked = start + name.len();
        match name {
            b"" | b"." => continue,
            b".." => length = normal[..length].iter().rposition(|byte| *byte == b'/').unwrap_or(0),
            name if length + 1 + name.len() < normal.len() => {
                normal[length] = b'/';
                normal[length + 1..length + 1 + name.len()].copy_from_slice(name);
                length += 1 + name.len();
            }
            _ => return Crossing::Outside,
        }
        if let Some((mount, all)) = longest(task, &normal[..length])
            && all == length
        {
            return Crossing::Inside { root: root(task, mount), walked };
        }
    }
    Crossing::Outside
}

/// The root of a mount. Roots are never freed.
#[inline]
pub(crate) fn root(task: &Task<'_>, mount: usize) -> InodeRef {
    let id = InodeId(task.region.header().roots[mount & 15].load(Ordering::Acquire));
    InodeRef { id, generation: task.region.inode(id).generation.load(Ordering::Relaxed) }
}

/// Whether this is a root.
pub(crate) fn is_root(task: &Task<'_>, inode: InodeRef) -> bool {
    let record = task.region.inode(inode.id);
    task.region.header().roots[record.root.load(Ordering::Relaxed) as usize & 15].load(Ordering::Relaxed)
        == inode.id.0
}

/// Whether this is a directory that was removed.
pub(crate) fn is_gone(task: &Task<'_>, dir: InodeRef) -> bool {
    task.region.inode(dir.id).flags.load(Ordering::Relaxed) & inode_flags::DEAD != 0
}

/// Path of the mount whose root has this inode's root number.
pub(crate) fn path<'t>(task: &'t Task<'_>, inode: &Inode) -> &'t [u8] {
    let mount = inode.root.load(Ordering::Relaxed) as usize; // Relaxed: immutable.
    task.run.mounts.get(mount).map_or(b"", |path| path.get())
}

/// Path of the directory that the mount stands in, without a slash at its end.
pub(crate) fn above<'t>(task: &'t Task<'_>, root: &Inode) -> &'t [u8] {
    let path = path(task, root);
    &path[..path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)]
}
