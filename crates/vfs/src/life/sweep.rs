//! A sweep: finds closed files and unlinked inodes that nothing names, and frees them.
//!
//! A sweep gathers candidates and reads the pins of all lanes; then the tables of all processes, their
//! mappings, working directories and executed files; then the pins again, each time after a heavy barrier;
//! and finally the files in flight. If no inode is a candidate, it leaves out the first look at the pins and
//! its barrier. It claims and frees the candidates that it did not find ([`lp_region::custody`]). The
//! candidates and what was found are on the sweeper's own stack, so any number of sweeps run in parallel.
//!
//! *Why a scan that is not atomic suffices.* A reference that moves during the scan could be missed at both
//! ends.
//!
//! - Open by name pins the inode and then checks that it has links. A candidate has none, so the pin was set
//!   before the scan began. It is cleared once the entry is in the table. The scan reads pins before tables,
//!   so it sees the pin or the entry. This concerns inodes alone: nobody finds a closed file by a name.
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
//! A removed directory in use keeps those from which it was removed, because its `..` leads there. A thread
//! that goes there pins what it found and then looks whether the first is in use.
//!
//! Files that threads close in a table that they share come here only if they may have other names, or if a
//! call still used them ([`crate::life::grace`]).
//!
//! What a complete scan has not found stays unnamed for good, because nobody can name it again. A lane that
//! goes on unlinking therefore only marks small inodes in its list ([`Scope::Batch`], [`UNNAMED`]). It frees
//! a few with each few that it unlinks: their slots go from its list to its cache and to its next files, not
//! by way of the slab's stack to another processor. A mark outlives the lane's owner.
//!
//! An inode that got a name and lost it again may be in several lists. Only one claim succeeds, and freeing
//! gives the inode another generation, which the lists do not have. [`lp_region::marks`] describes the
//! orderings. Source: Michael, "Hazard Pointers" (2004), with tables as further hazard pointers.

use lp_region::lane::{Lane, UNNAMED, Unlinked};
use lp_region::mount::mount_state;
use lp_region::records::{Inode, OpenFile};
use lp_region::sync::{AtomicU32, Ordering, heavy_barrier};
use lp_region::{FileId, InodeId, InodeRef, ProcessId, Region, Spot, custody, marks};

use crate::caller::candidates::{CandidateSet, FILES, INODES, Origin, Reference};
use crate::caller::task::Task;
use crate::descriptors::flight;
use crate::descriptors::table::{self, FdTable};
use crate::lane::kept::{Listed, all_lanes, chain, listed};
use crate::lane::pin;
use crate::life::{free, reap, tidy};
use crate::names::{dir, mounts};

/// Scans before a sweep gives up because references keep moving.
const SCANS: u32 = 8;
/// Minimum number of new inodes in a chain that makes examining it worthwhile.
const DUE: u32 = 64;

/// Most pages of an inode that may be freed later.
const SMALL: u32 = 4;

/// The candidates that a sweep examines.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// What the lane keeps.
    Own,
    /// The same, for a lane that goes on: it frees the most common kind of inode later, a few at a time
    /// ([`UNNAMED`]).
    Batch,
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
        tidy::unowned(task);
    }
}

/// Sweeps as many candidates at a time as a set holds. Returns a dead process that holds some.
fn rounds(task: &Task, scope: Scope) -> ProcessId {
    let mut dead = ProcessId::NONE;
    let mut skip = 0;
    let (expected_files, expected_inodes) = expected(task, scope);
    // The lane's own chains may be long: do not walk them for a single candidate.
    let depth = depth(task.lane, scope);
    loop {
        // SAFETY: the sets of an earlier round are gone, and a sweep does not contain another.
        let (files, inodes) = unsafe { task.candidates.sets(expected_files, expected_inodes) };
        let mut sweep = Sweep::new(task, scope, files, inodes);
        let more = sweep.gather(depth, skip);
        if sweep.files.is_empty() && sweep.inodes.is_empty() {
            // Others may have freed everything but the slots.
            if depth != Depth::Named {
                sweep.tidy_files();
            }
            break;
        }
        let scan = sweep.scan();
        skip += sweep.settle(scan);
        if scope == Scope::Batch {
            sweep.mark(scan);
        }
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
        let kept = tidy::inodes(task, task.lane);
        // Relaxed, both: the lane's own.
        if depth == Depth::Chain || kept < task.lane.kept.load(Ordering::Relaxed) {
            task.lane.kept.store(kept, Ordering::Relaxed);
        }
    }
    dead
}

/// For how many files and inodes to have room.
fn expected(task: &Task, scope: Scope) -> (usize, usize) {
    // Relaxed: the lane's own.
    let own = |count: &AtomicU32| count.load(Ordering::Relaxed) as usize;
    match scope {
        Scope::File(_) | Scope::Inode(_) => (1, 1),
        Scope::Own | Scope::Batch => {
            (own(&task.lane.arrived[OpenFile::LIST]), own(&task.lane.unlinked.count))
        }
        Scope::All => (FILES, INODES),
    }
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
        Scope::Own | Scope::Batch if arrived.load(Ordering::Relaxed) < due => Depth::List,
        Scope::Own | Scope::Batch | Scope::All => Depth::Chain,
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
    scope: Scope,
    files: CandidateSet<'t>,
    inodes: CandidateSet<'t>,
    /// Whether a candidate is a directory.
    directories: bool,
    /// A dead process that holds candidates.
    dead: ProcessId,
}

