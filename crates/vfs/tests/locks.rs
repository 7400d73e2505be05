//! Locks on files, compared with the kernel's for the same sequence of calls.

use std::os::fd::{AsRawFd, OwnedFd};

use lp_abi::linux::*;
use lp_abi::{Errno, Fd, syscall};
use lp_region::ProcessId;
use lp_region::records::LockRecord;
use lp_region::sync::Ordering;
use lp_vfs::{Task, clock, close, flock, fork, inode, open, record_lock, table};

mod setup;
use setup::{Fixture, Random, lent};

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Flock {
    kind: i16,
    whence: i16,
    start: i64,
    len: i64,
    pid: i32,
}

fn ours(task: &Task, fd: Fd, command: u32, lock: &mut Flock) -> i32 {
    let done = record_lock::fcntl(task, fd, command, lent::value(lock).cast());
    done.err().map_or(0, Errno::number)
}

fn kernels(fd: i32, command: u32, lock: &mut Flock) -> i32 {
    // SAFETY: the kernel reads and writes the structure only.
    unsafe { syscall!(__NR_fcntl, fd, command, &raw mut *lock) }.err().map_or(0, Errno::number)
}

/// A kernel file, opened several times.
fn kernel_files(count: usize) -> Vec<OwnedFd> {
    let path = format!("/dev/shm/lightpath-locks-{}-{count}", std::process::id());
    let files = (0..count)
        .map(|_| std::fs::File::options().read(true).write(true).create(true).truncate(false).open(&path))
        .map(|file| file.expect("file in /dev/shm").into())
        .collect();
    std::fs::remove_file(&path).expect("remove");
    files
}

/// One file of ours, opened several times.
fn our_files(fixture: &Fixture, count: usize) -> Vec<Fd> {
    let task = &fixture.task;
    let first = fixture.file(O_RDWR);
    (1..count).fold(vec![first], |mut fds, _| {
        let open::Opened::File(id) = open::reopen(task, first, O_RDWR, 0).expect("reopen") else { panic!() };
        let fd = task.table.lowest(0, 1024).expect("number");
        table::install(task, fd, id, 0).expect("install");
        fds.push(fd);
        fds
    })
}

/// Owners of locks on one file of ours and on one of the kernel's, which get the same requests.
struct Owners {
    fixture: Fixture,
    kernel: Vec<OwnedFd>,
    ours: Vec<Fd>,
}

impl Owners {
    const COUNT: usize = 3;

    fn new() -> Owners {
        let fixture = Fixture::private(1 << 20);
        let ours = our_files(&fixture, Self::COUNT);
        Owners { fixture, kernel: kernel_files(Self::COUNT), ours }
    }

    /// Makes the request `asked` for one of the owners. Both answers must be the same.
    fn request(&self, step: usize, who: usize, command: u32, asked: Flock) {
        let (mut mine, mut theirs) = (asked, asked);
        let left = ours(&self.fixture.task, self.ours[who], command, &mut mine);
        let right = kernels(self.kernel[who].as_raw_fd(), command, &mut theirs);
        assert_eq!(left, right, "step {step}: {asked:?}");
        if left == 0 && command == F_OFD_GETLK {
            // Which of several conflicting locks is reported is unspecified.
            assert_eq!(mine.kind == F_UNLCK as i16, theirs.kind == F_UNLCK as i16, "step {step}: {asked:?}");
        }
    }

    /// Closes the files of ours. No lock may stay.
    fn close(self) {
        let task = &self.fixture.task;
        for fd in self.ours {
            close::close(task, fd).unwrap();
        }
        assert_eq!(task.region.in_use::<LockRecord>(), 0);
    }
}

#[test]
fn ranges_split_and_merge_as_the_kernels() {
    let owners = Owners::new();
    let mut random = Random(7);
    for step in 0..60_000 {
        let who = random.below(Owners::COUNT);
        let kind = [F_RDLCK, F_WRLCK, F_UNLCK, F_UNLCK, 9][random.below(5).min(random.below(6))];
        let len = [0, 1, 2, 5, -3, i64::MAX][random.below(6)];
        let mut asked = Flock { kind: kind as i16, whence: 0, start: random.below(24) as i64, len, pid: 0 };
        if random.below(50) == 0 {
            asked.pid = 1;
        }
        if random.below(30) == 0 {
            asked.whence = random.below(5) as i16;
        }
        let command = [F_OFD_SETLK, F_OFD_GETLK][usize::from(random.below(4) == 0)];
        owners.request(step, who, command, asked);
    }
    owners.close();
}

