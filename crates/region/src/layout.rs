//! The layout of a region. `docs/layout.md` draws it.
//!
//! A region is one sparse file. Each kind of record has a slab of its own at a fixed offset, large enough for
//! the maximum number of records; only touched pages use memory. The number of slots is a power of two, so an
//! index read from a damaged region is masked into the slab instead of being trusted.

use lp_abi::PAGE_SIZE;

/// First eight bytes of a region.
pub const MAGIC: u64 = u64::from_le_bytes(*b"LIGHTPTH");
/// Layout version; a region of another version is refused.
pub const VERSION: u32 = 32;

/// Runs that can use one region at once.
pub const RUNS: usize = 64;
/// Live processes in all runs of a region.
pub const PROCESSES: usize = slots(12);
/// Live threads in all runs of a region.
pub const LANES: usize = 1 << LANE_BITS;
/// Bits of a lane's index in a [`LaneId`](crate::ids::LaneId); the rest is the lane's generation.
pub const LANE_BITS: u32 = 14;
/// Generations of a lane before they repeat. The id's top bit stays free, for [`crate::bias::REVOKED`].
pub const LANE_GENERATIONS: u32 = 1 << (31 - LANE_BITS);
/// Open file descriptions.
pub const FILES: usize = slots(20);
/// Inodes.
pub const INODES: usize = slots(INODE_BITS);
/// Directory entries.
pub const DIRENTS: usize = slots(23);
/// Primary hash buckets, the most that linear hashing grows to.
pub const BUCKETS: usize = slots(21);
/// Overflow hash buckets.
pub const OVERFLOWS: usize = slots(20);
/// Long names.
pub const NAMES: usize = slots(22);
/// Record locks and flocks.
pub const LOCKS: usize = slots(18);
/// Memory mappings of files.
pub const MAPPINGS: usize = slots(18);
/// Descriptors of one process that can be ours.
pub const FDS: usize = slots(16);
/// So many of them have memory as long as their slot is in use; the others only up to `Process::fd_limit`.
pub const FDS_BACKED: usize = 1024;
/// So many neighbouring descriptors are on lines of their own; see [`fd_place`].
pub const FDS_APART: usize = 64;
/// 2 MiB chunks of data.
pub const CHUNKS: usize = slots(21);
/// Pages in a chunk.
pub const CHUNK_PAGES: usize = 512;

/// Descriptors of a table whose entries share a line.
pub const FDS_OF_A_LINE: usize = 8;

/// The descriptor table of a process.
pub type FdLines = [[crate::sync::AtomicU64; FDS_OF_A_LINE]; FDS / FDS_OF_A_LINE];

/// The line of a table, and the word of it, that hold the entry of descriptor `fd`. Within a page of 64
/// lines, 64 neighbours are on lines of their own, so threads that use different descriptors seldom share
/// one. The lowest 64 have the first word of the line with their number.
#[inline(always)]
pub const fn fd_place(fd: usize) -> (usize, usize) {
    let page = fd / (FDS_APART * FDS_OF_A_LINE);
    (page * FDS_APART + fd % FDS_APART, fd / FDS_APART % FDS_OF_A_LINE)
}

/// Slots of a slab. Miri, which allocates the whole region, has fewer.
const fn slots(bits: u32) -> usize {
    1 << if cfg!(miri) && bits > 10 { 10 } else { bits }
}

const MIB: usize = 1 << 20;

const fn after(offset: usize, count: usize, size: usize) -> usize {
    // Each slab starts on a 2 MiB boundary.
    (offset + count * size).next_multiple_of(2 * MIB)
}

