//! The position of an open file that several threads or processes use, biased to one of them or not.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use lp_abi::Fd;
use lp_abi::linux::*;
use lp_region::records::OpenFile;
use lp_region::sync::Ordering;
use lp_vfs::open::Opened;
use lp_vfs::{Place, Task, boot, clock, close, limit, lseek, open, read, table, write};

mod setup;
use setup::{Fixture, Random, lent};

const PATH: &CStr = c"/light/f";
const FD: Fd = Fd::new(3);

struct Mine(Task<'static>);
// SAFETY: a task is used by one thread at a time.
unsafe impl Send for Mine {}

fn open_file(task: &Task) -> &'static OpenFile {
    let opened = open::openat(task, Fd::CWD, lent::path(PATH), O_RDWR | O_CREAT, 0o600);
    let Ok(Place::Inside(Opened::File(id))) = opened else { panic!("{opened:?}") };
    table::install(task, FD, id, 0).expect("install");
    // SAFETY: the fixtures leak their regions.
    unsafe { &*std::ptr::from_ref(task.region.file(id)) }
}

/// A task for a new thread of the task's process.
fn thread_of(task: &Task<'static>, tid: u32) -> Task<'static> {
    boot::before_thread(task);
    let lane = boot::thread_lane(task.region, task.process_id, tid).expect("lane");
    Task::new(task.region, task.process_id, lane, clock::now)
}

/// Moves the position until the caller has the bias of its lock, after any penalty.
fn earn_bias(task: &Task, file: &OpenFile) {
    for turn in 0..600 {
        lseek::lseek(task, FD, turn % 2, SEEK_SET).expect("lseek");
    }
    assert!(file.lock.is_biased());
}

/// Threads read and write records through one descriptor: no record is read twice, none is overwritten.
#[test]
fn threads_that_share_a_position_move_it_one_after_the_other() {
    const RECORDS: u32 = 40_000;
    const THREADS: u32 = 3;
    let fixture = Fixture::private(8 << 20);
    let task = &fixture.task;
    let file = open_file(task);
    let start = AtomicBool::new(false);
    // Each thread uses it alone for a while, so that biases come and go.
    let alone = |who: u32, turn: u32| turn / 2000 % THREADS == who;
    let threads: Vec<Mine> = (0..THREADS).map(|who| Mine(thread_of(task, 2 + who))).collect();
    std::thread::scope(|scope| {
        for (who, mine) in (0..).zip(threads) {
            let start = &start;
            scope.spawn(move || {
                let mine = mine;
                let mut random = Random(u64::from(who) + 1);
                while !start.load(Relaxed) {
                    std::hint::spin_loop();
                }
                for turn in 0..RECORDS / THREADS {
                    if !alone(who, turn) && random.below(8) != 0 {
                        std::thread::yield_now();
                    }
                    let record = (who * RECORDS + turn).to_ne_bytes();
                    assert_eq!(write::write(&mine.0, FD, lent::bytes(&record)), Ok(4));
                }
            });
        }
        start.store(true, Relaxed);
    });
    let all = RECORDS / THREADS * THREADS;
    assert_eq!(file.position.load(Ordering::Relaxed), u64::from(all) * 4, "a write went over another");
    lseek::lseek(task, FD, 0, SEEK_SET).expect("lseek");
    let readers: Vec<Mine> = (0..THREADS).map(|who| Mine(thread_of(task, 5 + who))).collect();
    let seen: Vec<u32> = std::thread::scope(|scope| {
        let running: Vec<_> = readers
            .into_iter()
            .map(|mine| {
                scope.spawn(move || {
                    let mine = mine;
                    let (mut seen, mut record) = (Vec::new(), [0; 4]);
                    while read::read(&mine.0, FD, lent::room(&mut record)) == Ok(4) {
                        seen.push(u32::from_ne_bytes(record));
                        // A call that moves nothing, beside others that do.
                        lseek::lseek(&mine.0, FD, 0, SEEK_CUR).expect("lseek");
                    }
                    seen
                })
            })
            .collect();
        running.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    assert_eq!(seen.len() as u32, all);
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>().len() as u32, all, "a record was read twice");
}

#[test]
fn the_sole_user_among_threads_gets_the_bias_and_another_takes_it() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    let file = open_file(task);
    let (one, other) = (thread_of(task, 2), thread_of(task, 3));
    earn_bias(&one, file);
    assert_eq!(one.lane.seeking.load(Ordering::Relaxed), 0, "it is outside");
    // What does not move the position leaves the bias alone.
    let at = lseek::lseek(&one, FD, 0, SEEK_CUR).expect("lseek");
    assert_eq!(lseek::lseek(&other, FD, at as i64, SEEK_SET), Ok(at));
    assert_eq!(lseek::lseek(&other, FD, 0, SEEK_CUR), Ok(at));
    assert!(file.lock.is_biased());
    assert_eq!(lseek::lseek(&other, FD, 77, SEEK_SET), Ok(77));
    assert!(!file.lock.is_biased());
    earn_bias(&other, file);
    assert_eq!(lseek::lseek(&one, FD, 5, SEEK_SET), Ok(5));
    close::close(task, FD).expect("close");
}

#[test]
fn a_process_that_limits_itself_ends_the_biases_of_positions() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    let file = open_file(task);
    let thread = thread_of(task, 2);
    earn_bias(&thread, file);
    limit::begin(task).expect("barriers work");
    assert!(!file.lock.is_biased());
    for turn in 0..600 {
        lseek::lseek(&thread, FD, turn % 2, SEEK_SET).expect("lseek");
    }
    assert!(!file.lock.is_biased(), "no bias is given while a process is limited");
    limit::end(task);
    earn_bias(&thread, file);
}

/// exec ends a thread that is inside by its bias. The image goes on with the position.
#[test]
fn a_holder_of_the_bias_that_is_gone_holds_nobody_up() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    let file = open_file(task);
    let thread = thread_of(task, 2);
    earn_bias(&thread, file);
    assert!(file.lock.enter_biased(thread.lane_id, &thread.lane.seeking));
    let lane = boot::attach(task.region, task.process_id, 3).expect("attach");
    let image = Task::new(task.region, task.process_id, lane, clock::now);
    boot::arrive(&image);
    assert_eq!(thread.lane.seeking.load(Ordering::Relaxed), 0, "the lane's next owner would be inside");
    // A second thread makes the image take the lock.
    let _other = thread_of(&image, 4);
    assert_eq!(lseek::lseek(&image, FD, 9, SEEK_SET), Ok(9));
    assert!(!file.lock.is_biased());
}
