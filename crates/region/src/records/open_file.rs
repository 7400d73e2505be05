//! What programs hold of an inode: [`OpenFile`], an open file description, like struct file; [`LockRecord`],
//! a lock on it; [`Mapping`], a mapping of it.

use crate::bias::BiasedLock;
use crate::custody::Custody;
use crate::sync::{AtomicU32, AtomicU64};

/// An open file description, like `struct file`. 128 bytes: a line that every call reads and few change, and
/// one with the position.
#[repr(C, align(128))]
pub struct OpenFile {
    /// Inode and generation. Immutable.
    pub inode: AtomicU64,
    /// `f_flags`: access mode and status flags. Atomic.
    pub flags: AtomicU32,
    /// [`file_mode`], and in the high half the mount it was opened through. Immutable.
    pub mode: AtomicU32,
    /// Generation of the slot. Atomic.
    pub generation: AtomicU32,
    /// Directory through which it was opened; with the entry found there it gives its path. Immutable.
    pub parent: AtomicU32,
    /// Entry found at open; 0 for a root or an O_TMPFILE. Immutable.
    pub dirent: AtomicU32,
    /// 1 while a second descriptor of the same table may name it (dup), 2 once another table may (fork,
    /// SCM_RIGHTS). Atomic; only 1 goes back to 0.
    pub shared: AtomicU32,
    /// Number of the lane among whose closed files it is ([`crate::lane::ClosedFiles`]), or is about to be;
    /// else 0. By that lane, or by who buries it.
    pub closed_by: AtomicU32,
    /// Unused.
    pub unused: [AtomicU32; 7],
    /// `f_pos`. Plain while unshared, else under `lock`.
    pub position: AtomicU64,
    /// Guards the position once the file, or its table, is shared; biased to a sole user. A slot keeps its
    /// bias, which is a hint.
    pub lock: BiasedLock,
    /// Link of the slab's free list, or of a lane's chain of closed files.
    pub link: AtomicU32,
    /// Nonzero while it may hold an flock or OFD lock. Atomic.
    pub locked: AtomicU32,
    /// Runs that have ever sent it over a socket, one bit each: it may be in transit. Atomic, bits are only
    /// set.
    pub in_flight: AtomicU32,
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
    /// In the two low bits: 0 POSIX (owner is a process), 1 OFD, 2 flock (owner is an open file), 3 no lock,
    /// but the target of an open file's signals (`F_SETOWN`). Above: the open file that it was requested
    /// through.
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

const _: () = {
    assert!(size_of::<OpenFile>() == 128 && core::mem::offset_of!(OpenFile, position) == 64);
    assert!(size_of::<LockRecord>() == 64 && size_of::<Mapping>() == 64);
};
