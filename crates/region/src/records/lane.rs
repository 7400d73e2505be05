//! [`Lane`]: state that one thread alone writes and others read.

use lp_abi::linux::{
    __NR_copy_file_range, __NR_getdents, __NR_getdents64, __NR_pread64, __NR_preadv, __NR_preadv2,
    __NR_pwrite64, __NR_pwritev, __NR_pwritev2, __NR_read, __NR_readv, __NR_sendfile, __NR_splice, __NR_tee,
    __NR_write, __NR_writev,
};

use crate::ids::{InodeRef, LaneId};
use crate::layout;
use crate::lock::OwnerLock;
use crate::quiescent::Quiescent;
use crate::ring::WaitingFor;
use crate::signed::Note;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Free slots of one slab that a lane caches.
pub const CACHE_SLOTS: usize = 30;
/// Unlinked inodes that a lane lists in its own record.
pub const UNLINKED_NEAR: usize = 64;
/// Unlinked inodes that a lane lists at most; those after the first [`UNLINKED_NEAR`] in pages of its own.
pub const UNLINKED: usize = UNLINKED_NEAR + layout::UNLINKED_SIZE / size_of::<AtomicU64>();
/// Call numbers that `--stats` counts.
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

/// A lane. 7 KiB, followed by a process record: three lines that other lanes read, the intent, unlinked
/// inodes, allocation caches, counters.
///
/// Only the owning thread writes a field (guard: *lane*). The reaper takes over once the owner is dead.
#[repr(C, align(64))]
pub struct Lane {
    /// Process that owns the lane; 0 if free. Atomic: claimed by compare-and-swap. Others read this line to
    /// know whether the lane is alive; it seldom changes.
    pub process: AtomicU32,
    /// Thread id; [`GONE`] once the thread is known to have ended while its process lives.
    pub tid: AtomicU32,
    /// The lane's own id, which it writes into the locks that it takes.
    pub id: AtomicU32,
    /// Incremented each time the lane is given up, and by a burial; the high bits of a [`LaneId`]. Atomic.
    pub generation: AtomicU32,
    /// Guards the burial of the lane: replaying its intent and freeing its slots.
    pub burial: OwnerLock,
    /// Lock that the lane waits for, as an offset in the region; 0 if none.
    pub waits_for: AtomicU64,
    /// Another process's POSIX lock that the thread waits for, read to detect EDEADLK: [`crate::ids::LockId`]
    /// and, in the high half, the lock's version.
    pub posix_wait: WaitingFor,
    /// Nonzero while the lane changes where paths lead; see [`crate::shape`].
    pub shifting: AtomicU32,
    /// Mounts inside others ([`crate::ids::MountId`]) that the last walks of the lane went through: their
    /// records are not used again meanwhile. They stay until the next walk.
    pub walked: [AtomicU32; 3],
    /// Mount through which this lane is changing files ([`crate::ids::MountId::mark`]); 0 none: the
    /// mount-writer mark. This line changes in almost every call; only rare calls read another lane's.
    pub writing: AtomicU32,
    /// Nesting of `writing`.
    pub writing_depth: AtomicU32,
    /// Pins: open files ([`crate::ids::FileId`]) and inodes (1 << 32 | [`crate::ids::InodeId`]) that must not
    /// be reclaimed.
    pub pins: [AtomicU64; 6],
    /// Nonzero while the lane changes its process's descriptor table beside other threads; see
    /// [`crate::beside`].
    pub changing: AtomicU32,
    /// Number of the open file whose biased position the lane holds; 0 if none. An inode's lock may be held
    /// besides.
    pub seeking: AtomicU32,
    /// Number of the inode whose biased lock the lane holds; 0 if none. See [`crate::bias`]. On a line of its
    /// own: whoever wants one of those locks reads it.
    pub holding: AtomicU32,
    /// What the lane tells those that wait for the end of calls; see [`crate::quiescent`].
    pub quiescent: Quiescent,
    /// The change in progress; see [`Intent`].
    pub intent: Intent,
    /// Slot taken from each cache and not yet linked in.
    pub taken: [AtomicU32; 12],
    /// The record that the lane has claimed or is freeing: index and, in the high half, generation.
    pub claims: [AtomicU64; 2],
    /// Inodes without links that this lane unlinked, or of which it closed a file. They stay for the lane's
    /// next owner.
    pub unlinked: Unlinked,
    /// Heads of the lane's chains: closed files, and inodes without links; see [`crate::custody`]. They stay
    /// for the lane's next owner. Only the lane's owner changes them.
    pub chains: [AtomicU32; 2],
    /// The record being unlinked from each chain.
    pub unlisting: [AtomicU32; 2],
    /// Files and inodes added to its chains since it last began to sweep each chain.
    pub arrived: [AtomicU32; 2],
    /// Inodes that its last sweep left in the chain.
    pub kept: AtomicU32,
    /// Directories that the lane has marked as moving; see [`crate::moving`].
    pub moves: [AtomicU32; 2],
    /// The exchange of the number of files that share an inode's content ([`crate::records::Members`]).
    pub sharing: Note,
    /// Files that it has closed; see [`ClosedFiles`].
    pub closed: ClosedFiles,
    /// Caches of free slots, by slab.
    pub caches: [LaneCache; 12],
    /// Page allocation.
    pub pages: PageMarks,
    /// Slots in transit between each cache and the slab's shared part.
    pub moving: [Moving; 12],
    /// Reads of content.
    pub reads: Reads,
    /// Calls answered in the process, by number.
    pub answered: [AtomicU32; COUNTED_CALLS],
    /// Calls passed to the kernel, by number.
    pub passed: [AtomicU32; COUNTED_CALLS],
    /// Bytes moved by calls answered in the process, by index in [`MOVING_CALLS`].
    pub bytes: [AtomicU64; MOVING_CALLS.len()],
}

