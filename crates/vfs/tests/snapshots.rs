//! Readers beside writers: a read must return one state of the file.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use lp_abi::PAGE_SIZE;
use lp_abi::linux::{O_APPEND, O_RDWR};
use lp_vfs::{Task, boot, clock, copy, fallocate, inode, linking, map, page, read, stat, truncate, write};

mod setup;
use setup::{Fixture, Random, lent};

const ROUNDS: u32 = 4000;
const LENGTH: usize = 3 * PAGE_SIZE - 50;

struct Mine(Task<'static>);
// SAFETY: a task is used by one thread at a time.
unsafe impl Send for Mine {}

/// Another thread of the fixture's process.
fn thread(fixture: &Fixture, tid: u32) -> Mine {
    let task = &fixture.task;
    boot::before_thread(task);
    let lane = boot::thread_lane(task.region, task.process_id, tid).expect("lane");
    Mine(Task::new(task.region, task.process_id, lane, clock::now))
}

/// Voluntary context switches of the calling thread. A call on a file without a layer below makes one only
/// when it sleeps because a change under way does not go on.
fn sleeps() -> i64 {
    // SAFETY: zeros are a valid `rusage`, which the kernel fills in.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
        usage.ru_nvcsw
    }
}

/// Mixed states: the promise is none, except that a reader does not wait for ever for a stopped writer.
#[derive(Default)]
struct Mixed {
    /// Returned although the writer went on: a fault.
    broken: AtomicU32,
    /// Returned after the reader had slept as often as it sleeps for a writer that does not go on; see
    /// docs/differences.md.
    impatient: AtomicU32,
}

impl Mixed {
    /// Sleeps of a reader that has lost its patience, at least; it makes twice as many.
    const PATIENCE: i64 = 50;

    /// Counts a mixed state that a call returned which slept `slept` times.
    fn count(&self, slept: i64) {
        let count = if slept < Self::PATIENCE { &self.broken } else { &self.impatient };
        count.fetch_add(1, Relaxed);
    }

    fn check(self) {
        let (broken, impatient) = (self.broken.into_inner(), self.impatient.into_inner());
        println!("{impatient} mixed states beside a writer that the scheduler stopped in a change");
        assert_eq!(broken, 0, "mixed states beside writers that went on");
    }
}

/// After four writes, a writer waits until each reader has finished a read. So a call of a reader meets few
/// changes, and does not run out of retries.
#[test]
fn reads_see_all_of_a_write_or_nothing() {
    let fixture = Fixture::private(64 << 20);
    let fd = fixture.file(O_RDWR);
    let (writers, mixed) = (AtomicU32::new(2), Mixed::default());
    let reads = [AtomicU32::new(0), AtomicU32::new(0)];
    std::thread::scope(|scope| {
        for (reader, reads) in reads.iter().enumerate() {
            let (mine, writers, mixed) = (thread(&fixture, 10 + reader as u32), &writers, &mixed);
            scope.spawn(move || {
                let Mine(task) = &{ mine };
                let mut bytes = vec![0; LENGTH];
                while writers.load(Relaxed) != 0 {
                    let before = sleeps();
                    let got = read::pread(task, fd, lent::room(&mut bytes[..LENGTH]), 7).expect("pread");
                    let slept = sleeps() - before;
                    let is_mixed = bytes[..got].iter().any(|byte| *byte != bytes[0]);
                    if is_mixed || got != 0 && got != LENGTH {
                        mixed.count(slept);
                    }
                    reads.fetch_add(1, Relaxed);
                }
            });
        }
        for writer in 0..2u32 {
            let (mine, writers, reads) = (thread(&fixture, 20 + writer), &writers, &reads);
            scope.spawn(move || {
                let Mine(task) = &{ mine };
                let mut random = Random(u64::from(writer) + 1);
                let mut seen = [0; 2];
                for round in 0..ROUNDS / 4 {
                    let bytes = [(round % 250) as u8 + 1; LENGTH];
                    let got = write::pwrite(task, fd, lent::bytes(&bytes[..LENGTH]), 7);
                    assert_eq!(got, Ok(LENGTH));
                    if random.below(8) == 0 {
                        truncate::ftruncate(task, fd, 0).expect("ftruncate");
                    }
                    for (reads, seen) in reads.iter().zip(&mut seen).filter(|_| round % 4 == 3) {
                        while reads.load(Relaxed) == *seen {
                            std::thread::yield_now();
                        }
                        *seen = reads.load(Relaxed);
                    }
                }
                writers.fetch_sub(1, Relaxed);
            });
        }
    });
    mixed.check();
}

