//! inotify(7): which inodes are watched, and what their watchers must be told.
//!
//! A watch is the kernel's, on a *shadow*: an object of the host's that the door keeps for the inode, at the
//! path that the inode has in its root, below a directory of the run's own. Whoever changes a watched inode
//! does to the shadow what makes the kernel raise the event. [`inode_flags::SHADOW`] says that an inode has a
//! shadow, [`inode_flags::WATCHED`] that it was watched itself: all names of such a directory have shadows
//! too.
//!
//! Calls on inodes without a shadow execute no instruction for it. Reads meet an access time that is always
//! due; writes find no bias, as the lock of an inode with a shadow is never biased; opens look at the flag
//! and the type in one word. Whoever sets the flag holds the inode's lock, so no write is under way by a bias
//! given before.
//!
//! Changes of names are carried over to shadows under the lock of the directory, so that both stay alike.
//! Other events are raised once the locks are free. If a process dies in between, the event is lost.

use lp_abi::linux::{S_IFDIR, S_IFMT, S_IFREG};
use lp_abi::{Errno, NAME_MAX, Result};
use lp_region::records::{Inode, file_mode, inode_flags};
use lp_region::sync::Ordering::{Acquire, Relaxed};
use lp_region::{DirentId, FileId, InodeId, InodeRef, Region};

use crate::dir::{self, Leaf, PER_LEAF};
use crate::inode;
use crate::name::Name;
use crate::table::{closing, entry};
use crate::task::Task;
use crate::{dirent, file, map};

/// What a watcher must be told. The door's [`Task::notify`] does it.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Something happened to an inode.
    Touched(InodeId, Touched),
    /// A name has come into a directory. The caller holds the directory's lock.
    Named(At<'a>, New),
    /// A name is gone. The caller holds the directory's lock.
    Removed(At<'a>, Kind),
    /// A name is another one now. The caller holds the locks of both directories.
    Moved(&'a Move<'a>),
    /// A descriptor with this [`entry::shadow`] was closed.
    Closed(i32),
    /// A descriptor was closed, opened with these flags before its inode had a shadow.
    ClosedLate(InodeId, u32),
}

/// What happened to an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touched {
    /// Content was read, or entries were listed.
    Accessed,
    /// Content was changed.
    Modified,
    /// Attributes were changed.
    Attributes,
    /// It has more links or fewer, by a name that no watched directory has.
    Links,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// The directory.
    pub dir: InodeId,
    /// The name.
    pub name: &'a [u8],
}

/// Whether a shadow is a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It is.
    Directory,
    /// It stands for anything else.
    File,
}

/// How a name came to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum New {
    /// With its inode.
    Made(Kind),
    /// For an inode that has other names: this one, if they have shadows.
    Link(InodeId),
}

/// A rename.
#[derive(Clone, Copy, Debug)]
pub struct Move<'a> {
    /// The old name.
    pub from: At<'a>,
    /// The new name.
    pub to: At<'a>,
    /// What it names.
    pub what: Kind,
    /// What had the new name and has the old one now.
    pub swapped: Option<Kind>,
    /// What of both sides is watched.
    pub sides: Sides,
}

/// Which sides of a rename have shadows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sides {
    /// Both the old name and the directory of the new one.
    Both,
    /// The old name, and nobody watches what it names now.
    Old,
    /// The directory of the new name.
    New,
}

/// What an inode is to its watchers.
#[inline]
pub fn kind(inode: &Inode) -> Kind {
    if dir::is(inode) { Kind::Directory } else { Kind::File }
}

/// Whether an inode has a shadow.
#[inline(always)]
pub fn has_shadow(inode: &Inode) -> bool {
    inode.flags.load(Relaxed) & inode_flags::SHADOW != 0 // Relaxed: set under the inode's lock, read as seen.
}

/// Whether an inode was watched itself.
#[inline(always)]
pub fn is_watched(inode: &Inode) -> bool {
    inode.flags.load(Relaxed) & inode_flags::WATCHED != 0 // Relaxed: as above.
}

/// Tells the watchers of an inode, if it may have any. The caller holds no lock that others need.
#[inline(always)]
pub fn touched(task: &Task<'_>, id: InodeId, inode: &Inode, what: Touched) {
    if has_shadow(inode) {
        touched_slow(task, id, what);
    }
}

/// [`touched`] for an inode that has a shadow.
#[cold]
pub fn touched_slow(task: &Task<'_>, id: InodeId, what: Touched) {
    (task.notify)(task, &Event::Touched(id, what));
}

/// [`touched_slow`] for one that is read. Following a link is no event.
#[cold]
pub fn read_slow(task: &Task<'_>, inode: &Inode) {
    let kind = inode.mode.load(Relaxed) & S_IFMT; // Relaxed: the type does not change.
    if has_shadow(inode) && matches!(kind, S_IFREG | S_IFDIR) {
        touched_slow(task, id_of(task.region, inode), Touched::Accessed);
    }
}

/// [`touched_slow`] for one that was written to.
#[cold]
pub fn written_slow(task: &Task<'_>, inode: &Inode) {
    touched_slow(task, id_of(task.region, inode), Touched::Modified);
}

