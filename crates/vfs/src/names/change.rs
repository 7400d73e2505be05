//! Changes of names: every create, link, unlink and rename is one [`Change`], recorded and then carried out.
//!
//! A change describes the state afterwards in absolute terms, so carrying it out twice is the same as once.
//! The caller holds the locks of all its inodes, and everything that can fail has been done: entries are
//! filled in, pages and buckets for them exist. If the caller dies meanwhile, the change remains in its
//! lane's intent. A lane that wants one of the locks, or buries the dead, completes it ([`replay`]), so the
//! call has happened.
//!
//! To readers a change is one event for each name: the store by which its entry is born or dies. A rename is
//! one event for both names. Entries that are added or get another target are odd meanwhile, so what readers
//! find through them is from before or after; and a removed entry dies only when everything else has been
//! stored. Nobody waits during a change, and no lock but those of the inodes is held.
use lp_region::lane::{INTENT_WORDS, Lane};
use lp_region::records::{Dirent, Inode, LongName};
use lp_region::slab::Slot;
use lp_region::sync::Ordering;
use lp_region::{DirentId, InodeId, LaneId};

use crate::caller::task::{Task, Time};
use crate::inodes::inode::{self, Touch};
use crate::lane::intent::{self, IntentGuard, op};
use crate::lane::{kept, pin};
use crate::names::change::plain_file::change_entries;
pub(crate) use crate::names::change::plain_file::{
    Over, Seats, Within, Without, perform_new, perform_over, perform_within, perform_without,
};
use crate::names::change::words::PLAIN;
pub(crate) use crate::names::change::words::{Change, Directory, Links, Moved, Plain, Retarget};
use crate::names::dir;
use crate::names::dirent;
use crate::names::hash::{self, Load};

mod plain_file;
pub(super) mod words;

/// Carries a change out. The caller must hold the locks of all its inodes and have called [`hash::reserve`].
/// Entries and inodes that become linked in are settled here. An inode that loses its last link is pinned
/// until it is with the orphans: as long as a replay may change it, nobody else can get its slot.
pub(crate) fn perform(task: &Task<'_>, change: &Change) -> Load {
    let victim = change.victim();
    let _pin = victim.is_some().then(|| pin::hold_known(task, pin::slot::WALK_OTHER, victim));
    let intent = intent::write(task, op::CHANGE, &change.to_words());
    let load = apply(task, &Turn::First, change);
    settle(task, intent, (change.added, change.removed), victim);
    load
}

/// [`perform`] for a plain change. Inlined, because a caller knows what it does not add or remove.
#[inline(always)]
pub(crate) fn perform_plain(task: &Task<'_>, change: &Plain, seats: Seats<'_>) -> Load {
    let victim = if change.links.are_none_left() { change.links.id } else { InodeId::NONE };
    let _pin = victim.is_some().then(|| pin::hold_known(task, pin::slot::WALK_OTHER, victim));
    let intent = intent::write(task, op::PLAIN_CHANGE, &change.to_words());
    let load = apply_plain(task, change, seats);
    settle(task, intent, (change.added, change.removed), victim);
    load
}
/// Ends a change that has been carried out: what it added is linked in, what it removed becomes free.
#[inline(always)]
fn settle(task: &Task<'_>, intent: IntentGuard<'_>, (added, removed): (DirentId, DirentId), victim: InodeId) {
    if added.is_some() {
        dirent::settle(task.region, task.lane);
    }
    // What is removed is named by the intent, then by the lane, then by a cache or the orphans, without a
    // gap.
    task.lane.taken[Inode::SLAB].store(victim.0, Ordering::Release);
    if removed.is_some() {
        dirent::retire(task.region, task.lane, removed);
    }
    drop(intent);
    if removed.is_some() {
        dirent::give(task.region, task.lane, removed);
        dirent::settle(task.region, task.lane);
    }
    if victim.is_some() {
        kept::orphan(task, victim);
        task.region.settle::<Inode>(task.lane);
    }
}

