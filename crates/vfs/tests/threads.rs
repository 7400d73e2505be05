//! Threads that share a table open, use, duplicate and close each other's descriptors.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use lp_abi::linux::*;
use lp_abi::{Errno, Fd};
use lp_region::layout::LANE_BITS;
use lp_region::records::{Inode, OpenFile};
use lp_region::sync::Ordering;
use lp_region::{LaneId, ProcessId};
use lp_vfs::open::Opened;
use lp_vfs::{
    Place, Task, boot, clock, close, dup, fork, inode, lseek, mkdir, open, page, read, reclaim, table,
    unlink, write,
};

mod setup;
use setup::{Fixture, Random, fsck, lent};

const THREADS: usize = 4;
const STEPS: usize = 20_000;
/// Descriptors of each thread. Any thread uses and closes any of them.
const NUMBERS: usize = 6;

struct Mine(Task<'static>);
// SAFETY: a task is used by one thread at a time.
unsafe impl Send for Mine {}

fn opened(task: &Task, random: &mut Random) -> Result<lp_region::FileId, Errno> {
    let path = format!("/light/f{}\0", random.below(3));
    match open::openat(task, Fd::CWD, lent::text(&path), O_RDWR | O_CREAT, 0o600)? {
        Place::Inside(Opened::File(id)) => Ok(id),
        other => panic!("{other:?}"),
    }
}

/// One random step. The thread's own numbers are free when it opens, because the kernel hands out no number
/// twice.
fn step(task: &Task, own: usize, random: &mut Random) {
    let any = Fd::new(3 + random.below(THREADS * NUMBERS) as i32);
    let mine = Fd::new((3 + own * NUMBERS + random.below(NUMBERS)) as i32);
    let mut byte = [own as u8; 16];
    match random.below(10) {
        0 | 1 => {
            if let Ok(id) = opened(task, random) {
                // Others unlink and sweep meanwhile.
                (0..random.below(400) / 398).for_each(|_| std::thread::yield_now());
                table::install(task, mine, id, 0).expect("install");
            }
        }
        2 | 3 => _ = close::close(task, any),
        4 => _ = write::write(task, any, lent::bytes(&byte)),
        5 => _ = read::pread(task, any, lent::room(&mut byte), 0),
        6 => _ = lseek::lseek(task, any, 1, SEEK_CUR),
        7 => {
            if let Ok(id) = dup::dup(task, any) {
                dup::install(task, mine, id, 0).expect("install");
            }
        }
        8 => {
            let path = format!("/light/f{}\0", random.below(3));
            let _ = unlink::unlinkat(task, Fd::CWD, lent::text(&path), 0);
        }
        _ if random.below(20) == 0 => {
            let child = fork::before(task).expect("slot");
            fork::failed(task, child);
        }
        _ => {
            if let Ok(held) = task.fget(any) {
                // A held file must not change.
                let before = held.inode_ref();
                std::hint::spin_loop();
                assert_eq!(held.inode_ref(), before);
                assert_ne!(before.id.0, 0);
            }
        }
    }
}

#[test]
fn threads_share_descriptors_and_leak_none() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|own| {
                boot::before_thread(task);
                let lane = boot::thread_lane(task.region, task.process_id, 10 + own as u32).expect("lane");
                let mine = Mine(Task::new(task.region, task.process_id, lane, clock::now));
                scope.spawn(move || {
                    let mine = mine;
                    let mut random = Random(own as u64 + 1);
                    (0..STEPS).for_each(|_| step(&mine.0, own, &mut random));
                    boot::leave_lane(&mine.0);
                    boot::thread_gone(mine.0.process);
                })
            })
            .collect();
        let reclaimer = scope.spawn({
            boot::before_thread(task);
            let lane = boot::thread_lane(task.region, task.process_id, 9).expect("lane");
            let mine = Mine(Task::new(task.region, task.process_id, lane, clock::now));
            let stop = &stop;
            move || {
                let mine = mine;
                while !stop.load(Relaxed) {
                    reclaim::run(&mine.0);
                }
                boot::leave_lane(&mine.0);
                boot::thread_gone(mine.0.process);
            }
        });
        for worker in workers {
            worker.join().expect("worker");
        }
        stop.store(true, Relaxed);
        reclaimer.join().expect("reclaimer");
    });
    assert_eq!(task.process.threads.load(Ordering::Relaxed), 0);
    close::close_range(task, 0, u32::MAX);
    for name in 0..3 {
        let path = format!("/light/f{name}\0");
        let _ = unlink::unlinkat(task, Fd::CWD, lent::text(&path), 0);
    }
    for _ in 0..3 {
        reclaim::run(task);
    }
    assert_eq!(task.region.in_use::<OpenFile>(), 0);
    assert_eq!(task.region.in_use::<Inode>(), 1);
    let missing = fixture.empty.saturating_sub(page::free_count(task.region));
    assert!(missing <= 1, "{missing} pages are in use:\n{}", fsck::pages(task));
}

