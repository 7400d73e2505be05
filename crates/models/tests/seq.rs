//! The sequence count: a validated copy never mixes two states.

use std::sync::Arc;

use lp_models::seq::Seq;
use lp_models::sync::{AtomicU32, Ordering, Weaken, check, weakened};

fn a_reader_sees_both_words_or_neither() {
    let record = Arc::new((Seq::new(), AtomicU32::new(0), AtomicU32::new(0)));
    let writers = Arc::clone(&record);
    let thread = loom::thread::spawn(move || {
        let (seq, first, second) = &*writers;
        for value in 1..=2 {
            seq.begin();
            first.store(value, Ordering::Relaxed);
            second.store(value, Ordering::Relaxed);
            seq.end();
        }
    });
    let (seq, first, second) = &*record;
    let before = seq.read();
    let seen = (first.load(Ordering::Relaxed), second.load(Ordering::Relaxed));
    if !seq.retry(before) {
        assert_eq!(seen.0, seen.1, "mixed");
    }
    thread.join().expect("no panic");
}

#[test]
fn never_mixes_two_states() {
    check(a_reader_sees_both_words_or_neither);
}

#[test]
fn needs_the_acquire_of_read_or_the_release_of_end() {
    assert!(weakened(Weaken::Acquire, a_reader_sees_both_words_or_neither));
    assert!(weakened(Weaken::Release, a_reader_sees_both_words_or_neither));
}

#[test]
fn needs_the_fences() {
    assert!(weakened(Weaken::ReleaseFence, a_reader_sees_both_words_or_neither));
    assert!(weakened(Weaken::AcquireFence, a_reader_sees_both_words_or_neither));
}