/// Completes what the dead `lane` had begun. Must not run concurrently for the same lane.
#[cold]
pub(crate) fn replay(task: &Task<'_>, lane: LaneId) {
    let record = task.region.lane(lane);
    let mut words = [0; INTENT_WORDS];
    let plain = record.intent.op.load(Ordering::Relaxed) == op::PLAIN_CHANGE;
    let count = if plain { PLAIN } else { INTENT_WORDS };
    for (word, from) in words[..count].iter_mut().zip(&record.intent.words) {
        *word = from.load(Ordering::Relaxed); // Relaxed: the dead write nothing.
    }
    let change = Change::from_words(&words);
    for dir in change.dirs.iter().filter(|dir| dir.id.is_some()) {
        for entry in [change.added, change.removed].into_iter().filter(|entry| entry.is_some()) {
            dir::recount(task.region, dir.id, task.region.dirent(entry).position.load(Ordering::Relaxed));
        }
    }
    let hash_of = |id: DirentId| task.region.dirent(id).hash.load(Ordering::Relaxed);
    hash::settle_overflow(task, record, [change.added, change.removed].map(hash_of));
    apply(task, &Turn::Again(record), &change);
    forget_taken(task, record, &change);
    if change.removed.is_some() {
        // The burial of the lane frees it.
        dirent::retire(task.region, record, change.removed);
    }
    record.intent.op.store(op::NONE, Ordering::Release);
}

/// Clears the lane's record of slots that it had taken and that are linked in.
fn forget_taken(task: &Task<'_>, lane: &Lane, change: &Change) {
    if change.added.is_some() {
        dirent::settle(task.region, lane);
    }
    // The burial of the lane puts the inode with the orphans; the dead lane's pin keeps it until then.
    lane.taken[Inode::SLAB].store(change.victim().0, Ordering::Release);
    // A removed entry may be named there already; `replay` names it again.
    for slab in [Dirent::SLAB, LongName::SLAB] {
        lane.taken[slab].store(0, Ordering::Release);
    }
}

/// Whether a change is carried out for the first time.
enum Turn<'r> {
    /// By its own lane.
    First,
    /// For a dead lane, which may have done any part of it.
    Again(&'r Lane),
}

/// [`apply`] for a plain change of the lane's own.
#[inline(always)]
fn apply_plain(task: &Task<'_>, change: &Plain, seats: Seats<'_>) -> Load {
    let region = task.region;
    let (added, removed) = (change.added, change.removed);
    let mut load = Load::Fits;
    if added.is_some() {
        if let Some(seat) = seats.added {
            seat.fill(added);
        }
        let record = region.dirent(added);
        let hash = record.hash.load(Ordering::Relaxed); // Relaxed: immutable.
        load = hash::insert(region, task.lane, hash, added);
        // One event: to a reader, the new name is being changed until the old one has died.
        if removed.is_some() {
            record.seq.begin();
        }
        dirent::give_birth(record);
    }
    if removed.is_some() {
        let record = region.dirent(removed);
        dirent::die(record);
        if added.is_some() {
            region.dirent(added).seq.end_alone();
        }
        hash::remove(region, record.hash.load(Ordering::Relaxed), removed); // Relaxed: immutable.
    }
    if change.links.id.is_some() {
        set_links(task, &change.links, change.time);
    }
    if let Some(seat) = seats.removed {
        seat.clear(task, removed, &change.dir);
    }
    set_directory(task, &change.dir, change.time);
    load
}

fn apply(task: &Task<'_>, turn: &Turn<'_>, change: &Change) -> Load {
    if change.added.is_some() {
        dir::put(task, change.added);
    }
    let load = in_table(task, turn, change);
    let [moved, swapped] = &change.moved;
    let [first, second] = &change.retargeted;
    if moved.id.is_some() {
        set_parent(task, moved, if change.added.is_some() { change.added } else { first.dirent });
    }
    if swapped.id.is_some() {
        set_parent(task, swapped, second.dirent);
    }
    for links in &change.inodes {
        if links.id.is_some() {
            set_links(task, links, change.time);
        }
    }
    for after in &change.dirs {
        if after.id.is_some() {
            let removed = task.region.dirent(change.removed);
            if change.removed.is_some() && removed.parent.load(Ordering::Relaxed) == after.id.0 {
                dir::take_out(task, change.removed, after);
            }
            set_directory(task, after, change.time);
        }
    }
    load
}