/// Thousands of locks on one file, so that its tree is deep.
#[test]
fn many_locks_split_and_merge_as_the_kernels() {
    let owners = Owners::new();
    let task = &owners.fixture.task;
    let mut random = Random(11);
    for step in 0..12_000 {
        let who = random.below(Owners::COUNT);
        // Mostly shared, so that owners' locks overlap.
        let kind = [F_RDLCK, F_RDLCK, F_RDLCK, F_WRLCK, F_UNLCK][random.below(5)];
        let len = if random.below(400) == 0 { 2000 } else { 1 + random.below(3) as i64 };
        let asked = Flock { kind: kind as i16, whence: 0, start: random.below(6000) as i64, len, pid: 0 };
        let command = [F_OFD_SETLK, F_OFD_GETLK][usize::from(random.below(6) == 0)];
        owners.request(step, who, command, asked);
        if step % 1000 == 999 {
            lp_fsck::check(task.region, task.process_id).expect_sound(&format!("step {step}"));
        }
    }
    assert!(task.region.in_use::<LockRecord>() > 500);
    owners.close();
}

#[test]
fn flock_converts_and_conflicts_as_the_kernels() {
    const OWNERS: usize = 3;
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    let kernel = kernel_files(OWNERS);
    let fds = our_files(&fixture, OWNERS);
    let mut random = Random(9);
    for step in 0..20_000 {
        let who = random.below(OWNERS);
        let operation = [LOCK_SH | LOCK_NB, LOCK_EX | LOCK_NB, LOCK_UN, LOCK_UN | LOCK_NB, 0, 12, LOCK_MAND]
            [random.below(7)];
        let left = flock::flock(task, fds[who], operation).err().map_or(0, Errno::number);
        // SAFETY: flock(2) takes no pointers.
        let right = unsafe { syscall!(__NR_flock, kernel[who].as_raw_fd(), operation) };
        assert_eq!(left, right.err().map_or(0, Errno::number), "step {step}: {operation}");
    }
}

/// A second process slot, in the same real process.
fn second(task: &Task<'static>) -> Task<'static> {
    let child: ProcessId = fork::before(task).expect("slot");
    let lane = fork::child(task.region, child, 2).expect("lane");
    Task::new(task.region, child, lane, clock::now)
}

#[test]
fn a_process_owns_its_posix_locks_until_any_close() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    let fds = our_files(&fixture, 2);
    let other = second(task);
    let mut lock = Flock { kind: F_WRLCK as i16, start: 10, len: 10, ..Flock::default() };
    assert_eq!(ours(task, fds[0], F_SETLK, &mut lock), 0);
    assert_eq!(ours(task, fds[1], F_SETLK, &mut lock), 0);
    assert_eq!(ours(&other, fds[0], F_SETLK, &mut lock), Errno::EAGAIN.number());
    let mut asked = Flock { kind: F_RDLCK as i16, start: 0, len: 0, ..Flock::default() };
    assert_eq!(ours(&other, fds[0], F_GETLK, &mut asked), 0);
    let pid = std::process::id() as i32;
    assert_eq!(asked, Flock { kind: F_WRLCK as i16, whence: 0, start: 10, len: 10, pid });
    // Any close of the file by its owner drops the lock; a close by the other process does not.
    close::close(&other, fds[1]).unwrap();
    assert_eq!(ours(&other, fds[0], F_SETLK, &mut lock), Errno::EAGAIN.number());
    close::close(task, fds[1]).unwrap();
    assert_eq!(ours(&other, fds[0], F_SETLK, &mut lock), 0);
}

