//! The records that live in the region, field by field, with what guards each and who repairs it.
//!
//! Guards: *immutable* (set before the record is linked in), *lock* (changed under the record's lock), *seq*
//! (like lock, and read through the sequence count), *atomic* (a single word that stands alone), *lane* (only
//! the owning lane writes it). [`crate::lane::Intent`] repairs a record unless stated otherwise.

use crate::bias::BiasedLock;
use crate::custody::Custody;
use crate::layout::CHUNK_PAGES;
use crate::lock::OwnerLock;
use crate::moving::Moving;
use crate::seq::Seq;
use crate::shape::Shape;
use crate::signed::Signed;
use crate::stack::Head;
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Programs that the header caches.
pub const PROGRAMS: usize = 64;

/// Header of a region, at offset 0. The first two lines hold what hot calls read, and hardly ever change.
#[repr(C, align(64))]
pub struct Header {
    /// [`crate::layout::MAGIC`]; written last when a region is created.
    pub magic: AtomicU64,
    /// [`crate::layout::VERSION`].
    pub version: AtomicU32,
    /// Checksum of the immutable fields.
    pub checksum: AtomicU32,
    /// Length of the region in bytes, including its data.
    pub length: AtomicU64,
    /// Pages of data the file system may use.
    pub data_pages: AtomicU64,
    /// Random number that distinguishes this region from others (`st_dev`, placeholder names).
    pub identity: AtomicU64,
    /// Inodes the file system may use.
    pub inode_limit: AtomicU64,
    /// Linear hashing: level in the low 31 bits, next bucket to split in the high 32; bit 31 while the last
    /// split is under way. Atomic.
    pub hash_state: AtomicU64,
    /// Bit n is set when root number n is read-only: what new mounts of it start from. Atomic.
    pub read_only: AtomicU32,
    /// Odd while a directory moves or stops being searchable by everyone. Atomic, together with
    /// [`crate::lane::Lane::shifting`].
    pub tree: Shape,
    /// Inode of each root, [`InodeId`](crate::ids::InodeId) by root number; 0 until created. Atomic.
    pub roots: [AtomicU32; 16],
    /// Tickets drawn by waiters for POSIX locks; see [`crate::ring`]. Atomic, only grows.
    pub tickets: AtomicU64,
    /// Guards the splitting of hash buckets; taken only by try-lock.
    pub split_lock: OwnerLock,
    /// Number of lanes up to the highest ever claimed. Atomic, only grows.
    pub lane_limit: AtomicU32,
    /// Number of chunks ever touched: those from here on have never been used. Atomic.
    pub chunk_limit: AtomicU32,
    /// Where the next search for a chunk starts. A hint.
    pub chunk_hint: AtomicU32,
    /// Number of process slots up to the highest ever claimed. Atomic, only grows.
    pub process_limit: AtomicU32,
    /// Per slab: the free slots that no lane caches.
    pub slabs: [SlabHead; 10],
    /// Incremented after each copy of a reference from one table to another
    /// ([`crate::process::Process::moves`] within one): invalidates concurrent scans. Atomic.
    pub moves: AtomicU64,
    /// The number in the name of the life file that the region's processes use ([`crate::life_file`]).
    /// Changed by a launcher under the file's flock, when no run is held.
    pub life: AtomicU64,
    /// 0 if the region is in memory; otherwise its file system may be full, and this is a
    /// [`FileAge`](crate::backing::FileAge). Set by the launcher.
    pub in_file: AtomicU64,
    /// What [`Inode::number`] adds to a slot's index: 0, or [`ABOVE_LAYER`] once a layer is below. Set while
    /// nobody uses the region.
    pub numbers: AtomicU64,
    /// Boot in which the region was last used ([`crate::machine`]); 0 in memory. Changed by a launcher under
    /// the file's flock, when no run is held.
    pub boot: [AtomicU64; 2],
    /// Number of open files up to the highest that was ever sent over a socket. Atomic, only grows.
    pub flown: AtomicU32,
    /// Fingerprints of programs that may be executed, for the gate. Each is atomic on its own.
    pub programs: [AtomicU64; PROGRAMS],
    /// Location of the shadows on the host (`lp_vfs::watch`): random numbers in their path, which no other
    /// user may guess, 0 before the first watch; then the owner of their directory, a user id plus 1, or 1 <<
    /// 32 for the run's. Atomic, set once each.
    pub shadows: [AtomicU64; 3],
    /// The turn of changes to the mounts of all runs, and the lane whose change is being made
    /// ([`crate::mount_change`]). Atomic.
    pub mount_turn: AtomicU64,
    /// Grows with each mount and each peer group. Atomic.
    pub mount_serial: AtomicU32,
    /// Mounts behind the highest in use so far. Atomic, only grows.
    pub mount_limit: AtomicU32,
    /// 1 in a copy that `lightpath freeze` has made, until a run uses it. Changed by a launcher under the
    /// file's flock.
    pub frozen: AtomicU64,
    /// When a process last left in order, in nanoseconds since 1970 ([`crate::machine`]); 0 in memory.
    /// Atomic.
    pub left: AtomicU64,
}

