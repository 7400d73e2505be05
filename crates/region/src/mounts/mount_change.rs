//! Changes of the tree of mounts: each is one event, made without a lock, and finished by whoever comes next
//! if the lane that began it is stopped or dead.
//!
//! A lane looks at the tree in a *turn* in which no change is under way, writes what it wants to become of
//! which records into its own [`Plan`], and swaps its name into the word of the turn ([`make`]). The exchange
//! fails if anything has changed since the lane looked; then it looks again. Once it has succeeded the change
//! is made: whoever wants to look at the next turn first carries the plan out ([`settle`]), and ends the
//! turn.
//!
//! A step of a plan is one exchange of one record's state, whose upper bits count its exchanges. A helper
//! loads the state, checks that the turn is still the plan's, and only then exchanges it: if the plan was
//! carried out meanwhile the count has moved and the exchange fails, so a helper that was stopped for any
//! time does nothing late. Where a mount stands does not change in its record: a move writes the new place
//! into a free record and swaps its number into the state. The word of a mount's peer groups names the turn
//! in which it was last exchanged, for the same purpose.
//!
//! Model: `crates/models/tests/mount_change.rs`. Linearisation: the exchange of the turn. ABA: 2^32 turns
//! while a lane looks; 2^22 exchanges of one state while a helper is stopped between two of its instructions.
//! Progress: lock-free. A plan is read under its turn as under a sequence count: its lane writes it only
//! while the turn is not its own.

use crate::ids::{LaneId, MountId};
use crate::layout::MOUNTS;
use crate::mount_state::{self, State};
use crate::sync::{AtomicU32, AtomicU64, Ordering, acquire_fence, release_fence};

/// A set of mounts.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Set([u64; MOUNTS / 64]);

impl Set {
    /// Adds a mount.
    pub fn add(&mut self, mount: MountId) {
        self.0[mount.index() / 64 % (MOUNTS / 64)] |= 1 << (mount.0 % 64);
    }

    /// Takes a mount out.
    pub fn remove(&mut self, mount: MountId) {
        self.0[mount.index() / 64 % (MOUNTS / 64)] &= !(1 << (mount.0 % 64));
    }

    /// Whether a mount is in it.
    pub fn has(&self, mount: MountId) -> bool {
        self.0[mount.index() / 64 % (MOUNTS / 64)] & 1 << (mount.0 % 64) != 0
    }

    /// Its mounts.
    pub fn iter(self) -> impl Iterator<Item = MountId> {
        (1..MOUNTS as u32).map(MountId).filter(move |mount| self.has(*mount))
    }
}

/// What is to become of which records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Free records, filled in by the lane, that become part of the tree.
    pub joining: Set,
    /// The last of those that join, below which the others are.
    pub top: MountId,
    /// Mounts of the tree that change.
    changing: Set,
    changes: [Change; MOUNTS],
}

/// What changes of a mount of the tree.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Change {
    /// The record with its new place; none if it does not move.
    pub place: MountId,
    /// Its new peer groups, as a word of 16 bits.
    pub groups: Option<u16>,
    /// What becomes of its state.
    pub becomes: Becomes,
}

/// What becomes of a mount's state.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Becomes {
    /// It stays.
    #[default]
    Same,
    /// It leaves the tree.
    Leaves,
    /// A free record, filled in by the lane, becomes part of a tree that no path leads to.
    Drifts,
    /// A mount of such a tree becomes part of the run's.
    Rises,
}

impl Change {
    fn to_word(self) -> u64 {
        let groups = self.groups.map_or(0, |groups| u64::from(groups) | 1 << 16);
        groups | (self.becomes as u64) << 17 | u64::from(self.place.0) << 32
    }

    fn from_word(word: u64) -> Self {
        let place = MountId((word >> 32) as u32 & (MOUNTS as u32 - 1));
        let groups = (word & 1 << 16 != 0).then_some(word as u16);
        let becomes = match word >> 17 & 3 {
            0 => Becomes::Same,
            1 => Becomes::Leaves,
            2 => Becomes::Drifts,
            _ => Becomes::Rises,
        };
        Change { place, groups, becomes }
    }
}

/// Words of a plan before those of single mounts.
pub const SETS: usize = 2 * (MOUNTS / 64) + 1;

/// Words of a plan.
pub(crate) const PLAN_WORDS: usize = SETS + MOUNTS;

/// A plan where others read it: its sets, then a word for each mount that changes.
pub type PlanWords = [AtomicU64; PLAN_WORDS];

