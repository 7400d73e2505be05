//! Copies of whole files that share content until one of them changes it: what xfs(5) and btrfs(5) call
//! reflinks.
//!
//! A copy moves no bytes (`share`): both files become members of a common inode ([`super::membership`]), so
//! readers notice nothing. Whoever is about to change the content of a file calls `before_write` or
//! `before_cut` first, and whoever is about to map it `lock_unshared`. The file then gets a map of its own,
//! in which the pages that change are its own (`borrow`), or the content itself if it is the last.
//!
//! Nothing is shared in a region's file. After a power failure its pages are of different ages, and a page
//! then belongs to the file that all versions of its owner word name ([`crate::content::owner`]).

use lp_abi::{PAGE_SIZE, Result};
use lp_region::layout::COMMAND_ROOTS;
use lp_region::records::{Inode, inode_flags};
use lp_region::slab::Slot;
use lp_region::sync::Ordering::{Relaxed, Release};
use lp_region::{InodeId, InodeRef, Spot};

use crate::caller::task::Task;
use crate::content::{linking, map};
use crate::inodes::inode::{self, Locked};
use crate::inodes::membership::{Change, Step, common_of, is_only_member};
use crate::inodes::{borrow, hidden};
use crate::lane::writer;

/// Whether a file may get the content of another. The caller must hold both locks.
pub(crate) fn may_share(task: &Task, from: InodeId, to: &Inode) -> bool {
    use inode_flags::{BARE, BLOB, EXECUTED, KEPT, MAPPED, MEMBER, PENDING, SPACE};
    let region = task.region;
    let source = region.inode(from);
    // Relaxed throughout: immutable while in use, or under the locks.
    let root = source.root.load(Relaxed);
    let is_limited = root as usize >= COMMAND_ROOTS;
    if region.header().in_file.load(Relaxed) != 0 || is_limited || root != to.root.load(Relaxed) {
        return false;
    }
    let others = MAPPED | KEPT | SPACE | BARE | PENDING | EXECUTED | BLOB;
    let is_empty = to.size.load(Relaxed) == 0 && to.map.load(Relaxed) == 0;
    // A copy has no holes, as on tmpfs.
    let pages = source.size.load(Relaxed).div_ceil(PAGE_SIZE as u64);
    is_empty
        && to.flags.load(Relaxed) & (others | MEMBER) == 0
        && source.flags.load(Relaxed) & others == 0
        && u64::from(source.pages.load(Relaxed)) == pages
}

/// Gives the content of a file to another, which [`may_share`] allows, and sets the times of that. The caller
/// must hold both locks. Returns its size.
///
/// # Errors
/// `ENOSPC` without an inode, or without pages in place of those that the file borrows.
pub(crate) fn share(task: &Task, from: InodeId, to: InodeId) -> Result<u64> {
    let source = task.region.inode(from);
    if !has_whole(source) {
        unshare(task, from, source)?;
        let common = create_common(task, source)?;
        Change::new(Step::Give, from, common).carry_out(task);
    }
    // Relaxed, both: under the lock.
    let (size, pages) = (source.size.load(Relaxed), source.pages.load(Relaxed));
    let join = Change::new(Step::Join, to, common_of(source));
    Change { size, pages, time: task.now(), ..join }.carry_out(task);
    Ok(size)
}

/// A common inode without content, for files of the root that `like` belongs to. The lane names it.
fn create_common(task: &Task, like: &Inode) -> Result<InodeRef> {
    let made = hidden::create(task, like.root.load(Relaxed))?; // Relaxed: immutable.
    let flags = &task.region.inode(made.id).flags;
    flags.store(flags.load(Relaxed) | inode_flags::COMMON, Relaxed); // Relaxed: nobody can reach it yet.
    Ok(made)
}

/// Whether a common inode counts the file. The caller must hold the lock.
#[inline(always)]
fn is_member(inode: &Inode) -> bool {
    inode.flags.load(Relaxed) & inode_flags::MEMBER != 0 // Relaxed: under the lock.
}

/// Whether all content of a file is that of a common inode. The caller must hold the lock.
fn has_whole(inode: &Inode) -> bool {
    inode.flags.load(Relaxed) & inode_flags::SHARES != 0 // Relaxed: under the lock.
}