#[test]
fn appends_of_many_writers_do_not_overlap() {
    let fixture = Fixture::private(64 << 20);
    let fd = fixture.file(O_RDWR | O_APPEND);
    std::thread::scope(|scope| {
        for writer in 0..3u32 {
            let mine = thread(&fixture, 10 + writer);
            scope.spawn(move || {
                let Mine(task) = &{ mine };
                for _ in 0..ROUNDS {
                    let bytes = [writer as u8 + 1; 100];
                    assert_eq!(write::write(task, fd, lent::bytes(&bytes)), Ok(100));
                }
            });
        }
    });
    let size = inode::attributes(&fixture.task, fixture.inode_id(fd), fixture.inode(fd)).size;
    assert_eq!(size, u64::from(3 * ROUNDS) * 100);
    let mut counts = [0; 3];
    for record in 0..3 * ROUNDS as usize {
        let mut bytes = [0u8; 100];
        read::pread(&fixture.task, fd, lent::room(&mut bytes[..100]), record as i64 * 100).expect("pread");
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "record {record}");
        counts[bytes[0] as usize - 1] += 1;
    }
    assert_eq!(counts, [ROUNDS; 3]);
}

/// Attributes of one change appear together: each size that a writer sets has its own number of blocks.
#[test]
fn attributes_are_of_one_state() {
    let fixture = Fixture::private(64 << 20);
    let fd = fixture.file(O_RDWR);
    let (done, looks, mixed) = (AtomicBool::new(false), AtomicU32::new(0), Mixed::default());
    std::thread::scope(|scope| {
        let (mine, done, looks, mixed) = (thread(&fixture, 10), &done, &looks, &mixed);
        let (id, inode) = (fixture.inode_id(fd), fixture.inode(fd));
        scope.spawn(move || {
            let Mine(task) = &{ mine };
            // SAFETY: zeros are a valid stat.
            let mut seen: lp_abi::linux::stat = unsafe { std::mem::zeroed() };
            while !done.load(Relaxed) {
                let before = sleeps();
                stat::fstat(task, fd, lent::value(&mut seen)).expect("fstat");
                let extended = inode::attributes(task, id, inode);
                let slept = sleeps() - before;
                for (size, blocks) in
                    [(seen.st_size as u64, seen.st_blocks as u64), (extended.size, extended.blocks)]
                {
                    let whole =
                        [(0, 0), (LENGTH as u64, 24), (PAGE_SIZE as u64, 8), (5 * PAGE_SIZE as u64, 40)];
                    if !whole.contains(&(size, blocks)) {
                        mixed.count(slept);
                    }
                }
                looks.fetch_add(1, Relaxed);
            }
        });
        let bytes = [7; LENGTH];
        let mut round = 0;
        // Until there were enough looks beside changes, even on one core.
        while round < ROUNDS || looks.load(Relaxed) < ROUNDS {
            let task = &fixture.task;
            assert_eq!(write::pwrite(task, fd, lent::bytes(&bytes[..LENGTH]), 0), Ok(LENGTH));
            truncate::ftruncate(task, fd, PAGE_SIZE as i64).expect("ftruncate");
            fallocate::fallocate(task, fd, 0, 0, 5 * PAGE_SIZE as i64).expect("fallocate");
            truncate::ftruncate(task, fd, 0).expect("ftruncate");
            round += 1;
        }
        done.store(true, Relaxed);
    });
    mixed.check();
}

