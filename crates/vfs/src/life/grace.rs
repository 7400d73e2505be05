//! Files that were closed in a table that threads share, and that no other entry names: freed once no call
//! under way can use them.
//!
//! A file that was never duplicated, sent or inherited has one entry. Who takes it out of that entry by an
//! exchange and then finds `sharing::ALONE` knows that it will have no other: who marks a file as shared
//! confirms its entry afterwards ([`marks::confirm`]), and fork has the table alone. What remains are the
//! pins of the process's threads, in calls that found the file before. So no table is looked at, and nobody
//! else keeps or frees the file.
//!
//! The lane that closed it adds it to the chain of those that *wait*. After some more closes that chain is
//! *due*, with a period of its own ([`lp_region::quiescent`]). Once the period is over for the other threads,
//! pinned files go to the lane's chain for sweeps ([`crate::life::reclaim`]); the others are *idle*. The
//! lane's next opens take those, so that their slots stay in this processor's cache. Threads that open and
//! close files note periods as they do. Others are asked. Only if they are not back by the time that many
//! files wait is there a heavy barrier, after which they are away.
//!
//! The chains are the lane's own. Who leaves the lane, or buries it, leaves the first two to sweeps.

use lp_region::lane::Lane;
use lp_region::quiescent;
use lp_region::records::OpenFile;
use lp_region::slab::Slot;
use lp_region::sync::{AtomicU32, Ordering, full_fence, heavy_barrier};
use lp_region::{FileId, InodeRef, LaneId, Region, marks};

use crate::caller::task::Task;
use crate::descriptors::file::sharing;
use crate::lane::kept;
use crate::lane::pin;
use crate::locks::file_lock;

/// Closes before a lane looks whether a period is over.
const FEW: u32 = 64;
/// Closes that justify a heavy barrier.
const MOST: u32 = 480;
/// Most lanes with which files wait here: each keeps three times [`MOST`] slots to itself. With more lanes,
/// all closed files go to sweeps.
const LANES: usize = 256;
// Miri has fewer slots, and few lanes.
const _: () = assert!(cfg!(miri) || 3 * MOST as usize * LANES <= OpenFile::SLOTS / 2);
/// Lanes that are asked at a time.
const ASKED: usize = 32;
/// Pinned files of which one look takes note.
const PINNED: usize = 64;

/// Leaves a file that the caller has just taken out of an entry to this module, if nothing else names it and
/// nobody waits for its end. Returns whether it did. Ends the pin of the close. Other files may have got into
/// the lane's chain for sweeps.
#[inline(always)]
pub(crate) fn leave(task: &Task, id: FileId) -> bool {
    let file = task.region.file(id);
    let inode = InodeRef::from_word(file.inode.load(Ordering::Relaxed)); // Relaxed: immutable while pinned.
    // Relaxed: who marks the file as shared after the exchange of the entry finds it gone.
    let is_plain = file.shared.load(Ordering::Relaxed) == sharing::ALONE
        && file.locked.load(Ordering::Relaxed) == 0
        && file.custody.get() == 0
        && !task.region.inode(inode.id).is_dead();
    if is_plain {
        wait(task, id);
    }
    is_plain
}

/// Adds a file to those that wait. Ends the pin of the close.
#[inline(always)]
fn wait(task: &Task, id: FileId) {
    let (list, file) = (&task.lane.closed, task.region.file(id));
    // Before the link: the burial of a lane that still has the file in hand must leave both alone. Relaxed,
    // here and below: the lane's own.
    file.closed_by.store(task.lane_id.number(), Ordering::Relaxed);
    file.link.store(list.waiting.load(Ordering::Relaxed), Ordering::Relaxed);
    // Release: a burial that finds it in the chain finds the rest.
    list.waiting.store(id.0, Ordering::Release);
    pin::clear(task, pin::slot::CLOSE);
    let count = list.count.load(Ordering::Relaxed) + 1;
    list.count.store(count, Ordering::Relaxed);
    if count.is_multiple_of(FEW) {
        look_slow(task, count);
    }
}

/// [`look`] if enough files wait.
#[cold]
#[inline(never)]
fn look_slow(task: &Task, count: u32) {
    // A look reads a line of each lane.
    let lanes = task.region.header().lane_limit.load(Ordering::Relaxed); // Relaxed: a hint.
    let are_few = lanes as usize <= LANES;
    if are_few && count < MOST.min(lanes / 2) {
        return;
    }
    // Without barriers, or if threads always come back too late, another process may tell what is in use.
    if !are_few || !look(task, count >= MOST) && count >= 2 * MOST {
        hand_over(task, task.lane);
    }
}

