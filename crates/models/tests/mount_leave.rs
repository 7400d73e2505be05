//! Unmounting against those who begin to use the mount: the look for users and the unmount are one event.

use std::sync::Arc;

use lp_models::ids::{LaneId, MountId};
use lp_models::mount_change::{Becomes, Mounts, Plan, SETS, make, settle};
use lp_models::mount_leave::{announce, is_gone};
use lp_models::mount_state::{ATTACHED, State};
use lp_models::sync::{AtomicU32, AtomicU64, Ordering, Weaken, check_up_to, heavy_barrier, weakened};

const MOUNT: MountId = MountId(1);

/// A mount, two lanes' plans, and what shows two lanes as users.
struct Tree {
    turn: AtomicU64,
    plans: [[AtomicU64; SETS + 1]; 2],
    state: AtomicU32,
    groups: AtomicU64,
    flags: AtomicU32,
    users: [AtomicU32; 2],
}

impl Mounts for Tree {
    fn turn(&self) -> &AtomicU64 {
        &self.turn
    }

    fn plan(&self, lane: LaneId) -> &[AtomicU64] {
        &self.plans[lane.0 as usize - 1]
    }

    fn state(&self, _: MountId) -> &AtomicU32 {
        &self.state
    }

    fn groups(&self, _: MountId) -> &AtomicU64 {
        &self.groups
    }
}

impl Tree {
    fn new() -> Arc<Tree> {
        Arc::new(Tree {
            turn: AtomicU64::new(0),
            plans: std::array::from_fn(|_| std::array::from_fn(|_| AtomicU64::new(0))),
            state: AtomicU32::new(State(0).next(ATTACHED, MountId::NONE).0),
            groups: AtomicU64::new(0),
            flags: AtomicU32::new(0),
            users: std::array::from_fn(|_| AtomicU32::new(0)),
        })
    }

    /// umount2(2), once: whether it succeeds. One that is killed stops after its announcement.
    fn unmount(&self, lane: u32, is_killed: bool) -> bool {
        let turn = settle(self);
        if !self.is_mounted() || !announce(self, &self.flags, turn) || is_killed {
            return false;
        }
        heavy_barrier();
        if self.users.iter().any(|user| user.load(Ordering::Acquire) != 0) {
            return false;
        }
        let mut plan = Plan::default();
        plan.change(MOUNT).becomes = Becomes::Leaves;
        make(self, LaneId(lane), turn, &plan)
    }

    /// open(2) by a lane whose walk has found the mount: whether it succeeds.
    fn open(&self, user: usize) -> bool {
        self.users[user].store(1, Ordering::Relaxed);
        let is_open = !is_gone(self, &self.flags, &self.state);
        if !is_open {
            self.users[user].store(0, Ordering::Release);
        }
        is_open
    }

    fn is_mounted(&self) -> bool {
        State(self.state.load(Ordering::Acquire)).kind() == ATTACHED
    }

    /// All is over: what is open is mounted.
    fn check(&self, is_open: bool, is_unmounted: bool) {
        settle(self);
        assert_eq!(self.is_mounted(), !is_unmounted, "the unmount's answer");
        assert!(!(is_open && is_unmounted), "a file is open in what was unmounted");
    }
}

/// One opens and one unmounts: at most one succeeds.
fn an_open_against_an_unmount() {
    let tree = Tree::new();
    let other = Arc::clone(&tree);
    let thread = loom::thread::spawn(move || other.unmount(1, false));
    let is_open = tree.open(0);
    let is_unmounted = thread.join().expect("no panic");
    tree.check(is_open, is_unmounted);
}

/// The same after an unmount that was killed, whose announcement is still there.
fn after_a_killed_unmount() {
    let tree = Tree::new();
    tree.unmount(2, true);
    let other = Arc::clone(&tree);
    let thread = loom::thread::spawn(move || other.unmount(1, false));
    let is_open = tree.open(0);
    let is_unmounted = thread.join().expect("no panic");
    tree.check(is_open, is_unmounted);
}

/// Two unmount and one opens.
fn an_open_against_two_unmounts() {
    let tree = Tree::new();
    let threads = [1, 2].map(|lane| {
        let other = Arc::clone(&tree);
        loom::thread::spawn(move || other.unmount(lane, false))
    });
    let is_open = tree.open(0);
    let done = threads.map(|thread| thread.join().expect("no panic"));
    assert!(done != [true, true], "it was unmounted twice");
    tree.check(is_open, done[0] || done[1]);
}

/// Two unmount; a file is open, is closed and opened again: an unmount that has found the first keeps the
/// other one from nothing.
fn an_open_after_a_close_against_two_unmounts() {
    let tree = Tree::new();
    tree.users[0].store(1, Ordering::Relaxed);
    let threads = [1, 2].map(|lane| {
        let other = Arc::clone(&tree);
        loom::thread::spawn(move || other.unmount(lane, false))
    });
    tree.users[0].store(0, Ordering::Release);
    let is_open = tree.open(0);
    let done = threads.map(|thread| thread.join().expect("no panic"));
    tree.check(is_open, done[0] || done[1]);
}

/// An unmount that nobody disturbs succeeds, and one that is killed keeps nobody out.
#[test]
fn alone() {
    loom::model(|| {
        let tree = Tree::new();
        assert!(!tree.unmount(2, true));
        assert!(tree.open(0), "kept out by a dead one");
        assert!(!tree.unmount(1, false), "not seen");
        tree.users[0].store(0, Ordering::Release);
        assert!(tree.unmount(1, false));
        assert!(!tree.open(1));
    });
}

#[test]
fn who_opens_and_who_unmounts_exclude_each_other() {
    check_up_to(2, an_open_against_an_unmount);
    check_up_to(2, after_a_killed_unmount);
    check_up_to(2, an_open_against_two_unmounts);
    check_up_to(3, an_open_after_a_close_against_two_unmounts);
}

#[test]
fn the_user_needs_its_barrier() {
    assert!(weakened(Weaken::LightBarrier, an_open_against_an_unmount));
}
