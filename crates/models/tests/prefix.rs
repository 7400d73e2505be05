//! What a cache noted under a sequence count: nobody who has seen a change uses what was noted before it.

use std::sync::Arc;

use lp_models::seq::Seq;
use lp_models::sync::{AtomicU32, Ordering, Weaken, check, weakened};

/// One thread moves a directory; another, which noted before where it stands, looks whether it has moved and
/// then asks the cache.
fn who_saw_it_moved_does_not_find_it_in_the_old_place() {
    let tree = Arc::new((Seq::new(), AtomicU32::new(0)));
    let mover = Arc::clone(&tree);
    let thread = loom::thread::spawn(move || {
        let (count, place) = &*mover;
        count.begin();
        place.store(1, Ordering::Relaxed); // Relaxed: `begin` has to be enough.
        count.end();
    });
    let (count, place) = &*tree;
    let noted = 0;
    if place.load(Ordering::Acquire) == 1 {
        assert!(!count.stands_at(noted), "found in the old place");
    }
    thread.join().expect("no panic");
    assert!(!count.stands_at(noted));
}

/// What is noted while a directory moves is not used after the move.
fn what_is_noted_in_between_does_not_last() {
    let tree = Arc::new((Seq::new(), AtomicU32::new(0)));
    let mover = Arc::clone(&tree);
    let thread = loom::thread::spawn(move || {
        let (count, place) = &*mover;
        count.begin();
        place.store(1, Ordering::Relaxed);
        count.end();
    });
    let (count, place) = &*tree;
    let noted = count.read();
    let seen = place.load(Ordering::Relaxed);
    let keeps = !count.retry(noted);
    thread.join().expect("no panic");
    if keeps && count.stands_at(noted) {
        assert_eq!(seen, 1, "the old place outlived the move");
    }
}

#[test]
fn nobody_uses_what_was_noted_before() {
    check(who_saw_it_moved_does_not_find_it_in_the_old_place);
    check(what_is_noted_in_between_does_not_last);
}

#[test]
fn needs_the_fence_of_begin_and_the_acquire_of_who_looks() {
    assert!(weakened(Weaken::ReleaseFence, who_saw_it_moved_does_not_find_it_in_the_old_place));
    assert!(weakened(Weaken::Acquire, who_saw_it_moved_does_not_find_it_in_the_old_place));
}

#[test]
fn needs_the_release_of_end_or_the_acquire_of_who_notes() {
    assert!(weakened(Weaken::Release, what_is_noted_in_between_does_not_last));
    assert!(weakened(Weaken::Acquire, what_is_noted_in_between_does_not_last));
}
