//! What the words of an inode say, as stored.

use lp_abi::linux::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK};
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::Relaxed;

/// Whether a mode's type is one of Linux's.
pub(crate) fn has_type(mode: u32) -> bool {
    [S_IFREG, S_IFDIR, S_IFLNK, S_IFCHR, S_IFBLK, S_IFIFO, S_IFSOCK].contains(&(mode & S_IFMT))
}

/// Root and height of its map.
pub(crate) fn map_of(inode: &Inode) -> (u32, u32) {
    let word = inode.map.load(Relaxed);
    (word as u32, (word >> 32) as u32)
}

/// Whether it was made as a blob.
pub(crate) fn is_marked_blob(inode: &Inode) -> bool {
    inode.flags.load(Relaxed) & inode_flags::BLOB != 0
}
