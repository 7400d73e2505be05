//! Custody: what several lanes find unreferenced is freed once, and its slot is given back once.

use std::sync::Arc;

use lp_models::custody::{ASKED, Custody, HUSK, is_kept_by};
use lp_models::sync::{AtomicU32, Ordering, check};

struct Record {
    custody: Custody,
    generation: AtomicU32,
    freed: AtomicU32,
}

impl Record {
    fn new() -> Arc<Record> {
        let zero = || AtomicU32::new(0);
        Arc::new(Record { custody: Custody::new(), generation: zero(), freed: zero() })
    }

    /// What a lane does with a record that it has found unreferenced when its generation was 0.
    fn free(&self, me: u32) {
        if !self.custody.claim(me) {
            return;
        }
        if self.generation.load(Ordering::Acquire) != 0 {
            return self.custody.unclaim();
        }
        self.freed.fetch_add(1, Ordering::Relaxed);
        self.generation.store(1, Ordering::Release);
        if !self.custody.clear_claimed() {
            self.custody.make_husk();
        }
    }
}

#[test]
fn one_of_two_frees_a_record_in_a_chain() {
    check(|| {
        let record = Record::new();
        assert!(record.custody.ask(3));
        let other = Arc::clone(&record);
        let thread = loom::thread::spawn(move || other.free(1));
        record.free(2);
        thread.join().expect("no panic");
        assert_eq!(record.freed.load(Ordering::Relaxed), 1);
        assert_eq!(record.custody.get() & HUSK, HUSK);
    });
}

#[test]
fn one_of_two_frees_a_record_in_no_chain() {
    check(|| {
        let record = Record::new();
        let other = Arc::clone(&record);
        let thread = loom::thread::spawn(move || other.free(1));
        record.free(2);
        thread.join().expect("no panic");
        assert_eq!(record.freed.load(Ordering::Relaxed), 1);
        assert_eq!(record.custody.get(), 0, "the slot's next owner finds it in nobody's custody");
    });
}

#[test]
fn what_is_put_into_a_chain_while_it_is_freed_stays_there_as_a_husk() {
    check(|| {
        let record = Record::new();
        let other = Arc::clone(&record);
        let thread = loom::thread::spawn(move || other.custody.ask(1));
        record.free(2);
        let listed = thread.join().expect("no panic");
        let word = record.custody.get();
        assert!(listed);
        // Either it was freed first and is listed anew, or its keeper gives the slot back.
        assert!(is_kept_by(word, 1));
        assert_eq!(record.freed.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn one_lane_keeps_a_record_in_its_chain() {
    check(|| {
        let record = Record::new();
        let other = Arc::clone(&record);
        let thread = loom::thread::spawn(move || other.custody.ask(1));
        let kept = record.custody.claim(2) && record.custody.keep_claimed(2);
        let listed = thread.join().expect("no panic");
        assert!(kept != listed, "two chains go through one link");
        assert!(is_kept_by(record.custody.get(), if kept { 2 } else { 1 }));
    });
}

#[test]
fn who_asks_is_heard() {
    check(|| {
        let record = Record::new();
        assert!(record.custody.ask(3));
        record.custody.begin_look();
        let other = Arc::clone(&record);
        let thread = loom::thread::spawn(move || other.custody.ask(1));
        let unlisted = record.custody.unlist();
        let listed_anew = thread.join().expect("no panic");
        // Either the keeper sees the question and keeps it, or whoever asked has become its keeper.
        assert_eq!(unlisted, listed_anew);
        assert_eq!(record.custody.get() & ASKED, ASKED);
    });
}
