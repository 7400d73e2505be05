//! When to look for open files and inodes that nothing names; `crate::life::sweep` does the looking.
//!
//! Each lane keeps what it released itself: closed files in a chain, unlinked inodes in a list
//! (`Lane::unlinked`) and, if they stay in use, in a second chain. There is no lock: sweeps of several lanes
//! run in parallel, and a stopped one keeps nobody else from freeing anything.
//!
//! A sweep's barriers interrupt every processor that runs a process with the region. So the list of a lane
//! that unlinks much grows, as long as its sweeps find most of it unnamed (docs/adr/0044-*.md).

use lp_abi::{Errno, Result};
use lp_region::lane::{UNLINKED, UNLINKED_NEAR, UNNAMED, Unlinked};
use lp_region::records::{Inode, OpenFile};
use lp_region::sync::Ordering;
use lp_region::{FileId, InodeRef, slab};

use crate::caller::candidates::INODES;
use crate::caller::task::Task;
use crate::lane::kept::{self, Listed, listed};
use crate::life::sweep::{self, Scope};
use crate::life::{free, grace, reap};

/// Number of closed files that justifies a sweep and its barrier: they fit one sweep.
const BATCH: u32 = 480;
/// Number of pages of unlinked inodes that justifies one.
const BIG: u32 = 64;
/// The same in a lane that unlinks many.
const BIGGEST: u32 = 256;
/// Most inodes that a lane lists before it runs a sweep: files that were closed fit one sweep with them.
const MOST: u32 = 960;
const _: () = assert!(MOST as usize <= UNLINKED);
const _: () = assert!((MOST as usize) < INODES);
/// Inodes that a lane frees at a time of those that a sweep has found to be unnamed: as many as it unlinks
/// meanwhile, so that its cache of slots neither fills nor runs dry.
const FEW: u32 = 8;

/// Frees what can be freed if enough has accumulated. The caller must hold no inode lock.
#[inline(always)]
pub(crate) fn after_unlink(task: &Task) {
    let list = &task.lane.unlinked;
    // Relaxed: the lane's own.
    let is_due = list.count.load(Ordering::Relaxed).is_multiple_of(FEW);
    if is_due || list.pages.load(Ordering::Relaxed) >= BIG {
        after_few(task);
    }
}

/// [`after_unlink`], once in [`FEW`] inodes or if they have many pages.
#[inline(never)]
fn after_few(task: &Task) {
    let list = &task.lane.unlinked;
    let room = list.room() as u32;
    // Relaxed: the lane's own.
    if list.count.load(Ordering::Relaxed).is_multiple_of(FEW) {
        free_unnamed(task);
    }
    let count = list.count.load(Ordering::Relaxed);
    let pages = list.pages.load(Ordering::Relaxed);
    if count < room && pages < (room / 2).clamp(BIG, BIGGEST) {
        return;
    }
    sweep::run(task, Scope::Batch);
    if count >= room / 2 && in_use(task) < count as usize / 2 {
        widen(task, room);
    }
    free_unnamed(task);
}

/// Inodes in the lane's list of which its last sweep has found names.
fn in_use(task: &Task) -> usize {
    listed(task.region, task.lane).filter(|word| word & UNNAMED == 0).count()
}

/// Doubles the room of a lane that unlinks many: it needs fewer barriers, each of which interrupts all
/// processors that run processes with the region.
fn widen(task: &Task, room: u32) {
    let wider = (2 * room).min(MOST);
    let is_first = room == UNLINKED_NEAR as u32;
    // Without space in the region's file, it stays.
    if wider > room && (!is_first || task.region.back_unlinked(task.lane_id).is_ok()) {
        // Relaxed: the lane's own.
        task.lane.unlinked.far.store(wider - UNLINKED_NEAR as u32, Ordering::Relaxed);
    }
}

