//! [`Lane`]: what one thread alone writes, for others to find.

use lp_abi::linux::{
    __NR_copy_file_range, __NR_getdents, __NR_getdents64, __NR_pread64, __NR_preadv, __NR_preadv2,
    __NR_pwrite64, __NR_pwritev, __NR_pwritev2, __NR_read, __NR_readv, __NR_sendfile, __NR_splice, __NR_tee,
    __NR_write, __NR_writev,
};

use crate::layout::LANE_BITS;
use crate::lock::OwnerLock;
use crate::ring::Wait;
use crate::signed::Note;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Slots that a lane keeps of one slab.
pub const CACHE_SLOTS: usize = 30;
/// Inodes that a lane unlinks before it runs a reclaim.
pub const UNLINKED: usize = 64;
/// Calls that `--stats` tells apart: the kernel's numbers.
pub const COUNTED_CALLS: usize = 470;
/// [`Lane::tid`] of a thread that exec has ended.
pub const GONE: u32 = u32::MAX;
/// Calls whose result is a number of bytes, for `--stats`.
pub const MOVING_CALLS: [u32; 16] = [
    __NR_read,
    __NR_write,
    __NR_pread64,
    __NR_pwrite64,
    __NR_readv,
    __NR_writev,
    __NR_sendfile,
    __NR_getdents,
    __NR_getdents64,
    __NR_splice,
    __NR_tee,
    __NR_preadv,
    __NR_pwritev,
    __NR_copy_file_range,
    __NR_preadv2,
    __NR_pwritev2,
];
/// Words of an intent.
pub const INTENT_WORDS: usize = 15;

/// A lane. 7 KiB, before a process record: two lines of marks, the intent, what it has unlinked, allocation caches,
/// counters.
///
/// Every field is the owning thread's to write (guard: *lane*); the reaper takes over once the owner is dead.
#[repr(C, align(64))]
pub struct Lane {
    /// Process that owns it; 0 free. Atomic: claimed by compare-and-swap.
    pub process: AtomicU32,
    /// Thread id; [`GONE`] once the thread is known to be gone while its process lives.
    pub tid: AtomicU32,
    /// Mount through which this lane is changing files ([`crate::ids::MountId::mark`]); 0 none: the mount-writer mark.
    pub writing: AtomicU32,
    /// Nesting of `writing`.
    pub writing_depth: AtomicU32,
    /// Inode whose biased lock it is in, by number; 0 none. See [`crate::bias`].
    pub holding: AtomicU32,
    /// Pins: open files ([`crate::ids::FileId`]) and inodes (1 << 32 | [`crate::ids::InodeId`]) that must not be reclaimed.
    pub pins: [AtomicU64; 6],
    /// What this lane is changing; see [`Intent`].
    pub intent: Intent,
    /// Slot taken from each cache and not linked in yet.
    pub taken: [AtomicU32; 12],
    /// Inodes whose last link it took. They stay for the lane's next owner.
    pub unlinked: Unlinked,
    /// Heads of the lane's chains, closed files and inodes without links; see [`crate::custody`]. They stay for the lane's next
    /// owner. Whoever owns the lane changes them.
    pub chains: [AtomicU32; 2],
    /// What of each chain is being unlinked.
    pub unlisting: [AtomicU32; 2],
    /// What it claims or frees: index and, in the high half, generation.
    pub claims: [AtomicU64; 2],
    /// Files that came to its chain, and inodes, since it last began to sweep the chain.
    pub arrived: [AtomicU32; 2],
    /// Inodes that its last sweep of the chain left there.
    pub kept: AtomicU32,
    /// Whether it changes where paths lead; see [`crate::shape`].
    pub shifting: AtomicU32,
    /// Directories that it has marked as moving; see [`crate::moving`].
    pub moves: [AtomicU32; 2],
    /// Lock that it waits for, an offset in the region; 0 none.
    pub waits_for: AtomicU64,
    /// Caches of free slots, by slab.
    pub caches: [LaneCache; 12],
    /// Page allocation.
    pub pages: PageMarks,
    /// Calls answered in process, by number.
    pub answered: [AtomicU32; COUNTED_CALLS],
    /// Calls passed to the kernel, by number.
    pub passed: [AtomicU32; COUNTED_CALLS],
    /// Bytes moved by calls answered in process, by place in [`MOVING_CALLS`].
    pub bytes: [AtomicU64; MOVING_CALLS.len()],
    /// The lane itself, as its owner: what it writes into the locks that it takes.
    pub id: AtomicU32,
    /// Slots on their way between each cache and the slab's shared part.
    pub moving: [Moving; 12],
    /// Grows each time the lane is claimed; the high bits of a [`LaneId`](crate::ids::LaneId). Atomic.
    pub generation: AtomicU32,
    /// Guards the burial of the lane: replaying its intent, giving its slots back.
    pub burial: OwnerLock,
    /// POSIX lock of another process that the thread waits for, read for EDEADLK: [`crate::ids::LockId`] and,
    /// in the high half, the lock's version.
    pub posix_wait: Wait,
}