impl Lane {
    /// The lane's number, which names it as an owner.
    #[inline]
    pub fn number(&self) -> u32 {
        LaneId(self.id.load(Ordering::Relaxed)).number() // Relaxed: changed while nobody owns it.
    }
}

/// A change of more than one word, recorded before its first step so that any process can finish it.
///
/// `op` is stored last and cleared last. The code that owns the operation defines the words
/// (`lp_vfs::intent`).
#[repr(C, align(64))]
pub struct Intent {
    /// Operation; 0 none.
    pub op: AtomicU64,
    /// Its arguments.
    pub words: [AtomicU64; INTENT_WORDS],
}

/// Inodes without links that a lane released, to be freed. A lane that frees one leaves the reference here,
/// and its generation shows that it is stale. Only the owning lane removes references.
#[repr(C)]
pub struct Unlinked {
    /// Number of references.
    pub count: AtomicU32,
    /// Pages of those inodes that were added since the lane last ran a sweep.
    pub pages: AtomicU32,
    /// References beyond the first [`UNLINKED_NEAR`] that the lane lists before it runs a sweep.
    pub far: AtomicU32,
    /// No reference at or after this place is [`UNNAMED`], unless the lane's former owner died.
    pub unnamed: AtomicU32,
    /// The first references ([`InodeRef`], [`UNNAMED`]). [`crate::region::Region::unlinked`] has them all.
    pub inodes: [AtomicU64; UNLINKED_NEAR],
}

/// Set in a reference of [`Unlinked`] to an inode that a sweep has found to be named by nothing: it stays so,
/// and may be freed without another look.
pub const UNNAMED: u64 = 1 << 31;

const _: () = assert!(layout::INODES as u64 <= UNNAMED);

impl Unlinked {
    /// References that the lane lists before it runs a sweep.
    #[inline(always)]
    pub fn room(&self) -> usize {
        UNLINKED_NEAR + self.far.load(Ordering::Relaxed) as usize // Relaxed: the lane's own.
    }

    /// The inode of a reference.
    #[inline(always)]
    pub const fn inode(word: u64) -> InodeRef {
        InodeRef::from_word(word & !UNNAMED)
    }
}

/// Open files that the lane has taken out of their only entry while threads shared the table: three chains
/// (`lp_vfs::grace`). Only the lane's owner touches them. Each head is 0 if there are none.
#[repr(C)]
pub struct ClosedFiles {
    /// The last closed of those that calls under way may still use.
    pub waiting: AtomicU32,
    /// Their number.
    pub count: AtomicU32,
    /// The first of those that calls may use until a period is over.
    pub due: AtomicU32,
    /// The first of those that no call uses, to be allocated again.
    pub idle: AtomicU32,
    /// The period ([`crate::quiescent`]) of those that are due.
    pub period: AtomicU64,
}

/// Free slots of one slab that a lane caches.
#[repr(C)]
pub struct LaneCache {
    /// Number of slots.
    pub count: AtomicU32,
    /// The slots.
    pub slots: [AtomicU32; CACHE_SLOTS],
}

/// A lane's operation on the shared part of one slab; see [`crate::depot`].
#[repr(C)]
pub struct Moving {
    /// The batch in transit.
    pub note: Note,
    /// Slots that the lane pushed onto the stack less those that it popped, modulo 2^32, in the low half; in
    /// the high half the turn of the last exchange counted.
    pub ledger: AtomicU64,
}

/// State of page allocation kept between two allocations, and the pages in the lane's hands. A cache line:
/// other lanes confirm its exchanges.
#[repr(C, align(64))]
pub struct PageMarks {
    /// Chunk that the lane allocates from, plus one; 0 if none.
    pub chunk: AtomicU32,
    /// Page where the next search starts: after the last page taken, or the first one freed.
    pub next: AtomicU32,
    /// Pages in transit between free and linked in: the count and the first page (`lp_vfs::chunk` packs
    /// them).
    pub moving: AtomicU64,
    /// The exchange that adds pages to the end of these, or removes them.
    pub note: Note,
    /// Inode into whose map or attributes the pages will be, or were, linked.
    pub inode: AtomicU32,
    /// Pages to populate ahead of use; grows while that pays off.
    pub ahead: AtomicU32,
    /// Index of the first of them in the inode's content.
    pub index: AtomicU64,
    /// Page after the last one populated ahead of use.
    pub ready: AtomicU32,
}

/// What a lane notes of its reads of content, on a line that no other lane reads: each read writes it.
#[repr(C, align(64))]
pub struct Reads {
    /// The second that the lane last read from the clock; never in the future.
    pub second: AtomicU64,
    /// Reads answered, used to read the clock only once in a while.
    pub count: AtomicU32,
}

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Lane>() <= crate::layout::PROCESS_IN_LANE);
    assert!(
        offset_of!(Lane, writing) == 64
            && offset_of!(Lane, holding) == 128
            && offset_of!(Lane, intent) == 192
    );
};
