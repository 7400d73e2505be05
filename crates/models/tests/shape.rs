//! The count of changes of the tree's shape: what was noted under an even count holds while the count stands.

use std::sync::Arc;

use lp_models::shape::{SETTLING, Shape, UNDER_WAY};
use lp_models::sync::{AtomicU32, Ordering, Weaken, acquire_fence, check, weakened};

struct Shared {
    shape: Shape,
    marks: [AtomicU32; 2],
    places: [AtomicU32; 2],
}

impl Shared {
    fn new() -> Arc<Shared> {
        let zeros = || [AtomicU32::new(0), AtomicU32::new(0)];
        Arc::new(Shared { shape: Shape::new(), marks: zeros(), places: zeros() })
    }

    fn is_under_way(&self) -> bool {
        self.marks.iter().any(|mark| mark.load(Ordering::Acquire) == UNDER_WAY)
    }

    fn change(&self, lane: usize) {
        let mark = &self.marks[lane];
        let begun = self.shape.begin(mark);
        self.places[lane].store(1, Ordering::Relaxed);
        self.shape.end(mark, begun, || self.is_under_way());
    }

    /// A walk that notes what it sees, if it may, and uses that later.
    fn note_and_use(&self) {
        let before = self.shape.read();
        let seen = self.places.each_ref().map(|place| place.load(Ordering::Relaxed));
        if self.shape.retry(before) {
            return;
        }
        let now = self.places.each_ref().map(|place| place.load(Ordering::Relaxed));
        acquire_fence();
        assert!(seen == now || !self.shape.stands_at(before), "a note outlived a change that was seen");
    }
}

fn two_changes_and_a_reader() {
    let shared = Shared::new();
    let others = [0, 1].map(|lane| {
        let shared = Arc::clone(&shared);
        loom::thread::spawn(move || shared.change(lane))
    });
    shared.note_and_use();
    for other in others {
        other.join().expect("no panic");
    }
    assert_eq!(shared.shape.read() & 1, 0, "nobody is under way");
}

fn a_change_and_a_reader() {
    let shared = Shared::new();
    let other = Arc::clone(&shared);
    let thread = loom::thread::spawn(move || other.change(0));
    shared.note_and_use();
    thread.join().expect("no panic");
    assert_eq!(shared.shape.read() & 1, 0, "nobody is under way");
}

#[test]
fn no_note_outlives_a_change() {
    check(two_changes_and_a_reader);
    for weaken in [Weaken::Release, Weaken::ReleaseFence] {
        assert!(weakened(weaken, a_change_and_a_reader), "{weaken:?} is not needed");
    }
}

#[test]
fn a_burial_settles_what_a_dead_lane_left() {
    check(|| {
        let shared = Shared::new();
        let _ = shared.shape.begin(&shared.marks[0]);
        // Lane 0 is dead. Two bury it, as the first may have died over that.
        let bury = |shared: &Shared| {
            shared.marks[0].store(SETTLING, Ordering::Release);
            shared.shape.settle(&shared.marks[0], || shared.is_under_way());
        };
        let other = Arc::clone(&shared);
        let thread = loom::thread::spawn(move || other.change(1));
        bury(&shared);
        bury(&shared);
        thread.join().expect("no panic");
        assert_eq!(shared.shape.read() & 1, 0, "nobody is under way");
    });
}
