//! A process is killed while its lane sweeps the inodes that it has unlinked, marks those without names, or
//! frees a few of them. Nothing may be lost, and nothing freed twice.

use lp_abi::Fd;
use lp_abi::linux::*;
use lp_region::sync::Ordering;
use lp_vfs::{Task, boot, mknod, page, reclaim, unlink};

mod setup;
use setup::death;
use setup::fsck;
use setup::lent;

/// Creates a file and removes its name. The child of a threaded program may not allocate.
fn create_and_unlink(task: &Task) {
    let path = || lent::path(c"/light/f");
    let made = mknod::mknodat(task, Fd::CWD, path(), S_IFREG | 0o644, 0);
    let removed = unlink::unlinkat(task, Fd::CWD, path(), 0);
    if made.is_err() || removed.is_err() {
        std::process::abort();
    }
}

/// A call, and what leads to it.
type Stage = (&'static str, fn(&Task));

fn listed(task: &Task) -> usize {
    task.lane.unlinked.count.load(Ordering::Relaxed) as usize
}

/// Unlinks until the next one makes the list full, which is as short as at first: a longer one takes long to
/// step through.
fn to_the_sweep(task: &Task) {
    task.lane.unlinked.far.store(0, Ordering::Relaxed);
    while listed(task) + 1 < task.lane.unlinked.room() {
        create_and_unlink(task);
    }
}

/// Unlinks until a sweep has marked some, and the next one frees a few.
fn to_the_next_few(task: &Task) {
    to_the_sweep(task);
    create_and_unlink(task);
    while listed(task) % 8 != 7 {
        create_and_unlink(task);
    }
}

#[test]
fn a_death_while_unlinked_inodes_are_freed_loses_none() {
    let _alone = death::alone();
    let task = death::task();
    let root = boot::root(&task, 0).expect("root").id;
    to_the_next_few(&task);
    reclaim::run(&task);
    let (slots, pages) = (fsck::slots(&task), page::free_count(task.region));
    let stages: [Stage; 2] = [("sweep", to_the_sweep), ("few", to_the_next_few)];
    for (name, prepare) in stages {
        let mut killed = 0;
        for steps in death::strides() {
            let was_killed = death::interrupt_after(&task, steps, &prepare, &create_and_unlink);
            let at = format!("{name}, killed after {steps} instructions");
            fsck::usable(&task);
            reclaim::dead(&task);
            if !fsck::check(&task, root).tree.is_empty() {
                let gone = unlink::unlinkat(&task, Fd::CWD, lent::path(c"/light/f"), 0);
                gone.unwrap_or_else(|errno| panic!("{at}: {errno:?}"));
            }
            reclaim::run(&task);
            assert_eq!(fsck::slots(&task), slots, "{at}: slots");
            assert_eq!(page::free_count(task.region), pages, "{at}: pages");
            if !was_killed {
                break;
            }
            killed += 1;
        }
        assert!(killed > 20, "{name}: {killed} deaths");
    }
}
