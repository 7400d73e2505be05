//! A sweep: finds closed files and unlinked inodes that nothing names, and frees them.
//!
//! A sweep gathers candidates and reads the pins of all lanes; then the tables of all processes, their
//! mappings, working directories and executed files; then the pins again, each time after a heavy barrier;
//! and finally the files in flight. It claims and frees the candidates that it did not find
//! ([`lp_region::custody`]). The candidates and what was found are on the sweeper's own stack, so any number
//! of sweeps run in parallel.
//!
//! *Why a scan that is not atomic suffices.* A reference that moves during the scan could be missed at both
//! ends.
//!
//! - Open by name pins the inode and then checks that it has links. A candidate has none, so the pin was set
//!   before the scan began. It is cleared once the entry is in the table. The scan reads pins before tables,
//!   so it sees the pin or the entry.
//! - A closer pins its file before it removes the entry, and asks for a sweep before it clears the pin. The
//!   scan reads tables before pins, so it sees the entry, the pin or the request.
//! - A copy of a reference increments a count after the copy and before its pin or the original can go:
//!   `Process::moves` within a table (dup), `Header::moves` from one table to another (fork, receipt over a
//!   socket). A sweep that sees a count change scans again, and eventually gives up without freeing. If one
//!   thread has a table, nobody removes the original before the copy is there, so only changes during the
//!   look at that table count.
//! - A sender keeps its file pinned or named until it is in flight ([`crate::descriptors::flight`]). The scan
//!   reads flights last.
//!
//! What a complete scan has not found stays unnamed for good, because nobody can name it again.
//!
//! An inode that got a name and lost it again may be in several lists. Only one claim succeeds, and freeing
//! gives the inode another generation, which the lists do not have. [`lp_region::marks`] describes the
//! orderings. Source: Michael, "Hazard Pointers" (2004), with tables as further hazard pointers.

use lp_region::lane::{Lane, UNLINKED};
use lp_region::mount::mount_state;
use lp_region::records::{Inode, OpenFile};
use lp_region::slab::Slot;
use lp_region::sync::{Ordering, heavy_barrier};
use lp_region::{FileId, InodeId, InodeRef, LaneId, ProcessId, Region, Spot, custody, marks};

use crate::caller::task::Task;
use crate::descriptors::flight;
use crate::descriptors::table::{self, FdTable};
use crate::inodes::make;
use crate::lane::kept::{Listed, all_lanes, chain, link_in, listed};
use crate::lane::pin;
use crate::life::candidates::{CandidateSet, Origin, Reference};
use crate::life::reap;
use crate::locks::file_lock;
use crate::names::mounts;

/// Scans before a sweep gives up because references keep moving.
const SCANS: u32 = 8;
/// Minimum number of new inodes in a chain that makes examining it worthwhile.
const DUE: u32 = 64;

/// The candidates that a sweep examines.
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

