//! Watched inodes: their flags, and notifying watchers.
//!
//! Calls on inodes without a shadow execute no instruction for this; [`crate::watches::watch`] explains how.

use core::cell::Cell;

use lp_abi::Result;
use lp_abi::linux::{S_IFDIR, S_IFMT, S_IFREG};
use lp_region::order;
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{DirentId, InodeId};

use crate::caller::below::id_of;
use crate::caller::event::{Event, LeaseBreak, NameAt, NameOrigin, ShadowKind, Touched};
use crate::caller::task::Task;

/// The kind of object that an inode is to its watchers.
#[inline]
pub fn kind(inode: &Inode) -> ShadowKind {
    if inode.is_dir() { ShadowKind::Directory } else { ShadowKind::File }
}

/// Whether an inode has a shadow.
#[inline(always)]
pub fn has_shadow(inode: &Inode) -> bool {
    inode.flags.load(Relaxed) & inode_flags::SHADOW != 0 // Relaxed: set under the inode's lock, read as seen.
}

/// Whether an inode itself was watched.
#[inline(always)]
pub fn is_watched(inode: &Inode) -> bool {
    // Relaxed: set under the inode's lock, read as seen.
    inode.flags.load(Relaxed) & inode_flags::WATCHED != 0
}

/// Whether a lease was ever taken on an inode since it got a shadow.
#[inline(always)]
pub(crate) fn is_leased(inode: &Inode) -> bool {
    inode.flags.load(Relaxed) & inode_flags::LEASED != 0 // Relaxed: as above.
}

/// Waits until nobody holds a lease that opening the inode with these flags breaks; truncating it, without
/// flags. The caller has pinned the inode.
///
/// # Errors
/// `EWOULDBLOCK` for `O_NONBLOCK`; `EINTR`.
#[cold]
pub(crate) fn break_leases_slow(task: &Task<'_>, inode: InodeId, flags: Option<u32>) -> Result<()> {
    order::idle(order::of(&task.lane.holding));
    let lease = LeaseBreak { inode, flags, outcome: Cell::new(Ok(())) };
    (task.notify)(task, &Event::Breaks(&lease));
    lease.outcome.get()
}

/// Notifies the watchers of an inode, if it may have any. The caller must hold no lock that others need.
#[inline(always)]
pub(crate) fn touched(task: &Task<'_>, id: InodeId, inode: &Inode, what: Touched) {
    if has_shadow(inode) {
        touched_slow(task, id, what);
    }
}

/// `touched` for an inode that has a shadow.
#[cold]
pub fn touched_slow(task: &Task<'_>, id: InodeId, what: Touched) {
    (task.notify)(task, &Event::Touched(id, what));
}

/// [`touched_slow`] for an inode that is read. Following a link is not an event.
#[cold]
pub(crate) fn read_slow(task: &Task<'_>, inode: &Inode) {
    let kind = inode.mode.load(Relaxed) & S_IFMT; // Relaxed: the type does not change.
    if has_shadow(inode) && matches!(kind, S_IFREG | S_IFDIR) {
        touched_slow(task, id_of(task.region, inode), Touched::Accessed);
    }
}

/// [`touched_slow`] for an inode that was written to.
#[cold]
pub(crate) fn written_slow(task: &Task<'_>, inode: &Inode) {
    touched_slow(task, id_of(task.region, inode), Touched::Modified);
}

/// Reports that an inode was created in a watched directory. The caller must hold the directory's lock.
#[cold]
pub(crate) fn made_slow(task: &Task<'_>, dir: InodeId, name: &[u8], inode: &Inode) {
    (task.notify)(task, &Event::Named(NameAt { dir, name }, NameOrigin::Made(kind(inode))));
}

/// Gives an inode that nobody else can reach yet a shadow, at its name in a directory.
pub(crate) fn mark_new(inode: &Inode, dir: InodeId, entry: DirentId) {
    // Relaxed, all: published with the name.
    inode.flags.store(inode.flags.load(Relaxed) | inode_flags::SHADOW, Relaxed);
    place(inode, dir, entry);
}

/// Records the location of an inode's shadow: at this entry of a directory. The caller must hold both locks.
pub fn place(inode: &Inode, dir: InodeId, entry: DirentId) {
    // Relaxed, both: hints for files; directories have them anyway.
    inode.parent.store(dir.0, Relaxed);
    inode.self_dirent.store(entry.0, Relaxed);
}
