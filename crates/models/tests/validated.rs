//! What a word names is read whole although it is replaced: how an ACL is evaluated.

use std::sync::Arc;

use lp_models::seq::Seq;
use lp_models::sync::{AtomicU32, Ordering, Weaken, check, weakened};
use lp_models::validated::look;

/// Two slots: contents and generation of each; the count that whoever frees a slot begins a section of.
#[derive(Default)]
struct Slots {
    word: AtomicU32,
    contents: [AtomicU32; 3],
    generations: [AtomicU32; 3],
    clearing: Seq,
}

/// One thread replaces slot 1 by slot 2, frees slot 1 and fills it with something else; another reads what
/// the word names.
fn a_reader_sees_the_old_or_the_new() {
    let slots = Arc::new(Slots::default());
    slots.contents[1].store(5, Ordering::Relaxed);
    slots.word.store(1, Ordering::Release);
    let writer = Arc::clone(&slots);
    let thread = loom::thread::spawn(move || {
        let Slots { word, contents, generations, clearing } = &*writer;
        contents[2].store(6, Ordering::Relaxed);
        word.store(2, Ordering::Release);
        clearing.begin();
        contents[1].store(9, Ordering::Relaxed);
        clearing.end();
        generations[1].store(1, Ordering::Release);
    });
    let seen = look(
        &slots.word,
        |slot| &slots.generations[slot as usize],
        |slot| slots.contents[slot as usize].load(Ordering::Relaxed),
    );
    assert!(matches!(seen, Some(5 | 6)), "{seen:?}");
    thread.join().expect("no panic");
}

#[test]
fn what_is_read_was_named() {
    check(a_reader_sees_the_old_or_the_new);
}

#[test]
fn needs_the_release_of_the_word_and_the_acquire_of_the_look() {
    assert!(weakened(Weaken::Release, a_reader_sees_the_old_or_the_new));
    assert!(weakened(Weaken::Acquire, a_reader_sees_the_old_or_the_new));
}

#[test]
fn needs_the_fences() {
    assert!(weakened(Weaken::ReleaseFence, a_reader_sees_the_old_or_the_new));
    assert!(weakened(Weaken::AcquireFence, a_reader_sees_the_old_or_the_new));
}