/// Finds and frees what nothing names. The caller must hold no inode lock.
#[inline(never)]
pub(crate) fn run(task: &Task, scope: Scope) {
    // If a dead process holds candidates, it is reaped, which releases them: worth a second round.
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

/// Sweeps as many candidates at a time as a set holds. Returns a dead process that holds some.
fn rounds(task: &Task, scope: Scope) -> ProcessId {
    let mut dead = ProcessId::NONE;
    let mut skip = 0;
    // The lane's own chains may be long: do not walk them for a single candidate.
    let depth = depth(task.lane, scope);
    loop {
        let mut sweep = Sweep::new(task);
        let more = sweep.gather(scope, depth, skip);
        if sweep.files.is_empty() && sweep.inodes.is_empty() {
            // Others may have freed everything but the slots.
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

/// How much of what its lane keeps a sweep examines.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    /// At most what the caller named.
    Named,
    /// Closed files, and the list of inodes.
    List,
    /// Also the chain of inodes.
    Chain,
}

/// How deep a sweep of `scope` goes. What is added to the lane's chains from here on counts for the next one.
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

/// The validity of a scan of all tables.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scan {
    /// It saw every reference.
    Complete,
    /// References moved meanwhile, or there was no barrier: it may have missed some.
    Disturbed,
}

struct Sweep<'t, 'r> {
    task: &'t Task<'r>,
    region: Region<'r>,
    files: CandidateSet,
    inodes: CandidateSet,
    /// A dead process that holds candidates.
    dead: ProcessId,
}

impl<'t, 'r> Sweep<'t, 'r> {
    fn new(task: &'t Task<'r>) -> Self {
        Sweep {
            task,
            region: task.region,
            files: CandidateSet::new(),
            inodes: CandidateSet::new(),
            dead: ProcessId::NONE,
        }
    }

    /// Adds candidates, skipping the first `skip`. Returns whether there are more than the sets hold.
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

    /// Adds what a lane keeps, and its chain of inodes if `deep`. Returns whether there was no room.
    fn gather_lane(&mut self, lane: &'r Lane, deep: bool, skip: &mut usize) -> bool {
        let region = self.region;
        listed(region, lane).any(|inode| self.want_inode(inode, Origin::Listed, skip))
            || chain::<OpenFile>(region, lane).any(|id| self.want_file(FileId(id), skip))
            || deep && chain::<Inode>(region, lane).any(|id| self.want_kept_inode(InodeId(id), skip))
    }

    /// Makes a closed file a candidate, and its inode if that has no links. Returns whether there was no
    /// room.
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
        // Use the file's own reference: the inode may be another by this time.
        let of = InodeRef::from_word(file.inode.load(Ordering::Relaxed));
        of != InodeRef::NONE && self.want_inode(of, Origin::Derived, &mut 0)
    }

    /// Makes an inode a candidate if it has no links; one with links may be opened until it is freed. Returns
    /// whether there was no room.
    fn want_inode(&mut self, inode: InodeRef, origin: Origin, skip: &mut usize) -> bool {
        self.want_inode_of(inode, self.region.inode(inode.id).custody.get(), origin, skip)
    }

    /// [`Sweep::want_inode`] for an inode whose custody was `word` after its generation was read.
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

    /// [`Sweep::want_inode`] for an inode that was seen in a chain.
    fn want_kept_inode(&mut self, id: InodeId, skip: &mut usize) -> bool {
        let record = self.region.inode(id);
        let generation = record.generation.load(Ordering::Acquire);
        // Read the generation first: what is in the chain afterwards was in it with that generation. Read
        // custody once: between two reads a husk may leave the chain and become a free slot with this very
        // generation.
        let word = record.custody.get();
        word & custody::LISTED != 0
            && self.want_inode_of(InodeRef { id, generation }, word, Origin::Listed, skip)
    }

    /// Looks everywhere for references to the candidates, and again if references moved meanwhile. What was
    /// found once stays found.
    fn scan(&mut self) -> Scan {
        for _ in 0..SCANS {
            let moves = table::moves(self.region);
            // PAIRS: the light barriers of `pin`: a thread that saw a link makes its pin visible.
            if !heavy_barrier() {
                break;
            }
            self.look_at_pins();
            let calm = self.look_at_processes();
            self.look_at_mounts();
            // PAIRS: the light barriers of `pin`: a thread that saw an entry now gone makes its pin visible.
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

    /// Reads tables, then what is derived from them. Returns false if some table changed meanwhile.
    fn look_at_processes(&mut self) -> bool {
        let mut calm = true;
        for id in self.region.processes() {
            let process = self.region.process(id);
            let (mut hit, mut stood_still) = (false, false);
            for _ in 0..SCANS {
                stood_still = FdTable::of(self.region, id).look_through(|file| {
                    hit |= self.found_file(file, Reference::Named);
                });
                if stood_still {
                    break;
                }
            }
            calm &= stood_still;
            for word in process.places() {
                hit |= self.found_inode(Spot::from_word(word.load(Ordering::Acquire)).inode.id);
            }
            if hit && self.region.process_is_dead(id, self.task.process_id) {
                self.dead = id;
            }
        }
        for record in self.region.mappings() {
            let hit = self.found_inode(InodeRef::from_word(record.inode.load(Ordering::Relaxed)).id);
            let process = ProcessId(record.process.load(Ordering::Relaxed));
            if hit && self.region.process_is_dead(process, self.task.process_id) {
                self.dead = process;
            }
        }
        calm
    }

    /// Reads what is mounted.
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
                    self.found_file(FileId(word as u32), Reference::Pinned);
                }
            }
        }
    }

    /// Reads which of the relevant files are in flight over sockets. After the pins: a sender has its file
    /// pinned until it is in flight.
    fn look_at_flights(&mut self) {
        for id in flight::sent(self.region) {
            let inode = InodeRef::from_word(self.region.file(id).inode.load(Ordering::Relaxed)).id;
            let matters = self.files.contains(id.0) || self.inodes.contains(inode.0);
            if matters && flight::is_in_flight(self.task, id) {
                self.found_file(id, Reference::Pinned);
            }
        }
    }

    /// Marks an open file and its inode as in use. Returns whether one of them was a candidate.
    fn found_file(&mut self, id: FileId, how: Reference) -> bool {
        let file = self.region.file(id);
        let wanted = self.files.find(id.0, how);
        wanted | self.found_inode(InodeRef::from_word(file.inode.load(Ordering::Relaxed)).id)
    }

    fn found_inode(&mut self, id: InodeId) -> bool {
        id.is_some() && self.inodes.find(id.0, Reference::Named)
    }

    /// Frees what was not found. Returns the number of candidates that stay.
    fn settle(&mut self, scan: Scan) -> usize {
        let mut kept = 0;
        for (index, generation, found, _) in self.files.iter() {
            let free = scan == Scan::Complete && found == Reference::Not;
            kept += usize::from(!free || !free_file(self.task, FileId(index), generation));
        }
        for (index, generation, found, origin) in self.inodes.iter() {
            let free = scan == Scan::Complete && found == Reference::Not;
            let inode = InodeRef { id: InodeId(index), generation };
            let stays = !free || !free_inode(self.task, inode);
            kept += usize::from(stays && origin == Origin::Listed);
        }
        kept
    }

    /// Removes from the lane's own chain of files what was freed, and what was found in a table.
    fn tidy_files(&self) {
        let named = |id: u32| self.files.state(id) == Some(Reference::Named);
        tidy::<OpenFile>(self.region, self.task.lane, &named);
    }
}

