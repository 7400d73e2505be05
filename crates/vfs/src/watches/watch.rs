//! inotify(7): which inodes are watched, and what must be reported to their watchers.
//!
//! A watch is the kernel's, on a *shadow*: a host object that the door keeps for the inode, at the inode's
//! path in its root, below a directory of the run's own. A process that changes a watched inode does to the
//! shadow what makes the kernel raise the event. [`inode_flags::SHADOW`] says that an inode has a shadow,
//! [`inode_flags::WATCHED`] that it was watched itself; all names of such a directory have shadows too.
//!
//! Calls on inodes without a shadow execute no instruction for this. Reads of one with a shadow meet an
//! access time that is always due. Writes find no bias, because the lock of such an inode is never biased.
//! Opens check the flag and the type in one word. The flag is set under the inode's lock, so no write is
//! under way by an earlier bias.
//!
//! Changes of names are repeated on shadows under the lock of the directory, so that both stay alike. Other
//! events are raised once the locks are free. If a process dies in between, the event is lost.

use lp_abi::{Errno, NAME_MAX, Result};
use lp_region::records::{Inode, file_mode, inode_flags};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{DirentId, FileId, InodeId, InodeRef};

use crate::caller::event::Event;
use crate::caller::task::Task;
use crate::content::map;
use crate::descriptors::file;
use crate::descriptors::table::{FdTable, closing, entry};
use crate::inodes::{inode, watched};
use crate::names::dir::{Leaf, PER_LEAF};
use crate::names::dirent;

/// Reports the closing of a descriptor, whose entry in the caller's table is empty by this time.
#[cold]
pub(crate) fn closed_slow(task: &Task<'_>, word: u64) {
    if let Some(shadow) = entry::shadow(word) {
        return (task.notify)(task, &Event::Closed(shadow));
    }
    let file = task.region.file(FileId(word as u32));
    // Relaxed, all: immutable while the file is open.
    let inode = InodeRef::from_word(file.inode.load(Relaxed)).id;
    let is_path = file.mode.load(Relaxed) & file_mode::PATH != 0;
    if !is_path
        && word & entry::DATA != 0
        && watched::has_shadow(task.region.inode(inode))
        && file::is_last(task, FileId(word as u32))
    {
        (task.notify)(task, &Event::ClosedLate(inode, file.flags.load(Relaxed)));
    }
}

/// Makes all processes check their closes if they have a file open whose inode has a shadow.
pub fn look_at_closes(task: &Task<'_>) {
    let region = task.region;
    for id in region.processes() {
        let is_open = FdTable::of(region, id).open().any(|(_, word)| {
            let file = region.file(FileId(word as u32));
            let inode = InodeRef::from_word(file.inode.load(Relaxed)).id;
            watched::has_shadow(region.inode(inode))
        });
        if is_open {
            region.process(id).closes_look(closing::SHADOWS);
        }
    }
}

/// Sets flags of an inode that the caller has locked by [`inode::lock`] or `inode::lock_soon`. From here on
/// nobody enters it by a bias, and all reads check the flags.
pub fn mark_locked(inode: &Inode, flags: u32) {
    inode.lock.end_bias();
    inode.flags.store(inode.flags.load(Relaxed) | flags, Relaxed); // Relaxed: under the lock.
    inode.atime_due.store(0, Relaxed);
}

/// Clears flags of an inode. The caller must hold its lock.
pub fn forget(inode: &Inode, flags: u32) {
    inode.flags.store(inode.flags.load(Relaxed) & !flags, Relaxed); // Relaxed: under the lock.
    if flags & inode_flags::SHADOW != 0 && !inode.is_dir() {
        watched::place(inode, InodeId::NONE, DirentId::NONE);
    }
}

/// Gives each directory above `id`, and `id` itself, a shadow.
///
/// # Errors
/// `ENOENT` if there is no path up to a root, because it was removed.
pub fn mark_way(task: &Task<'_>, id: InodeId) -> Result<()> {
    let mut at = id;
    loop {
        let inode = task.region.inode(at);
        let locked = inode::lock(task, at);
        mark_locked(inode, inode_flags::SHADOW);
        drop(locked);
        if inode.is_dead() {
            return Err(Errno::ENOENT);
        }
        if inode.self_dirent.load(Relaxed) == 0 {
            return if inode.is_dir() { Ok(()) } else { Err(Errno::ENOENT) };
        }
        at = InodeId(inode.parent.load(Relaxed));
    }
}

/// Writes the path of an inode below its root, preceded by a slash and the root's number and followed by a
/// NUL, to the end of a buffer. Returns where it starts.
///
/// # Errors
/// `ENAMETOOLONG`; `ENOENT` if it has no name.
pub fn path(task: &Task<'_>, id: InodeId, to: &mut [u8]) -> Result<usize> {
    let mut start = to.len().checked_sub(1).ok_or(Errno::ENAMETOOLONG)?;
    to[start] = 0;
    let mut prepend = |bytes: &[u8]| {
        start = start.checked_sub(bytes.len() + 1).ok_or(Errno::ENAMETOOLONG)?;
        to[start] = b'/';
        to[start + 1..][..bytes.len()].copy_from_slice(bytes);
        Ok(start)
    };
    let mut at = id;
    loop {
        let inode = task.region.inode(at);
        let read = || (inode.self_dirent.load(Relaxed), inode.parent.load(Relaxed));
        let (entry, parent) = inode.seq.snapshot(read);
        if entry == 0 {
            let number = inode.root.load(Relaxed) as u8; // Relaxed: immutable.
            let (digit, letters) = ([b'0' + (number & 15)], [b'a' + (number >> 4), b'a' + (number & 15)]);
            let root = if number < 16 { &digit[..] } else { &letters };
            return if inode.is_dir() { prepend(root) } else { Err(Errno::ENOENT) };
        }
        let record = task.region.dirent(DirentId(entry));
        if dirent::target(record).id != at || inode.is_dead() {
            return Err(Errno::ENOENT);
        }
        let mut name = [0; NAME_MAX];
        let length = dirent::copy_name(task.region, record, &mut name);
        prepend(&name[..length])?;
        at = InodeId(parent);
    }
}

/// Calls `found` with each entry of a directory, its name and its target. To see each entry the caller must
/// hold the directory's lock.
pub fn each_entry(
    task: &Task<'_>,
    dir: InodeId,
    mut found: impl FnMut(DirentId, &[u8], InodeRef) -> Result<()>,
) -> Result<()> {
    let (region, inode) = (task.region, task.region.inode(dir));
    let tail = inode.tail.load(Relaxed).min(map::Map::of(inode).span().saturating_mul(PER_LEAF));
    let mut name = [0; NAME_MAX];
    for position in 0..tail {
        let Some(leaf) = Leaf::new(region, map::get(region, inode, position / PER_LEAF)) else { continue };
        let entry = DirentId(leaf.entry(position).load(Relaxed));
        let record = region.dirent(entry);
        let target = dirent::target(record);
        if entry.is_none() || target == InodeRef::NONE || record.parent.load(Relaxed) != dir.0 {
            continue;
        }
        let length = dirent::copy_name(region, record, &mut name);
        found(entry, &name[..length], target)?;
    }
    Ok(())
}