/// The change in the hash table, and of the entries themselves.
#[inline(always)]
fn in_table(task: &Task<'_>, turn: &Turn<'_>, change: &Change) -> Load {
    let region = task.region;
    let hash_of = |id: DirentId| region.dirent(id).hash.load(Ordering::Relaxed); // Relaxed: immutable.
    let (added, removed) = (change.added, change.removed);
    let mut load = Load::Fits;
    if added.is_some() {
        match turn {
            Turn::First => load = hash::insert(region, task.lane, hash_of(added), added),
            Turn::Again(lane) => hash::insert_again(region, lane, hash_of(added), added),
        }
    }
    let [first, second] = &change.retargeted;
    match (added.is_some(), removed.is_some()) {
        (true, false) if first.dirent.is_none() => dirent::give_birth(region.dirent(added)),
        (false, true) if first.dirent.is_none() => dirent::die(region.dirent(removed)),
        _ => exchange(task, [added, first.dirent, second.dirent], change),
    }
    if removed.is_some() {
        hash::remove(region, hash_of(removed), removed);
    }
    load
}

/// Changes two names in one event. `odd` are the entries that exist, changed, afterwards.
///
/// To a reader: it read the old state before an entry became odd, or before the removed entry died; it reads
/// the new state after an entry became even. All reads of the old state precede the death, or the last store
/// of a target if nothing dies; all reads of the new state follow it.
fn exchange(task: &Task<'_>, odd: [DirentId; 3], change: &Change) {
    let region = task.region;
    let odd = || odd.into_iter().filter(|id| id.is_some()).map(|id| region.dirent(id));
    odd().for_each(|record| record.seq.begin());
    for entry in change.retargeted.iter().filter(|entry| entry.dirent.is_some()) {
        // Relaxed: an inode's type does not change.
        let mode = region.inode(entry.target.id).mode.load(Ordering::Relaxed);
        dirent::set_target(region.dirent(entry.dirent), entry.target, mode);
    }
    if change.added.is_some() {
        dirent::give_birth(region.dirent(change.added));
    }
    if change.removed.is_some() {
        dirent::die(region.dirent(change.removed));
    }
    odd().for_each(|record| record.seq.end());
}

fn set_parent(task: &Task<'_>, moved: &Moved, entry: DirentId) {
    let inode = task.region.inode(moved.id);
    inode.seq.begin();
    inode.parent.store(moved.parent.0, Ordering::Relaxed); // Relaxed, here and below: inside the section.
    inode.self_dirent.store(entry.0, Ordering::Relaxed);
    inode.seq.end();
}

#[inline(always)]
fn set_links(task: &Task<'_>, links: &Links, now: Time) {
    let inode = task.region.inode(links.id);
    inode.seq.begin();
    inode::set_links(inode, links.nlink);
    inode::touch_in_section(inode, Touch::Change, now);
    inode.seq.end_alone();
    if links.nlink == 0 && inode.is_dir() {
        // It has no entries, so from here on `tail` holds the generation of the parent that `..` means.
        let parent = task.region.inode(InodeId(inode.parent.load(Ordering::Relaxed)));
        inode.tail.store(u64::from(parent.generation.load(Ordering::Relaxed)), Ordering::Release);
    }
}

/// What changes with every entry is guarded by `data_seq`. None of this is on the line that walks through the
/// directory read.
#[inline(always)]
fn set_directory(task: &Task<'_>, after: &Directory, now: Time) {
    let inode = task.region.inode(after.id);
    // Relaxed throughout: under the directory's lock, inside the sections. A replay may find the link count
    // stored but the section still open.
    if inode.nlink.load(Ordering::Relaxed) != after.nlink || inode.seq.read() & 1 != 0 {
        inode.seq.begin();
        inode.nlink.store(after.nlink, Ordering::Relaxed);
        inode.seq.end();
    }
    change_entries(inode, after, now);
}
