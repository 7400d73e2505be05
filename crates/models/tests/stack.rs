//! The slot stack: no slot is handed out twice, none is lost, contents travel with the slot.

use std::sync::Arc;

use lp_models::stack;
use lp_models::sync::{AtomicU32, AtomicU64, Ordering, Weaken, check, weakened};

struct Slots {
    head: AtomicU64,
    links: Vec<AtomicU32>,
    contents: Vec<AtomicU32>,
}

impl Slots {
    fn with_two_free() -> Arc<Slots> {
        let words = || (0..4).map(|_| AtomicU32::new(0)).collect();
        let slots = Slots { head: AtomicU64::new(0), links: words(), contents: words() };
        slots.push(1);
        slots.push(2);
        Arc::new(slots)
    }

    fn push(&self, index: u32) {
        self.contents[index as usize].store(index, Ordering::Relaxed);
        stack::push(&self.head, index, |slot| &self.links[slot as usize]);
    }

    fn pop(&self) -> Option<u32> {
        let index = stack::pop(&self.head, |slot| &self.links[slot as usize])?;
        assert_eq!(self.contents[index as usize].load(Ordering::Relaxed), index, "contents came late");
        self.contents[index as usize].store(100, Ordering::Relaxed);
        Some(index)
    }
}

fn two_threads_pop_and_push() {
    let slots = Slots::with_two_free();
    let other = Arc::clone(&slots);
    let thread = loom::thread::spawn(move || {
        // Takes both and gives the first back: the ABA that the tag defends against.
        let (first, second) = (other.pop(), other.pop());
        if let Some(first) = first {
            other.push(first);
        }
        second
    });
    let mine = slots.pop();
    let theirs = thread.join().expect("no panic");
    let mut seen: Vec<u32> = mine.into_iter().chain(theirs).collect();
    while let Some(index) = slots.pop() {
        seen.push(index);
        assert!(seen.len() < 4, "the stack has a cycle: {seen:?}");
    }
    seen.sort_unstable();
    assert_eq!(seen, [1, 2]);
}

#[test]
fn hands_out_each_slot_once() {
    check(two_threads_pop_and_push);
}

#[test]
fn needs_its_release() {
    assert!(weakened(Weaken::Release, two_threads_pop_and_push));
}

#[test]
fn needs_its_acquire() {
    assert!(weakened(Weaken::Acquire, two_threads_pop_and_push));
}