impl Default for Plan {
    fn default() -> Self {
        let none = Set::default();
        let changes = [Change::default(); MOUNTS];
        Plan { joining: none, top: MountId::NONE, changing: none, changes }
    }
}

impl Plan {
    /// What is to change of a mount of the tree.
    pub fn change(&mut self, mount: MountId) -> &mut Change {
        self.changing.add(mount);
        &mut self.changes[mount.index() % MOUNTS]
    }

    /// The mounts that change, and what of them.
    pub fn changes(&self) -> impl Iterator<Item = (MountId, Change)> + '_ {
        self.changing.iter().map(|mount| (mount, self.changes[mount.index() % MOUNTS]))
    }

    /// The mounts that move.
    pub fn moves(&self) -> impl Iterator<Item = (MountId, MountId)> + '_ {
        self.changes()
            .filter(|(_, change)| change.place.is_some())
            .map(|(mount, change)| (mount, change.place))
    }

    /// The mounts that leave.
    pub fn leaving(&self) -> impl Iterator<Item = MountId> + '_ {
        self.becoming(Becomes::Leaves).map(|(mount, _)| mount)
    }

    /// The mounts whose state becomes this, and what else changes of them.
    fn becoming(&self, becomes: Becomes) -> impl Iterator<Item = (MountId, Change)> + '_ {
        self.changes().filter(move |(_, change)| change.becomes == becomes)
    }

    fn store(&self, to: &[AtomicU64]) {
        // PAIRS: the acquire fence in `settle`. Whoever reads one of these words sees the former turn over.
        release_fence();
        let sets = [self.joining, self.changing];
        let words = sets.iter().flat_map(|set| set.0).chain(core::iter::once(u64::from(self.top.0)));
        for (to, word) in to.iter().zip(words.chain(self.changes().map(|(_, change)| change.to_word()))) {
            to.store(word, Ordering::Relaxed); // Relaxed: published by the exchange of the turn.
        }
    }

    fn load(from: &[AtomicU64]) -> Plan {
        // Relaxed: checked by the turn.
        let word = |index: usize| from.get(index).map_or(0, |word| word.load(Ordering::Relaxed));
        let set = |index: usize| Set(core::array::from_fn(|at| word(index * (MOUNTS / 64) + at)));
        let top = MountId(word(SETS - 1) as u32 & (MOUNTS as u32 - 1));
        let mut plan = Plan { joining: set(0), changing: set(1), top, ..Plan::default() };
        for (index, mount) in plan.changing.iter().enumerate() {
            plan.changes[mount.index() % MOUNTS] = Change::from_word(word(SETS + index));
        }
        plan
    }
}

/// Where the mounts of a region are.
pub trait Mounts {
    /// The turn in the high half; in the low half the lane whose plan is being carried out, 0 if none is.
    fn turn(&self) -> &AtomicU64;
    /// The plan of a lane.
    fn plan(&self, lane: LaneId) -> &[AtomicU64];
    /// The state of a mount.
    fn state(&self, mount: MountId) -> &AtomicU32;
    /// The peer groups of a mount: 16 bits, and above them the turn in which a plan last changed them, plus
    /// 1.
    fn groups(&self, mount: MountId) -> &AtomicU64;
}

/// A turn in which no change was under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn(u64);