/// Shared part of a slab's allocator; see [`crate::depot`]. A cache line.
#[repr(C, align(64))]
pub struct SlabHead {
    /// First free slot; the links lead to the next ones. Atomic.
    pub free: Head,
    /// Last slot that was ever handed out. Atomic.
    pub fresh: Head,
    /// Free slots that no lane's ledger accounts for, because a repair freed them. Set while nobody uses the
    /// region.
    pub base: AtomicU64,
}

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
    /// `st_ino`: the slot's index above [`Header::numbers`], or the number in the layer below. Immutable.
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
    /// Directory: position of the next new entry. Lock.
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
    /// Target of a short symbolic link; of a file or directory with [`inode_flags::ORIGIN`] the list and the
    /// offset of its record (`lp_vfs::below`). Immutable.
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
}

/// Bit of [`Inode::acl`]: something may be mounted on the inode.
pub const COVERED: u32 = 1 << 31;

/// [`Inode::acl`], but for [`COVERED`], of a directory without an ACL whose names are still to be taken from
/// the layer below.
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
    /// (`lp_vfs::below`): regular files and directories only. Immutable once set.
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
    /// The type as in the mode, so that one look tells whether a file is a regular one without a shadow.
    /// Immutable; 0 where only the mode tells.
    pub const KIND: u32 = 0o170_000;
}

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

/// An open file description, like `struct file`. 64 bytes.
#[repr(C, align(64))]
pub struct OpenFile {
    /// `f_pos`. Plain while unshared, else under `lock`.
    pub position: AtomicU64,
    /// Inode and generation. Immutable.
    pub inode: AtomicU64,
    /// `f_flags`: access mode and status flags. Atomic.
    pub flags: AtomicU32,
    /// 1 while a second descriptor of the same table may name it (dup), 2 once another table may (fork,
    /// SCM_RIGHTS). Atomic; only 1 goes back to 0.
    pub shared: AtomicU32,
    /// Guards the position once shared.
    pub lock: OwnerLock,
    /// Generation of the slot. Atomic.
    pub generation: AtomicU32,
    /// Link of the slab's free list, or of a lane's chain of closed files.
    pub link: AtomicU32,
    /// Directory through which it was opened; with the entry found there it gives its path. Immutable.
    pub parent: AtomicU32,
    /// Entry found at open; 0 for a root or an O_TMPFILE. Immutable.
    pub dirent: AtomicU32,
    /// Nonzero while it may hold an flock or OFD lock. Atomic.
    pub locked: AtomicU32,
    /// Runs that have ever sent it over a socket, one bit each: it may be in transit. Atomic, bits are only
    /// set.
    pub in_flight: AtomicU32,
    /// [`file_mode`], and in the high half the mount it was opened through. Immutable.
    pub mode: AtomicU32,
    /// For a file closed while others may name it: which lane keeps it, and which frees it. Atomic.
    pub custody: Custody,
}

/// Bits of [`OpenFile::mode`].
pub mod file_mode {
    /// `FMODE_READ`.
    pub const READ: u32 = 1;
    /// `FMODE_WRITE`.
    pub const WRITE: u32 = 2;
    /// Opened with `O_PATH`.
    pub const PATH: u32 = 4;
    /// A directory.
    pub const DIR: u32 = 8;
    /// A regular file.
    pub const REGULAR: u32 = 16;
    /// `FMODE_CREATED`: this open made the file.
    pub const CREATED: u32 = 32;
    /// ftruncate(2) is refused: opened by a process that may not truncate it (landlock(7)).
    pub const UNCUT: u32 = 64;
    /// Where the mount's number starts.
    pub const MOUNT_SHIFT: u32 = 16;
}