/// Frees a few of the inodes in the lane's list that nothing names.
fn free_unnamed(task: &Task) {
    let (region, list) = (task.region, &task.lane.unlinked);
    // Relaxed throughout: the lane's own. Other lanes only look for candidates.
    let mut count = list.count.load(Ordering::Relaxed);
    let mut end = list.unnamed.load(Ordering::Relaxed).min(count);
    let mut freed = 0;
    while end > 0 && freed < FEW {
        end -= 1;
        let Some(place) = region.unlinked(task.lane, end as usize) else { break };
        let word = place.load(Ordering::Relaxed);
        if word & UNNAMED == 0 {
            continue;
        }
        if !free::unnamed(task, Unlinked::inode(word)) {
            // Not at this time: the next sweep looks at it again.
            place.store(word & !UNNAMED, Ordering::Relaxed);
            continue;
        }
        freed += 1;
        count -= 1;
        if let Some(last) = region.unlinked(task.lane, count as usize) {
            place.store(last.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        // Release: the last reference has its new place before it loses the old one.
        list.count.store(count, Ordering::Release);
    }
    list.unnamed.store(end, Ordering::Relaxed);
}

/// For close(2): leaves an open file that was removed from a table to [`grace`], or keeps it. Sweeps at once
/// if enough has accumulated or if somebody may wait for it.
#[inline(never)]
pub(crate) fn closed_slow(task: &Task, id: FileId) {
    if grace::leave(task, id) {
        return after_closes(task);
    }
    let file = task.region.file(id);
    let inode = InodeRef::from_word(file.inode.load(Ordering::Relaxed));
    let is_locked = file.locked.load(Ordering::Relaxed) != 0;
    kept::queue(task, id);
    if is_locked {
        sweep::run(task, Scope::File(id));
    } else if task.region.inode(inode.id).is_dead() {
        unlinked(task, inode, Scope::File(id));
    } else {
        after_closes(task);
    }
}

/// Sweeps if the lane keeps enough closed files. The caller must hold no inode lock.
fn after_closes(task: &Task) {
    // Relaxed: the lane's own.
    if task.lane.arrived[OpenFile::LIST].load(Ordering::Relaxed) >= BATCH {
        sweep::run(task, Scope::Own);
    }
}

/// For close(2): an open file of an inode without links is gone, perhaps the last.
#[cold]
pub(crate) fn closed_unlinked_slow(task: &Task, inode: InodeRef) {
    unlinked(task, inode, Scope::Inode(inode));
}

/// An inode without links may have lost its last user: lists it until enough has accumulated. A large one
/// justifies a sweep of its own, `scope`, and so does a directory, which others may wait for.
fn unlinked(task: &Task, inode: InodeRef, scope: Scope) {
    let record = task.region.inode(inode.id);
    // Relaxed: a hint.
    let waits = record.pages.load(Ordering::Relaxed) < BIG && !record.is_dir();
    if waits && kept::list(task, inode) {
        after_unlink(task);
    } else {
        sweep::run(task, scope);
    }
}

/// A reference to an inode without links is gone that was not an open file's, or was that of a freed one:
/// checks whether it was the last.
#[cold]
pub(crate) fn let_go_slow(task: &Task, inode: InodeRef) {
    sweep::run(task, Scope::Inode(inode));
}

/// Takes a slot for an open file when the lane's cache has none: one that the lane's own closes have left, or
/// one of the slab. If that has none, frees what can be freed and tries again.
///
/// # Errors
/// `ENFILE`.
#[cold]
#[inline(never)]
pub(crate) fn file_slot_slow(task: &Task) -> Result<FileId> {
    grace::free_idle(task, task.lane, slab::BATCH);
    if let Ok(id) = task.region.take::<OpenFile>(task.lane) {
        return Ok(id);
    }
    grace::all(task);
    all(task);
    task.region.take::<OpenFile>(task.lane).map_err(|_| Errno::ENFILE)
}

/// Frees everything that nothing names, whichever lane keeps it, and what this lane has closed. The caller
/// must hold no inode lock.
pub fn run(task: &Task) {
    grace::all(task);
    sweep::run(task, Scope::All);
}

/// Frees what the lane itself keeps and nothing names.
pub(crate) fn run_own(task: &Task) {
    sweep::run(task, Scope::Own);
}

/// Frees what the lane keeps before its thread leaves it. A few closed files do not justify a sweep, because
/// others who share them by fork mostly continue; they are left to the lane's next owner.
pub(crate) fn before_leaving(task: &Task) {
    // Relaxed throughout: the lane's own.
    let [files, inodes] = &task.lane.arrived;
    let unlinked = task.lane.unlinked.count.load(Ordering::Relaxed) | inodes.load(Ordering::Relaxed);
    if unlinked != 0 || files.load(Ordering::Relaxed) >= BATCH {
        run_own(task);
    }
}

/// Reaps all dead processes and frees what only they held. Returns their number.
#[cold]
pub fn dead(task: &Task) -> u32 {
    let mut reaped = 0;
    for id in task.region.processes() {
        reaped += u32::from(reap::process(task, id));
    }
    if reaped != 0 {
        run(task);
    }
    reaped
}

/// Frees all inodes that can be freed, and with them space, including what only dead processes hold: when
/// some is short, and before it is reported. Closed files that wait for others' calls
/// ([`crate::life::grace`]) hold no space, and stay. The caller must hold no inode lock.
#[cold]
pub fn all(task: &Task) {
    if dead(task) == 0 {
        sweep::run(task, Scope::All);
    }
}

/// Makes a change that may run out of space. If it does, frees what nothing names and makes it again. The
/// caller must hold no inode lock.
///
/// # Errors
/// Those of `once`.
pub(crate) fn once_more<T>(task: &Task, mut once: impl FnMut() -> Result<T>) -> Result<T> {
    let mut has_reclaimed = false;
    loop {
        match once() {
            Err(Errno::ENOSPC) if !has_reclaimed => {
                all(task);
                has_reclaimed = true;
            }
            done => return done,
        }
    }
}

impl Listed for OpenFile {}
impl Listed for Inode {}
