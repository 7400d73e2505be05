//! A process whose threads share a table is killed while it closes files, looks which of those closed no call
//! uses, or opens files in their slots. Nothing may be lost, and nothing freed twice.

use lp_abi::Fd;
use lp_abi::linux::*;
use lp_region::FileId;
use lp_region::records::OpenFile;
use lp_region::sync::Ordering;
use lp_vfs::open::Opened;
use lp_vfs::{Place, Task, boot, clock, close, dup, grace, mknod, open, pin, reclaim, table};

mod setup;
use setup::death;
use setup::fsck;
use setup::lent;

const FD: Fd = Fd::new(3);
/// Closes before a lane looks whether a period is over, and before it passes a heavy barrier.
const FEW: u32 = 64;
const MOST: u32 = 480;

fn must<T>(done: lp_abi::Result<T>) -> T {
    // The child of a threaded program may not allocate.
    done.unwrap_or_else(|_| std::process::abort())
}

fn open_file(task: &Task) {
    let Place::Inside(Opened::File(id)) =
        must(open::openat(task, Fd::CWD, lent::path(c"/light/f"), O_RDONLY, 0))
    else {
        std::process::abort()
    };
    must(table::install(task, FD, id, 0));
}

fn open_and_close(task: &Task) {
    open_file(task);
    must(close::close(task, FD));
}

/// What is to be interrupted: the last close before a look, the look, and opens after it.
fn open_and_close_some(task: &Task) {
    (0..3).for_each(|_| open_and_close(task));
}

/// Closes until two more make the lane look.
fn to_the_look(task: &Task, closes: u32) {
    while task.lane.closed.count.load(Ordering::Relaxed) + 2 != closes {
        open_and_close(task);
    }
}

/// The files that wait become due.
fn first_look(task: &Task) {
    boot::before_thread(task);
    to_the_look(task, FEW);
}

/// Those that are due become idle.
fn second_look(task: &Task) {
    boot::before_thread(task);
    (0..FEW).for_each(|_| open_and_close(task));
    to_the_look(task, FEW);
}

fn other_thread<'r>(task: &Task<'r>) -> Task<'r> {
    boot::before_thread(task);
    let lane = must(boot::thread_lane(task.region, task.process_id, 3));
    Task::new(task.region, task.process_id, lane, clock::now)
}

/// Another thread is in no call, and is found to be away.
fn away(task: &Task) {
    let _other = other_thread(task);
    (0..FEW).for_each(|_| open_and_close(task));
    to_the_look(task, MOST);
}

/// Another thread uses a file that is closed meanwhile, in the middle of the chain.
fn pinned(task: &Task) {
    let other = other_thread(task);
    (0..FEW / 2).for_each(|_| open_and_close(task));
    open_file(task);
    std::mem::forget(must(other.fget(FD)));
    must(close::close(task, FD));
    (0..FEW).for_each(|_| open_and_close(task));
    to_the_look(task, MOST);
}

