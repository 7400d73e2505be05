//! The layout of a region. `docs/layout.md` draws it.
//!
//! A region is one sparse file. Each kind of record has a slab of its own at a fixed offset, large enough for
//! the maximum number of records; only touched pages use memory. The number of slots is a power of two, so an
//! index read from a damaged region is masked into the slab instead of being trusted.

use core::ops::Range;

use lp_abi::PAGE_SIZE;

/// First eight bytes of a region.
pub const MAGIC: u64 = u64::from_le_bytes(*b"LIGHTPTH");
/// Layout version; a region of another version is refused.
pub const VERSION: u32 = 37;

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
pub const DIRENTS: usize = slots(24);
/// So many of them are beside the inodes; the others lie apart, so that what a process with few files uses is
/// in the first GiB.
const DIRENTS_NEAR: usize = slots(22);
/// Primary hash buckets, the most that linear hashing grows to.
pub const BUCKETS: usize = slots(22);
/// Overflow hash buckets.
pub const OVERFLOWS: usize = slots(20);
/// Long names.
pub const NAMES: usize = slots(24);
/// Record locks and flocks.
pub const LOCKS: usize = slots(18);
/// Memory mappings of files.
pub const MAPPINGS: usize = slots(18);
/// Descriptors of one process that can be ours.
pub const FDS: usize = slots(16);
/// So many of them have their entries in the process's lane.
pub const FDS_NEAR: usize = 512;
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

/// Lines of a descriptor table.
pub type FdLines<const LINES: usize> = [[crate::sync::AtomicU64; FDS_OF_A_LINE]; LINES];

/// The entries in the lane.
pub type NearFds = FdLines<{ FDS_NEAR / FDS_OF_A_LINE }>;

/// The whole table. Its first page is not used: those entries are in the lane.
pub type FarFds = FdLines<{ FDS / FDS_OF_A_LINE }>;

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

/// The boundary of two slabs that grow away from each other, the lower one with `below` bytes from `offset`
/// on: in the middle of the 2 MiB of a page table, and of the 64 KiB that the kernel maps at a fault.
const fn between(offset: usize, below: usize) -> usize {
    (offset + below).next_multiple_of(2 * MIB) + MIB + 8 * PAGE_SIZE
}

/// Where the slots of a slab are: side by side, upwards or downwards from the first. Those from `near` on may
/// lie apart.
#[derive(Clone, Copy)]
pub struct Slab {
    first: usize,
    size: usize,
    /// Number of slots, a power of two.
    pub slots: usize,
    is_down: bool,
    near: usize,
    /// What `first` is for the far slots: where slot 0 would be if it were side by side with them.
    first_of_far: usize,
}

impl Slab {
    /// From `first` on upwards.
    pub const fn up(first: usize, slots: usize, size: usize) -> Slab {
        Slab { first, size, slots, is_down: false, near: slots, first_of_far: first }
    }

    const fn down(first: usize, slots: usize, size: usize) -> Slab {
        Slab { is_down: true, ..Slab::up(first, slots, size) }
    }

    /// With more slots, `slots` in all. The new ones are in the same direction, up to `last`.
    const fn with_far(self, slots: usize, last: usize) -> Slab {
        let bytes = (slots - 1) * self.size;
        let first_of_far = if self.is_down { last + bytes } else { last - bytes };
        Slab { slots, first_of_far, ..self }
    }

    /// Offset of a slot in the region; the index is masked.
    #[inline(always)]
    pub const fn offset(&self, index: usize) -> usize {
        let index = index & (self.slots - 1);
        let first = if index < self.near { self.first } else { self.first_of_far };
        if self.is_down { first - index * self.size } else { first + index * self.size }
    }

    /// The bytes of slots, all of them near or all far.
    pub const fn bytes(&self, slots: Range<usize>) -> Range<usize> {
        let first = if slots.start < self.near { self.first } else { self.first_of_far };
        let (near, far) = (slots.start * self.size, slots.end * self.size);
        match self.is_down {
            true => first + self.size - far..first + self.size - near,
            false => first + near..first + far,
        }
    }

    /// The bytes of the slots before `end`: of those that are near, and of the others.
    pub const fn parts(&self, end: usize) -> [Range<usize>; 2] {
        let (near, far) = if end < self.near { (end, self.near) } else { (self.near, end) };
        [self.bytes(0..near), self.bytes(self.near..far)]
    }

    /// All bytes of the near slots.
    pub const fn all(&self) -> Range<usize> {
        self.bytes(0..self.near)
    }

    /// All bytes: of the near slots, and of the far ones.
    pub const fn whole(&self) -> [Range<usize>; 2] {
        self.parts(self.slots)
    }

    /// The slots with a byte in these, which are bytes of near slots, or of far ones.
    pub const fn slots_in(&self, bytes: Range<usize>) -> Range<usize> {
        let near = self.all();
        let is_near = near.start <= bytes.start && bytes.start < near.end;
        let first = if is_near { self.first } else { self.first_of_far };
        let (from, to) = match self.is_down {
            true => (first + self.size - bytes.end, first + self.size - bytes.start),
            false => (bytes.start - first, bytes.end - first),
        };
        from / self.size..to.div_ceil(self.size)
    }

