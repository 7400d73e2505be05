//! [`Inode`]: like struct inode.

use lp_abi::linux::{S_IFDIR, S_IFMT};

use crate::bias::BiasedLock;
use crate::custody::Custody;
use crate::lock::OwnerLock;
use crate::moving::Moving;
use crate::seq::Seq;
use crate::signed::Signed;
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// An inode, like `struct inode`. 256 bytes. Line 1 is what walks, opens and permission checks read. Writes
/// of content leave it alone, and so do changes of a directory's entries and of links other than the last.
#[repr(C, align(64))]
pub struct Inode {
    /// Guards the attributes and times; odd while they change.
    pub seq: Seq,
    /// Pages of content: `st_blocks` is 8 per page. Seq, and also stored inside a data section, together with
    /// the size and the times of the same change; recounted from the map after a death.
    pub pages: AtomicU32,
    /// Bytes of content. Seq, and also stored inside a data section.
    pub size: AtomicU64,
    /// Access time. Seq.
    pub atime: Stamp,
    /// Modification time. Seq.
    pub mtime: Stamp,
    /// Change time in seconds. Seq.
    pub ctime: AtomicU64,
    /// Change time, nanoseconds. Seq.
    pub ctime_nsec: AtomicU32,
    /// Links; 0 once unlinked ([`inode_flags::DEAD`]), and while free. Seq.
    pub nlink: AtomicU32,
    /// Type and permission bits, as `st_mode`. Seq.
    pub mode: AtomicU32,
    /// Owner. Seq. Follows `mode`, as in `struct stat`; so do `gid` and `zero`.
    pub uid: AtomicU32,
    /// Group. Seq.
    pub gid: AtomicU32,
    /// Always 0: padding, as in `struct stat`.
    pub zero: AtomicU32,
    /// `st_ino`: the slot's index and generation above
    /// [`Header::numbers`](crate::records::Header::numbers), or the number in the layer below. Immutable.
    pub number: AtomicU64,
    /// Generation of the slot, incremented when the inode is freed. Atomic.
    pub generation: AtomicU32,
    /// [`inode_flags`]. Lock, read as seen.
    pub flags: AtomicU32,
    /// Blob of the access ACL, an inode without a name; 0 means none and may be used as seen. Bit 31,
    /// [`COVERED`], says that something may be mounted on the inode: one look tells that neither is so.
    /// Atomic.
    pub acl: AtomicU32,
    /// Directory: blob of the default ACL; 0 means none. Atomic.
    pub default_acl: AtomicU32,
    /// Blob of the extended attributes; 0 means none and may be used as seen. Lock.
    pub xattr: AtomicU32,
    /// Device number of a device node. Immutable.
    pub rdev: AtomicU32,
    /// Number of the root it belongs to. Immutable.
    pub root: AtomicU32,
    /// Directory: its parent. Seq; changes under the locks of both parents and the directory, with `moving`
    /// set.
    pub parent: AtomicU32,
    /// Directory: the entry that names it. Seq, as `parent`.
    pub self_dirent: AtomicU32,
    /// Link of the slab's free list, or of a lane's chain of inodes without links.
    pub link: AtomicU32,
    /// The inode's lock. Guards the content, the map and, for a directory, its entries; biased to a sole
    /// writer.
    pub lock: BiasedLock,
    /// Guards the content against readers; odd while bytes or the map change. In a directory it also guards
    /// `entries`, and `mtime` and `ctime` where they change with an entry. So each change of its names
    /// advances it.
    pub data_seq: Seq,
    /// Page map: its root page in the low half, its height in the high half, so that both change in one
    /// store; 0 is empty, height 0 a single page. Lock, read under data_seq.
    pub map: AtomicU64,
    /// Directory: position of the next new entry. Lock. Regular file with one of [`inode_flags::MEMBER`]: the
    /// common inode that has its content, or a part of it. Lock. Such an inode: [`Members`].
    pub tail: AtomicU64,
    /// Birth time in seconds. Immutable.
    pub btime: AtomicU64,
    /// Birth time, nanoseconds. Immutable.
    pub btime_nsec: AtomicU32,
    /// Second by which the next read must check relatime; 0: at once. Atomic; writers of mtime and ctime
    /// store 0.
    pub atime_due: AtomicU32,
    /// Directory: live entries. While its names are taken from the layer below: those names. Lock.
    pub entries: AtomicU32,
    /// For an inode without links: which lane keeps it, and which frees it. Atomic.
    pub custody: Custody,
    /// Target of a short symbolic link; of anything else with [`inode_flags::ORIGIN`] the list and the offset
    /// of its record, and what else `lp_vfs::below` keeps. Immutable but for that.
    pub inline: [AtomicU8; SHORT_TARGET],
    /// Guards the tree of record locks and flocks, like `flc_lock` of Linux's `struct file_lock_context`.
    pub locks_lock: OwnerLock,
    /// Root of that tree; 0 without a lock, `u32::MAX` while it changes: whoever takes `locks_lock` over from
    /// a dead lane builds it again. Locks_lock; 0 may be used as seen.
    pub locks: AtomicU32,
    /// Directory: the lane that moves it to another parent. Guarded by the lock of its parent; a burial
    /// clears a dead lane's mark.
    pub moving: Moving,
}

