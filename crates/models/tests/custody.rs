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
        match is_kept_by(self.custody.get(), 3) {
            true => self.custody.make_husk(),
            false => self.custody.clear(),
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