    /// The slot that has this byte.
    pub const fn slot_at(&self, offset: usize) -> usize {
        self.slots_in(offset..offset + 1).start
    }
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
pub(crate) const INODE_BITS: u32 = 24;
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
/// Bytes of the record of a file system made by mount(2).
pub const SUPERBLOCK_SIZE: usize = 128;
/// Offset of the file systems made by mount(2).
pub const SUPERBLOCKS_AT: usize = RUNS_AT + RUNS * RUN_SIZE;
/// Offset of the lanes: the first ones share the 2 MiB, and so the page table, of the header and the runs.
pub const LANES_AT: usize = (SUPERBLOCKS_AT + SUPERBLOCKS * SUPERBLOCK_SIZE).next_multiple_of(16 * PAGE_SIZE);
/// Bytes from one lane to the next: the lane's record, a process's and the first of its descriptor table.
pub const LANE_SIZE: usize = PROCESS_IN_LANE + PROCESS_SIZE + FDS_NEAR * 8;
/// The lanes.
pub const LANE_SLAB: Slab = Slab::up(LANES_AT, LANES, LANE_SIZE);
/// Bytes from a lane to the record of the process with its number, which is usually its first thread's: a new
/// image faults in both at once.
pub const PROCESS_IN_LANE: usize = 7168;
/// Bytes of a process record.
pub const PROCESS_SIZE: usize = 1024;
/// Offset of the process records.
pub const PROCESSES_AT: usize = LANES_AT + PROCESS_IN_LANE;
/// Bytes from a lane to the first [`FDS_NEAR`] entries of the descriptor table of the process with its number.
pub const FDS_IN_LANE: usize = PROCESS_IN_LANE + PROCESS_SIZE;

const BUCKETS_END: usize = between(LANES_AT, LANES * LANE_SIZE + BUCKETS * 64);
/// The primary hash buckets. They and the open files grow away from each other, and so do the other slabs that
/// a process with few files uses: a slab on its own needs a page table, and often a directory of page tables.
pub const BUCKET_SLAB: Slab = Slab::down(BUCKETS_END - 64, BUCKETS, 64);
/// The open file descriptions.
pub const FILE_SLAB: Slab = Slab::up(BUCKETS_END, FILES, 128);
const DIRENTS_END: usize = between(BUCKETS_END, FILES * 128 + DIRENTS_NEAR * 64);
/// The directory entries.
pub const DIRENT_SLAB: Slab =
    Slab::down(DIRENTS_END - 64, DIRENTS_NEAR, 64).with_far(DIRENTS, DIRENTS_FAR_AT);
/// The inodes.
pub const INODE_SLAB: Slab = Slab::up(DIRENTS_END, INODES, 256);
/// Offset of the directory entries that are not beside the inodes.
pub const DIRENTS_FAR_AT: usize = after(DIRENTS_END, INODES, 256);
/// The overflow hash buckets.
pub const OVERFLOW_SLAB: Slab = Slab::up(after(DIRENTS_FAR_AT, DIRENTS - DIRENTS_NEAR, 64), OVERFLOWS, 64);
/// The long names.
pub const NAME_SLAB: Slab = Slab::up(after(OVERFLOW_SLAB.first, OVERFLOWS, 64), NAMES, 256);
/// The lock records.
pub const LOCK_SLAB: Slab = Slab::up(after(NAME_SLAB.first, NAMES, 256), LOCKS, 64);
/// The mapping records.
pub const MAPPING_SLAB: Slab = Slab::up(after(LOCK_SLAB.first, LOCKS, 64), MAPPINGS, 64);
/// Offset of the lanes' changes of mounts ([`crate::mount_change`]): only a lane that mounts touches its own.
pub const PLANS_AT: usize = after(MAPPING_SLAB.first, MAPPINGS, 64);
/// Bytes from one of them to the next.
pub const PLAN_SIZE: usize = PAGE_SIZE;
/// Offset of what does not fit the lanes' own lists of unlinked inodes ([`crate::lane::Unlinked`]): only a
/// lane that unlinks many touches its own.
pub const UNLINKED_AT: usize = after(PLANS_AT, LANES, PLAN_SIZE);
/// Bytes from one of them to the next.
pub const UNLINKED_SIZE: usize = 2 * PAGE_SIZE;
/// Offset of the descriptor tables beyond what is in the lanes.
pub const FD_TABLES_AT: usize = after(UNLINKED_AT, LANES, UNLINKED_SIZE);

/// Bytes whose page tables share a directory. Miri allocates the whole region.
const DIRECTORY: usize = if cfg!(miri) { 2 * MIB } else { 1 << 30 };
const OWNERS_END: usize =
    between((FD_TABLES_AT + PROCESSES * FDS * 8 + CHUNKS * CHUNK_PAGES * 8).next_multiple_of(DIRECTORY), 0);
/// The owners of pages, one word per page. The chunk records are on the other side, and the data pages begin
/// in the same GiB.
pub const OWNER_SLAB: Slab = Slab::down(OWNERS_END - 8, CHUNKS * CHUNK_PAGES, 8);
/// The same by chunks: the words of a chunk's pages.
pub const CHUNK_OWNER_SLAB: Slab = Slab::down(OWNERS_END - CHUNK_PAGES * 8, CHUNKS, CHUNK_PAGES * 8);
/// Offset of the chunk records.
pub const CHUNKS_AT: usize = OWNERS_END;
/// Offset of the data pages. A region's length is this plus its data.
pub const DATA_AT: usize = after(CHUNKS_AT, CHUNKS, 256);

const _: () = assert!(LANE_SIZE.is_multiple_of(PAGE_SIZE) && FDS_IN_LANE.is_multiple_of(PAGE_SIZE));
// All that a process with few files needs is in the first GiB and in the last before the data.
const _: () =
    assert!(cfg!(miri) || (DIRENTS_END < DIRECTORY && DATA_AT / DIRECTORY == OWNERS_END / DIRECTORY));
