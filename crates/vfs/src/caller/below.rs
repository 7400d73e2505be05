//! What is still to be taken from the layer below ([`crate::below`]). A call that meets it requests it
//! through [`Sources::below`](crate::task::Sources::below).

use core::cell::Cell;

use lp_abi::{Errno, Result};
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::{Acquire, Relaxed};
use lp_region::{InodeId, InodeRef, Region};

use crate::caller::task::Task;

/// What a call needs from an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// A directory's names, or all content of a file.
    All,
    /// What a listing of a directory shows (`names/listing.rs`), or all its names.
    Names,
    /// What an open for reading needs from a file.
    Opened,
    /// The page map of a file, which is about to lose a name.
    Map,
    /// A byte range of a file: offset and length.
    Range(u64, u64),
    /// None of a file's content, because the file is being emptied.
    Nothing,
}

/// The error of a copy that meets content still to be taken: the caller takes it and copies again.
pub(crate) const MISSING: Errno = Errno::EUCLEAN;

/// Whether names or content are still to be taken.
#[inline(always)]
pub fn is_pending(inode: &Inode) -> bool {
    inode.flags.load(Relaxed) & inode_flags::PENDING != 0 // Relaxed: checked again under the lock.
}

/// Whether a directory stands for the host's of its name. It has [`lp_region::records::COVERED`] too.
pub fn is_hosts(inode: &Inode) -> bool {
    inode.flags.load(Relaxed) & inode_flags::HOSTS != 0 // Relaxed: immutable.
}

/// Whether the page map of a file is still to be taken: without it, its pages could not be freed.
#[cold]
pub(crate) fn lacks_map(inode: &Inode) -> bool {
    let below = inode_flags::PENDING | inode_flags::ORIGIN;
    // Relaxed, both: checked again under the lock.
    inode.flags.load(Relaxed) & below == inode_flags::PENDING && inode.map.load(Relaxed) == 0
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
    // PAIRS: the release store in `make::free`.
    let generation = task.region.inode(id).generation.load(Acquire);
    (task.sources.below)(task, InodeRef { id, generation }, need)
}

/// Whether a program that lists a directory will ask for more of its names, as the last one whose names were
/// listed tells: reading all at once is quicker then.
#[derive(Default)]
pub struct Habit {
    /// The directory whose names were listed last.
    listed: Cell<u64>,
    /// How many directories are taken in at once before the next is listed.
    whole: Cell<u32>,
}

impl Habit {
    /// Directories that are taken in at once after one listing was too little.
    const WHOLE: u32 = 32;

    /// Whether the next directory is to be listed.
    pub(crate) fn lists(&self, region: Region<'_>) -> bool {
        let last = InodeRef::from_word(self.listed.replace(0));
        if !last.id.is_none() && !is_pending(region.inode(last.id)) {
            self.whole.set(Habit::WHOLE);
        }
        let left = self.whole.get();
        self.whole.set(left.saturating_sub(1));
        left == 0
    }

    /// Notes a directory whose names were listed.
    pub(crate) fn has_listed(&self, dir: InodeRef) {
        self.listed.set(dir.to_word());
    }
}

/// The handle of an inode's record.
pub(crate) fn id_of(region: Region<'_>, inode: &Inode) -> InodeId {
    let first = core::ptr::from_ref(region.inode(InodeId::NONE)) as usize;
    InodeId(((core::ptr::from_ref(inode) as usize - first) / size_of::<Inode>()) as u32)
}