impl Inode {
    /// Whether it has no links, as seen ([`inode_flags::DEAD`]).
    #[inline(always)]
    pub fn is_dead(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & inode_flags::DEAD != 0 // Relaxed: one word.
    }

    /// Whether it is a directory.
    #[inline(always)]
    pub fn is_dir(&self) -> bool {
        // Relaxed: the type does not change while the inode lives.
        self.mode.load(Ordering::Relaxed) & S_IFMT == S_IFDIR
    }
}

/// [`Inode::tail`] of a common inode: the number of files that name it. The note of an exchange is
/// [`Lane::sharing`](crate::lane::Lane::sharing); it identifies the word by the inode's number, of
/// [`MEMBER_BITS`] bits.
pub type Members = Signed<MEMBER_BITS, { (1 << MEMBER_BITS) - 1 }>;

/// Bits of an inode's number, and of the number of files that name it as their common inode.
pub const MEMBER_BITS: u32 = 24;

const _: () = assert!(crate::layout::INODES <= 1 << MEMBER_BITS);

/// Bit of [`Inode::acl`]: something may be mounted on the inode.
pub const COVERED: u32 = 1 << 31;

/// [`Inode::acl`], but for [`COVERED`], of a directory without an ACL whose names, and of a regular file
/// whose extended attributes are still to be taken from the layer below.
pub const NO_ACL_YET: u32 = !COVERED;

/// Numbers of a layer's inodes are shown if they are below this; above are those of inodes that the layer
/// does not have. JavaScript's numbers are exact up to the double of the highest.
pub const ABOVE_LAYER: u64 = 1 << 52;

/// Longest target of a symbolic link kept in the inode itself, in bytes.
pub const SHORT_TARGET: usize = 48;

/// A time in the format of `struct stat`.
#[repr(C)]
pub struct Stamp {
    /// Seconds since 1970.
    pub sec: AtomicU64,
    /// Nanoseconds, below 1,000,000,000.
    pub nsec: AtomicU32,
    /// Always 0: the upper half of `tv_nsec`.
    pub zero: AtomicU32,
}

