//! Reclaim: frees open files and inodes that nothing names any more, by looking instead of counting.
//!
//! Candidates are open files on the stack `Header::closed` (shared when a descriptor of theirs was closed) and inodes
//! without links: each lane lists those that it unlinked itself, `Lane::unlinked`; those found in use, or left by the dead,
//! go to the stack `Header::orphans`. A run takes both stacks over, looks at all lists, passes a heavy barrier, and looks
//! through the tables of all processes, then the mappings, directories and executed files, then the pins of all lanes.
//! What it did not find it frees; orphans that it found go back.
//!
//! An inode may stand in several lists, if it got a name and lost it again: who frees it gives it another generation, which
//! the lists do not have. On the stack it stands once, which [`inode_flags::ORPHAN`] says; lists do not count for it then.
//! The list of a lane that died or was given back stays where it is.
//!
//! *Why a scan that is not atomic suffices.* A reference that moves while the scan runs could be missed at both ends.
//! Copies of references (fork, dup) therefore bump `Header::moves` after the copy and before the original can go; a run
//! that sees the count change frees nothing. References that are made from none (open by name) pin the inode first and
//! then check that it has links: a candidate has none. A closer pins its file before it takes the entry out and queues
//! it before it takes the pin away; the scan reads tables before pins, so it sees the entry, the pin or the queued mark.
//! Crash: the stacks taken over are named in `Header::sweeping` before they are emptied, and each element is unlinked
//! from there before it is freed. The orderings are [`lp_region::marks`]'s. Source: Michael, "Hazard Pointers" (2004), with
//! tables as further hazard pointers.

use lp_abi::{Errno, Result};
use lp_region::lane::{Lane, UNLINKED};
use lp_region::layout as at;
use lp_region::lock::{OwnerLock, Undertaker};
use lp_region::marks;
use lp_region::records::{Inode, OpenFile, inode_flags};
use lp_region::slab::Slot;
use lp_region::sync::{AtomicU32, AtomicU64, Ordering, heavy_barrier};
use lp_region::{FileId, InodeId, InodeRef, LaneId, MappingId, ProcessId, Region};

use crate::table::entry;
use crate::task::Task;
use crate::{file, inode, lock, pin, reap};

/// New candidates that make a run worth its barrier.
pub(crate) const BATCH: u32 = 64;
/// Pages of orphans that make a run worth it.
const BIG: u32 = 64;

/// Bits of [`OpenFile::queued`].
mod queued {
    /// A close asked for a look. Set on `Header::closed`; set anew while a run works on it, it asks for another.
    pub const ASKED: u32 = 1;
    /// A run works on it.
    pub const SWEPT: u32 = 2;
    /// The run found it in a table.
    pub const NAMED: u32 = 4;
    /// The run found it in a pin.
    pub const PINNED: u32 = 8;
}

/// Values of [`Inode::mark`]: 0, or what the run that works on it knows.
mod mark {
    pub const WANTED: u32 = 1;
    pub const FOUND: u32 = 2;
}

/// Says that the last link of an inode is gone: it is freed once nothing has it open. The caller holds the inode's lock
/// or is the only one who knows the inode; the lane has it pinned and named in `taken`.
pub fn orphan(task: &Task, id: InodeId) {
    let record = task.region.inode(id);
    let list = &task.lane.unlinked;
    // Relaxed throughout: the flag is guarded by the inode's lock, the list is the lane's own.
    if record.flags.load(Ordering::Relaxed) & inode_flags::ORPHAN != 0 {
        return;
    }
    let count = list.count.load(Ordering::Relaxed);
    let Some(place) = list.inodes.get(count as usize) else { return push_orphan(task, id) };
    // What an earlier run knew of it does not count.
    record.mark.store(0, Ordering::Relaxed);
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
        sweep(task, Stack::WhenDue);
    }
}

/// [`queue`]s, for close(2), and looks at once if enough has gathered or if somebody may wait for it.
#[inline(never)]
pub(crate) fn closed_slow(task: &Task, id: FileId) {
    let file = task.region.file(id);
    let inode = task.region.inode(InodeRef::from_word(file.inode.load(Ordering::Relaxed)).id);
    let pressing = file.locked.load(Ordering::Relaxed) != 0 || inode.nlink.load(Ordering::Relaxed) == 0;
    queue(task, id);
    if pressing || task.region.header().closed_count.load(Ordering::Relaxed) >= BATCH {
        run(task);
    }
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

/// Looks for candidates and frees those that nothing names. One run at a time; who comes second leaves it to the first.
/// Called with no inode locked.
pub fn run(task: &Task) {
    sweep(task, Stack::Always);
}

/// When a run looks at the inodes on the stack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stack {
    Always,
    /// When it has grown: else those that stay open would be looked at over and over.
    WhenDue,
}