/// A call and what leads to it.
type Stage = (&'static str, fn(&Task));

#[test]
fn a_death_while_threads_close_files_loses_none() {
    let _alone = death::alone();
    let task = death::task();
    must(mknod::mknodat(&task, Fd::CWD, lent::path(c"/light/f"), S_IFREG | 0o644, 0));
    reclaim::run(&task);
    let slots = fsck::slots(&task);
    let stages: [Stage; 4] =
        [("first look", first_look), ("second look", second_look), ("away", away), ("pinned", pinned)];
    for (name, prepare) in stages {
        let mut killed = 0;
        for steps in death::strides() {
            let was_killed = death::interrupt_after(&task, steps, &prepare, &open_and_close_some);
            let at = format!("{name}, killed after {steps} instructions");
            fsck::usable(&task);
            reclaim::dead(&task);
            reclaim::run(&task);
            assert_eq!(fsck::slots(&task), slots, "{at}: slots");
            assert_eq!(task.region.in_use::<OpenFile>(), 0, "{at}: open files");
            if !was_killed {
                break;
            }
            killed += 1;
        }
        assert!(killed > 10, "{name}: {killed} deaths");
    }
}

/// A process dies while one thread has closed a file and another is about to find that out, or has not ended
/// the open that another's close has overtaken. Nothing of the chain in which the file is gets lost.
#[test]
fn a_death_of_two_that_have_one_file_loses_none() {
    let _alone = death::alone();
    let task = death::task();
    must(mknod::mknodat(&task, Fd::CWD, lent::path(c"/light/f"), S_IFREG | 0o644, 0));
    for (slot, is_first) in
        [pin::slot::CLOSE, pin::slot::OPEN].into_iter().flat_map(|slot| [(slot, true), (slot, false)])
    {
        let close_and_die = |child: &Task| {
            let other = other_thread(child);
            let (late, closer) = if is_first { (child, &other) } else { (&other, child) };
            open_and_close(closer);
            open_file(closer);
            late.lane.pins[slot].store(closer.table.load(FD) & u64::from(u32::MAX), Ordering::Release);
            must(close::close(closer, FD));
            (0..2).for_each(|_| open_and_close(closer));
        };
        // SAFETY: the child ends itself.
        let die = |_: &Task| unsafe { _ = libc::raise(libc::SIGKILL) };
        assert!(death::interrupt_after(&task, u32::MAX, &close_and_die, &die));
        fsck::usable(&task);
        reclaim::dead(&task);
        reclaim::run(&task);
        assert_eq!(task.region.in_use::<OpenFile>(), 0, "pin {slot}, {is_first}: open files");
        lp_fsck::check(task.region, task.process_id).expect_sound("afterwards");
    }
}

/// A process dies while a thread is about to close a file that another has closed, and whose slot nobody uses
/// any more.
#[test]
fn a_death_of_one_that_is_late_to_close_a_freed_file_frees_nothing() {
    let _alone = death::alone();
    let task = death::task();
    must(mknod::mknodat(&task, Fd::CWD, lent::path(c"/light/f"), S_IFREG | 0o644, 0));
    let slots = fsck::slots(&task);
    let close_and_die = |child: &Task| {
        let late = other_thread(child);
        open_file(child);
        let pin = pin::with_generation(child, FileId(child.table.load(FD) as u32));
        must(close::close(child, FD));
        reclaim::run(child);
        late.lane.pins[pin::slot::CLOSE].store(pin, Ordering::Release);
    };
    // SAFETY: the child ends itself.
    let die = |_: &Task| unsafe { _ = libc::raise(libc::SIGKILL) };
    assert!(death::interrupt_after(&task, u32::MAX, &close_and_die, &die));
    fsck::usable(&task);
    reclaim::dead(&task);
    reclaim::run(&task);
    assert_eq!(fsck::slots(&task), slots);
    assert_eq!(task.region.in_use::<OpenFile>(), 0, "open files");
    lp_fsck::check(task.region, task.process_id).expect_sound("afterwards");
}

/// A file stays what it is for a call that uses it while it is closed and others are opened, and its slot is
/// used again afterwards.
#[test]
fn a_file_in_use_is_not_opened_again() {
    let _alone = death::alone();
    let task = death::task();
    must(mknod::mknodat(&task, Fd::CWD, lent::path(c"/light/f"), S_IFREG | 0o644, 0));
    let other = other_thread(&task);
    open_file(&task);
    let held = must(other.fget(FD));
    let (id, generation) = (held.id, held.file.generation.load(Ordering::Relaxed));
    must(close::close(&task, FD));
    for _ in 0..3 * MOST {
        open_file(&task);
        assert_ne!(task.table.load(FD) as u32, id.0, "opened again");
        must(close::close(&task, FD));
    }
    assert_eq!(held.file.generation.load(Ordering::Relaxed), generation);
    drop(held);
    reclaim::run(&task);
    assert_ne!(task.region.file(id).generation.load(Ordering::Relaxed), generation, "freed");
    let slots = |task: &Task| task.region.slots::<OpenFile>().count();
    let before = slots(&task);
    (0..10 * MOST).for_each(|_| open_and_close(&task));
    assert_eq!(slots(&task), before, "slots that are used again suffice");
    assert_eq!(dup::dup(&other, FD), Err(lp_abi::Errno::EBADF));
}

/// With many lanes, what each has closed is left to sweeps soon.
#[test]
fn few_closed_files_wait_in_each_of_many_lanes() {
    let _alone = death::alone();
    let task = death::task();
    must(mknod::mknodat(&task, Fd::CWD, lent::path(c"/light/f"), S_IFREG | 0o644, 0));
    other_thread(&task);
    let more = |until: u32| {
        while task.region.lanes().count() < until as usize {
            must(boot::thread_lane(task.region, task.process_id, 4));
        }
    };
    more(200);
    open_and_close(&task);
    reclaim::run(&task);
    assert_eq!(grace::chains(task.region, task.lane).count(), 0, "all are away");
    more(300);
    (0..3 * FEW + 1).for_each(|_| open_and_close(&task));
    assert_eq!(grace::chains(task.region, task.lane).count(), 1, "the last");
    reclaim::run(&task);
    assert_eq!(task.region.in_use::<OpenFile>(), 0);
}