/// Makes what a write of `len` bytes at `offset` changes the file's own. The caller must hold the lock, here
/// and below, and be a writer of a mount.
///
/// # Errors
/// `ENOSPC`.
#[inline(always)]
pub(crate) fn before_write(task: &Task, id: InodeId, inode: &Inode, offset: u64, len: usize) -> Result<()> {
    match is_member(inode) {
        false => Ok(()),
        true => own(task, id, inode, offset, offset.saturating_add(len as u64)),
    }
}

/// Makes what a truncation to `size` changes the file's own. The file is empty afterwards if `size` is 0 and
/// all its content was a common inode's.
///
/// # Errors
/// `ENOSPC`.
#[inline(always)]
pub(crate) fn before_cut(task: &Task, id: InodeId, inode: &Inode, size: u64) -> Result<()> {
    if is_member(inode) { before_cut_slow(task, id, inode, size) } else { Ok(()) }
}

#[cold]
fn before_cut_slow(task: &Task, id: InodeId, inode: &Inode, size: u64) -> Result<()> {
    match size {
        0 if has_whole(inode) => {
            Change::new(Step::Leave, id, common_of(inode)).carry_out(task);
            Ok(())
        }
        0 => Ok(()),
        // The rest of the last page becomes zeros.
        _ => own(task, id, inode, size - size % PAGE_SIZE as u64, size),
    }
}

/// Ends the membership of a file that a truncation has left empty.
#[inline(always)]
pub(crate) fn after_cut(task: &Task, id: InodeId, inode: &Inode) {
    if is_member(inode) && inode.size.load(Relaxed) == 0 {
        borrow::detach(task, id, inode); // Relaxed, above: under the lock.
    }
}

/// Makes the bytes `first..end`, as far as there are any, the file's own.
#[cold]
fn own(task: &Task, id: InodeId, inode: &Inode, first: u64, end: u64) -> Result<()> {
    if has_whole(inode) {
        if is_only_member(task.region, inode) {
            Change::new(Step::Take, id, common_of(inode)).carry_out(task);
            return Ok(());
        }
        borrow::part(task, id, inode)?;
    }
    let page = PAGE_SIZE as u64;
    borrow::own(task, id, inode, first / page..end.div_ceil(page))
}

/// Makes all content of a file its own. The caller must be a writer of a mount.
///
/// # Errors
/// `ENOSPC`; what was made its own stays so.
pub(crate) fn unshare(task: &Task, id: InodeId, inode: &Inode) -> Result<()> {
    if is_member(inode) {
        own(task, id, inode, 0, u64::MAX)?;
        // It may have been the last member, or have had nothing borrowed.
        if is_member(inode) {
            borrow::detach(task, id, inode);
        }
    }
    Ok(())
}

/// Makes all content of a file its own, in a region that nobody else uses.
///
/// # Errors
/// `ENOSPC`.
pub fn unshare_alone(task: &Task, id: InodeId) -> Result<()> {
    let _locked = inode::lock(task, id);
    unshare(task, id, task.region.inode(id))
}

/// Takes the lock of a file that is about to be mapped or executed, with content of its own.
///
/// # Errors
/// `ENOSPC`.
pub(crate) fn lock_unshared<'r>(task: &Task<'r>, of: Spot) -> Result<Locked<'r>> {
    let (id, inode) = (of.inode.id, task.region.inode(of.inode.id));
    let locked = inode::lock(task, id);
    if !is_member(inode) {
        return Ok(locked);
    }
    drop(locked);
    let _writing = writer::begin_unseen(task, of.mount);
    let locked = inode::lock(task, id);
    unshare(task, id, inode)?;
    Ok(locked)
}

/// Ends the membership of a file that is being freed, with the content that it shares.
pub(crate) fn leave_freed(task: &Task, id: InodeId) {
    let inode = task.region.inode(id);
    // Relaxed: nobody else has the inode. One that a lane was making a map in is no member.
    if !is_member(inode) || inode.flags.load(Relaxed) & inode_flags::BLOB != 0 {
        return;
    }
    let taken = &task.lane.taken[Inode::SLAB];
    let former = taken.load(Relaxed); // Relaxed: the lane's own.
    if has_whole(inode) {
        // Relaxed: nobody else has the inode.
        let size = inode.size.load(Relaxed);
        Change { size, ..Change::new(Step::Leave, id, common_of(inode)) }.carry_out(task);
    } else {
        inode.data_seq.begin();
        linking::clear(task, id, inode, 0, map::END);
        inode.data_seq.end();
        borrow::detach(task, id, inode);
    }
    taken.store(former, Release);
}