#[inline(never)]
fn sweep(task: &Task, stack: Stack) {
    let Some(_exclusive) = Exclusive::try_take(task) else { return };
    // A process that died holding candidates is reaped, which makes them free; then it is worth a second look.
    for _ in 0..2 {
        let mut sweep = Sweep { task, region: task.region, dead: ProcessId::NONE };
        sweep.sweep(stack);
        if sweep.dead.is_none() || !reap::process(task, sweep.dead) {
            break;
        }
    }
}

/// Frees all that can be freed, what only dead processes hold included: when something is short, and before it is said
/// how much is left. Called with no inode locked.
#[cold]
pub fn all(task: &Task) {
    reap::dead(task);
    run(task);
}

/// `Header::reclaim_lock`, held. A thread that has it already may take it again.
pub(crate) struct Exclusive<'r> {
    lock: Option<&'r OwnerLock>,
}

impl<'r> Exclusive<'r> {
    /// Takes the lock; none while a live thread, this one included, has it.
    fn try_take(task: &Task<'r>) -> Option<Self> {
        let lock = &task.region.header().reclaim_lock;
        if lock.try_lock(task.lane_id) {
            return Some(Exclusive { lock: Some(lock) });
        }
        let holder = lock.holder();
        if holder == task.lane_id || holder.is_none() || !task.region.lane_is_dead(holder, task.process_id) {
            return None;
        }
        lock.lock(task.lane_id, &Successor(task));
        Some(Exclusive { lock: Some(lock) })
    }

    /// Takes the lock, waiting if another thread has it.
    pub(crate) fn wait(task: &Task<'r>) -> Self {
        let lock = &task.region.header().reclaim_lock;
        if lock.holder() == task.lane_id {
            return Exclusive { lock: None };
        }
        lock.lock(task.lane_id, &Successor(task));
        Exclusive { lock: Some(lock) }
    }
}

impl Drop for Exclusive<'_> {
    fn drop(&mut self) {
        if let Some(lock) = self.lock {
            lock.unlock();
        }
    }
}

/// Takes `Header::reclaim_lock` over from a dead lane. The inode that it was freeing is put back before another run may free
/// it: its slot may be another inode's by the time the lane is buried.
struct Successor<'t, 'r>(&'t Task<'r>);

impl Undertaker for Successor<'_, '_> {
    fn is_dead(&self, lane: LaneId) -> bool {
        self.0.is_dead(lane)
    }

    fn replay(&self, lane: LaneId) {
        self.0.replay(lane);
    }

    fn repair(&self, lane: LaneId) {
        reap::give_back_inode(self.0, lane);
    }

    fn mark(&self, lane: LaneId) -> &AtomicU32 {
        self.0.mark(lane)
    }
}

/// Puts an inode on the stack of orphans. Until that is done the lane names it in `taken`: flag and stack cannot change at
/// once.
pub(crate) fn push_orphan(task: &Task, id: InodeId) {
    let header = task.region.header();
    task.region.inode(id).flags.fetch_or(inode_flags::ORPHAN, Ordering::Release);
    task.region.push::<Inode>(&header.orphans, id.0);
    header.orphan_count.fetch_add(1, Ordering::Relaxed); // Relaxed: a hint.
}

/// Whether an inode stands on the stack of orphans or on the one under work. The caller has [`Exclusive`].
pub(crate) fn knows_inode(task: &Task, id: InodeId) -> bool {
    let header = task.region.header();
    [&header.orphans, &header.sweeping[1]]
        .iter()
        .any(|head| chain::<Inode>(task.region, head).any(|index| index == id.0))
}

/// Queues an open file whose entry was taken out: a run finds out whether others name it.
pub(crate) fn queue(task: &Task, id: FileId) {
    let header = task.region.header();
    // PAIRS: the store in `Sweep::sweep`, before the barrier.
    if task.region.file(id).queued.fetch_or(queued::ASKED, Ordering::AcqRel) == 0 {
        task.region.push::<OpenFile>(&header.closed, id.0);
        header.closed_count.fetch_add(1, Ordering::Relaxed); // Relaxed: a hint.
    }
    pin::clear(task, pin::slot::CLOSE);
}

