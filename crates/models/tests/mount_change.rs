//! Changes of the tree of mounts: each is one event, whoever carries it out.

use std::sync::Arc;

use lp_models::ids::{LaneId, MountId};
use lp_models::mount_change::{Becomes, Mounts, Plan, SETS, Turn, make, settle, stands};
use lp_models::mount_state::{ATTACHED, DETACHED, PLACE, State};
use lp_models::sync::{AtomicU32, AtomicU64, Ordering, Weaken, check_up_to, weakened};

const FIRST: MountId = MountId(1);
const SECOND: MountId = MountId(2);

/// The turn, two lanes' plans, and three mounts.
struct Tree {
    turn: AtomicU64,
    plans: [[AtomicU64; SETS + 2]; 2],
    states: [AtomicU32; 3],
    groups: [AtomicU64; 3],
    /// What a lane writes into a free record before it joins.
    contents: [AtomicU32; 3],
}

impl Mounts for Tree {
    fn turn(&self) -> &AtomicU64 {
        &self.turn
    }

    fn plan(&self, lane: LaneId) -> &[AtomicU64] {
        &self.plans[lane.0 as usize - 1]
    }

    fn state(&self, mount: MountId) -> &AtomicU32 {
        &self.states[mount.0 as usize - 1]
    }

    fn groups(&self, mount: MountId) -> &AtomicU64 {
        &self.groups[mount.0 as usize - 1]
    }
}

impl Tree {
    fn new() -> Arc<Tree> {
        Arc::new(Tree {
            turn: AtomicU64::new(0),
            plans: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
            states: std::array::from_fn(|_| AtomicU32::new(0)),
            groups: std::array::from_fn(|_| AtomicU64::new(0)),
            contents: std::array::from_fn(|_| AtomicU32::new(0)),
        })
    }

    fn fill(&self, mount: MountId) {
        self.contents[mount.0 as usize - 1].store(7, Ordering::Relaxed);
    }

    fn content(&self, mount: MountId) -> u32 {
        self.contents[mount.0 as usize - 1].load(Ordering::Relaxed)
    }

    fn seen(&self, mount: MountId) -> State {
        State(self.state(mount).load(Ordering::Acquire))
    }

    fn kind(&self, mount: MountId) -> u32 {
        self.seen(mount).kind()
    }

    /// Has some mounts join in this turn.
    fn join(&self, lane: u32, turn: Turn, mounts: &[MountId]) -> bool {
        let mut plan = Plan::default();
        plan.top = mounts[0];
        for mount in mounts {
            self.fill(*mount);
            plan.joining.add(*mount);
        }
        make(self, LaneId(lane), turn, &plan)
    }

    /// Has a mount leave in this turn.
    fn leave(&self, lane: u32, turn: Turn, mount: MountId) -> bool {
        let mut plan = Plan::default();
        plan.change(mount).becomes = Becomes::Leaves;
        make(self, LaneId(lane), turn, &plan)
    }
}

/// Two lanes change different mounts at the same time: one at least succeeds, and what succeeded shows.
fn two_changes() {
    let tree = Tree::new();
    let other = Arc::clone(&tree);
    let thread = loom::thread::spawn(move || {
        let turn = settle(&*other);
        other.join(2, turn, &[SECOND])
    });
    let turn = settle(&*tree);
    let first = tree.join(1, turn, &[FIRST]);
    let second = thread.join().expect("no panic");
    assert!(first || second, "neither was made");
    settle(&*tree);
    assert_eq!(tree.kind(FIRST) == ATTACHED, first);
    assert_eq!(tree.kind(SECOND) == ATTACHED, second);
}

/// Whoever looks while two mounts join in one change sees both, complete, or neither.
fn a_look_at_a_change() {
    let tree = Tree::new();
    let other = Arc::clone(&tree);
    let thread = loom::thread::spawn(move || {
        let turn = settle(&*other);
        assert!(other.join(2, turn, &[FIRST, SECOND]));
    });
    let turn = settle(&*tree);
    let kinds = [FIRST, SECOND].map(|mount| tree.kind(mount) == ATTACHED);
    let contents = [FIRST, SECOND].map(|mount| tree.content(mount));
    if stands(&*tree, turn) {
        assert_eq!(kinds[0], kinds[1], "half a change");
        assert!(!kinds[0] || contents == [7, 7], "a record that is not filled in");
    }
    thread.join().expect("no panic");
}

