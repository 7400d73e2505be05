//! A sweep: finds which closed files and unlinked inodes nothing names any more, and frees those.
//!
//! A sweep gathers candidates and looks at the pins of all lanes, then through the tables of all processes,
//! their mappings, directories and executed files, then at the pins again, each time after a heavy barrier,
//! then at the files in flight. What it did not find it claims and frees ([`lp_region::custody`]). Candidates
//! and what was found of them stand on the sweeper's own stack: any number of sweeps run side by side.
//!
//! *Why a scan that is not atomic suffices.* A reference that moves while the scan runs could be missed at
//! both ends.
//!
//! - Open by name pins the inode first and then checks that it has links; a candidate has none, so the pin was
//!   there before the scan began. It goes once the entry is in the table: the scan reads pins before tables,
//!   so it sees the pin or the entry.
//! - A closer pins its file before it takes the entry out and asks for a look before it takes the pin away:
//!   the scan reads tables before pins, so it sees the entry, the pin or the question.
//! - Copies of references bump a count after the copy and before its pin or the original can go:
//!   `Process::moves` within a table (dup), `Header::moves` from one table to another (fork, receipt over a
//!   socket). A sweep that sees a count change looks again, and in the end frees nothing. Of a table that one
//!   thread has, nobody takes the original out before the copy is there: only the look at that table counts.
//! - A sender keeps its file pinned or named until it is in flight ([`crate::descriptors::flight`]): the scan
//!   asks for flights last.
//!
//! What a complete scan has not found stays unnamed for good: nobody can name it again.
//!
//! An inode may stand in several lists, if it got a name and lost it again: only one claim succeeds, and who frees it
//! gives it another generation, which the lists do not have. The orderings are [`lp_region::marks`]'s. Source: Michael,
//! "Hazard Pointers" (2004), with tables as further hazard pointers.

use lp_region::lane::{Lane, UNLINKED};
use lp_region::mount::mount_state;
use lp_region::records::{Inode, OpenFile};
use lp_region::slab::Slot;
use lp_region::sync::{Ordering, heavy_barrier};
use lp_region::{
    FileId, InodeId, InodeRef, LaneId, MappingId, ProcessId, Region, Spot, custody, layout as at, marks,
};

use crate::caller::task::Task;
use crate::descriptors::{flight, table};
use crate::inodes::make;
use crate::lane::kept::{Listed, all_lanes, chain, link_in, listed};
use crate::lane::pin;
use crate::life::candidates::{Found, Origin, Set};
use crate::life::reap;
use crate::locks::file_lock;
use crate::names::mounts;

/// Scans before a sweep leaves it at that, if references move all the time.
const SCANS: u32 = 8;
/// New inodes in a chain that make a look at it worth while, at least.
const DUE: u32 = 64;

/// Which candidates a sweep looks at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// What the lane keeps.
    Own,
    /// What any lane keeps.
    All,
    /// One closed file, and its inode.
    File(FileId),
    /// One inode.
    Inode(InodeRef),
}

/// Looks for what nothing names and frees it. Called with no inode locked.
#[inline(never)]
pub(crate) fn run(task: &Task, scope: Scope) {
    // A process that died holding candidates is reaped, which frees them: that is worth a second look.
    for _ in 0..2 {
        let dead = rounds(task, scope);
        if dead.is_none() || !reap::process(task, dead) {
            break;
        }
    }
    if scope == Scope::All {
        tidy_unowned(task);
    }
}

/// Sweeps as many candidates at a time as a set holds; gives a dead process that holds some.
fn rounds(task: &Task, scope: Scope) -> ProcessId {
    let mut dead = ProcessId::NONE;
    let mut skip = 0;
    // The lane's own chains may be long: not for a single candidate.
    let depth = depth(task.lane, scope);
    loop {
        let mut sweep = Sweep::new(task);
        let more = sweep.gather(scope, depth, skip);
        if sweep.files.is_empty() && sweep.inodes.is_empty() {
            // Others may have freed all but the slots.
            if depth != Depth::Named {
                sweep.tidy_files();
            }
            break;
        }
        let scan = sweep.scan();
        skip += sweep.settle(scan);
        if depth != Depth::Named {
            sweep.tidy_files();
        }
        if sweep.dead.is_some() {
            dead = sweep.dead;
        }
        if !more {
            break;
        }
    }
    if depth != Depth::Named {
        let kept = tidy_inodes(task, task.lane);
        if depth == Depth::Chain {
            task.lane.kept.store(kept, Ordering::Relaxed); // Relaxed: the lane's own.
        }
    }
    dead
}

