//! The commonest changes of names, those of files that are not directories, without the questions that their
//! callers have answered. What they record is what [`super::replay`] completes (docs/adr/0032-*.md); the order
//! of their stores is that of [`super::perform`] and [`super::perform_plain`].

use lp_region::records::Inode;
use lp_region::slab::Slot;
use lp_region::sync::{AtomicU64, Ordering};
use lp_region::{DirentId, InodeRef};

use crate::caller::task::{Task, Time};
use crate::inodes::inode::{self, Touch};
use crate::lane::intent::{self, op};
use crate::lane::{kept, pin};
use crate::names::change::words::{Change, Directory, Links, Plain, Retarget};
use crate::names::dir::Seat;
use crate::names::dirent;
use crate::names::hash::{self, Load, Way};

/// Where the entries of a [`Plain`] change stand in the directory's array.
#[derive(Clone, Copy)]
pub(crate) struct Seats<'r> {
    /// The entry to add.
    pub added: Option<Seat<'r>>,
    /// The entry to remove. Only in a damaged region an entry has none.
    pub removed: Option<Seat<'r>>,
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
pub(super) fn change_entries(dir: &Inode, after: &Directory, now: Time) {
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