/// A POSIX, OFD or flock lock. 64 bytes. Guarded by its inode's `locks_lock`; a node of its inode's tree.
#[repr(C, align(64))]
pub struct LockRecord {
    /// First byte.
    pub start: AtomicU64,
    /// Last byte, inclusive; `i64::MAX` means to the end of any file.
    pub end: AtomicU64,
    /// Last byte of all locks in the subtree of which this is the root.
    pub last: AtomicU64,
    /// `F_RDLCK` or `F_WRLCK`.
    pub kind: AtomicU32,
    /// 0 POSIX (owner is a process), 1 OFD, 2 flock (owner is an open file), 3 no lock, but the target of an
    /// open file's signals (`F_SETOWN`).
    pub family: AtomicU32,
    /// Owner: process or open file.
    pub owner: AtomicU32,
    /// Generation of the owner's slot.
    pub owner_generation: AtomicU32,
    /// Left child in the tree, or the slab's link.
    pub link: AtomicU32,
    /// Right child in the tree.
    pub right: AtomicU32,
    /// Process that created it, for `l_pid`; target of an open file's signals.
    pub pid: AtomicU32,
    /// Incremented when the lock shrinks, weakens or goes away; waiters sleep on it. Atomic.
    pub version: AtomicU32,
    /// Number of waiters, including those killed while waiting. Lock.
    pub waiters: AtomicU32,
    /// Inode that it is a lock on; 0 while it is none. Read by repairs of other inodes' trees. Atomic.
    pub inode: AtomicU32,
}

/// One process's mapping of an inode, which keeps the inode from reclaim. 64 bytes. Written only by its
/// process.
#[repr(C, align(64))]
pub struct Mapping {
    /// Inode and generation; 0 while free.
    pub inode: AtomicU64,
    /// Bytes still mapped.
    pub bytes: AtomicU64,
    /// The process that owns the mapping.
    pub process: AtomicU32,
    /// The process's next mapping, or the slab's link.
    pub link: AtomicU32,
    /// The mount that it was last mapped through.
    pub mount: AtomicU32,
    /// [`file_mode::READ`] and [`file_mode::WRITE`] of the open files that it was mapped through.
    pub modes: AtomicU32,
    /// Spare.
    pub spare: [AtomicU64; 4],
}

/// 2 MiB of data pages. 256 bytes.
#[repr(C, align(64))]
pub struct Chunk {
    /// Lane that prefers to allocate from it. A hint: valid while that lane's `pages.chunk` names the chunk.
    pub owner: AtomicU32,
    /// The eighths whose pages have been populated, or reserved in a region's file, and not given back: one
    /// bit each. Atomic; set by a lane that holds a page of the eighth, cleared by a lane that holds all
    /// pages of the chunk.
    pub populated: AtomicU32,
    /// One bit per page, set while the page is in use. Atomic.
    pub used: [Used; CHUNK_PAGES / USED_PAGES],
    /// One bit per page, set once the page was handed out since its memory was last given back: it may hold
    /// old bytes. Atomic; used only by the page's owner.
    pub dirty: [AtomicU64; 8],
}

/// Number of pages in a word of [`Chunk::used`].
pub const USED_PAGES: usize = 32;

/// A word of [`Chunk::used`]. Notes of its exchanges identify the word by the number of the page.
pub type Used = Signed<32, { (1 << PAGE_BITS) - USED_PAGES as u64 }>;

/// Bits of a page's number.
pub const PAGE_BITS: u32 = 30;

impl Chunk {
    /// The pages in use, of 64.
    #[inline]
    pub fn used(&self, word: usize) -> u64 {
        self.used[2 * word].load().value() | self.used[2 * word + 1].load().value() << 32
    }
}

const _: () = {
    use crate::layout as at;
    assert!(size_of::<Inode>() == 256 && size_of::<Dirent>() == 64 && size_of::<Bucket>() == 64);
    assert!(size_of::<OpenFile>() == 64 && size_of::<LockRecord>() == 64 && size_of::<Mapping>() == 64);
    assert!(size_of::<Chunk>() == 256 && size_of::<LongName>() == 256);
    assert!(size_of::<Header>() <= lp_abi::PAGE_SIZE);
    assert!(core::mem::offset_of!(Header, roots) == 64 && core::mem::offset_of!(Header, tickets) == 128);
    assert!(core::mem::offset_of!(Inode, mode) == 64 && core::mem::offset_of!(Inode, lock) == 128);
    assert!(core::mem::offset_of!(Inode, uid) == core::mem::offset_of!(Inode, mode) + 4);
    assert!(core::mem::offset_of!(Inode, seq) == 0 && core::mem::offset_of!(Inode, inline) == 192);
    assert!(at::DATA_AT.is_multiple_of(2 << 20));
    assert!(at::DIRENTS <= 1 << crate::bucket::ID_BITS && at::OVERFLOWS <= 1 << crate::bucket::NEXT_BITS);
};