/// How much of what its lane keeps a sweep looks at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// What the caller named, at most.
    Named,
    /// Closed files, and the list of inodes.
    List,
    /// The chain of inodes too.
    Chain,
}

/// How deep a sweep of `scope` goes. What comes to the lane's chains from now on counts for the next one.
fn depth(lane: &Lane, scope: Scope) -> Depth {
    // Relaxed throughout: the lane's own.
    let arrived = &lane.arrived[Inode::LIST];
    let due = lane.kept.load(Ordering::Relaxed).saturating_mul(2).max(DUE);
    let depth = match scope {
        Scope::File(_) | Scope::Inode(_) => return Depth::Named,
        Scope::Own if arrived.load(Ordering::Relaxed) < due => Depth::List,
        Scope::Own | Scope::All => Depth::Chain,
    };
    lane.arrived[OpenFile::LIST].store(0, Ordering::Relaxed);
    if depth == Depth::Chain {
        arrived.store(0, Ordering::Relaxed);
    }
    depth
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
    files: Set,
    inodes: Set,
    /// A dead process that holds candidates.
    dead: ProcessId,
}

impl<'t, 'r> Sweep<'t, 'r> {
    fn new(task: &'t Task<'r>) -> Self {
        Sweep { task, region: task.region, files: Set::new(), inodes: Set::new(), dead: ProcessId::NONE }
    }

    /// Takes candidates up but for the first `skip`; whether there are more than the sets hold.
    fn gather(&mut self, scope: Scope, depth: Depth, skip: usize) -> bool {
        let mut skip = skip;
        match scope {
            Scope::File(id) => self.want_file(id, &mut skip),
            Scope::Inode(inode) => self.want_inode(inode, Origin::Listed, &mut skip),
            Scope::Own => self.gather_lane(self.task.lane, depth == Depth::Chain, &mut skip),
            Scope::All => {
                all_lanes(self.region).any(|id| self.gather_lane(self.region.lane(id), true, &mut skip))
            }
        }
    }

    /// Takes up what a lane keeps, its chain of inodes if `deep`; whether there was no room.
    fn gather_lane(&mut self, lane: &'r Lane, deep: bool, skip: &mut usize) -> bool {
        let region = self.region;
        listed(region, lane).any(|inode| self.want_inode(inode, Origin::Listed, skip))
            || chain::<OpenFile>(region, lane).any(|id| self.want_file(FileId(id), skip))
            || deep && chain::<Inode>(region, lane).any(|id| self.want_kept_inode(InodeId(id), skip))
    }

    /// Makes a closed file a candidate, and its inode if that has no links; whether there was no room.
    fn want_file(&mut self, id: FileId, skip: &mut usize) -> bool {
        let file = self.region.file(id);
        let generation = file.generation.load(Ordering::Acquire);
        let word = file.custody.get();
        let is_listed = word & custody::LISTED != 0 && word & (custody::CLAIMED | custody::HUSK) == 0;
        if !is_listed || self.files.contains(id.0) {
            return false;
        }
        if *skip > 0 {
            *skip -= 1;
            return false;
        }
        if self.files.is_full() || self.inodes.is_full() {
            return true;
        }
        if custody::is_kept_by(word, self.task.lane_id.0) {
            file.custody.begin_look();
        }
        self.files.add(id.0, generation, Origin::Listed);
        // The reference as the file has it: the inode may be another by now.
        let of = InodeRef::from_word(file.inode.load(Ordering::Relaxed));
        of != InodeRef::NONE && self.want_inode(of, Origin::Derived, &mut 0)
    }

    /// Makes an inode without links a candidate: one that has some may be opened until it is freed. Whether there was no room.
    fn want_inode(&mut self, inode: InodeRef, origin: Origin, skip: &mut usize) -> bool {
        self.want_inode_of(inode, self.region.inode(inode.id).custody.get(), origin, skip)
    }