impl Turn {
    /// Its number.
    pub fn number(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Finishes the change that is under way, if there is one.
pub fn settle(mounts: &impl Mounts) -> Turn {
    loop {
        // PAIRS: the exchanges in `make` and `end`.
        let seen = mounts.turn().load(Ordering::Acquire);
        let lane = LaneId(seen as u32);
        if lane.is_none() {
            return Turn(seen);
        }
        let plan = Plan::load(mounts.plan(lane));
        // PAIRS: the release fence in `Plan::store`.
        acquire_fence();
        if mounts.turn().load(Ordering::Relaxed) == seen {
            carry_out(mounts, &plan, seen);
            end(mounts, seen);
        }
    }
}

/// Whether nothing has changed since the turn began, and nothing is about to.
pub fn stands(mounts: &impl Mounts, turn: Turn) -> bool {
    // Acquire: what was found out before came before this.
    acquire_fence();
    mounts.turn().load(Ordering::Acquire) == turn.0
}

/// Makes a change, if nothing has changed since the turn began: whether it is made.
#[must_use]
pub fn make(mounts: &impl Mounts, lane: LaneId, turn: Turn, plan: &Plan) -> bool {
    plan.store(mounts.plan(lane));
    let own = turn.0 | u64::from(lane.0);
    // PAIRS: the acquire load in `settle`: the plan, and what its lane wrote into free records.
    let begun = mounts.turn().compare_exchange(turn.0, own, Ordering::AcqRel, Ordering::Relaxed);
    if begun.is_err() {
        return false;
    }
    carry_out(mounts, plan, own);
    end(mounts, own);
    true
}

/// Finishes a turn without a change, so that what others propose in it fails: whether it was still the turn.
#[must_use]
pub fn pass(mounts: &impl Mounts, turn: Turn) -> bool {
    // PAIRS: the acquire load in `settle`. Release: who looks next finds what the caller has done.
    mounts.turn().compare_exchange(turn.0, next(turn.0), Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// The turn that follows.
fn next(turn: u64) -> u64 {
    ((turn >> 32) + 1) << 32
}

/// Ends a turn whose plan is carried out, unless somebody has.
fn end(mounts: &impl Mounts, seen: u64) {
    // PAIRS: the acquire load in `settle`.
    let _ = mounts.turn().compare_exchange(seen, next(seen), Ordering::AcqRel, Ordering::Relaxed);
}

fn carry_out(mounts: &impl Mounts, plan: &Plan, turn: u64) {
    let join =
        |is: State| (is.kind() == mount_state::FREE).then(|| is.next(mount_state::ATTACHED, MountId::NONE));
    // What stands below the uppermost comes before it: no path leads there yet.
    for mount in plan.joining.iter().filter(|mount| *mount != plan.top) {
        step(mounts, mount, turn, join);
    }
    if plan.joining.has(plan.top) {
        step(mounts, plan.top, turn, join);
    }
    let drift =
        |is: State| (is.kind() == mount_state::FREE).then(|| is.next(mount_state::DETACHED, MountId::NONE));
    for (mount, _) in plan.becoming(Becomes::Drifts) {
        step(mounts, mount, turn, drift);
    }
    let rise =
        |is: State| (is.kind() == mount_state::DETACHED).then(|| is.next(mount_state::ATTACHED, is.at()));
    // Those below the one that gets a place, before a path leads to that.
    for (mount, _) in plan.becoming(Becomes::Rises).filter(|(_, change)| change.place.is_none()) {
        step(mounts, mount, turn, rise);
    }
    for (mount, place) in plan.moves() {
        let hold =
            |is: State| (is.kind() == mount_state::FREE).then(|| is.next(mount_state::PLACE, MountId::NONE));
        step(mounts, place, turn, hold);
        let go = |is: State| (is.at() != place).then(|| is.next(is.kind(), place));
        step(mounts, mount, turn, go);
    }
    for (mount, _) in plan.becoming(Becomes::Rises).filter(|(_, change)| change.place.is_some()) {
        step(mounts, mount, turn, rise);
    }
    for (mount, change) in plan.changes() {
        if let Some(groups) = change.groups {
            regroup(mounts, mount, turn, groups);
        }
    }
    for mount in plan.leaving() {
        let leave =
            |is: State| (is.kind() == mount_state::ATTACHED).then(|| is.next(mount_state::DETACHED, is.at()));
        step(mounts, mount, turn, leave);
    }
}

/// Exchanges the peer groups of one mount, unless that is done.
fn regroup(mounts: &impl Mounts, mount: MountId, turn: u64, groups: u16) {
    let word = mounts.groups(mount);
    let new = u64::from(groups) | ((turn >> 32) + 1) << 16;
    loop {
        // PAIRS: the exchange below. Acquire: it is loaded before the turn.
        let was = word.load(Ordering::Acquire);
        // Relaxed: as in `step`.
        if was == new || mounts.turn().load(Ordering::Relaxed) != turn {
            return;
        }
        // PAIRS: the acquire loads of those who look at mounts.
        if word.compare_exchange(was, new, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

/// Exchanges the state of one mount, unless that is done.
fn step(mounts: &impl Mounts, mount: MountId, turn: u64, to: impl Fn(State) -> Option<State>) {
    let state = mounts.state(mount);
    loop {
        // PAIRS: the exchange below. Acquire: it is loaded before the turn.
        let was = state.load(Ordering::Acquire);
        let Some(new) = to(State(was)) else { return };
        // Relaxed: another value tells that the plan was carried out, and its steps need nothing from here.
        if mounts.turn().load(Ordering::Relaxed) != turn {
            return;
        }
        // PAIRS: the acquire loads of those who look at mounts.
        if state.compare_exchange(was, new.0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}
