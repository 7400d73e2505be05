//! When open files and inodes that nothing names are looked for; how is [`crate::sweep`]'s business.
//!
//! Each lane keeps what it let go of itself: closed files in a chain, unlinked inodes in a list ([`Lane::unlinked`]) and,
//! if they stay in use, in a second chain. There is no lock: sweeps of several lanes run side by side, and a stopped one
//! keeps nobody else from freeing anything.

use lp_abi::{Errno, Result};
use lp_region::custody;
use lp_region::lane::{Lane, UNLINKED};
use lp_region::records::{Inode, OpenFile};
use lp_region::slab::Retired;
use lp_region::sync::Ordering;
use lp_region::{FileId, InodeId, InodeRef, LaneId, Region};

use crate::sweep::{self, Scope};
use crate::task::Task;
use crate::{pin, reap};

/// New candidates that make a sweep worth its barrier.
const BATCH: u32 = 64;
/// Pages of unlinked inodes that make one worth it.
const BIG: u32 = 64;

/// Says that the last link of an inode is gone: it is freed once nothing has it open. The caller holds the inode's lock
/// or is the only one who knows the inode; the lane has it pinned and named in `taken`.
pub fn orphan(task: &Task, id: InodeId) {
    let record = task.region.inode(id);
    let list = &task.lane.unlinked;
    if record.custody.get() & custody::LISTED != 0 {
        return keep::<Inode>(task, task.lane, id.0);
    }
    let count = list.count.load(Ordering::Relaxed); // Relaxed: the list is the lane's own.
    let Some(place) = list.inodes.get(count as usize) else {
        keep::<Inode>(task, task.lane, id.0);
        return;
    };
    let generation = record.generation.load(Ordering::Relaxed);
    place.store(InodeRef { id, generation }.to_word(), Ordering::Relaxed);
    let pages = list.pages.load(Ordering::Relaxed);
    list.pages.store(pages.saturating_add(record.pages.load(Ordering::Relaxed) as u32), Ordering::Relaxed);
    // PAIRS: the acquire load in `listed`: the inode has no links.
    list.count.store(count + 1, Ordering::Release);
}

/// Frees what can be freed if enough has gathered. Called with no inode locked.
#[inline]
pub fn after_unlink(task: &Task) {
    let list = &task.lane.unlinked;
    // Relaxed: the lane's own.
    let full = list.count.load(Ordering::Relaxed) as usize >= UNLINKED;
    if full || list.pages.load(Ordering::Relaxed) >= BIG {
        sweep::run(task, Scope::Own);
    }
}

/// Keeps an open file that was taken out of a table, for close(2), and looks at once if enough has gathered or if somebody
/// may wait for it.
#[inline(never)]
pub(crate) fn closed_slow(task: &Task, id: FileId) {
    let file = task.region.file(id);
    let inode = task.region.inode(InodeRef::from_word(file.inode.load(Ordering::Relaxed)).id);
    let pressing = file.locked.load(Ordering::Relaxed) != 0 || inode.nlink.load(Ordering::Relaxed) == 0;
    queue(task, id);
    if pressing {
        sweep::run(task, Scope::File(id));
    } else if task.lane.arrived[OpenFile::LIST].load(Ordering::Relaxed) >= BATCH {
        sweep::run(task, Scope::Own);
    }
}

/// A name of an inode without links is gone that was no open file's, or one's that is freed: looks whether it was the last.
#[cold]
pub(crate) fn let_go_slow(task: &Task, inode: InodeRef) {
    sweep::run(task, Scope::Inode(inode));
}

/// A slot for an open file when the slab gave none: frees what can be freed and tries again.
///
/// # Errors
/// `ENFILE`.
#[cold]
pub(crate) fn file_slot_slow(task: &Task) -> Result<FileId> {
    all(task);
    task.region.take::<OpenFile>(task.lane).map_err(|_| Errno::ENFILE)
}

/// Frees whatever nothing names, in the custody of whichever lane. Called with no inode locked.
pub fn run(task: &Task) {
    sweep::run(task, Scope::All);
}

/// Frees what the lane keeps itself, as far as nothing names it.
pub(crate) fn run_own(task: &Task) {
    sweep::run(task, Scope::Own);
}

