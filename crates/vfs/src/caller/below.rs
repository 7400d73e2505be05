//! What is still to be taken from the layer below ([`crate::below`]). A call that meets it requests it
//! through [`Sources::below`](crate::task::Sources::below).

use lp_abi::{Errno, Result};
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::Acquire;
use lp_region::{InodeId, InodeRef, Region};

pub use crate::caller::lacking::{Need, Passage, is_hosts, is_pending, lacks_attributes};
pub(crate) use crate::caller::lacking::{lacks_acl, lacks_map};
use crate::caller::task::Task;

/// The error of a copy that meets content still to be taken: the caller takes it and copies again.
pub(crate) const MISSING: Errno = Errno::EUCLEAN;

/// Takes the extended attributes that a file lacks, if they can be taken: those that the host has changed
/// cannot, and stay lacking. The caller must hold no lock and not be writing.
#[inline]
pub(crate) fn try_attributes(task: &Task<'_>, inode: &Inode) {
    let _ = complete_attributes(task, inode);
}

/// Takes the extended attributes that a file lacks. The caller must hold no lock and not be writing.
///
/// # Errors
/// Those of [`complete`]; `EACCES` if the caller may not read one.
#[inline]
pub fn complete_attributes(task: &Task<'_>, inode: &Inode) -> Result<()> {
    let some = inode_flags::XATTRS_BELOW | inode_flags::TRUSTED_BELOW;
    // PAIRS: the release store in `below::attributes`.
    if inode.flags.load(Acquire) & some == 0 {
        return Ok(());
    }
    take(task, id_of(task.region, inode), Need::Attributes)
}

/// Takes the ACL that a file lacks. The caller must hold no lock and not be writing.
///
/// # Errors
/// Those of [`complete`].
#[cold]
pub(crate) fn acl(task: &Task<'_>, inode: &Inode) -> Result<()> {
    match complete_attributes(task, inode) {
        Err(errno) if lacks_acl(inode) => Err(errno),
        _ => Ok(()),
    }
}

/// Takes everything still to be taken for an inode. The caller must hold no lock and not be writing.
///
/// # Errors
/// `ESTALE` if it was freed meanwhile; those of the layer; `EIO` for a conflict; `ENOSPC`.
#[inline]
pub fn complete(task: &Task<'_>, inode: &Inode) -> Result<()> {
    if is_pending(inode) { take(task, id_of(task.region, inode), Need::All) } else { Ok(()) }
}

/// Takes a part of it.
///
/// # Errors
/// Those of [`complete`].
#[cold]
pub(crate) fn take(task: &Task<'_>, id: InodeId, need: Need) -> Result<()> {
    // PAIRS: the release store in `slot::give`.
    let generation = task.region.inode(id).generation.load(Acquire);
    (task.sources.below)(task, InodeRef { id, generation }, need)
}

/// The handle of an inode's record.
pub(crate) fn id_of(region: Region<'_>, inode: &Inode) -> InodeId {
    let first = core::ptr::from_ref(region.inode(InodeId::NONE)) as usize;
    InodeId(((core::ptr::from_ref(inode) as usize - first) / size_of::<Inode>()) as u32)
}