    /// [`Sweep::want_inode`] whose custody was `word` after its generation was seen.
    fn want_inode_of(&mut self, inode: InodeRef, word: u32, origin: Origin, skip: &mut usize) -> bool {
        let record = self.region.inode(inode.id);
        let wanted = record.nlink.load(Ordering::Relaxed) == 0
            && word & (custody::CLAIMED | custody::HUSK) == 0
            && record.generation.load(Ordering::Acquire) == inode.generation
            && !self.inodes.contains(inode.id.0);
        if !wanted {
            return false;
        }
        if *skip > 0 {
            *skip -= 1;
            return false;
        }
        if custody::is_kept_by(word, self.task.lane_id.0) {
            record.custody.begin_look();
        }
        !self.inodes.add(inode.id.0, inode.generation, origin)
    }

    /// [`Sweep::want_inode`] for one that was seen in a chain.
    fn want_kept_inode(&mut self, id: InodeId, skip: &mut usize) -> bool {
        let record = self.region.inode(id);
        let generation = record.generation.load(Ordering::Acquire);
        // The generation first: what is in a chain then was in it with that generation. And one look: between
        // two a husk may leave the chain, and is then a free slot whose generation is this very one.
        let word = record.custody.get();
        word & custody::LISTED != 0
            && self.want_inode_of(InodeRef { id, generation }, word, Origin::Listed, skip)
    }

    /// Looks everywhere for names of the candidates; again if references moved meanwhile. What was found once
    /// stays found.
    fn scan(&mut self) -> Scan {
        for _ in 0..SCANS {
            let moves = table::moves(self.region);
            // PAIRS: the light barriers of `pin`: whoever saw a link sees to it that its pin is seen.
            if !heavy_barrier() {
                break;
            }
            self.look_at_pins();
            let calm = self.look_at_processes();
            self.look_at_mounts();
            // PAIRS: the same: whoever saw an entry that is gone.
            if !heavy_barrier() {
                break;
            }
            self.look_at_pins();
            self.look_at_flights();
            if calm && table::moves(self.region) == moves {
                return Scan::Complete;
            }
        }
        Scan::Disturbed
    }

    /// Tables, then what is derived from them; false if some table did not stand still.
    fn look_at_processes(&mut self) -> bool {
        let mut calm = true;
        for id in self.region.processes() {
            let process = self.region.process(id);
            let (mut hit, mut stood_still) = (false, false);
            for _ in 0..SCANS {
                stood_still = table::look_through(self.region, id, |file| {
                    hit |= self.found_file(file, Found::Named);
                });
                if stood_still {
                    break;
                }
            }
            calm &= stood_still;
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
                hit |= self.found_inode(Spot::from_word(word.load(Ordering::Acquire)).inode.id);
            }
            if hit && self.region.process_is_dead(id, self.task.process_id) {
                self.dead = id;
            }
        }
        calm
    }

    /// What is mounted.
    fn look_at_mounts(&mut self) {
        for id in mounts::all(self.task) {
            let record = self.region.mount(id);
            let is_made = record.maker.load(Ordering::Acquire) != 0;
            if is_made || record.state().kind() != mount_state::FREE {
                self.found_inode(record.root().id);
            }
        }
    }

    fn look_at_pins(&mut self) {
        for id in self.region.lanes() {
            for word in &self.region.lane(id).pins {
                let word = marks::pinned(word);
                if word & pin::INODE != 0 {
                    self.found_inode(InodeId(word as u32));
                } else if word != 0 {
                    self.found_file(FileId(word as u32), Found::Pinned);
                }
            }
        }
    }

    /// Files on their way over sockets, of those that matter. After the pins: a sender has its file pinned
    /// until it is in flight.
    fn look_at_flights(&mut self) {
        for id in flight::sent(self.region) {
            let inode = InodeRef::from_word(self.region.file(id).inode.load(Ordering::Relaxed)).id;
            let matters = self.files.contains(id.0) || self.inodes.contains(inode.0);
            if matters && flight::is_in_flight(self.task, id) {
                self.found_file(id, Found::Pinned);
            }
        }
    }

    /// Marks an open file and its inode as in use; says whether one of them was a candidate.
    fn found_file(&mut self, id: FileId, how: Found) -> bool {
        let file = self.region.file(id);
        let wanted = self.files.find(id.0, how);
        wanted | self.found_inode(InodeRef::from_word(file.inode.load(Ordering::Relaxed)).id)
    }

    fn found_inode(&mut self, id: InodeId) -> bool {
        id.is_some() && self.inodes.find(id.0, Found::Named)
    }

    /// Frees what was not found; the number of candidates that stay.
    fn settle(&mut self, scan: Scan) -> usize {
        let mut kept = 0;
        for (index, generation, found, _) in self.files.iter() {
            let free = scan == Scan::Complete && found == Found::Not;
            kept += usize::from(!free || !free_file(self.task, FileId(index), generation));
        }
        for (index, generation, found, origin) in self.inodes.iter() {
            let free = scan == Scan::Complete && found == Found::Not;
            let inode = InodeRef { id: InodeId(index), generation };
            let stays = !free || !free_inode(self.task, inode);
            kept += usize::from(stays && origin == Origin::Listed);
        }
        kept
    }

    /// Takes out of the lane's own chain of files what was freed, and what was found in a table.
    fn tidy_files(&self) {
        let named = |id: u32| self.files.state(id) == Some(Found::Named);
        tidy::<OpenFile>(self.region, self.task.lane, &named);
    }
}