/// Offset of the header.
pub const HEADER_AT: usize = 0;
/// Mounts of all runs of a region.
pub const MOUNTS: usize = 1 << MOUNT_BITS;
/// Bits of a mount's number.
pub(crate) const MOUNT_BITS: u32 = 8;
/// A mount's record has 2 to this many bytes.
pub const MOUNT_SIZE_BITS: u32 = 7;
/// Bits of an inode's number; a mount's fits above it in one word.
pub(crate) const INODE_BITS: u32 = 23;
/// Root numbers: file systems of a region.
pub const SUPERBLOCKS: usize = 256;
/// Root numbers of the file systems that command lines name. The others are made by mount(2).
pub const COMMAND_ROOTS: usize = 16;
/// Offset of the mounts. They, and what a process reads of the first run's record, are in the 64 KiB that the
/// kernel maps when the process first reads the header.
pub const MOUNTS_AT: usize = PAGE_SIZE;
/// Offset of the run records.
pub const RUNS_AT: usize = (MOUNTS_AT + MOUNTS * 128).next_multiple_of(PAGE_SIZE);
/// Bytes of a run record.
pub const RUN_SIZE: usize = 16384;
/// Offset of the file systems made by mount(2).
pub const SUPERBLOCKS_AT: usize = RUNS_AT + RUNS * RUN_SIZE;
/// Offset of the lanes: the first ones share the 2 MiB, and so the page table, of the header and the runs.
pub const LANES_AT: usize = (SUPERBLOCKS_AT + SUPERBLOCKS * 64).next_multiple_of(16 * PAGE_SIZE);
/// Bytes from one lane to the next.
pub const LANE_SIZE: usize = 8192;
/// Bytes of a process record.
pub const PROCESS_SIZE: usize = 1024;
/// Offset of the process records. Each is at the end of the lane with its number, which is usually that of
/// its first thread, so a new image faults in both at once.
pub const PROCESSES_AT: usize = LANES_AT + LANE_SIZE - PROCESS_SIZE;
/// Offset of the lanes' changes of mounts ([`crate::mount_change`]): only a lane that mounts touches its own.
pub const PLANS_AT: usize = after(LANES_AT, LANES, LANE_SIZE);
/// Bytes from one of them to the next.
pub const PLAN_SIZE: usize = PAGE_SIZE;
/// Offset of what does not fit the lanes' own lists of unlinked inodes ([`crate::lane::Unlinked`]): only a
/// lane that unlinks many touches its own.
pub const UNLINKED_AT: usize = after(PLANS_AT, LANES, PLAN_SIZE);
/// Bytes from one of them to the next, as from one lane to the next.
pub const UNLINKED_SIZE: usize = LANE_SIZE;
/// Offset of the open file descriptions.
pub const FILES_AT: usize = after(UNLINKED_AT, LANES, UNLINKED_SIZE);
/// Offset of the inodes.
pub const INODES_AT: usize = after(FILES_AT, FILES, 128);
/// Offset of the directory entries.
pub const DIRENTS_AT: usize = after(INODES_AT, INODES, 256);
/// Offset of the primary hash buckets.
pub const BUCKETS_AT: usize = after(DIRENTS_AT, DIRENTS, 64);
/// Offset of the overflow hash buckets.
pub const OVERFLOWS_AT: usize = after(BUCKETS_AT, BUCKETS, 64);
/// Offset of the long names.
pub const NAMES_AT: usize = after(OVERFLOWS_AT, OVERFLOWS, 64);
/// Offset of the lock records.
pub const LOCKS_AT: usize = after(NAMES_AT, NAMES, 256);
/// Offset of the mapping records.
pub const MAPPINGS_AT: usize = after(LOCKS_AT, LOCKS, 64);
/// Offset of the descriptor tables.
pub const FD_TABLES_AT: usize = after(MAPPINGS_AT, MAPPINGS, 64);
/// Offset of the chunk records.
pub const CHUNKS_AT: usize = after(FD_TABLES_AT, PROCESSES * FDS, 8);
/// Offset of the page owners, one word per page.
pub const OWNERS_AT: usize = after(CHUNKS_AT, CHUNKS, 256);
/// Offset of the data pages. A region's length is this plus its data.
pub const DATA_AT: usize = after(OWNERS_AT, CHUNKS * CHUNK_PAGES, 8);
