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
use lp_region::sync::{AtomicU64, Ordering};
use lp_region::{DirentId, InodeId, InodeRef, LaneId};

use crate::caller::task::{Task, Time};
use crate::inodes::inode::{self, Touch};
use crate::lane::intent::{self, IntentGuard, op};
use crate::lane::{kept, pin};
use crate::names::dir::{self, Seat};
use crate::names::dirent;
use crate::names::hash::{self, Load, Way};

/// Words of a [`Plain`] change.
const PLAIN: usize = 6;

/// A directory after a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Directory {
    /// The directory; none if the change has no such directory.
    pub id: InodeId,
    /// Live entries.
    pub entries: u32,
    /// Links.
    pub nlink: u32,
    /// Position of the next entry.
    pub tail: u64,
}

/// An inode whose link count, or only `ctime`, a change sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Links {
    /// The inode; none if the change has no such inode.
    pub id: InodeId,
    /// Link count afterwards.
    pub nlink: u32,
}

impl Links {
    /// No inode.
    pub(crate) const NONE: Links = Links { id: InodeId::NONE, nlink: 0 };

    /// Whether the inode loses its last link.
    #[inline(always)]
    fn are_none_left(&self) -> bool {
        self.id.is_some() && self.nlink == 0
    }
}

/// An entry that gets another target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Retarget {
    /// The entry; none if the change has no such entry.
    pub dirent: DirentId,
    /// Its target afterwards.
    pub target: InodeRef,
}

/// A directory that gets another parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Moved {
    /// The directory; none if the change has no such directory.
    pub id: InodeId,
    /// Its parent afterwards.
    pub parent: InodeId,
}

/// A change of one directory's entries and at most one inode's links, as most are: the state afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Plain {
    /// The directory.
    pub dir: Directory,
    /// An entry to add, filled in, with its position.
    pub added: DirentId,
    /// An entry to remove.
    pub removed: DirentId,
    /// The inode whose link count or `ctime` changes.
    pub links: Links,
    /// The new `mtime` and `ctime`.
    pub time: Time,
}

impl Plain {
    #[inline(always)]
    fn to_words(self) -> [u64; PLAIN] {
        let (dir, links) = (self.dir, self.links);
        [
            pair(dir.id.0, links.id.0),
            pair(dir.entries, dir.nlink),
            dir.tail,
            pair(self.added.0, self.removed.0),
            pair(links.nlink, self.time.nsec),
            self.time.sec as u64,
        ]
    }
}

/// Any change of names: the state afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    /// The directories whose entries change.
    pub dirs: [Directory; 2],
    /// An entry to add, filled in, with its position.
    pub added: DirentId,
    /// An entry to remove.
    pub removed: DirentId,
    /// Entries that stay but get another target.
    pub retargeted: [Retarget; 2],
    /// Inodes whose link count or `ctime` changes.
    pub inodes: [Links; 2],
    /// Directories that move: the first to `added` or, if none, to the first retargeted entry; the second to
    /// the second.
    pub moved: [Moved; 2],
    /// The new `mtime` and `ctime`.
    pub time: Time,
}

impl Change {
    /// A change of nothing, at a given time.
    pub(crate) const fn at(time: Time) -> Self {
        let dir = Directory { id: InodeId::NONE, entries: 0, nlink: 0, tail: 0 };
        let retarget = Retarget { dirent: DirentId::NONE, target: InodeRef::NONE };
        let links = Links::NONE;
        let moved = Moved { id: InodeId::NONE, parent: InodeId::NONE };
        Change {
            dirs: [dir; 2],
            added: DirentId::NONE,
            removed: DirentId::NONE,
            retargeted: [retarget; 2],
            inodes: [links; 2],
            moved: [moved; 2],
            time,
        }
    }

    /// The inode that loses its last link.
    fn victim(&self) -> InodeId {
        let gone = self.inodes.iter().find(|links| links.are_none_left());
        gone.map_or(InodeId::NONE, |links| links.id)
    }

    #[inline(always)]
    fn to_words(self) -> [u64; INTENT_WORDS] {
        let ([plain, dir], [only, links]) = (self.dirs, self.inodes);
        let ([first, second], [old, new]) = (self.moved, self.retargeted);
        let (added, removed, time) = (self.added, self.removed, self.time);
        let [a, b, c, d, e, f] = Plain { dir: plain, added, removed, links: only, time }.to_words();
        [
            a,
            b,
            c,
            d,
            e,
            f,
            pair(dir.id.0, links.id.0),
            pair(dir.entries, dir.nlink),
            dir.tail,
            pair(links.nlink, old.dirent.0),
            old.target.to_word(),
            pair(new.dirent.0, first.id.0),
            new.target.to_word(),
            pair(first.parent.0, second.id.0),
            u64::from(second.parent.0),
        ]
    }

