//! [`Dirent`]: a name in a directory, like struct dentry; [`Bucket`]: a bucket of the hash table of names.

use crate::seq::Seq;
use crate::sync::{AtomicU8, AtomicU32, AtomicU64};

/// A directory entry, like `struct dentry`. 64 bytes. Only the entry decides whether a name exists; the
/// directory's array and the hash table lead to it.
#[repr(C, align(64))]
pub struct Dirent {
    /// Inode and generation ([`crate::ids::InodeRef`]); 0 while free. Atomic: rename over an entry replaces
    /// it in one store.
    pub target: AtomicU64,
    /// Position in its directory: the readdir cookie minus one. Immutable.
    pub position: AtomicU64,
    /// Directory that holds it. Immutable while linked in; 0 while free.
    pub parent: AtomicU32,
    /// Hash of parent and name. Immutable.
    pub hash: AtomicU32,
    /// Advances by two when the entry is freed and when a rename changes it; odd meanwhile. A reader of the
    /// entry compares it before and after. Guarded by the directory's lock.
    pub seq: Seq,
    /// Length of the name in bits 0-7 while the entry lives, else 0; `d_type` in bits 8-15; length of the
    /// name in bits 16-23. Atomic: an entry is born, and dies, in one store.
    pub shape: AtomicU32,
    /// Long name (over [`SHORT_NAME`] bytes) or 0. Immutable.
    pub long: AtomicU32,
    /// Link of the slab's free list.
    pub link: AtomicU32,
    /// The name, or its first bytes; zeros behind its end. Immutable.
    pub name: [AtomicU64; SHORT_NAME / 8],
}

/// Longest name stored in the entry itself, in bytes.
pub const SHORT_NAME: usize = 24;

/// A long name. 256 bytes.
#[repr(C, align(64))]
pub struct LongName {
    /// The name; while free, the first four bytes are the slab's link.
    pub bytes: [AtomicU8; 256],
}

/// A hash bucket, or an overflow bucket: one cache line. Its words name entries by
/// [`DirentId`](crate::ids::DirentId).
pub type Bucket = crate::bucket::Bucket<6>;

const _: () = {
    use crate::layout as at;
    assert!(size_of::<Dirent>() == 64 && size_of::<Bucket>() == 64 && size_of::<LongName>() == 256);
    assert!(at::DIRENTS <= 1 << crate::bucket::ID_BITS && at::OVERFLOWS <= 1 << crate::bucket::NEXT_BITS);
};
