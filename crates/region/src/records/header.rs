//! [`Header`]: the first page of a region; [`SlabHead`]: the shared part of a slab.

use crate::lock::OwnerLock;
use crate::shape::Shape;
use crate::stack::Head;
use crate::sync::{AtomicU32, AtomicU64};

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
    /// What [`Inode::number`](crate::records::Inode::number) adds to a slot's index and generation: 0, or
    /// [`ABOVE_LAYER`](crate::records::ABOVE_LAYER) once a layer is below. Set while nobody uses the region.
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

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Header>() <= lp_abi::PAGE_SIZE);
    assert!(offset_of!(Header, roots) == 64 && offset_of!(Header, tickets) == 128);
    assert!(crate::layout::DATA_AT.is_multiple_of(2 << 20));
};