/// Frees what the lane keeps before its thread leaves it, but for closed files: few at a time are not worth a
/// sweep, as others who share them by fork mostly go on. They are the next owner's to look at.
pub(crate) fn before_leaving(task: &Task) {
    // Relaxed throughout: the lane's own.
    let [files, inodes] = &task.lane.arrived;
    let unlinked = task.lane.unlinked.count.load(Ordering::Relaxed) | inodes.load(Ordering::Relaxed);
    if unlinked != 0 || files.load(Ordering::Relaxed) >= BATCH {
        run_own(task);
    }
}

/// Frees all that can be freed, what only dead processes hold included: when something is short, and before it is said
/// how much is left. Called with no inode locked.
#[cold]
pub fn all(task: &Task) {
    reap::dead(task);
    run(task);
}

/// Keeps an open file whose entry was taken out, unless another lane does: a sweep finds out whether others name it.
pub(crate) fn queue(task: &Task, id: FileId) {
    keep::<OpenFile>(task, task.lane, id.0);
    pin::clear(task, pin::slot::CLOSE);
}

/// Puts a record into the chain of `lane` unless it stands in one: then its keeper is asked to look again. The caller owns
/// the lane, or buries it.
pub(crate) fn keep<T: Listed>(task: &Task, lane: &Lane, index: u32) {
    let own = lane.id.load(Ordering::Relaxed); // Relaxed: the lane's own.
    if task.region.slot::<T>(index).custody().ask(own) {
        link_in::<T>(task.region, lane, index);
    }
}

/// Links a record in that the lane keeps already.
pub(crate) fn link_in<T: Listed>(region: Region, lane: &Lane, index: u32) {
    let head = &lane.chains[T::LIST];
    // Relaxed: only the lane's owner changes the chain.
    region.slot::<T>(index).link().store(head.load(Ordering::Relaxed), Ordering::Relaxed);
    // PAIRS: the acquire in `chain`.
    head.store(index, Ordering::Release);
    let arrived = &lane.arrived[T::LIST];
    arrived.store(arrived.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
}

/// A record that lanes keep in chains.
pub(crate) trait Listed: Retired {
    /// Which of a lane's chains.
    const LIST: usize = Self::SLAB;
}

impl Listed for OpenFile {}
impl Listed for Inode {}

/// The records in a lane's chain, from the newest. Another lane's may change meanwhile: whoever has strayed from it stops.
pub(crate) fn chain<'r, T: Listed + 'r>(
    region: Region<'r>,
    lane: &'r Lane,
) -> impl Iterator<Item = u32> + use<'r, T> {
    // PAIRS: the release in `link_in`.
    let mut next = lane.chains[T::LIST].load(Ordering::Acquire);
    let owner = lane.id.load(Ordering::Relaxed);
    // Bounded: a damaged region may hold a ring.
    (0..T::SLOTS).map_while(move |_| {
        let index = next;
        let record = region.slot::<T>(index);
        let stays = index != 0 && custody::is_kept_by(record.custody().get(), owner);
        next = record.link().load(Ordering::Acquire);
        stays.then_some(index)
    })
}

/// The inodes that a lane lists and that are still what they were when it did: without links, and in no chain.
pub(crate) fn listed<'r>(region: Region<'r>, lane: &'r Lane) -> impl Iterator<Item = InodeRef> {
    // PAIRS: the release store in `orphan`.
    let count = lane.unlinked.count.load(Ordering::Acquire) as usize;
    let inodes = lane.unlinked.inodes.iter().take(count);
    inodes.map(|word| InodeRef::from_word(word.load(Ordering::Relaxed))).filter(move |inode| {
        let record = region.inode(inode.id);
        // Relaxed: one that gets a name meanwhile is named by whoever gives it.
        record.generation.load(Ordering::Relaxed) == inode.generation
            && record.nlink.load(Ordering::Relaxed) == 0
            && record.custody.get() & custody::LISTED == 0
    })
}

/// Every lane that ever had an owner.
pub(crate) fn all_lanes(region: Region<'_>) -> impl Iterator<Item = LaneId> + use<> {
    use lp_region::layout as at;
    (1..region.header().lane_limit.load(Ordering::Acquire).min(at::LANES as u32)).map(LaneId)
}