    /// Decodes a change. The words behind those of a [`Plain`] one must be zero.
    fn from_words(words: &[u64; INTENT_WORDS]) -> Self {
        let low = |index: usize| words[index] as u32;
        let high = |index: usize| (words[index] >> 32) as u32;
        let dir = |at: usize| Directory {
            id: InodeId(low(at)),
            entries: low(at + 1),
            nlink: high(at + 1),
            tail: words[at + 2],
        };
        let retarget = |dirent: u32, at: usize| Retarget {
            dirent: DirentId(dirent),
            target: InodeRef::from_word(words[at]),
        };
        let moved = |id: u32, parent: u32| Moved { id: InodeId(id), parent: InodeId(parent) };
        Change {
            dirs: [dir(0), dir(6)],
            added: DirentId(low(3)),
            removed: DirentId(high(3)),
            retargeted: [retarget(high(9), 10), retarget(low(11), 12)],
            inodes: [
                Links { id: InodeId(high(0)), nlink: low(4) },
                Links { id: InodeId(high(6)), nlink: low(9) },
            ],
            moved: [moved(high(11), low(13)), moved(high(13), low(14))],
            time: Time { sec: words[5] as i64, nsec: high(4) },
        }
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

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

/// Where the entries of a [`Plain`] change stand in the directory's array.
#[derive(Clone, Copy)]
pub(crate) struct Seats<'r> {
    /// The entry to add.
    pub added: Option<Seat<'r>>,
    /// The entry to remove. Only in a damaged region an entry has none.
    pub removed: Option<Seat<'r>>,
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

/// [`perform_plain`] for a new name of a new file, which is not a directory, whose hash leads to `way`.
#[inline(always)]
pub(crate) fn perform_new(
    task: &Task<'_>,
    change: &Plain,
    seat: Seat<'_>,
    (way, hash): (&Way<'_>, u32),
) -> Load {
    let (region, lane) = (task.region, task.lane);
    let Plain { dir: after, added, time, .. } = *change;
    let dir = region.inode(after.id);
    let intent = intent::write(task, op::PLAIN_CHANGE, &change.to_words());
    seat.fill(added);
    let load = way.insert(lane, hash, added);
    dirent::give_birth(region.dirent(added));
    change_entries(dir, &after, time);
    dirent::settle(region, lane);
    // The inode is named by the entry now.
    lane.taken[Inode::SLAB].store(0, Ordering::Release);
    drop(intent);
    load
}

/// [`set_directory`] for a directory whose number of links stays.
#[inline(always)]
fn change_entries(dir: &Inode, after: &Directory, now: Time) {
    dir.data_seq.begin();
    dir.entries.store(after.entries, Ordering::Relaxed); // Relaxed, both: as in `set_directory`.
    inode::touch_in_section(dir, Touch::Modify, now);
    dir.data_seq.end_alone();
    dir.tail.store(after.tail, Ordering::Relaxed);
}

/// A [`Plain`] change that replaces a name of a file that is not a directory by another in its directory,
/// both so short that they fit their entries.
pub(crate) struct Within<'r> {
    /// What is recorded. It leaves the numbers of entries and links as they are.
    pub change: Plain,
    /// The directory and the file.
    pub inodes: [&'r Inode; 2],
    /// Where both entries stand.
    pub seats: Seats<'r>,
    /// Where the new name's hash leads, and the hash.
    pub to: (Way<'r>, u32),
    /// The old name's word in the table, and its hash.
    pub from: (&'r AtomicU64, u32),
}

/// [`perform_plain`] for a change within a directory.
#[inline(always)]
pub(crate) fn perform_within(task: &Task<'_>, within: &Within<'_>) -> Load {
    let (region, lane) = (task.region, task.lane);
    let Within { change, inodes: [dir, file], .. } = within;
    let Plain { dir: after, added, removed, time, .. } = *change;
    let (new, old) = (region.whole_dirent(added), region.whole_dirent(removed));
    let intent = intent::write(task, op::PLAIN_CHANGE, &change.to_words());
    let Seats { added: to, removed: from } = within.seats;
    let in_one_page = matches!((&to, &from), (Some(to), Some(from)) if to.is_in_page_of(from));
    if let Some(seat) = to {
        if in_one_page { seat.take_over(added) } else { seat.fill(added) }
    }
    let load = within.to.0.insert(lane, within.to.1, added);
    // One event, as in `apply_plain`.
    new.seq.begin();
    dirent::give_birth(new);
    dirent::die(old);
    new.seq.end_alone();
    hash::remove_at(region, within.from.0, within.from.1, removed);
    file.seq.begin();
    inode::touch_in_section(file, Touch::Change, time);
    file.seq.end_alone();
    if let Some(seat) = from {
        if in_one_page { seat.leave(removed) } else { seat.clear(task, removed, &after) }
    }
    // The number of entries stays.
    dir.data_seq.begin();
    inode::touch_in_section(dir, Touch::Modify, time);
    dir.data_seq.end_alone();
    dir.tail.store(after.tail, Ordering::Relaxed); // Relaxed: as in `set_directory`.
    // As in `settle`: the lane names the new entry, then the old one.
    dirent::retire_short(lane, old, removed);
    drop(intent);
    dirent::give_short(region, lane, removed);
    load
}

/// A [`Plain`] change that removes a name, so short that it fits its entry, of a file that is not a
/// directory.
pub(crate) struct Without<'r> {
    /// What is recorded. It leaves the number of the directory's links as it is.
    pub change: Plain,
    /// The directory and the file.
    pub inodes: [&'r Inode; 2],
    /// Where the entry stands.
    pub seat: Option<Seat<'r>>,
    /// The name's word in the table, and its hash.
    pub from: (&'r AtomicU64, u32),
}

/// [`perform_plain`] for a removal.
#[inline(always)]
pub(crate) fn perform_without(task: &Task<'_>, without: &Without<'_>) {
    let (region, lane) = (task.region, task.lane);
    let Without { change, inodes: [dir, file], .. } = without;
    let Plain { dir: after, removed, links, time, .. } = *change;
    let old = region.whole_dirent(removed);
    let is_last = links.nlink == 0;
    let _pin = is_last.then(|| pin::hold_known(task, pin::slot::WALK_OTHER, links.id));
    let intent = intent::write(task, op::PLAIN_CHANGE, &change.to_words());
    dirent::die(old);
    hash::remove_at(region, without.from.0, without.from.1, removed);
    file.seq.begin();
    inode::set_links(file, links.nlink);
    inode::touch_in_section(file, Touch::Change, time);
    file.seq.end_alone();
    if let Some(seat) = without.seat {
        seat.clear(task, removed, &after);
    }
    change_entries(dir, &after, time);
    // As in `settle`.
    if is_last {
        lane.taken[Inode::SLAB].store(links.id.0, Ordering::Release);
    }
    dirent::retire_short(lane, old, removed);
    drop(intent);
    dirent::give_short(region, lane, removed);
    if is_last {
        kept::orphan(task, links.id);
        region.settle::<Inode>(lane);
    }
}

/// A change in which a file that is not a directory takes the place of another in its directory, both by
/// names so short that they fit their entries.
pub(crate) struct Over<'r> {
    /// The directory afterwards. Its number of links stays.
    pub dir: Directory,
    /// The entry that gets another target, and the one to remove.
    pub entries: [DirentId; 2],
    /// The file.
    pub moved: InodeRef,
    /// The file's links and those of the replaced one.
    pub links: [Links; 2],
    /// The directory, the file and the replaced file.
    pub inodes: [&'r Inode; 3],
    /// Where the removed entry stands.
    pub seat: Option<Seat<'r>>,
    /// The old name's word in the table, and its hash.
    pub from: (&'r AtomicU64, u32),
}

/// [`perform`] for a replacement within a directory.
#[inline(always)]
pub(crate) fn perform_over(task: &Task<'_>, over: &Over<'_>) {
    let (region, lane) = (task.region, task.lane);
    let Over { dir: after, entries: [kept, removed], moved, links, inodes: [dir, file, victim], .. } = *over;
    let mut change = Change::at(task.now());
    change.dirs[0] = after;
    change.removed = removed;
    change.retargeted[0] = Retarget { dirent: kept, target: moved };
    change.inodes = links;
    let (new, old) = (region.whole_dirent(kept), region.whole_dirent(removed));
    let (id, is_last) = (links[1].id, links[1].nlink == 0);
    let _pin = is_last.then(|| pin::hold_known(task, pin::slot::WALK_OTHER, id));
    let intent = intent::write(task, op::CHANGE, &change.to_words());
    // One event, as in `exchange`.
    new.seq.begin();
    dirent::set_target(new, moved, file.mode.load(Ordering::Relaxed)); // Relaxed: its type does not change.
    dirent::die(old);
    new.seq.end_alone();
    hash::remove_at(region, over.from.0, over.from.1, removed);
    file.seq.begin();
    inode::touch_in_section(file, Touch::Change, change.time);
    file.seq.end_alone();
    victim.seq.begin();
    inode::set_links(victim, links[1].nlink);
    inode::touch_in_section(victim, Touch::Change, change.time);
    victim.seq.end_alone();
    if let Some(seat) = over.seat {
        seat.clear(task, removed, &after);
    }
    change_entries(dir, &after, change.time);
    // As in `settle`.
    if is_last {
        lane.taken[Inode::SLAB].store(id.0, Ordering::Release);
    }
    dirent::retire_short(lane, old, removed);
    drop(intent);
    dirent::give_short(region, lane, removed);
    if is_last {
        kept::orphan(task, id);
        region.settle::<Inode>(lane);
    }
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
    if links.nlink == 0 && dir::is(inode) {
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
