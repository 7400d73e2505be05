//! Pins and mount writers: nothing is freed under a pin, nothing is written once writing is shut.

use std::sync::Arc;

use lp_models::marks::{
    call_off, commit, confirm, enter, exchange_out, inside, leave, named, pin, pinned, shut, take_out, unpin,
};
use lp_models::sync::{AtomicU32, AtomicU64, Ordering, Weaken, check, heavy_barrier, weakened};

const NAME: u64 = 5;

/// A table's entry, what it names, and the lanes' pins.
#[derive(Default)]
struct Table {
    entry: AtomicU64,
    pins: [AtomicU64; 2],
    freed: AtomicU32,
}

impl Table {
    fn with_an_entry() -> Arc<Table> {
        let table = Arc::new(Table::default());
        table.entry.store(NAME, Ordering::Relaxed);
        table
    }

    /// Touches what the entry names.
    fn touch(&self) {
        assert_eq!(self.freed.load(Ordering::Relaxed), 0, "used after it was freed");
    }

    fn free_if_unused(&self, pins: &[AtomicU64]) {
        heavy_barrier();
        if named(&self.entry) != NAME && pins.iter().all(|pin| pinned(pin) != NAME) {
            self.freed.store(1, Ordering::Relaxed);
        }
    }
}

/// `fget` in one thread, close and reclaim in the other.
fn a_user_against_a_closer() {
    let table = Table::with_an_entry();
    let other = Arc::clone(&table);
    let thread = loom::thread::spawn(move || {
        other.entry.store(0, Ordering::Release);
        other.free_if_unused(&other.pins);
    });
    let seen = named(&table.entry);
    if seen == NAME {
        pin(&table.pins[0], NAME);
        if named(&table.entry) == NAME {
            table.touch();
        }
        unpin(&table.pins[0]);
    }
    thread.join().expect("no panic");
}

/// Close, which still needs the file, in one thread; reclaim in the other.
fn a_closer_against_a_scan() {
    let table = Table::with_an_entry();
    let other = Arc::clone(&table);
    let thread = loom::thread::spawn(move || other.free_if_unused(&other.pins));
    take_out(&table.entry, &table.pins[1], NAME, 0);
    table.touch();
    unpin(&table.pins[1]);
    thread.join().expect("no panic");
}

/// A table's entries, of which a scan passes the first before it reaches the second, and how many references
/// were copied within it.
#[derive(Default)]
struct Copies {
    entries: [AtomicU64; 2],
    pins: [AtomicU64; 2],
    moves: AtomicU32,
    freed: AtomicU32,
}

/// dup and close of the original in one thread; in the other a sweep of files, which looks at the pins once.
fn a_copy_against_a_scan() {
    let table = Arc::new(Copies::default());
    table.entries[1].store(NAME, Ordering::Relaxed);
    let other = Arc::clone(&table);
    let thread = loom::thread::spawn(move || {
        let moves = other.moves.load(Ordering::Acquire);
        let is_named = other.entries.iter().fold(false, |seen, entry| seen | (named(entry) == NAME));
        heavy_barrier();
        let is_pinned = other.pins.iter().any(|pin| pinned(pin) == NAME);
        if !is_named && !is_pinned && other.moves.load(Ordering::Acquire) == moves {
            other.freed.store(1, Ordering::Relaxed);
        }
    });
    pin(&table.pins[0], NAME);
    if named(&table.entries[1]) == NAME {
        table.entries[0].store(NAME, Ordering::Release);
        table.moves.fetch_add(1, Ordering::Release);
    }
    unpin(&table.pins[0]);
    take_out(&table.entries[1], &table.pins[1], NAME, 0);
    unpin(&table.pins[1]);
    thread.join().expect("no panic");
    assert_eq!(table.freed.load(Ordering::Relaxed), 0, "freed with an entry");
}

#[test]
fn what_is_copied_is_not_freed() {
    check(a_copy_against_a_scan);
    assert!(weakened(Weaken::Release, a_copy_against_a_scan));
    assert!(weakened(Weaken::Acquire, a_copy_against_a_scan));
}

