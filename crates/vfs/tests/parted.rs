//! Threads with working directory, root directory and umask apart from their process's: how long their slots
//! last.

use std::ffi::CString;

use lp_region::ProcessId;
use lp_region::sync::Ordering;
use lp_vfs::{Place, Task, chdir, mkdir, parted, reclaim, sharing};

mod setup;
use setup::{death, lent};

/// Makes the thread go to a directory of its own, as one of several threads.
fn part(task: &Task, path: &str) {
    task.process.threads.store(1, Ordering::Relaxed);
    assert_eq!(sharing::end(task, || 0), 0);
    go(task, path);
}

fn go(task: &Task, path: &str) {
    let path = CString::new(path).unwrap();
    assert_eq!(chdir::chdir(task, lent::path(&path)), Ok(Place::Inside(())));
}

fn with_directories() -> Task<'static> {
    let task = death::task();
    for path in [c"/light/a", c"/light/b"] {
        assert!(mkdir::mkdirat(&task, lp_abi::Fd::CWD, lent::path(path), 0o755).is_ok());
    }
    task
}

fn slots(task: &Task) -> Vec<ProcessId> {
    task.region.processes().collect()
}

/// Looks for dead processes in another process.
fn reap_elsewhere(task: &Task) {
    let reap = |other: &Task| {
        reclaim::dead(other);
    };
    assert!(!death::interrupt(task, u32::MAX, &reap), "the reaper ends");
    reclaim::dead(task);
}

#[test]
fn a_slot_lasts_as_long_as_its_threads() {
    let _alone = death::alone();
    let task = with_directories();
    go(&task, "/light/a");
    part(&task, "/light/b");
    let slot = task.directories_at();
    assert!(slot != task.process_id);
    reap_elsewhere(&task);
    assert_eq!(slots(&task), [task.process_id, slot]);
    // The thread makes another and ends first.
    assert_eq!(parted::before_thread(&task), Some(slot));
    parted::thread_ends(&task);
    assert_eq!(task.directories_at(), task.process_id);
    reap_elsewhere(&task);
    assert_eq!(slots(&task), [task.process_id, slot]);
    parted::begin(&task, slot);
    assert_eq!(sharing::end(&task, || 0), 0, "it is alone, and keeps the slot");
    assert_eq!(task.directories_at(), slot);
    // One that is made uses the former slot; one that is not made does not.
    assert_eq!(parted::before_thread(&task), Some(slot));
    parted::thread_not_made(&task);
    assert_eq!(parted::before_thread(&task), Some(slot));
    assert_eq!(sharing::end(&task, || 0), 0);
    assert_eq!(slots(&task).len(), 3);
    parted::thread_ends(&task);
    assert_eq!(slots(&task), [task.process_id, slot]);
    parted::begin(&task, slot);
    assert!(
        sharing::end(&task, || -1) < 0 && task.directories_at() == slot,
        "the kernel refuses one that is alone"
    );
    parted::thread_ends(&task);
    assert_eq!(slots(&task), [task.process_id]);
    assert!(sharing::end(&task, || -1) < 0, "the kernel refuses");
    assert_eq!(slots(&task), [task.process_id]);
}

#[test]
fn a_process_that_is_killed_leaves_no_slot() {
    let _alone = death::alone();
    let task = with_directories();
    let call = |child: &Task| {
        part(child, "/light/a");
        parted::before_thread(child);
        part(child, "/light/b");
        parted::thread_ends(child);
    };
    let length = death::length(&task, &call);
    reclaim::dead(&task);
    assert_eq!(slots(&task), [task.process_id]);
    for steps in death::samples(length) {
        death::interrupt(&task, steps, &call);
        // What a slot's end leads to may be left to the next look.
        reclaim::dead(&task);
        reclaim::dead(&task);
        assert_eq!(slots(&task), [task.process_id], "killed after {steps} instructions");
    }
}