/// Queues an open file that a dead lane was opening or closing, wherever it had come to. The caller has [`Exclusive`].
pub(crate) fn requeue(task: &Task, id: FileId) {
    let header = task.region.header();
    let file = task.region.file(id);
    let listed = [&header.closed, &header.sweeping[0]]
        .iter()
        .any(|head| chain::<OpenFile>(task.region, head).any(|index| index == id.0));
    let seen = file.queued.fetch_or(queued::ASKED, Ordering::AcqRel);
    // If a bit was set, only the dead lane can have been about to push it, and did not.
    if !listed && (seen == 0 || file.queued.swap(queued::ASKED, Ordering::AcqRel) != 0) {
        task.region.push::<OpenFile>(&header.closed, id.0);
    }
}

/// What a scan of all tables is worth.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scan {
    /// It saw every reference there was.
    Complete,
    /// References moved while it ran, or there was no barrier: it may have missed some.
    Disturbed,
}

struct Sweep<'t, 'r> {
    task: &'t Task<'r>,
    region: Region<'r>,
    /// A dead process that holds candidates.
    dead: ProcessId,
}

impl<'r> Sweep<'_, 'r> {
    fn sweep(&mut self, stack: Stack) {
        let header = self.region.header();
        let (files, inodes) = (&header.sweeping[0], &header.sweeping[1]);
        take_over::<OpenFile>(self.region, &header.closed, files);
        header.closed_count.store(0, Ordering::Relaxed);
        // Relaxed: hints.
        let due = header.kept.load(Ordering::Relaxed).saturating_mul(2) + BATCH;
        let deep = stack == Stack::Always || header.orphan_count.load(Ordering::Relaxed) >= due;
        if deep {
            take_over::<Inode>(self.region, &header.orphans, inodes);
            header.orphan_count.store(0, Ordering::Relaxed);
        }
        for id in chain::<OpenFile>(self.region, files) {
            // PAIRS: the fetch_or in `closed_slow`. Closes from here on ask again.
            self.region.slot::<OpenFile>(id).queued.store(queued::SWEPT, Ordering::Release);
        }
        for id in chain::<Inode>(self.region, inodes) {
            self.want(InodeId(id));
        }
        for lane in self.all_lanes() {
            listed(self.region, lane).for_each(|id| self.want(id));
        }
        // PAIRS: the increments after a copy, in `dup::install` and `fork`.
        let moves = header.moves.load(Ordering::Acquire);
        // PAIRS: the light barriers of `pin`.
        let passed = heavy_barrier();
        self.look_at_processes();
        self.look_at_lanes();
        let scan = if passed && header.moves.load(Ordering::Acquire) == moves {
            Scan::Complete
        } else {
            Scan::Disturbed
        };
        while let Some(id) = self.next::<OpenFile>(files) {
            self.finish_file(FileId(id), scan);
        }
        let mut kept = 0;
        while let Some(id) = self.next::<Inode>(inodes) {
            kept += self.finish_inode(InodeId(id), scan);
        }
        if deep {
            header.kept.store(kept, Ordering::Relaxed);
        }
        for lane in self.all_lanes() {
            listed(self.region, lane).for_each(|id| self.finish_listed(id, scan));
        }
        self.tidy();
        self.task.region.settle::<Inode>(self.task.lane);
        pin::clear(self.task, pin::slot::CLOSE);
    }

    /// Every lane that ever had an owner.
    fn all_lanes(&self) -> impl Iterator<Item = &'r Lane> + use<'r> {
        let region = self.region;
        let limit = region.header().lane_limit.load(Ordering::Acquire).min(at::LANES as u32);
        (1..limit).map(move |index| region.lane(LaneId(index)))
    }

    /// Makes an inode without links a candidate: one that has some may be opened until it is freed.
    fn want(&self, id: InodeId) {
        let record = self.region.inode(id);
        let wanted = if record.nlink.load(Ordering::Relaxed) == 0 { mark::WANTED } else { 0 };
        record.mark.store(wanted, Ordering::Relaxed); // Relaxed: guarded by reclaim_lock.
    }

    /// Takes out of the lane's own list what was freed, and leaves room: what is in use goes to the stack if it is much.
    fn tidy(&self) {
        let list = &self.task.lane.unlinked;
        let mut kept = 0;
        for id in listed(self.region, self.task.lane) {
            // Not past the place that it is read from.
            let generation = self.region.inode(id).generation.load(Ordering::Relaxed);
            list.inodes[kept].store(InodeRef { id, generation }.to_word(), Ordering::Relaxed);
            kept += 1;
        }
        list.count.store(kept as u32, Ordering::Release);
        list.pages.store(0, Ordering::Relaxed);
        if kept > UNLINKED / 2 {
            for id in listed(self.region, self.task.lane) {
                let _held = inode::lock(self.task, id);
                self.task.lane.taken[Inode::SLAB].store(id.0, Ordering::Release);
                push_orphan(self.task, id);
            }
            list.count.store(0, Ordering::Release);
        }
    }

    /// Unlinks the first candidate of a chain; until the next call the lane answers for it.
    fn next<T: Slot>(&self, head: &AtomicU64) -> Option<u32> {
        let first = head.load(Ordering::Relaxed) as u32; // Relaxed: guarded by reclaim_lock, which is held.
        if first == 0 {
            return None;
        }
        match T::SLAB {
            Inode::SLAB => self.task.lane.taken[Inode::SLAB].store(first, Ordering::Release),
            _ => self.task.lane.pins[pin::slot::CLOSE].store(u64::from(first), Ordering::Release),
        }
        let next = self.region.slot::<T>(first).link().load(Ordering::Relaxed);
        head.store(u64::from(next), Ordering::Release);
        Some(first)
    }

    /// Tables, then what is derived from them.
    fn look_at_processes(&mut self) {
        for id in self.region.processes() {
            let process = self.region.process(id);
            let mut hit = false;
            let limit = process.fd_limit.load(Ordering::Acquire) as usize;
            for word in self.region.fd_table(id).iter().take(limit) {
                let word = word.load(Ordering::Acquire);
                if word & entry::OPEN != 0 {
                    hit |= self.found_file(FileId(word as u32), queued::NAMED);
                }
            }
            let mut mapping = MappingId(process.mappings.load(Ordering::Acquire));
            for _ in 0..at::MAPPINGS {
                if mapping.is_none() {
                    break;
                }
                let record = self.region.mapping(mapping);
                hit |= self.found_inode(InodeRef::from_word(record.inode.load(Ordering::Relaxed)).id);
                mapping = MappingId(record.link.load(Ordering::Acquire));
            }
            for word in [&process.cwd, &process.exe] {
                hit |= self.found_inode(InodeRef::from_word(word.load(Ordering::Acquire)).id);
            }
            if hit && self.region.process_is_dead(id, self.task.process_id) {
                self.dead = id;
            }
        }
    }

    fn look_at_lanes(&mut self) {
        for id in self.region.lanes() {
            for word in &self.region.lane(id).pins {
                let word = marks::pinned(word);
                if word & pin::INODE != 0 {
                    self.found_inode(InodeId(word as u32));
                } else if word != 0 {
                    self.found_file(FileId(word as u32), queued::PINNED);
                }
            }
        }
    }

    /// Marks an open file and its inode as in use; says whether one of them was a candidate.
    fn found_file(&self, id: FileId, how: u32) -> bool {
        let file = self.region.file(id);
        let wanted = file.queued.load(Ordering::Relaxed) & queued::SWEPT != 0;
        if wanted {
            file.queued.fetch_or(how, Ordering::Relaxed); // Relaxed: only the run reads the bit.
        }
        wanted | self.found_inode(InodeRef::from_word(file.inode.load(Ordering::Relaxed)).id)
    }

    fn found_inode(&self, id: InodeId) -> bool {
        let inode = self.region.inode(id);
        let wanted = id.is_some() && inode.mark.load(Ordering::Relaxed) != 0;
        if wanted {
            inode.mark.store(mark::FOUND, Ordering::Relaxed); // Relaxed: guarded by reclaim_lock.
        }
        wanted
    }

    /// Frees a file that nothing names; queues it again if that is not known, or if it is on its way over a socket.
    fn finish_file(&mut self, id: FileId, scan: Scan) {
        let file = self.region.file(id);
        let seen = file.queued.load(Ordering::Acquire);
        if scan == Scan::Complete && seen == queued::SWEPT && file.in_flight.load(Ordering::Relaxed) == 0 {
            if file.locked.load(Ordering::Relaxed) != 0 {
                lock::drop_file_slow(self.task, id);
            }
            // Its inode, if a candidate, was found through no other name of this file: tables hold none.
            file.queued.store(0, Ordering::Relaxed);
            file::free(self.task, id);
            return;
        }
        let dropped = seen & queued::ASKED == 0
            && seen & queued::NAMED != 0
            && file.queued.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !dropped {
            // On its way over a socket, it keeps its inode.
            self.found_inode(InodeRef::from_word(file.inode.load(Ordering::Relaxed)).id);
            file.queued.store(queued::ASKED, Ordering::Release);
            self.region.push::<OpenFile>(&self.region.header().closed, id.0);
        }
    }

    /// Frees an inode of a list that nothing names.
    fn finish_listed(&self, id: InodeId, scan: Scan) {
        let mark = &self.region.inode(id).mark;
        let wanted = mark.load(Ordering::Relaxed) == mark::WANTED; // Relaxed: guarded by reclaim_lock.
        mark.store(0, Ordering::Relaxed);
        if wanted && scan == Scan::Complete {
            self.task.lane.taken[Inode::SLAB].store(id.0, Ordering::Release);
            lock::drop_all(self.task, id);
            inode::free(self.task, id);
        }
    }

    /// Frees an inode of the stack that nothing names, or puts it back: the number that went back.
    fn finish_inode(&self, id: InodeId, scan: Scan) -> u32 {
        let record = self.region.inode(id);
        let wanted = record.mark.load(Ordering::Relaxed) == mark::WANTED;
        record.mark.store(0, Ordering::Relaxed);
        if record.nlink.load(Ordering::Relaxed) != 0 {
            // linkat(2) gave it a name again.
            let _held = inode::lock(self.task, id);
            let linked = record.nlink.load(Ordering::Relaxed) != 0;
            if linked {
                let flags = record.flags.load(Ordering::Relaxed);
                record.flags.store(flags & !inode_flags::ORPHAN, Ordering::Relaxed);
            }
            if linked {
                return 0;
            }
        } else if wanted && scan == Scan::Complete {
            lock::drop_all(self.task, id);
            inode::free(self.task, id);
            return 0;
        }
        self.region.push::<Inode>(&self.region.header().orphans, id.0);
        1
    }
}