impl Lane {
    /// Its number, as its owner.
    #[inline]
    pub fn number(&self) -> u32 {
        self.id.load(Ordering::Relaxed) & ((1 << LANE_BITS) - 1) // Relaxed: changed while nobody owns it.
    }
}

/// A change of more than one word, written down before its first step so that anybody can finish it.
///
/// `op` is stored last and cleared last. What the words mean is the business of the code that owns the operation
/// (`lp_vfs::intent`).
#[repr(C, align(64))]
pub struct Intent {
    /// Operation; 0 none.
    pub op: AtomicU64,
    /// Its arguments.
    pub words: [AtomicU64; INTENT_WORDS],
}

/// Inodes that a lane unlinked, for a sweep to free. Whoever frees them leaves their references here, which their
/// generations tell; only the lane takes them out.
#[repr(C)]
pub struct Unlinked {
    /// How many.
    pub count: AtomicU32,
    /// Pages that those had which came since the lane last ran a reclaim.
    pub pages: AtomicU32,
    /// Which ([`crate::ids::InodeRef`]).
    pub inodes: [AtomicU64; UNLINKED],
}

/// Free slots of one slab in a lane's hands.
#[repr(C)]
pub struct LaneCache {
    /// How many.
    pub count: AtomicU32,
    /// Which.
    pub slots: [AtomicU32; CACHE_SLOTS],
}

/// What a lane does at the shared part of one slab; see [`crate::depot`].
#[repr(C)]
pub struct Moving {
    /// The batch on its way.
    pub note: Note,
    /// Slots that the lane put on the stack less those that it took off, modulo 2^32, in the low half; in the
    /// high one the turn of the last exchange that is counted.
    pub ledger: AtomicU64,
}

/// What a lane remembers between two allocations of pages, and which pages are in its hands.
#[repr(C)]
pub struct PageMarks {
    /// Chunk it allocates from, plus one; 0 none.
    pub chunk: AtomicU32,
    /// Page where its next search starts: behind the last it took, or the first it gave back.
    pub next: AtomicU32,
    /// Pages between free and linked in: how many, the first (`lp_vfs::chunk` packs it).
    pub moving: AtomicU64,
    /// Pages that become, or cease to be, the last of them.
    pub note: Note,
    /// Inode whose map or attributes they are to be linked into, or were.
    pub inode: AtomicU32,
    /// Pages to make memory for ahead of use; grows while it pays.
    pub ahead: AtomicU32,
    /// Index in the inode's content of the first of them.
    pub index: AtomicU64,
    /// Page behind the last that memory was made for ahead of use.
    pub ready: AtomicU32,
    /// Reads answered, to look at the clock once in a while.
    pub reads: AtomicU32,
    /// Second that the lane last saw on the clock: never later than now.
    pub second: AtomicU64,
}

const _: () = assert!(size_of::<Lane>() <= crate::layout::LANE_SIZE - crate::layout::PROCESS_SIZE);