/// exec ends the other threads wherever they are.
#[test]
fn exec_takes_over_what_other_threads_held() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    let (region, process) = (task.region, task.process_id);
    let id = opened(task, &mut Random(1)).expect("open");
    table::install(task, Fd::new(3), id, table::entry::CLOEXEC).expect("install");
    let keep = dup::dup(task, Fd::new(3)).expect("dup");
    dup::install(task, Fd::new(4), keep, 0).expect("install");

    boot::before_thread(task);
    let lane = boot::thread_lane(region, process, 2).expect("lane");
    let thread = Task::new(region, process, lane, clock::now);
    let root = fixture.root();
    std::mem::forget(inode::lock(&thread, root));
    let _ = thread.fget(Fd::new(4)).map(std::mem::forget);
    std::mem::forget(table::Beside::take(&thread));
    assert_ne!(thread.lane.changing.load(Ordering::Relaxed), 0);
    let slot = region.take::<Inode>(thread.lane).expect("a slot in hand");
    assert_ne!(slot.0, 0);

    let lane = boot::attach(region, process, 3).expect("attach");
    let image = Task::new(region, process, lane, clock::now);
    boot::arrive(&image);
    assert_eq!(image.process.threads.load(Ordering::Relaxed), 0);
    assert_eq!(region.lanes().collect::<Vec<_>>(), [lane], "the others are buried");
    assert_eq!(
        thread.lane.changing.load(Ordering::Relaxed),
        0,
        "the lane's next owner would change the table"
    );
    assert_eq!(boot::cloexec_fds(&image).collect::<Vec<_>>(), [Fd::new(3)]);
    close::close(&image, Fd::new(3)).expect("close");
    assert_eq!(lseek::lseek(&image, Fd::new(4), 0, SEEK_CUR), Ok(0));
    // The directory's lock was held by the thread, and must be free.
    let made = mkdir::mkdirat(&image, Fd::CWD, lent::path(c"/light/d"), 0o755);
    assert_eq!(made, Ok(Place::Inside(())));
    close::close(&image, Fd::new(4)).expect("close");
    reclaim::all(&image);
    assert_eq!(region.in_use::<OpenFile>(), 0);
    assert_eq!(region.in_use::<Inode>(), 3, "root, f, d");
}

/// A task on a lane for a new thread of the task's process.
fn thread_of(task: &Task<'static>, tid: u32) -> Task<'static> {
    boot::before_thread(task);
    let lane = boot::thread_lane(task.region, task.process_id, tid).expect("lane");
    Task::new(task.region, task.process_id, lane, clock::now)
}

fn end(task: &Task) {
    boot::leave_lane(task);
    boot::thread_gone(task.process);
}

/// An exec by the only thread left. Returns the new image's lane, and the number of the process's lanes.
fn execute(task: &Task<'static>) -> (LaneId, usize) {
    boot::before_exec(task);
    let lane = boot::attach(task.region, task.process_id, 1).expect("attach");
    let lanes = task.region.lanes();
    (lane, lanes.filter(|lane| task.region.lane(*lane).process.load(Relaxed) == task.process_id.0).count())
}

#[test]
fn a_thread_that_outlived_the_first_executes() {
    let task = Fixture::private(1 << 20).task;
    // The first thread's lane goes to the second thread, or the third gets one of its own.
    let second = thread_of(&task, 2);
    end(&task);
    let third = thread_of(&second, 3);
    assert_eq!(third.lane_id.0 % (1 << LANE_BITS), task.lane_id.0 % (1 << LANE_BITS));
    end(&second);
    for _ in 0..2 {
        let (lane, lanes) = execute(&third);
        assert!(
            !task.region.lane_is_dead(lane, ProcessId::NONE),
            "the new image's locks are those of the dead"
        );
        assert_eq!(lanes, 1, "a lane is left to nobody");
    }
    let fourth = thread_of(&third, 4);
    end(&third);
    let (lane, lanes) = execute(&fourth);
    assert_eq!((lane, lanes), (fourth.lane_id, 1), "a lane is left to nobody");
}
