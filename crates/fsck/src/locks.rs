//! Locks: their words and their locations.

use core::mem::offset_of;

use lp_region::LaneId;
use lp_region::bias::BiasedLock;
use lp_region::lane::Lane;
use lp_region::layout::{self as at, LANE_BITS, Slab};
use lp_region::lock::OwnerLock;
use lp_region::process::Process;
use lp_region::records::{Header, Inode, OpenFile};
use lp_region::sync::{AtomicU32, Ordering::Relaxed};

use crate::Check;

impl Check<'_> {
    /// A lock between calls must be free, or held by the dead.
    pub(crate) fn lock(&mut self, lock: &OwnerLock, of: impl Fn() -> String) {
        let [owner, contended] = words(lock).each_ref().map(|word| word.load(Relaxed));
        if owner != 0 {
            let lane = self.region.lane(LaneId(owner));
            let is_free = lane.process.load(Relaxed) == 0;
            if is_free && lane.generation.load(Relaxed) == owner >> LANE_BITS {
                // The lane's next owner would wait for itself.
                self.structure(|| format!("{} is held by lane {owner:#x}, which nobody has", of()));
            } else if self.is_dead(LaneId(owner)) {
                self.leftover(|| format!("{} is held by a dead thread (lane {owner:#x})", of()));
            } else {
                self.inconsistent(|| format!("{} is held by lane {owner:#x}, which is in no call", of()));
            }
        }
        if contended != 0 && !self.awaited.contains(&self.region.offset_of(lock)) {
            // A waiter died as it stopped waiting: each unlock makes a needless system call until another
            // waiter comes.
            self.leftover(|| format!("{} expects waiters and nobody waits", of()));
        }
    }

    /// Whether a dead thread is inside an inode's lock: it has the inner lock, or its mark names the lock.
    /// The bias alone says only who may enter by a mark.
    pub(crate) fn is_held_by_the_dead(&self, inode: &Inode) -> bool {
        let [owner, .., key] = inode_words(inode).each_ref().map(|word| word.load(Relaxed));
        let is_dead = |lane: u32| lane != 0 && self.is_dead(LaneId(lane));
        let is_marked = |lane: &Lane| lane.holding.load(Relaxed) == key && is_dead(lane.id.load(Relaxed));
        is_dead(owner) || key != 0 && (1..self.lanes).any(|lane| is_marked(self.region.lane(LaneId(lane))))
    }
}

/// Owner and hint of a lock.
pub(crate) fn words(lock: &OwnerLock) -> &[AtomicU32; 2] {
    const { assert!(size_of::<OwnerLock>() == 8) };
    let words: *const OwnerLock = lock;
    // SAFETY: a lock is two atomic words, its owner first.
    unsafe { &*words.cast() }
}

/// The words of an inode's lock: owner, hint, bias, streak, key.
pub(crate) fn inode_words(inode: &Inode) -> &[AtomicU32; 5] {
    const { assert!(size_of::<BiasedLock>() == 20) };
    // SAFETY: a biased lock is five atomic words.
    unsafe { &*(&raw const inode.lock).cast() }
}

/// The inner lock of a biased one.
pub(crate) fn inner(lock: &BiasedLock) -> &OwnerLock {
    // SAFETY: a biased lock starts with it.
    unsafe { &*core::ptr::from_ref(lock).cast() }
}

/// What the lock at an offset of the region guards, if there is one: what a lane waits for
/// ([`Lane::waits_for`]).
pub fn lock_at(offset: u64) -> Option<&'static str> {
    // The records, and the lock in each.
    let records = [
        ("thread's burial", at::LANE_SLAB, offset_of!(Lane, burial)),
        (
            "descriptor table",
            Slab::up(at::PROCESSES_AT, at::PROCESSES, at::LANE_SIZE),
            offset_of!(Process, table_lock),
        ),
        ("file position", at::FILE_SLAB, offset_of!(OpenFile, lock)),
        ("inode", at::INODE_SLAB, offset_of!(Inode, lock)),
        ("file's locks", at::INODE_SLAB, offset_of!(Inode, locks_lock)),
    ];
    let offset = usize::try_from(offset).ok()?;
    if offset == offset_of!(Header, split_lock) {
        return Some("hash table's size");
    }
    let starts_at = |slab: Slab, at: usize| slab.all().contains(&at) && slab.offset(slab.slot_at(at)) == at;
    let found = records.iter().find(|(_, slab, lock)| starts_at(*slab, offset.wrapping_sub(*lock)));
    found.map(|(what, ..)| *what)
}