impl<'t, 'r> Sweep<'t, 'r> {
    fn new(task: &'t Task<'r>, scope: Scope, files: CandidateSet<'t>, inodes: CandidateSet<'t>) -> Self {
        Sweep { task, region: task.region, scope, files, inodes, directories: false, dead: ProcessId::NONE }
    }

    /// Adds candidates, skipping the first `skip`. Returns whether there are more than the sets hold.
    fn gather(&mut self, depth: Depth, skip: usize) -> bool {
        let mut skip = skip;
        match self.scope {
            Scope::File(id) => self.want_file(id, &mut skip),
            Scope::Inode(inode) => self.want_inode(inode, Origin::Listed, &mut skip),
            Scope::Own | Scope::Batch => self.gather_lane(self.task.lane, depth == Depth::Chain, &mut skip),
            Scope::All => {
                all_lanes(self.region).any(|id| self.gather_lane(self.region.lane(id), true, &mut skip))
            }
        }
    }

    /// Adds what a lane keeps, and its chain of inodes if `deep`. Returns whether there was no room.
    fn gather_lane(&mut self, lane: &'r Lane, deep: bool, skip: &mut usize) -> bool {
        let region = self.region;
        let known = if self.scope == Scope::Batch { UNNAMED } else { 0 };
        let listed = listed(region, lane).filter(|word| word & known == 0);
        listed.map(Unlinked::inode).any(|inode| self.want_inode(inode, Origin::Listed, skip))
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
        self.directories |= record.is_dir();
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
            if !self.inodes.is_empty() {
                // PAIRS: the light barriers of `pin`: a thread that saw a link makes its pin visible.
                if !heavy_barrier() {
                    break;
                }
                self.look_at_pins();
            }
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
        if self.directories && id.is_some() {
            self.found_above(id);
        }
        id.is_some() && self.inodes.find(id.0, Reference::Named)
    }

    /// Marks those from which a removed directory was removed: its `..` leads there.
    #[cold]
    fn found_above(&mut self, id: InodeId) {
        let generation = self.region.inode(id).generation.load(Ordering::Acquire);
        for above in dir::and_above_removed(self.task, InodeRef { id, generation }).skip(1) {
            let stands = self.region.inode(above.id).generation.load(Ordering::Acquire) == above.generation;
            if stands {
                self.inodes.find(above.id.0, Reference::Named);
            }
        }
    }

    /// Frees what was not found. Returns the number of candidates that stay.
    fn settle(&mut self, scan: Scan) -> usize {
        let mut kept = 0;
        for (index, generation, found, _) in self.files.iter() {
            let may_go = scan == Scan::Complete && found == Reference::Not;
            kept += usize::from(!may_go || !free::file(self.task, FileId(index), generation));
        }
        for (index, generation, found, origin) in self.inodes.iter() {
            let may_go = scan == Scan::Complete && found == Reference::Not;
            let inode = InodeRef { id: InodeId(index), generation };
            if may_go && self.scope == Scope::Batch && origin == Origin::Listed && self.may_wait(inode) {
                continue;
            }
            let stays = !may_go || !free::inode(self.task, inode);
            kept += usize::from(stays && origin == Origin::Listed);
        }
        kept
    }

    /// Whether an inode that nothing names may be freed later: nobody waits for it, and it is small.
    fn may_wait(&self, inode: InodeRef) -> bool {
        let record = self.region.inode(inode.id);
        // Relaxed: nobody can reach it any more.
        record.custody.get() & custody::LISTED == 0
            && record.pages.load(Ordering::Relaxed) <= SMALL
            && !record.is_dir()
    }

    /// Marks in the lane's list what [`Sweep::settle`] has left because it may be freed later.
    fn mark(&self, scan: Scan) {
        let list = &self.task.lane.unlinked;
        // Relaxed throughout: the lane's own.
        let count = list.count.load(Ordering::Relaxed);
        let places = (0..count as usize).map_while(|place| self.region.unlinked(self.task.lane, place));
        for place in places {
            let word = place.load(Ordering::Relaxed);
            let inode = Unlinked::inode(word);
            let unnamed = scan == Scan::Complete
                && word & UNNAMED == 0
                && self.inodes.state(inode.id.0) == Some(Reference::Not)
                && free::is_unlinked(self.task, inode)
                && self.may_wait(inode);
            if unnamed {
                place.store(word | UNNAMED, Ordering::Relaxed);
            }
        }
    }

    /// Removes from the lane's own chain of files what was freed, and what was found in a table.
    fn tidy_files(&self) {
        let named = |id: u32| self.files.state(id) == Some(Reference::Named);
        tidy::chain::<OpenFile>(self.region, self.task.lane, &named);
    }
}