/// The inodes that a lane lists and that are still what they were when it did, without links and not on the stack.
fn listed<'r>(region: Region<'r>, lane: &'r Lane) -> impl Iterator<Item = InodeId> {
    // PAIRS: the release store in `orphan`.
    let count = lane.unlinked.count.load(Ordering::Acquire) as usize;
    let inodes = lane.unlinked.inodes.iter().take(count);
    inodes.map(|word| InodeRef::from_word(word.load(Ordering::Relaxed))).filter_map(move |inode| {
        let record = region.inode(inode.id);
        // Relaxed: one that gets a name meanwhile is named by whoever gives it.
        let waits = record.generation.load(Ordering::Relaxed) == inode.generation
            && record.nlink.load(Ordering::Relaxed) == 0
            && record.flags.load(Ordering::Relaxed) & inode_flags::ORPHAN == 0;
        waits.then_some(inode.id)
    })
}

/// Moves a stack to `kept`, where the run works on it. What a run that died left there comes first: the stack then waits.
fn take_over<T: Slot>(region: Region, stack: &AtomicU64, kept: &AtomicU64) {
    let head = stack.load(Ordering::Acquire);
    let left = kept.load(Ordering::Relaxed) as u32; // Relaxed: guarded by reclaim_lock.
    if left != 0 {
        // A run that died between the two steps below left the same slots on both.
        if chain::<T>(region, stack).any(|index| index == left) {
            kept.store(0, Ordering::Relaxed);
        }
        return;
    }
    kept.store(u64::from(head as u32), Ordering::Release);
    let emptied = (head >> 32).wrapping_add(1) << 32;
    if stack.compare_exchange(head, emptied, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        // Somebody has pushed meanwhile; the next run takes all.
        kept.store(0, Ordering::Relaxed);
    }
}

/// The slots of a stack or of a chain under work, from the top. Bounded: a damaged region may hold a ring.
fn chain<'r, T: Slot + 'r>(region: Region<'r>, head: &AtomicU64) -> impl Iterator<Item = u32> + use<'r, T> {
    let mut next = head.load(Ordering::Acquire) as u32;
    (0..T::SLOTS).map_while(move |_| {
        let index = next;
        next = region.slot::<T>(index).link().load(Ordering::Relaxed);
        (index != 0).then_some(index)
    })
}