/// Ends the period of the files that are due, if it is over, and makes those that wait due. Returns false if
/// it is not over. The caller is not closing anything.
fn look(task: &Task, may_be_heavy: bool) -> bool {
    let list = &task.lane.closed;
    // Relaxed throughout: the lane's own.
    if list.due.load(Ordering::Relaxed) != 0 {
        if !is_over(task, list.period.load(Ordering::Relaxed), may_be_heavy) {
            return false;
        }
        finish(task);
    }
    // Release, both: a burial sees the chain in at least one of the two places.
    list.due.store(list.waiting.load(Ordering::Relaxed), Ordering::Release);
    list.waiting.store(0, Ordering::Release);
    list.count.store(0, Ordering::Relaxed);
    list.period.store(quiescent::begin(&task.process.periods), Ordering::Relaxed);
    true
}

/// The lanes of the process's other threads.
fn others(task: &Task) -> impl Iterator<Item = LaneId> {
    let (own, process) = (task.lane_id, task.process_id.0);
    // Relaxed: a thread that comes to have a lane later finds the entries empty.
    let is_of = move |id: &LaneId| task.region.lane(*id).process.load(Ordering::Relaxed) == process;
    task.region.lanes().filter(move |id| *id != own).filter(is_of)
}

/// Whether a period is over for all other threads. Asks those for which it is not. If `may_be_heavy`, they
/// are away after a heavy barrier.
fn is_over(task: &Task, period: u64, may_be_heavy: bool) -> bool {
    // PAIRS: the full fence in `come_back`.
    full_fence();
    let quiescent = |id: LaneId| &task.region.lane(id).quiescent;
    let is_late = |id: &LaneId| !quiescent(*id).has_passed(period);
    for _ in 0..LANES / ASKED {
        let mut asked = [(LaneId::NONE, 0); ASKED];
        let mut late = 0;
        for (place, id) in asked.iter_mut().zip(others(task).filter(is_late)) {
            *place = (id, quiescent(id).ask());
            late += 1;
        }
        if late == 0 || !may_be_heavy || !heavy_barrier() {
            return late == 0;
        }
        for (id, word) in &asked[..late] {
            quiescent(*id).confirm(*word);
        }
    }
    !others(task).any(|id| is_late(&id))
}

/// The period of the files that are due is over: those that nobody has pinned are idle.
fn finish(task: &Task) {
    let list = &task.lane.closed;
    free_idle(task, task.lane, usize::MAX);
    let pinned = Pinned::of(task);
    if pinned.count != 0 {
        keep(task, task.lane, &list.due, |id| pinned.has(id));
    }
    // Release, both: a burial sees the chain in at least one of the two places.
    list.idle.store(list.due.load(Ordering::Relaxed), Ordering::Release); // Relaxed: the lane's own.
    list.due.store(0, Ordering::Release);
}

/// The open files that other threads of the process pin.
struct Pinned {
    files: [u32; PINNED],
    count: usize,
}

impl Pinned {
    fn of(task: &Task) -> Pinned {
        let mut found = Pinned { files: [0; PINNED], count: 0 };
        let pins = others(task).flat_map(|lane| &task.region.lane(lane).pins);
        for word in pins.map(marks::pinned).filter(|word| *word != 0 && word & pin::INODE == 0) {
            if let Some(place) = found.files.get_mut(found.count) {
                *place = word as u32;
            }
            found.count += 1;
        }
        found
    }

    /// True if there are too many to tell.
    fn has(&self, id: u32) -> bool {
        self.count > PINNED || self.files[..self.count].contains(&id)
    }
}

/// Moves those files of a chain that may be in use to the lane's chain for sweeps. The caller owns the lane,
/// or buries it.
fn keep(task: &Task, lane: &Lane, head: &AtomicU32, is_used: impl Fn(u32) -> bool) {
    let mut place = head;
    for _ in 0..OpenFile::SLOTS {
        let index = place.load(Ordering::Relaxed); // Relaxed, here and below: the lane's own.
        if index == 0 {
            break;
        }
        let file = task.region.file(FileId(index));
        if !is_used(index) {
            place = &file.link;
            continue;
        }
        // A burial keeps what this pin names.
        lane.pins[pin::slot::CLOSE].store(u64::from(index), Ordering::Release);
        place.store(file.link.load(Ordering::Relaxed), Ordering::Release);
        kept::keep::<OpenFile>(task, lane, index);
        // PAIRS: the acquire in `keeps`: it is kept.
        file.closed_by.store(0, Ordering::Release);
        marks::unpin(&lane.pins[pin::slot::CLOSE]);
    }
}