#[test]
fn a_waiter_gets_the_lock_and_a_ring_is_refused() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    let fd = our_files(&fixture, 1)[0];
    let other = second(task);
    let (a, b) = (
        Flock { kind: F_WRLCK as i16, start: 0, len: 1, ..Flock::default() },
        Flock { kind: F_WRLCK as i16, start: 1, len: 1, ..Flock::default() },
    );
    assert_eq!(ours(task, fd, F_SETLK, &mut a.clone()), 0);
    assert_eq!(ours(&other, fd, F_SETLK, &mut b.clone()), 0);
    struct Whole(Task<'static>);
    // SAFETY: one thread uses the task at a time.
    unsafe impl Send for Whole {}
    let other = Whole(other);
    let waiter = std::thread::spawn(move || {
        let other = other;
        let got = ours(&other.0, fd, F_SETLKW, &mut a.clone());
        (got, other)
    });
    let start = std::time::Instant::now();
    while task.region.lanes().all(|id| task.region.lane(id).posix_wait.edge() == 0) {
        assert!(start.elapsed().as_secs() < 10);
        std::thread::yield_now();
    }
    assert_eq!(ours(task, fd, F_SETLKW, &mut b.clone()), Errno::EDEADLK.number());
    let mut unlock = Flock { kind: F_UNLCK as i16, ..a };
    assert_eq!(ours(task, fd, F_SETLK, &mut unlock), 0);
    assert_eq!(waiter.join().unwrap().0, 0);
    assert_eq!(ours(task, fd, F_SETLK, &mut a.clone()), Errno::EAGAIN.number());
}

/// A writer may be stopped in the middle of its write.
#[test]
fn locks_do_not_wait_for_a_writer() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    let fd = our_files(&fixture, 1)[0];
    struct Whole(Task<'static>);
    // SAFETY: one thread uses the task at a time.
    unsafe impl Send for Whole {}
    let other = Whole(second(task));
    let _writing = inode::lock(task, fixture.inode_id(fd));
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let Whole(other) = { other };
        let mut lock = Flock { kind: F_WRLCK as i16, ..Flock::default() };
        let set = ours(&other, fd, F_SETLK, &mut lock);
        let whole = flock::flock(&other, fd, LOCK_EX | LOCK_NB);
        lock.kind = F_UNLCK as i16;
        done.send((set, whole, ours(&other, fd, F_SETLK, &mut lock))).expect("a listener");
    });
    let results = is_done.recv_timeout(std::time::Duration::from_secs(10));
    assert_eq!(results, Ok((0, Ok(()), 0)));
}

#[test]
fn a_wait_ends_for_a_signal() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    let fd = our_files(&fixture, 1)[0];
    let mut other = second(task);
    let lock = Flock { kind: F_WRLCK as i16, ..Flock::default() };
    assert_eq!(ours(task, fd, F_SETLK, &mut lock.clone()), 0);
    other.interrupted = || true;
    assert_eq!(ours(&other, fd, F_SETLKW, &mut lock.clone()), Errno::EINTR.number());
}

/// A process that was woken but has not run yet still announces its wait for a lock, which has changed since.
#[test]
fn a_lock_that_has_changed_closes_no_ring() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    let fd = our_files(&fixture, 1)[0];
    let mut other = second(task);
    let (a, b) = (
        Flock { kind: F_WRLCK as i16, start: 0, len: 1, ..Flock::default() },
        Flock { kind: F_WRLCK as i16, start: 1, len: 1, ..Flock::default() },
    );
    assert_eq!(ours(&other, fd, F_SETLK, &mut a.clone()), 0);
    let id = fixture.inode(fd).locks.load(Ordering::Relaxed);
    let version = task.region.lock_record(lp_region::LockId(id)).version.load(Ordering::Relaxed);
    assert_eq!(ours(task, fd, F_SETLK, &mut b.clone()), 0);
    other.interrupted = || true;
    for (again, wanted) in [(false, Errno::EDEADLK), (true, Errno::EINTR)] {
        if again {
            assert_eq!(ours(&other, fd, F_SETLK, &mut Flock { kind: F_UNLCK as i16, ..a }), 0);
            assert_eq!(ours(&other, fd, F_SETLK, &mut a.clone()), 0);
        }
        let edge = u64::from(version) << 32 | u64::from(id);
        task.lane.posix_wait.begin(edge, &task.region.header().tickets);
        assert_eq!(ours(&other, fd, F_SETLKW, &mut b.clone()), wanted.number());
    }
}
