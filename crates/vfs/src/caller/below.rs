//! What is still to be taken from the layer below ([`crate::below`]): who meets it asks for it by
//! [`Task::below`].

use lp_abi::{Errno, Result};
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::{Acquire, Relaxed};
use lp_region::{InodeId, InodeRef, Region};

use crate::caller::task::Task;

/// What a call needs of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// A directory's names, or all content of a file.
    All,
    /// What an open for reading needs of a file.
    Opened,
    /// Bytes of a file: where they start, and how many.
    Range(u64, u64),
    /// None of a file's content: it is emptied.
    Nothing,
}

/// What a copy comes to at content that is still to be taken: the caller takes it and copies again.
pub(crate) const MISSING: Errno = Errno::EUCLEAN;

/// Whether names or content are still to be taken.
#[inline(always)]
pub fn is_pending(inode: &Inode) -> bool {
    inode.flags.load(Relaxed) & inode_flags::PENDING != 0 // Relaxed: looked at again under the lock.
}

/// Takes all that is still to be taken of an inode. The caller holds no lock and is not writing.
///
/// # Errors
/// `ESTALE` when it was freed meanwhile; those of the layer; `EIO` for a conflict; `ENOSPC`.
#[inline]
pub fn complete(task: &Task<'_>, inode: &Inode) -> Result<()> {
    if is_pending(inode) { take(task, id_of(task.region, inode), Need::All) } else { Ok(()) }
}

/// Takes some of it.
///
/// # Errors
/// As [`complete`].
#[cold]
pub(crate) fn take(task: &Task<'_>, id: InodeId, need: Need) -> Result<()> {
    // PAIRS: the release store in `make::free`.
    let generation = task.region.inode(id).generation.load(Acquire);
    (task.below)(task, InodeRef { id, generation }, need)
}

/// The handle of an inode's record.
pub(crate) fn id_of(region: Region<'_>, inode: &Inode) -> InodeId {
    let first = core::ptr::from_ref(region.inode(InodeId::NONE)) as usize;
    InodeId(((core::ptr::from_ref(inode) as usize - first) / size_of::<Inode>()) as u32)
}