/// Frees up to `most` idle files into the lane's cache. The caller owns the lane and holds no inode lock.
pub(crate) fn free_idle(task: &Task, lane: &Lane, most: usize) {
    let idle = &lane.closed.idle;
    for _ in 0..most.min(OpenFile::SLOTS) {
        let id = FileId(idle.load(Ordering::Relaxed)); // Relaxed: the lane's own.
        if id.is_none() {
            break;
        }
        let file = task.region.file(id);
        // A lock that a call took while the file was closed. Relaxed, here and below: nobody else uses it.
        if file.locked.load(Ordering::Relaxed) != 0 {
            file_lock::drop_file_slow(task, id);
        }
        file.inode.store(0, Ordering::Relaxed);
        let generation = file.generation.load(Ordering::Relaxed);
        file.generation.store(generation.wrapping_add(1), Ordering::Release);
        // The lane answers for the slot until a cache holds it.
        lane.taken[OpenFile::SLAB].store(id.0, Ordering::Release);
        idle.store(file.link.load(Ordering::Relaxed), Ordering::Release);
        file.closed_by.store(0, Ordering::Release); // PAIRS: the acquire in `keeps`.
        task.region.give::<OpenFile>(lane, id);
        task.region.settle::<OpenFile>(lane);
    }
}

/// Frees what can be freed of the lane's closed files. The caller holds no inode lock.
pub(crate) fn all(task: &Task) {
    // Those that are due, then those that wait.
    let _ = look(task, true) && look(task, true);
    free_idle(task, task.lane, usize::MAX);
}

/// Leaves the closed files of a lane that gets another owner to sweeps, except those that are idle. The
/// caller owns the lane, or buries it.
pub(crate) fn hand_over(task: &Task, lane: &Lane) {
    let list = &lane.closed;
    for head in [&list.waiting, &list.due] {
        keep(task, lane, head, |_| true);
    }
    list.count.store(0, Ordering::Relaxed); // Relaxed: the lane's own.
}

/// Finishes a step of a dead lane from one chain to the next, of which either may name its files.
pub(crate) fn settle(lane: &Lane) {
    let list = &lane.closed;
    for (from, to) in [(&list.due, &list.idle), (&list.waiting, &list.due)] {
        if from.load(Ordering::Acquire) == to.load(Ordering::Acquire) {
            from.store(0, Ordering::Release);
        }
    }
}

/// Whether an open file that a dead lane still has in hand is left to this module: because it is in that
/// lane's chains, or because another lane has closed it.
pub(crate) fn keeps(region: Region, lane: LaneId, id: FileId) -> bool {
    // PAIRS: the release in `keep`.
    match region.file(id).closed_by.load(Ordering::Acquire) {
        0 => false,
        by if by == lane.number() => chains(region, region.lane(lane)).any(|index| index == id.0),
        // A lane closes what another still has in hand if it was faster to close it, or if the other had just
        // opened it. It looks at the other's pins before it frees it.
        _ => true,
    }
}

/// The open files in a lane's chains. The lane is dead, or the caller's.
pub fn chains<'r>(region: Region<'r>, lane: &'r Lane) -> impl Iterator<Item = u32> + use<'r> {
    let list = &lane.closed;
    let [waiting, due, idle] =
        [&list.waiting, &list.due, &list.idle].map(|head| head.load(Ordering::Acquire));
    let chain = move |head: u32| {
        let mut next = head;
        // Bounded: a damaged region may contain a ring.
        (0..OpenFile::SLOTS).map_while(move |_| {
            let index = next;
            next = region.file(FileId(index)).link.load(Ordering::Relaxed);
            (index != 0).then_some(index)
        })
    };
    // A lane that died in between may name one chain twice.
    let (waiting, due) = (if waiting == due { 0 } else { waiting }, if due == idle { 0 } else { due });
    chain(waiting).chain(chain(due)).chain(chain(idle))
}