/// Frees an open file that nothing names, but for its slot, which its keeper gives back; false if it is not to be had now.
fn free_file(task: &Task, id: FileId, generation: u32) -> bool {
    let claim = &task.lane.claims[OpenFile::LIST];
    claim.store(u64::from(id.0) | u64::from(generation) << 32, Ordering::Release);
    let freed = task.region.file(id).custody.claim(task.lane_id.0) && empty_file(task, id, generation);
    claim.store(0, Ordering::Release);
    freed
}

/// Empties an open file in a chain that a lane has claimed, or lets go of it: it is another by now, or a
/// living thread has the lock that guards its locks. Whether it is gone.
pub(crate) fn empty_file(task: &Task, id: FileId, generation: u32) -> bool {
    let file = task.region.file(id);
    let is_same = file.generation.load(Ordering::Acquire) == generation;
    // Claimed, it stays what it is.
    if is_same && file.locked.load(Ordering::Relaxed) != 0 && !file_lock::try_drop_file(task, id) {
        file.custody.unclaim();
        return false;
    }
    if !is_same {
        file.custody.unclaim();
        return true;
    }
    file.inode.store(0, Ordering::Relaxed);
    file.in_flight.store(0, Ordering::Relaxed);
    file.generation.store(generation.wrapping_add(1), Ordering::Release);
    file.custody.make_husk();
    true
}

/// Frees an inode that nothing names; its slot too, unless it stands in a chain. False if it is not to be had now.
fn free_inode(task: &Task, inode: InodeRef) -> bool {
    let claim = &task.lane.claims[Inode::LIST];
    claim.store(inode.to_word(), Ordering::Release);
    let record = task.region.inode(inode.id);
    let claimed = record.custody.claim(task.lane_id.0);
    let freed = claimed && is_unlinked(task, inode) && file_lock::try_drop_all(task, inode.id);
    if freed {
        free_claimed(task, inode);
    } else if claimed {
        record.custody.unclaim();
    }
    claim.store(0, Ordering::Release);
    freed
}

/// Whether an inode is still the one that was meant, and without links.
pub(crate) fn is_unlinked(task: &Task, inode: InodeRef) -> bool {
    let record = task.region.inode(inode.id);
    record.generation.load(Ordering::Acquire) == inode.generation && record.nlink.load(Ordering::Relaxed) == 0
}

/// Frees an inode that the lane has claimed.
fn free_claimed(task: &Task, inode: InodeRef) {
    let record = task.region.inode(inode.id);
    make::clear(task, inode.id);
    let next = inode.generation.wrapping_add(1);
    task.lane.taken[Inode::SLAB].store(inode.id.0, Ordering::Release);
    // PAIRS: the acquire loads of walks and of stat: who sees anything later sees the new generation.
    record.generation.store(next, Ordering::Release);
    if record.custody.clear_claimed() {
        task.region.give::<Inode>(task.lane, inode.id);
    } else {
        record.custody.make_husk();
    }
    task.region.settle::<Inode>(task.lane);
}

/// Puts a lane's list and chain of inodes in order; the number of those that stay in the chain. The caller
/// owns the lane.
fn tidy_inodes(task: &Task, lane: &Lane) -> u32 {
    tidy_list(task, lane);
    let region = task.region;
    let linked = |id: u32| region.inode(InodeId(id)).nlink.load(Ordering::Relaxed) != 0;
    tidy::<Inode>(region, lane, &linked)
}

