//! Entries: none is mistaken for another whose slot it had, and a rename is one event.

use std::sync::Arc;

use lp_models::seq::Seq;
use lp_models::sync::{self, AtomicU32, AtomicU64, Ordering, Weaken, exhaustively};

fn check(model: impl Fn() + Sync + Send + 'static) {
    exhaustively(2, || sync::check(model));
}

fn weakened(weaken: Weaken, model: impl Fn() + Sync + Send + 'static) -> bool {
    exhaustively(2, || sync::weakened(weaken, model))
}

/// An entry as `lp_vfs::dirent` reads and changes it: a name, whether it lives, what it names.
struct Entry {
    seq: Seq,
    alive: AtomicU32,
    name: AtomicU64,
    target: AtomicU64,
}

const NAME: u64 = 1;
const OTHER_NAME: u64 = 2;
const OLD: u64 = 10;
const NEW: u64 = 20;

impl Entry {
    fn new(alive: u32, target: u64) -> Self {
        Entry {
            seq: Seq::new(),
            alive: AtomicU32::new(alive),
            name: AtomicU64::new(NAME),
            target: AtomicU64::new(target),
        }
    }

    /// `lp_vfs::hash::scan`: what the name stands for; none if it is uncertain.
    fn look(&self) -> Option<Option<u64>> {
        let before = self.seq.read();
        if self.alive.load(Ordering::Acquire) == 0 || self.name.load(Ordering::Relaxed) != NAME {
            return Some(None);
        }
        let target = self.target.load(Ordering::Acquire);
        (!self.seq.retry(before)).then_some(Some(target))
    }

    fn find(&self) -> Option<u64> {
        loop {
            if let Some(found) = self.look() {
                return found;
            }
            lp_models::sync::spin();
        }
    }
}

/// The name dies, and the slot becomes another's.
fn a_slot_is_used_again() {
    let entry = Arc::new(Entry::new(1, OLD));
    let other = Arc::clone(&entry);
    let thread = loom::thread::spawn(move || {
        other.alive.store(0, Ordering::Release);
        other.seq.begin();
        other.target.store(0, Ordering::Release);
        other.seq.end();
        other.name.store(OTHER_NAME, Ordering::Relaxed);
        other.target.store(NEW, Ordering::Release);
        other.alive.store(1, Ordering::Release);
    });
    if let Some(Some(target)) = entry.look() {
        assert_eq!(target, OLD, "another entry's target");
    }
    thread.join().expect("no panic");
}

#[test]
fn a_reused_slot_is_not_mistaken() {
    check(a_slot_is_used_again);
}

#[test]
fn a_slot_whose_count_is_not_seen_is_mistaken() {
    assert!(
        weakened(Weaken::Release, a_slot_is_used_again) || weakened(Weaken::Acquire, a_slot_is_used_again)
    );
}

/// How a rename may go wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// What comes is not odd meanwhile.
    NeverOdd,
    /// What goes dies after all is even again.
    DiesLate,
}

/// `lp_vfs::change::exchange`: `new` comes, or names something else, and `old` goes.
fn rename(old: &Entry, new: &Entry, wrong: Wrong) {
    if wrong != Wrong::NeverOdd {
        new.seq.begin();
    }
    new.target.store(NEW, Ordering::Release);
    new.alive.store(1, Ordering::Release);
    if wrong != Wrong::DiesLate {
        old.alive.store(0, Ordering::Release);
    }
    if wrong != Wrong::NeverOdd {
        new.seq.end();
    }
    old.alive.store(0, Ordering::Release);
}

/// `there` says whether something has the new name before.
fn a_rename_is_one_event(there: u32, wrong: Wrong) {
    let entries = Arc::new((Entry::new(1, NEW), Entry::new(there, OLD)));
    let other = Arc::clone(&entries);
    let thread = loom::thread::spawn(move || rename(&other.0, &other.1, wrong));
    let (old, new) = &*entries;
    let before = (there != 0).then_some(OLD);
    if new.find() != before {
        assert_eq!(new.find(), Some(NEW));
        assert_eq!(old.find(), None, "both names stand for it");
    } else if old.find().is_none() {
        assert_eq!(new.find(), Some(NEW), "neither name stands for it");
    }
    thread.join().expect("no panic");
}

#[test]
fn a_rename_is_one_event_to_who_looks_at_both_names() {
    check(|| a_rename_is_one_event(0, Wrong::Nothing));
    check(|| a_rename_is_one_event(1, Wrong::Nothing));
}

#[test]
fn a_rename_without_a_section_shows_both_names() {
    assert!(weakened(Weaken::Nothing, || a_rename_is_one_event(0, Wrong::NeverOdd)));
    assert!(weakened(Weaken::Nothing, || a_rename_is_one_event(1, Wrong::DiesLate)));
}

/// `lp_vfs::change::exchange` of two that stay.
fn an_exchange_is_one_event() {
    let entries = Arc::new((Entry::new(1, OLD), Entry::new(1, NEW)));
    let other = Arc::clone(&entries);
    let thread = loom::thread::spawn(move || {
        let (one, two) = &*other;
        one.seq.begin();
        two.seq.begin();
        one.target.store(NEW, Ordering::Release);
        two.target.store(OLD, Ordering::Release);
        one.seq.end();
        two.seq.end();
    });
    let (one, two) = &*entries;
    if one.find() == Some(NEW) {
        assert_eq!(two.find(), Some(OLD), "one has been exchanged and the other has not");
    }
    thread.join().expect("no panic");
}

#[test]
fn an_exchange_is_one_event_to_who_looks_at_both_names() {
    check(an_exchange_is_one_event);
}