/// A helper of a change that is long over does nothing: the lane has used its plan again.
fn a_late_helper() {
    let tree = Tree::new();
    let other = Arc::clone(&tree);
    let helper = loom::thread::spawn(move || {
        settle(&*other);
    });
    let turn = settle(&*tree);
    assert!(tree.join(1, turn, &[FIRST]));
    let turn = settle(&*tree);
    assert!(tree.leave(1, turn, FIRST));
    helper.join().expect("no panic");
    let state = tree.seen(FIRST);
    assert_eq!((state.kind(), state.0 >> 10), (DETACHED, 2), "a step was made twice or late");
}

/// A mount moves: at every moment it stands at one of the two places.
fn a_look_at_a_move() {
    let tree = Tree::new();
    let turn = settle(&*tree);
    assert!(tree.join(1, turn, &[FIRST]));
    let other = Arc::clone(&tree);
    let thread = loom::thread::spawn(move || {
        let turn = settle(&*other);
        other.fill(SECOND);
        let mut plan = Plan::default();
        plan.change(FIRST).place = SECOND;
        assert!(make(&*other, LaneId(2), turn, &plan));
    });
    let state = tree.seen(FIRST);
    assert_eq!(state.kind(), ATTACHED);
    if state.at() == SECOND {
        assert_eq!((tree.kind(SECOND), tree.content(SECOND)), (PLACE, 7), "a place that is not filled in");
    }
    thread.join().expect("no panic");
    assert_eq!(tree.seen(FIRST).at(), SECOND);
}

/// A tree that no path leads to becomes part of the run's: who looks sees all of it or nothing.
fn a_look_at_a_rise() {
    let tree = Tree::new();
    let mut plan = Plan::default();
    for mount in [FIRST, SECOND] {
        tree.fill(mount);
        plan.change(mount).becomes = Becomes::Drifts;
    }
    let turn = settle(&*tree);
    assert!(make(&*tree, LaneId(1), turn, &plan));
    assert_eq!([FIRST, SECOND].map(|mount| tree.kind(mount)), [DETACHED; 2]);
    let other = Arc::clone(&tree);
    let thread = loom::thread::spawn(move || {
        let mut plan = Plan::default();
        plan.change(FIRST).becomes = Becomes::Rises;
        plan.change(FIRST).place = MountId(3);
        plan.change(SECOND).becomes = Becomes::Rises;
        let turn = settle(&*other);
        assert!(make(&*other, LaneId(2), turn, &plan));
    });
    let turn = settle(&*tree);
    let first = tree.seen(FIRST);
    if first.kind() == ATTACHED {
        assert_eq!(tree.kind(SECOND), ATTACHED, "a path leads to half of a tree");
        assert_eq!(first.at(), MountId(3), "a mount without a place");
    }
    let second = tree.kind(SECOND);
    if stands(&*tree, turn) {
        assert_eq!(first.kind(), second, "half a change");
    }
    thread.join().expect("no panic");
    assert_eq!([FIRST, SECOND].map(|mount| tree.kind(mount)), [ATTACHED; 2]);
}

/// Two mounts change their groups: who looks sees both changes or neither.
fn a_look_at_groups() {
    let tree = Tree::new();
    let other = Arc::clone(&tree);
    let thread = loom::thread::spawn(move || {
        let mut plan = Plan::default();
        plan.change(FIRST).groups = Some(5);
        plan.change(SECOND).groups = Some(5);
        let turn = settle(&*other);
        assert!(make(&*other, LaneId(2), turn, &plan));
    });
    let turn = settle(&*tree);
    let groups = [FIRST, SECOND].map(|mount| tree.groups(mount).load(Ordering::Acquire) as u16);
    if stands(&*tree, turn) {
        assert_eq!(groups[0], groups[1], "half a change");
    }
    thread.join().expect("no panic");
    assert_eq!(tree.groups(SECOND).load(Ordering::Acquire) as u16, 5, "the change was not made");
}

#[test]
fn every_change_is_one_event() {
    let looks = [a_look_at_a_change, a_look_at_a_move, a_look_at_a_rise, a_look_at_groups];
    for model in [two_changes, a_late_helper].into_iter().chain(looks) {
        check_up_to(2, model);
    }
}

#[test]
fn a_look_needs_the_release_and_the_acquire() {
    assert!(weakened(Weaken::Release, a_look_at_a_change));
    assert!(weakened(Weaken::Acquire, a_look_at_a_change));
}