/// Takes out of a lane's list what was freed, and leaves room: what is in use goes to the chain if it is much. The caller
/// owns the lane.
fn tidy_list(task: &Task, lane: &Lane) {
    let list = &lane.unlinked;
    let mut kept = 0;
    for inode in listed(task.region, lane) {
        // Not past the place that it is read from.
        list.inodes[kept].store(inode.to_word(), Ordering::Relaxed);
        kept += 1;
    }
    list.count.store(kept as u32, Ordering::Release);
    list.pages.store(0, Ordering::Relaxed);
    if kept > UNLINKED / 2 {
        let mut left = 0;
        for inode in listed(task.region, lane) {
            if !move_to_chain(task, lane, inode) {
                list.inodes[left].store(inode.to_word(), Ordering::Relaxed);
                left += 1;
            }
        }
        list.count.store(left as u32, Ordering::Release);
    }
}

/// Puts an inode of a lane's list into its chain; false if somebody may be about to free it, or to let go of
/// it again. The caller owns the lane.
fn move_to_chain(task: &Task, lane: &Lane, inode: InodeRef) -> bool {
    let own = lane.id.load(Ordering::Relaxed);
    let custody = &task.region.inode(inode.id).custody;
    let unlisting = &lane.unlisting[Inode::LIST];
    unlisting.store(inode.id.0, Ordering::Release);
    let claimed = custody.claim(own);
    // Claimed, it stays what it is.
    if claimed && is_unlinked(task, inode) && custody.keep_claimed(own) {
        link_in::<Inode>(task.region, lane, inode.id.0);
    } else if claimed {
        custody.unclaim();
    }
    unlisting.store(0, Ordering::Release);
    claimed
}

/// Takes husks out of a lane's chain and gives their slots back, and takes out what `leaves` says has no business there any
/// more; the number of those that stay. The caller owns the lane.
fn tidy<T: Listed>(region: Region, lane: &Lane, leaves: &dyn Fn(u32) -> bool) -> u32 {
    let own = lane.id.load(Ordering::Relaxed);
    let mut kept = 0;
    let mut place = &lane.chains[T::LIST];
    for _ in 0..T::SLOTS {
        let index = place.load(Ordering::Relaxed); // Relaxed: only the lane's owner changes the chain.
        let record = region.slot::<T>(index);
        let word = record.custody().get();
        if index == 0 || !custody::is_kept_by(word, own) {
            break;
        }
        let next = record.link().load(Ordering::Relaxed);
        if word & custody::HUSK != 0 {
            // The lane answers for the slot until a cache holds it.
            lane.taken[T::SLAB].store(index, Ordering::Release);
            place.store(next, Ordering::Release);
            record.custody().clear();
            region.give::<T>(lane, T::id(index));
            region.settle::<T>(lane);
        } else if word & (custody::ASKED | custody::CLAIMED) == 0 && leaves(index) {
            let unlisting = &lane.unlisting[T::LIST];
            unlisting.store(index, Ordering::Release);
            place.store(next, Ordering::Release);
            if !record.custody().unlist() {
                // Somebody has let go of it meanwhile.
                link_in::<T>(region, lane, index);
            }
            unlisting.store(0, Ordering::Release);
        } else {
            kept += 1;
            place = record.link();
        }
    }
    kept
}

/// Puts the lists in order that former owners left in lanes that nobody owns.
fn tidy_unowned(task: &Task) {
    let region = task.region;
    for id in all_lanes(region) {
        let lane = region.lane(id);
        // Relaxed: hints.
        let left = lane.unlinked.count.load(Ordering::Relaxed)
            | lane.chains[OpenFile::LIST].load(Ordering::Relaxed)
            | lane.chains[Inode::LIST].load(Ordering::Relaxed);
        if left == 0 || lane.process.load(Ordering::Relaxed) != 0 {
            continue;
        }
        let tid = task.lane.tid.load(Ordering::Relaxed);
        if let Some(owned) = region.try_claim_lane(LaneId(id.0), task.process_id, tid) {
            tidy::<OpenFile>(region, lane, &|_| false);
            tidy_inodes(task, lane);
            region.release_lane(owned);
        }
    }
}