/// Tells that a descriptor is closed: an entry of the caller's table that is empty by now.
#[cold]
pub fn closed_slow(task: &Task<'_>, word: u64) {
    if let Some(shadow) = entry::shadow(word) {
        return (task.notify)(task, &Event::Closed(shadow));
    }
    let file = task.region.file(FileId(word as u32));
    // Relaxed, all: immutable while the file is open.
    let inode = InodeRef::from_word(file.inode.load(Relaxed)).id;
    let is_path = file.mode.load(Relaxed) & file_mode::PATH != 0;
    if !is_path
        && word & entry::HOST == 0
        && has_shadow(task.region.inode(inode))
        && file::is_last(task, FileId(word as u32))
    {
        (task.notify)(task, &Event::ClosedLate(inode, file.flags.load(Relaxed)));
    }
}

/// Has all processes look at closes that have a file open whose inode has a shadow by now.
pub fn look_at_closes(task: &Task<'_>) {
    let region = task.region;
    for id in region.processes() {
        let process = region.process(id);
        let limit = process.fd_limit.load(Acquire) as usize;
        let is_open = region.fd_table(id).iter().take(limit).any(|word| {
            let word = word.load(Acquire);
            let file = region.file(FileId(word as u32));
            let inode = InodeRef::from_word(file.inode.load(Relaxed)).id;
            word & entry::OPEN != 0 && has_shadow(region.inode(inode))
        });
        if is_open {
            process.closes_look(closing::SHADOWS);
        }
    }
}

/// The handle of an inode's record.
pub(crate) fn id_of(region: Region<'_>, inode: &Inode) -> InodeId {
    let first = core::ptr::from_ref(region.inode(InodeId::NONE)) as usize;
    InodeId(((core::ptr::from_ref(inode) as usize - first) / size_of::<Inode>()) as u32)
}

/// Sets flags of an inode whose lock the caller got by [`inode::lock`] or [`inode::lock_soon`]: from now on
/// nobody enters it by a bias, and all reads look at the flags.
pub fn mark_locked(inode: &Inode, flags: u32) {
    inode.lock.end_bias();
    inode.flags.store(inode.flags.load(Relaxed) | flags, Relaxed); // Relaxed: under the lock.
    inode.atime_due.store(0, Relaxed);
}

/// Tells that an inode was made in a watched directory. The caller holds the directory's lock.
#[cold]
pub fn made_slow(task: &Task<'_>, dir: InodeId, name: &Name<'_>, inode: &Inode) {
    (task.notify)(task, &Event::Named(At { dir, name: name.bytes() }, New::Made(kind(inode))));
}

/// Gives an inode that nobody else can reach yet a shadow, at its name in a directory.
pub fn mark_new(inode: &Inode, dir: InodeId, entry: DirentId) {
    // Relaxed, all: published with the name.
    inode.flags.store(inode.flags.load(Relaxed) | inode_flags::SHADOW, Relaxed);
    place(inode, dir, entry);
}

/// Says where the shadow of an inode is: at this entry of a directory. The caller holds both locks.
pub fn place(inode: &Inode, dir: InodeId, entry: DirentId) {
    // Relaxed, both: hints for files; directories have them anyway.
    inode.parent.store(dir.0, Relaxed);
    inode.self_dirent.store(entry.0, Relaxed);
}

/// Takes flags of an inode away. The caller holds its lock.
pub fn forget(inode: &Inode, flags: u32) {
    inode.flags.store(inode.flags.load(Relaxed) & !flags, Relaxed); // Relaxed: under the lock.
    if flags & inode_flags::SHADOW != 0 && !dir::is(inode) {
        place(inode, InodeId::NONE, DirentId::NONE);
    }
}

/// Gives each directory above `id`, and itself, a shadow.
///
/// # Errors
/// `ENOENT` when there is no way up to a root: it was removed.
pub fn mark_way(task: &Task<'_>, id: InodeId) -> Result<()> {
    let mut at = id;
    loop {
        let inode = task.region.inode(at);
        let locked = inode::lock(task, at);
        mark_locked(inode, inode_flags::SHADOW);
        drop(locked);
        if dir::is_dead(inode) {
            return Err(Errno::ENOENT);
        }
        if inode.self_dirent.load(Relaxed) == 0 {
            return if dir::is(inode) { Ok(()) } else { Err(Errno::ENOENT) };
        }
        at = InodeId(inode.parent.load(Relaxed));
    }
}

/// Writes the path of an inode below its root, behind a slash and the root's number, to the end of a buffer,
/// followed by a NUL; gives where it starts.
///
/// # Errors
/// `ENAMETOOLONG`; `ENOENT` when it has no name.
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
            let root = [b'0' + (inode.root.load(Relaxed) & 15) as u8];
            return if dir::is(inode) { prepend(&root) } else { Err(Errno::ENOENT) };
        }
        let record = task.region.dirent(DirentId(entry));
        if dirent::target(record).id != at || dir::is_dead(inode) {
            return Err(Errno::ENOENT);
        }
        let mut name = [0; NAME_MAX];
        let length = dirent::copy_name(task.region, record, &mut name);
        prepend(&name[..length])?;
        at = InodeId(parent);
    }
}

/// Calls `found` with each entry of a directory: the entry, its name and what it names. The caller holds the
/// directory's lock if it must see each.
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