/// Frees an open file that nothing names, except its slot, which its keeper frees. Returns false if that is
/// not possible at this time.
fn free_file(task: &Task, id: FileId, generation: u32) -> bool {
    let claim = &task.lane.claims[OpenFile::LIST];
    claim.store(u64::from(id.0) | u64::from(generation) << 32, Ordering::Release);
    let freed = task.region.file(id).custody.claim(task.lane_id.0) && empty_file(task, id, generation);
    claim.store(0, Ordering::Release);
    freed
}

/// Empties an open file in a chain that a lane has claimed. Releases the claim if the file is another by this
/// time, or if a live thread holds the lock that guards its locks. Returns whether the file is gone.
pub(crate) fn empty_file(task: &Task, id: FileId, generation: u32) -> bool {
    let file = task.region.file(id);
    let is_same = file.generation.load(Ordering::Acquire) == generation;
    // While claimed, it cannot change.
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

/// Frees an inode that nothing names, and its slot unless it is in a chain. Returns false if that is not
/// possible at this time.
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

/// Whether an inode is still the one that was meant, and has no links.
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
    // PAIRS: the acquire loads of walks and of stat: a later change implies the new generation.
    record.generation.store(next, Ordering::Release);
    if record.custody.clear_claimed() {
        task.region.give::<Inode>(task.lane, inode.id);
    } else {
        record.custody.make_husk();
    }
    task.region.settle::<Inode>(task.lane);
}

/// Tidies a lane's list and chain of inodes. Returns the number that stay in the chain. The caller must own
/// the lane.
fn tidy_inodes(task: &Task, lane: &Lane) -> u32 {
    tidy_list(task, lane);
    let region = task.region;
    let linked = |id: u32| region.inode(InodeId(id)).nlink.load(Ordering::Relaxed) != 0;
    tidy::<Inode>(region, lane, &linked)
}

/// Removes from a lane's list what was freed, and makes room: if many stay in use, they move to the chain.
/// The caller must own the lane.
fn tidy_list(task: &Task, lane: &Lane) {
    let list = &lane.unlinked;
    let mut kept = 0;
    for inode in listed(task.region, lane) {
        // Never beyond the position from which it is read.
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

/// Moves an inode from a lane's list to its chain. Returns false if somebody may be about to free it, or to
/// release it again. The caller must own the lane.
fn move_to_chain(task: &Task, lane: &Lane, inode: InodeRef) -> bool {
    let own = lane.id.load(Ordering::Relaxed);
    let custody = &task.region.inode(inode.id).custody;
    let unlisting = &lane.unlisting[Inode::LIST];
    unlisting.store(inode.id.0, Ordering::Release);
    let claimed = custody.claim(own);
    // While claimed, it cannot change.
    if claimed && is_unlinked(task, inode) && custody.keep_claimed(own) {
        link_in::<Inode>(task.region, lane, inode.id.0);
    } else if claimed {
        custody.unclaim();
    }
    unlisting.store(0, Ordering::Release);
    claimed
}

/// Removes husks from a lane's chain and frees their slots, and removes the records that `leaves` names.
/// Returns the number that stay. The caller must own the lane.
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
                // Somebody has released it meanwhile.
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

/// Tidies the lists that former owners left in lanes without an owner.
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