/// dup in one thread; in the other close, which frees what nobody has marked as duplicated once no pin names
/// it, without a look at the entries.
fn a_copy_against_a_close() {
    let table = Arc::new(Copies::default());
    let duplicated = Arc::new(AtomicU32::new(0));
    table.entries[1].store(NAME, Ordering::Relaxed);
    let (other, mark) = (Arc::clone(&table), Arc::clone(&duplicated));
    let thread = loom::thread::spawn(move || {
        assert!(exchange_out(&other.entries[1], &other.pins[1], (NAME, NAME), 0));
        let is_alone = mark.load(Ordering::Relaxed) == 0;
        unpin(&other.pins[1]);
        heavy_barrier();
        if is_alone && other.pins.iter().all(|pin| pinned(pin) != NAME) {
            other.freed.store(1, Ordering::Relaxed);
        }
    });
    if named(&table.entries[1]) == NAME {
        pin(&table.pins[0], NAME);
        if named(&table.entries[1]) == NAME {
            assert_eq!(table.freed.load(Ordering::Relaxed), 0, "marked after it was freed");
            duplicated.store(1, Ordering::Release);
            if confirm(&table.entries[1], NAME) {
                table.entries[0].store(NAME, Ordering::Release);
            }
        }
        unpin(&table.pins[0]);
    }
    thread.join().expect("no panic");
    let is_named = table.entries[0].load(Ordering::Relaxed) == NAME;
    assert!(!is_named || table.freed.load(Ordering::Relaxed) == 0, "freed with an entry");
}

#[test]
fn what_was_copied_in_time_is_not_freed() {
    check(a_copy_against_a_close);
    assert!(weakened(Weaken::Release, a_copy_against_a_close));
    assert!(weakened(Weaken::LightBarrier, a_copy_against_a_close));
}

#[test]
fn what_is_pinned_is_not_freed() {
    check(a_user_against_a_closer);
    check(a_closer_against_a_scan);
}

#[test]
fn a_user_needs_the_barrier() {
    assert!(weakened(Weaken::LightBarrier, a_user_against_a_closer));
}

#[test]
fn a_closer_needs_its_release_and_the_scan_its_acquire() {
    assert!(weakened(Weaken::Release, a_closer_against_a_scan));
    assert!(weakened(Weaken::Acquire, a_closer_against_a_scan));
}

const ROOT: u32 = 1;

/// What a writer and a remount share.
#[derive(Default)]
struct Mount {
    mark: AtomicU32,
    closed: AtomicU32,
    content: AtomicU32,
}

/// A writer in one thread, a remount to read-only in the other.
fn a_writer_against_a_remount() {
    let mount = Arc::new(Mount::default());
    let other = Arc::clone(&mount);
    let thread = loom::thread::spawn(move || {
        assert!(shut(&other.closed, ROOT));
        // A real remount waits; here it gives up, which is another of its outcomes.
        (!inside(&other.mark, ROOT)).then(|| other.content.load(Ordering::Relaxed))
    });
    if enter(&mount.mark, ROOT, &mount.closed, ROOT) {
        mount.content.store(1, Ordering::Relaxed);
    }
    leave(&mount.mark);
    if let Some(frozen) = thread.join().expect("no panic") {
        assert_eq!(mount.content.load(Ordering::Relaxed), frozen, "written after the remount");
    }
}

#[test]
fn nothing_is_written_once_shut() {
    check(a_writer_against_a_remount);
}

#[test]
fn a_writer_needs_its_barrier_and_its_release() {
    assert!(weakened(Weaken::LightBarrier, a_writer_against_a_remount));
    assert!(weakened(Weaken::Release, a_writer_against_a_remount));
    assert!(weakened(Weaken::Acquire, a_writer_against_a_remount));
}

const SHUTTING: u32 = 2;

/// The same, with a writer that does not depend on the remount's coming back.
fn a_writer_that_calls_a_remount_off() {
    let mount = Arc::new(Mount::default());
    let other = Arc::clone(&mount);
    let thread = loom::thread::spawn(move || {
        assert!(shut(&other.closed, SHUTTING));
        let is_shut =
            !inside(&other.mark, ROOT) && commit(&other.closed, SHUTTING, ROOT, |flags| Some(flags | ROOT));
        is_shut.then(|| other.content.load(Ordering::Relaxed))
    });
    let mut is_in = enter(&mount.mark, ROOT, &mount.closed, ROOT | SHUTTING);
    while !is_in {
        let seen = mount.closed.load(Ordering::Acquire);
        if seen & ROOT != 0 {
            break;
        }
        is_in = seen & SHUTTING == 0 || call_off(&mount.closed, seen, SHUTTING);
    }
    if is_in {
        mount.content.store(1, Ordering::Relaxed);
    }
    leave(&mount.mark);
    if let Some(frozen) = thread.join().expect("no panic") {
        assert_eq!(mount.content.load(Ordering::Relaxed), frozen, "written after the remount");
    }
}

#[test]
fn of_commit_and_call_off_one_fails() {
    check(a_writer_that_calls_a_remount_off);
}

#[test]
fn a_writer_that_calls_off_needs_its_barrier() {
    assert!(weakened(Weaken::LightBarrier, a_writer_that_calls_a_remount_off));
}