/// A truncation that outlasts a reader's patience, while the pages that it frees become another file's.
#[test]
fn reads_beside_a_long_truncation_give_no_other_files_bytes() {
    const PAGES: usize = 2048;
    let fixture = Fixture::private(16 << 20);
    let (fd, other, ballast) = (fixture.file(O_RDWR), fixture.file(O_RDWR), fixture.file(O_RDWR));
    // Hardly any page is free, so that the next allocation gets what was just freed.
    let pages = page::free_count(fixture.task.region) as usize - PAGES - 20;
    let bytes = vec![0; pages * PAGE_SIZE];
    let filled = write::pwrite(&fixture.task, ballast, lent::bytes(&bytes), 0);
    assert_eq!(filled, Ok(bytes.len()));
    let (done, reads) = (AtomicBool::new(false), AtomicU32::new(0));
    let foreign = AtomicU32::new(0);
    let (id, inode) = (fixture.inode_id(fd), fixture.inode(fd));
    std::thread::scope(|scope| {
        let (mine, done, reads, foreign) = (thread(&fixture, 10), &done, &reads, &foreign);
        scope.spawn(move || {
            let Mine(task) = &{ mine };
            let mut bytes = vec![0; PAGES * PAGE_SIZE];
            while !done.load(Relaxed) {
                let got = read::pread(task, fd, lent::room(&mut bytes), 0).expect("pread");
                let strange = bytes[..got].iter().filter(|byte| ![0, b'A'].contains(byte)).count();
                foreign.fetch_add(strange as u32, Relaxed);
                reads.fetch_add(1, Relaxed);
            }
        });
        let task = &fixture.task;
        let (whole, strange) = (vec![b'A'; PAGES * PAGE_SIZE], [b'Z'; PAGE_SIZE]);
        for _ in 0..10 {
            assert_eq!(write::pwrite(task, fd, lent::bytes(&whole), 0), Ok(whole.len()));
            let held = inode::lock(task, id);
            inode.data_seq.begin();
            // Two reads finish while nothing changes: the second began within the section.
            let first = reads.load(Relaxed);
            while reads.load(Relaxed) == first {
                std::thread::yield_now();
            }
            let begun = std::time::Instant::now();
            while reads.load(Relaxed) == first + 1 {
                std::thread::yield_now();
            }
            // The pages are freed while the next reads lose patience and copy.
            let patience = begun.elapsed();
            for page in (0..PAGES as u64).rev() {
                linking::clear(task, id, inode, page, page + 1);
                write::pwrite(task, other, lent::bytes(&strange[..PAGE_SIZE]), (page * 4096) as i64)
                    .expect("pwrite");
                let begun = std::time::Instant::now();
                while begun.elapsed() < 2 * patience / PAGES as u32 && reads.load(Relaxed) < first + 4 {
                    std::hint::spin_loop();
                }
            }
            inode.seq.begin();
            inode.pages.store(0, lp_region::sync::Ordering::Relaxed);
            inode.seq.end();
            inode.data_seq.end();
            drop(held);
            truncate::ftruncate(task, other, 0).expect("ftruncate");
        }
        done.store(true, Relaxed);
    });
    assert_eq!(foreign.into_inner(), 0, "bytes of another file");
}

/// Sleeps of a copy before it takes half a write.
const PATIENCE: i64 = 100;

#[test]
fn a_copy_waits_for_a_writer_that_has_lost_its_processor() {
    const BYTES: usize = 2 * PAGE_SIZE;
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    let (from, to) = (fixture.file(O_RDWR), fixture.file(O_RDWR));
    let (id, inode) = (fixture.inode_id(from), fixture.inode(from));
    // The rounds that may begin, that have begun, and that are over.
    let rounds = [const { AtomicU32::new(0) }; 3];
    let reach = |at: usize, round: u32| {
        while rounds[at].load(Relaxed) < round {
            std::thread::yield_now();
        }
    };
    let mut whole = 0;
    std::thread::scope(|scope| {
        let (mine, rounds, reach) = (thread(&fixture, 11), &rounds, &reach);
        let copier = scope.spawn(move || {
            let Mine(task) = &{ mine };
            let mut results = Vec::new();
            for round in 1..=10 {
                reach(0, round);
                let (before, mut at, mut bytes) = (sleeps(), [0, 0], [0; BYTES]);
                rounds[1].store(round, Relaxed);
                let [off_in, off_out] = at.each_mut().map(lent::value);
                assert_eq!(copy::copy_file_range(task, from, off_in, to, off_out, BYTES, 0), Ok(BYTES));
                let waited = sleeps() - before;
                assert_eq!(read::pread(task, to, lent::room(&mut bytes), 0), Ok(BYTES));
                results.push((waited, bytes.iter().all(|byte| *byte == bytes[0])));
                rounds[2].store(round, Relaxed);
            }
            results
        });
        for round in 1..=10u8 {
            assert_eq!(write::pwrite(task, from, lent::bytes(&[round; BYTES]), 0), Ok(BYTES));
            let held = inode::lock(task, id);
            inode.data_seq.begin();
            let page = task.region.page(map::get(task.region, inode, 0));
            // SAFETY: within the page, whose bytes nobody else changes.
            unsafe { page.write_bytes(round + 100, PAGE_SIZE / 2) };
            rounds[0].store(round.into(), Relaxed);
            reach(1, round.into());
            std::thread::sleep(std::time::Duration::from_micros(500));
            // SAFETY: as above.
            unsafe { page.write_bytes(round, PAGE_SIZE / 2) };
            inode.data_seq.end();
            drop(held);
            reach(2, round.into());
        }
        for (waited, is_whole) in copier.join().expect("the copier") {
            assert!(is_whole || waited >= PATIENCE, "half a write after {waited} sleeps");
            whole += u32::from(is_whole && waited > 0);
        }
    });
    assert!(whole > 0, "some copy has waited");
}