/// Bits of [`Inode::flags`].
pub mod inode_flags {
    /// It has been mapped since it was created; truncation keeps its pages.
    pub const MAPPED: u32 = 1;
    /// Truncation has kept pages because it was mapped: they go with the last mapping.
    pub const KEPT: u32 = 2;
    /// Its content is that of a common inode, which [`Inode::tail`](super::Inode::tail) names and which other
    /// files may have as well, and its map is that inode's: it must be unshared before it changes or is mapped
    /// (`lp_vfs::reflink`). Lock.
    pub const SHARES: u32 = 4;
    /// Its map is its own, but pages of content in it may be those of a common inode, which
    /// [`Inode::tail`](super::Inode::tail) names: they must be replaced before they change, all of them before
    /// it is mapped (`lp_vfs::borrow`). Lock.
    pub const BORROWS: u32 = 1 << 31;
    /// A common inode counts the file.
    pub const MEMBER: u32 = SHARES | BORROWS;
    /// `O_TMPFILE` without `O_EXCL`: link may give it a name.
    pub const LINKABLE: u32 = 8;
    /// It has no links, so that opens and closes need not read their number. Nothing may be created in such a
    /// directory.
    pub const DEAD: u32 = 16;
    /// `FS_IMMUTABLE_FL`.
    pub const IMMUTABLE: u32 = 32;
    /// `FS_APPEND_FL`.
    pub const APPEND: u32 = 64;
    /// `FS_NODUMP_FL`.
    pub const NODUMP: u32 = 128;
    /// `FS_NOATIME_FL`: reads do not change the access time.
    pub const NOATIME: u32 = 256;
    /// A blob: content that belongs to another inode, never named by an entry.
    pub const BLOB: u32 = 512;
    /// It has a watched shadow on the host (`lp_vfs::watch`).
    pub const SHADOW: u32 = 1024;
    /// It was watched itself. All entries of such a directory have shadows.
    pub const WATCHED: u32 = 2048;
    /// It stands for something in the layer below, whose record [`Inode::inline`](super::Inode::inline) names
    /// (`lp_vfs::below`): anything but a symbolic link. Immutable once set, but by an apply.
    pub const ORIGIN: u32 = 1 << 16;
    /// Names or content are still to be taken from the layer below. Of a directory
    /// [`NO_ACL_YET`](super::NO_ACL_YET) may stand in place of its ACL besides, so that no walk passes it
    /// unseen.
    pub const PENDING: u32 = 1 << 17;
    /// It has more links in the layer below than names that were taken.
    pub const LINKED_BELOW: u32 = 1 << 18;
    /// fallocate(2) has taken space for it, of which some may never have been written.
    pub const SPACE: u32 = 1 << 19;
    /// fcntl(2)'s `F_SETLEASE` was used on it: opening or truncating it may have to wait.
    pub const LEASED: u32 = 1 << 20;
    /// A process executes it, or did: opening it for writing must look ([`crate::process::Process::exe`]).
    pub const EXECUTED: u32 = 1 << 21;
    /// The number that `F_SET_RW_HINT` has set.
    pub const WRITE_HINT: u32 = 7 << 22;
    /// A directory in whose place walks find the host's, as if that were mounted there: /proc, /sys and /dev
    /// over a tree that is the host's root directory. Set once, with [`COVERED`](super::COVERED); it has no
    /// entries.
    pub const HOSTS: u32 = 1 << 25;
    /// Pages of it may have no memory in the region's file (`lp_vfs::bare`).
    pub const BARE: u32 = 1 << 26;
    /// A process maps it and may write to it by that: what it has written is not in the times until it looks
    /// (`lp_vfs::mapping::written`).
    pub const WRITABLE_MAP: u32 = 1 << 27;
    /// A regular file whose extended attributes are still to be taken from the layer below.
    /// [`NO_ACL_YET`](super::NO_ACL_YET) may stand in place of its ACL, so that no check passes it unseen.
    pub const XATTRS_BELOW: u32 = 1 << 28;
    /// A regular file whose attributes of the namespace `trusted` are still to be taken: whoever took the
    /// others does not see them.
    pub const TRUSTED_BELOW: u32 = 1 << 29;
    /// Of a blob: it has content of the regular files whose [`Inode::tail`](super::Inode::tail) names it.
    pub const COMMON: u32 = 1 << 30;
    /// The type as in the mode, so that one look tells whether a file is a regular one without a shadow.
    /// Immutable; 0 where only the mode tells.
    pub const KIND: u32 = 0o170_000;
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Inode>() == 256);
    assert!(offset_of!(Inode, seq) == 0 && offset_of!(Inode, mode) == 64 && offset_of!(Inode, lock) == 128);
    assert!(offset_of!(Inode, uid) == offset_of!(Inode, mode) + 4 && offset_of!(Inode, inline) == 192);
};
