//! Files that were closed in a table that threads share, and that no other entry names: freed once no call
//! under way can use them.
//!
//! A file that was never duplicated, sent or inherited has one entry. Who takes it out of that entry by an
//! exchange and then finds [`sharing::ALONE`] knows that it will have no other: who marks a file as shared
//! confirms its entry afterwards ([`marks::confirm`]), and fork has the table alone. What remains are the
//! pins of calls that found the file before. So no table is looked at, and nobody else keeps or frees it.
//!
//! The lane that closed it adds it to a chain. Once that is long enough, one heavy barrier makes the pins of
//! all lanes visible. Pinned files go to the lane's chain for sweeps ([`crate::life::sweep`]). The others are
//! idle: the lane's next opens take them, so their slots stay in this processor's cache.
//!
//! Both chains are the lane's own, and its next owner goes on with them. Source: Michael, "Hazard Pointers"
//! (2004).

use lp_region::lane::Lane;
use lp_region::records::OpenFile;
use lp_region::slab::{BATCH, Slot};
use lp_region::sync::{AtomicU32, Ordering, heavy_barrier};
use lp_region::{FileId, InodeRef, Region, marks};

use crate::caller::task::Task;
use crate::descriptors::file::sharing;
use crate::lane::kept::{self, Listed};
use crate::lane::pin;
use crate::life::reclaim;
use crate::life::sweep::{self, Scope};
use crate::locks::file_lock;

/// Files that wait for one barrier.
const MOST: u32 = 480;
/// Pinned files of which one look takes note.
const PINNED: usize = 64;

/// Leaves a file that the caller has just taken out of an entry to this module, if nothing else names it and
/// nobody waits for its end. Returns whether it did. Ends the pin of the close.
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

/// Adds a file to the lane's chain. Ends the pin of the close.
fn wait(task: &Task, id: FileId) {
    let list = &task.lane.closed;
    // Relaxed: the lane's own.
    task.region.file(id).link.store(list.waiting.load(Ordering::Relaxed), Ordering::Relaxed);
    // Release: a burial that finds it in the chain finds the rest.
    list.waiting.store(id.0, Ordering::Release);
    pin::clear(task, pin::slot::CLOSE);
    let count = list.count.load(Ordering::Relaxed) + 1;
    list.count.store(count, Ordering::Relaxed);
    if count >= MOST {
        look_slow(task);
    }
}

/// [`look`], then a sweep for files that were pinned or shared.
#[cold]
#[inline(never)]
fn look_slow(task: &Task) {
    look(task, task.lane);
    // Relaxed: the lane's own.
    if task.lane.arrived[OpenFile::LIST].load(Ordering::Relaxed) != 0 {
        sweep::run(task, Scope::Own);
    }
}

/// Finds out which of the files that wait no call uses. The caller owns the lane, and has closed what it was
/// closing.
fn look(task: &Task, lane: &Lane) {
    let list = &lane.closed;
    // Relaxed throughout: the lane's own.
    if list.waiting.load(Ordering::Relaxed) == 0 {
        return;
    }
    free_idle(task, lane, usize::MAX);
    list.count.store(0, Ordering::Relaxed);
    // PAIRS: the light barriers of `pin`: a thread that saw an entry now gone makes its pin visible.
    let has_seen = heavy_barrier();
    let pinned = Pinned::of(task.region);
    if !has_seen {
        keep(task, lane, |_| true); // The sweep of another process may be able to tell.
    } else if pinned.count != 0 {
        keep(task, lane, |id| pinned.has(id));
    }
    // Release: a burial sees the chain in at least one of the two places.
    list.idle.store(list.waiting.load(Ordering::Relaxed), Ordering::Release);
    list.waiting.store(0, Ordering::Release);
}

/// The open files that some lane pins.
struct Pinned {
    files: [u32; PINNED],
    count: usize,
}

impl Pinned {
    fn of(region: Region) -> Pinned {
        let mut found = Pinned { files: [0; PINNED], count: 0 };
        let lanes = region.lanes().flat_map(|lane| &region.lane(lane).pins);
        for word in lanes.map(marks::pinned).filter(|word| *word != 0 && word & pin::INODE == 0) {
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

/// Moves the files that wait and may be in use to the lane's chain for sweeps.
fn keep(task: &Task, lane: &Lane, is_used: impl Fn(u32) -> bool) {
    let mut place = &lane.closed.waiting;
    for _ in 0..OpenFile::SLOTS {
        let index = place.load(Ordering::Relaxed); // Relaxed, here and below: the lane's own.
        if index == 0 {
            break;
        }
        let link = &task.region.file(FileId(index)).link;
        if !is_used(index) {
            place = link;
            continue;
        }
        // A burial keeps what this pin names.
        lane.pins[pin::slot::CLOSE].store(u64::from(index), Ordering::Release);
        place.store(link.load(Ordering::Relaxed), Ordering::Release);
        kept::keep::<OpenFile>(task, lane, index);
        marks::unpin(&lane.pins[pin::slot::CLOSE]);
    }
}

/// Takes a slot for an open file when the lane's cache has none.
///
/// # Errors
/// `ENFILE`.
#[cold]
#[inline(never)]
pub(crate) fn take_slow(task: &Task) -> lp_abi::Result<FileId> {
    free_idle(task, task.lane, BATCH);
    task.region.take::<OpenFile>(task.lane).or_else(|_| reclaim::file_slot_slow(task))
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
        task.region.give::<OpenFile>(lane, id);
        task.region.settle::<OpenFile>(lane);
    }
}

/// Frees what can be freed of a lane's closed files. The caller owns the lane and holds no inode lock.
pub(crate) fn all(task: &Task, lane: &Lane) {
    look(task, lane);
    free_idle(task, lane, usize::MAX);
}

/// Finishes the last step of [`look`] for a dead lane.
pub(crate) fn settle(record: &Lane) {
    let list = &record.closed;
    if list.waiting.load(Ordering::Acquire) == list.idle.load(Ordering::Acquire) {
        list.waiting.store(0, Ordering::Release);
    }
}

/// Whether a lane's chains have an open file. The lane is dead, or the caller's.
pub(crate) fn has(region: Region, record: &Lane, id: FileId) -> bool {
    chains(region, record).any(|index| index == id.0)
}

/// The open files in a lane's chains. The lane is dead, or the caller's.
pub fn chains<'r>(region: Region<'r>, record: &'r Lane) -> impl Iterator<Item = u32> + use<'r> {
    let chain = move |head: &'r AtomicU32| {
        let mut next = head.load(Ordering::Acquire);
        // Bounded: a damaged region may contain a ring.
        (0..OpenFile::SLOTS).map_while(move |_| {
            let index = next;
            next = region.file(FileId(index)).link.load(Ordering::Relaxed);
            (index != 0).then_some(index)
        })
    };
    // A lane that died in `look` may name one chain twice.
    let list = &record.closed;
    let is_moving = list.waiting.load(Ordering::Relaxed) == list.idle.load(Ordering::Relaxed);
    let waiting = (!is_moving).then(|| chain(&list.waiting)).into_iter().flatten();
    waiting.chain(chain(&list.idle))
}
