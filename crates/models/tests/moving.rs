//! Directories that move at once: none comes to lie below itself.

use std::sync::Arc;

use lp_models::ids::{InodeId, LaneId};
use lp_models::moving::{Climb, Directories, Moving, climb};
use lp_models::sync::{AtomicU32, Ordering, Weaken, check, weakened};

const ROOT: u32 = 1;

/// Directories by number, with their parents; the root is its own.
struct Tree {
    parents: Vec<AtomicU32>,
    moving: Vec<Moving>,
}

impl Directories for Tree {
    fn mover(&self, dir: InodeId) -> LaneId {
        self.moving[dir.index()].mover()
    }

    fn parent(&self, dir: InodeId) -> InodeId {
        InodeId(self.parents[dir.index()].load(Ordering::Relaxed))
    }
}

impl Tree {
    fn new(parents: &[u32]) -> Arc<Tree> {
        let moving = parents.iter().map(|_| Moving::new()).collect();
        Arc::new(Tree { parents: parents.iter().map(|up| AtomicU32::new(*up)).collect(), moving })
    }

    /// Moves `dir` below `to`, unless something is in the way; whether it did.
    fn try_move(&self, lane: u32, dir: u32, to: u32) -> bool {
        let moving = &self.moving[dir as usize];
        moving.mark(LaneId(lane));
        let may = climb(self, InodeId(to), LaneId(lane)) == Climb::Free;
        if may {
            self.parents[dir as usize].store(to, Ordering::Relaxed);
        }
        moving.clear();
        may
    }

    fn assert_sound(&self) {
        for dir in 1..self.parents.len() as u32 {
            let mut at = dir;
            for _ in 0..self.parents.len() {
                at = self.parents[at as usize].load(Ordering::Relaxed);
            }
            assert_eq!(at, ROOT, "directory {dir} lies below itself");
        }
    }
}

/// Each of `moves` is made by a lane of its own.
fn race(parents: &'static [u32], moves: &'static [(u32, u32)]) -> impl Fn() + Sync + Send + 'static {
    move || {
        let tree = Tree::new(parents);
        let (mine, others) = moves.split_first().expect("a move");
        let others: Vec<_> = others
            .iter()
            .zip(2..)
            .map(|((dir, to), lane)| {
                let tree = Arc::clone(&tree);
                loom::thread::spawn(move || _ = tree.try_move(lane, *dir, *to))
            })
            .collect();
        tree.try_move(1, mine.0, mine.1);
        for other in others {
            other.join().expect("no panic");
        }
        tree.assert_sound();
    }
}

/// 2 below 3 while 3 goes below 2.
const TWO: (&[u32], &[(u32, u32)]) = (&[0, 1, 1, 1], &[(2, 3), (3, 2)]);
/// The same from deeper down: 4 lies in 2, 5 in 3.
const DEEP: (&[u32], &[(u32, u32)]) = (&[0, 1, 1, 1, 2, 3], &[(2, 5), (3, 4)]);
/// Three that would close a ring together.
const THREE: (&[u32], &[(u32, u32)]) = (&[0, 1, 1, 1, 1], &[(2, 3), (3, 4), (4, 2)]);
/// What one climbs through moves below what it moves.
const THROUGH: (&[u32], &[(u32, u32)]) = (&[0, 1, 1, 1, 3], &[(2, 4), (3, 2)]);
/// What two climb through moves.
const APART: (&[u32], &[(u32, u32)]) = (&[0, 1, 1, 1, 1, 4], &[(2, 5), (4, 3), (3, 2)]);

#[test]
fn two_moves_close_no_ring() {
    check(race(TWO.0, TWO.1));
    check(race(DEEP.0, DEEP.1));
    check(race(THROUGH.0, THROUGH.1));
    for weaken in [Weaken::FullFence, Weaken::Acquire] {
        assert!(
            weakened(weaken, race(TWO.0, TWO.1)) || weakened(weaken, race(APART.0, APART.1)),
            "{weaken:?} is not needed"
        );
    }
}

#[test]
fn three_moves_close_no_ring() {
    check(race(THREE.0, THREE.1));
    check(race(APART.0, APART.1));
}

#[test]
fn a_move_below_itself_is_found() {
    check(|| {
        let tree = Tree::new(&[0, 1, 1, 2]);
        assert!(!tree.try_move(1, 2, 3));
        assert!(tree.try_move(1, 3, 1));
        assert!(tree.try_move(1, 2, 3));
    });
}
