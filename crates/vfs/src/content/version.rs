//! The version of a file's content: whether a copy that was made earlier is still what a read would return.

use lp_region::InodeRef;
use lp_region::records::inode_flags;
use lp_region::sync::Ordering;

use crate::caller::task::Task;

/// A version of a file's content. Two equal ones of a region stand for the same bytes.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version([u64; 4]);

impl Version {
    /// The file that it is a version of.
    pub fn file(self) -> u64 {
        self.0[0]
    }

    /// Its length in bytes.
    pub fn bytes(self) -> u64 {
        self.0[1]
    }

    /// A version that a process wrote down.
    pub fn from_words(words: [u64; 4]) -> Self {
        Version(words)
    }

    /// Its words, for [`Version::from_words`].
    pub fn to_words(self) -> [u64; 4] {
        self.0
    }
}

/// The version of a file's content at this moment. `None` while it is being changed, while it may change
/// without a trace because a process maps the file, and for a file whose content is still to be taken from
/// the layer below or that has been freed.
///
/// Every other store to the content lies in a section of `data_seq`, which the writer's heirs end if it dies
/// there; the end of the last mapping is such a section too. So a caller that gets equal versions before and
/// after it copies the content has copied that version.
pub fn of(task: &Task<'_>, of: InodeRef) -> Option<Version> {
    let inode = task.region.inode(of.id);
    let before = inode.data_seq.read();
    let fixed = inode.flags.load(Ordering::Relaxed) & (inode_flags::MAPPED | inode_flags::PENDING) == 0;
    let size = inode.size.load(Ordering::Relaxed); // Relaxed, here and below: ordered by the count.
    let changed = (inode.mtime.sec.load(Ordering::Relaxed), inode.mtime.nsec.load(Ordering::Relaxed));
    // Acquire: the generation is incremented before the slot is reused.
    let lives = inode.generation.load(Ordering::Acquire) == of.generation;
    if !fixed || !lives || inode.data_seq.retry(before) {
        return None;
    }
    // The count alone would repeat after two thousand million writes.
    Some(Version([of.to_word(), size, u64::from(before) << 32 | u64::from(changed.1), changed.0]))
}
