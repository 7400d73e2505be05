//! Processes killed at any instruction: the others continue, nothing is lost, nothing is left behind.
//!
//! The only test in its file, because children are forks of the test program and may not allocate.

use std::time::{Duration, Instant};

use lp_abi::linux::*;
use lp_abi::{Fd, UserPtr, syscall};
use lp_region::records::{Dirent, Inode, LockRecord, LongName, OpenFile};
use lp_region::slab::Slot;
use lp_region::sync::Ordering;
use lp_region::{Geometry, LaneId, ProcessId, Region};
use lp_vfs::open::Opened;
use lp_vfs::{
    Place, Task, boot, clock, close, dup, fork, getdents, link, map, mkdir, open, page, reclaim, record_lock,
    rename, stat, symlink, table, truncate, unlink, write,
};

mod setup;
use setup::Random;
use setup::lent;

/// Number of kills, unless LIGHTPATH_CRASH_ROUNDS sets it.
const ROUNDS: u32 = 300;
/// A call that takes longer is waiting for a dead process that nobody has buried.
const PATIENCE: Duration = Duration::from_secs(20);
const DIRECTORIES: [&str; 3] = ["/light/a", "/light/b", "/light/a/c"];

/// Writes one of a few paths to `to`: a short or a long name in one of the directories.
fn path(random: &mut Random, to: &mut [u8; 300]) {
    let dir = DIRECTORIES[random.below(DIRECTORIES.len())].as_bytes();
    to[..dir.len()].copy_from_slice(dir);
    to[dir.len()] = b'/';
    let mut end = dir.len() + 1;
    let which = random.below(12);
    let repeats = if which < 3 { 180 } else { 1 };
    to[end..end + repeats].fill(b'f' + which as u8);
    end += repeats;
    to[end] = 0;
}

/// Makes one or a few calls of those that change something. Results do not matter.
fn step(task: &Task, random: &mut Random, buffer: &[u8]) {
    let (mut first, mut second) = ([0u8; 300], [0u8; 300]);
    path(random, &mut first);
    path(random, &mut second);
    let (one, two) = (lent::bytes(&first).start(), lent::bytes(&second).start());
    match random.below(14) {
        0..=3 => write_file(task, one, random, buffer),
        4 | 5 => _ = unlink::unlinkat(task, Fd::CWD, one, 0),
        6 | 7 => _ = rename::renameat2(task, Fd::CWD, one, Fd::CWD, two, 0),
        8 => _ = rename::renameat2(task, Fd::CWD, one, Fd::CWD, two, RENAME_EXCHANGE),
        9 => _ = link::linkat(task, Fd::CWD, one, Fd::CWD, two, 0),
        10 => _ = symlink::symlinkat(task, two, Fd::CWD, one),
        11 => _ = mkdir::mkdirat(task, Fd::CWD, one, 0o755),
        12 => _ = unlink::unlinkat(task, Fd::CWD, one, AT_REMOVEDIR),
        _ => _ = truncate::truncate(task, Fd::CWD, one, random.below(60_000) as i64),
    }
}

fn opened(task: &Task, path: UserPtr, flags: u32) -> Option<Fd> {
    let Ok(Place::Inside(Opened::File(id))) = open::openat(task, Fd::CWD, path, flags, 0o644) else {
        return None;
    };
    let fd = task.table.lowest(3, 1000).expect("number");
    table::install(task, fd, id, 0).expect("install");
    Some(fd)
}

fn write_file(task: &Task, path: UserPtr, random: &mut Random, buffer: &[u8]) {
    let more = [0, O_TRUNC, O_APPEND, O_EXCL][random.below(4)];
    let Some(fd) = opened(task, path, O_RDWR | O_CREAT | more) else { return };
    for _ in 0..random.below(4) {
        let len = random.below(buffer.len());
        let _ = write::pwrite(task, fd, lent::bytes(&buffer[..len]), random.below(100_000) as i64);
    }
    if random.below(3) == 0
        && let Ok(id) = dup::dup(task, fd)
    {
        let other = task.table.lowest(3, 1000).expect("number");
        dup::install(task, other, id, 0).expect("install");
        let _ = close::close(task, other);
    }
    if random.below(4) == 0 {
        let mut lock = [0u8; 32];
        lock[0] = F_WRLCK as u8;
        let _ = record_lock::fcntl(task, fd, F_SETLK, lent::room(&mut lock).start());
    }
    // Some stay open, for the reaper.
    if random.below(20) != 0 {
        let _ = close::close(task, fd);
    }
}

/// The child: works until it is killed.
fn work(region: Region<'static>, slot: ProcessId, seed: u64) -> ! {
    let lane = fork::child(region, slot, 0).expect("lane");
    let task = Task::new(region, slot, lane, clock::now);
    let mut random = Random(seed | 1);
    let buffer = [seed as u8; 9000];
    loop {
        step(&task, &mut random, &buffer);
        if random.below(40) == 0 {
            // Otherwise the table fills with what stays open.
            close::close_range(&task, 0, u32::MAX);
        }
    }
}

/// The names in a directory, including `.` and `..`.
fn names(task: &Task, path: &str) -> Vec<String> {
    let path = format!("{path}\0");
    let fd = opened(task, lent::text(&path), O_RDONLY | O_DIRECTORY).expect("directory");
    let mut names = Vec::new();
    let mut buffer = [0u8; 4096];
    loop {
        let got = getdents::getdents64(task, fd, lent::room(&mut buffer)).expect("getdents64");
        if got == 0 {
            break;
        }
        let mut at = 0;
        while at < got {
            let length = u16::from_ne_bytes([buffer[at + 16], buffer[at + 17]]) as usize;
            let name = buffer[at + 19..].split(|byte| *byte == 0).next().expect("name");
            names.push(String::from_utf8(name.to_vec()).expect("utf-8"));
            at += length;
        }
    }
    close::close(task, fd).expect("close");
    names
}

fn attributes(task: &Task, path: &str) -> lp_abi::linux::stat {
    let path = format!("{path}\0");
    // SAFETY: a structure of integers, for which zeros are valid.
    let mut to: lp_abi::linux::stat = unsafe { std::mem::zeroed() };
    let place = stat::fstatat(task, Fd::CWD, lent::text(&path), lent::value(&mut to), AT_SYMLINK_NOFOLLOW);
    assert_eq!(place, Ok(Place::Inside(())), "{path}");
    to
}

/// The contents of a tree.
#[derive(Default)]
struct Census {
    /// Links found and `st_nlink`, by inode number.
    links: std::collections::HashMap<u64, (u64, u64)>,
    entries: u64,
    long: u64,
}

impl Census {
    /// Counts what is below `path`, and checks that each name in a directory is found by name, and only once.
    fn count(&mut self, task: &Task, path: &str) {
        let mut seen = names(task, path);
        assert!(seen.iter().any(|name| name == ".") && seen.iter().any(|name| name == ".."));
        seen.retain(|name| name != "." && name != "..");
        let distinct: std::collections::HashSet<_> = seen.iter().collect();
        assert_eq!(distinct.len(), seen.len(), "{path}: a name twice");
        let mut directories = 0;
        for name in &seen {
            let child = format!("{path}/{name}");
            let found = attributes(task, &child);
            self.entries += 1;
            self.long += u64::from(name.len() > lp_region::records::SHORT_NAME);
            let links = self.links.entry(found.st_ino).or_insert((0, found.st_nlink));
            links.0 += 1;
            if found.st_mode & S_IFMT == S_IFDIR {
                directories += 1;
                assert_eq!(links.0, 1, "{child}: a directory with two names");
                links.0 = found.st_nlink; // Checked below, where its entries are.
                self.count(task, &child);
            }
        }
        let me = attributes(task, path);
        assert_eq!(me.st_nlink, 2 + directories, "{path}: links of a directory");
        assert_eq!(me.st_size, 40 + 20 * seen.len() as i64, "{path}: size");
    }
}

/// Inodes in use to which no name leads: number, mode, links, flags.
fn nameless(task: &Task, census: &Census) -> Vec<(u32, u32, u32, u32)> {
    let head = &task.region.header().slabs[Inode::SLAB];
    let mut free = std::collections::HashSet::new();
    let mut next = head.top();
    while next != 0 {
        free.insert(next);
        next = task.region.slot::<Inode>(next).link().load(Ordering::Relaxed);
    }
    for lane in 1..task.region.header().lane_limit.load(Ordering::Relaxed) {
        let cache = &task.region.lane(LaneId(lane)).caches[Inode::SLAB];
        let count = cache.count.load(Ordering::Relaxed) as usize;
        free.extend(cache.slots[..count].iter().map(|slot| slot.load(Ordering::Relaxed)));
    }
    let word = |word: &lp_region::sync::AtomicU32| word.load(Ordering::Relaxed);
    (2..=head.last())
        .filter(|index| !free.contains(index) && !census.links.contains_key(&u64::from(*index)))
        .map(|index| (index, task.region.slot::<Inode>(index)))
        .map(|(index, inode)| (index, word(&inode.mode), word(&inode.nlink), word(&inode.flags)))
        .collect()
}

/// Inodes that are on the free list and in caches more than once.
fn twice(task: &Task) -> Vec<(u32, usize, u32, u32)> {
    let head = &task.region.header().slabs[Inode::SLAB];
    let mut all = Vec::new();
    let mut next = head.top();
    while next != 0 && all.len() < 1 << 20 {
        all.push((next, 0));
        next = task.region.slot::<Inode>(next).link().load(Ordering::Relaxed);
    }
    for lane in 1..task.region.header().lane_limit.load(Ordering::Relaxed) as usize {
        let cache = &task.region.lane(LaneId(lane as u32)).caches[Inode::SLAB];
        let count = cache.count.load(Ordering::Relaxed) as usize;
        all.extend(cache.slots[..count].iter().map(|slot| (slot.load(Ordering::Relaxed), lane)));
    }
    all.sort_unstable();
    let mut found = Vec::new();
    for pair in all.windows(2) {
        if pair[0].0 == pair[1].0 {
            let record = task.region.slot::<Inode>(pair[0].0);
            found.push((
                pair[0].0,
                pair[0].1 * 10000 + pair[1].1,
                record.custody.get(),
                record.generation.load(Ordering::Relaxed),
            ));
        }
    }
    found
}

/// Checks, with nobody else active, that names, links and slots agree.
fn check(task: &Task, round: u32) {
    reclaim::dead(task);
    for _ in 0..2 {
        reclaim::run(task);
    }
    let mut census = Census::default();
    census.count(task, "/light");
    for (inode, (found, says)) in &census.links {
        assert_eq!(found, says, "round {round}: links of inode {inode}");
    }
    if task.region.in_use::<Inode>() != census.links.len() as u64 + 1 {
        panic!(
            "round {round}: {} inodes in use, {} named; nothing names {:?}; free twice: {:?}",
            task.region.in_use::<Inode>(),
            census.links.len() + 1,
            nameless(task, &census),
            twice(task)
        );
    }
    assert_eq!(task.region.in_use::<Dirent>(), census.entries, "round {round}: entries");
    assert_eq!(task.region.in_use::<LongName>(), census.long, "round {round}: long names");
    assert_eq!(task.region.in_use::<OpenFile>(), 0, "round {round}: open files");
    assert_eq!(task.region.in_use::<LockRecord>(), 0, "round {round}: locks");
    assert_eq!(task.region.processes().count(), 1, "round {round}: processes");
    assert_eq!(task.region.lanes().count(), 1, "round {round}: lanes");
    lp_fsck::check(task.region, task.process_id).expect_sound(&format!("round {round}"));
}

fn remove_all(task: &Task, path: &str) {
    for name in names(task, path) {
        if name == "." || name == ".." {
            continue;
        }
        let child = format!("{path}/{name}");
        let is_dir = attributes(task, &child).st_mode & S_IFMT == S_IFDIR;
        if is_dir {
            remove_all(task, &child);
        }
        let text = format!("{child}\0");
        let flags = if is_dir { AT_REMOVEDIR } else { 0 };
        assert_eq!(
            unlink::unlinkat(task, Fd::CWD, lent::text(&text), flags),
            Ok(Place::Inside(())),
            "{child}"
        );
    }
}

fn make_directories(task: &Task) {
    for dir in DIRECTORIES {
        let text = format!("{dir}\0");
        let _ = mkdir::mkdirat(task, Fd::CWD, lent::text(&text), 0o755);
    }
}

fn start(task: &Task<'static>, seed: u64) -> (i32, ProcessId) {
    let slot = fork::before(task).expect("slot");
    let announced = fork::announce_at(task.region, slot);
    let flags = SIGCHLD | CLONE_PARENT_SETTID;
    // SAFETY: the child uses no lock and no memory of this process's other threads.
    let pid = unsafe { syscall!(__NR_clone, flags, 0, announced, 0, 0) }.expect("clone");
    if pid == 0 {
        work(task.region, slot, seed);
    }
    (pid as i32, slot)
}

fn kill(pid: i32) {
    let mut status = 0i32;
    // SAFETY: kill(2) and wait4(2) for a child of this process.
    unsafe {
        syscall!(__NR_kill, pid, SIGKILL).expect("kill");
        syscall!(__NR_wait4, pid, &raw mut status, 0, 0).expect("wait4");
    }
    assert_eq!(status & 0x7f, SIGKILL as i32, "the child ended by itself: {status:#x}");
}

#[test]
fn killed_processes_leave_nothing_behind() {
    // SAFETY: the name is NUL-terminated.
    let fd = unsafe { syscall!(__NR_memfd_create, c"crash".as_ptr(), 0) }.expect("memfd") as i32;
    let fd = lp_region::life_file::beside(Fd::new(fd)).expect("life");
    let geometry = Geometry { data_bytes: 8 << 20, inodes: 10_000, identity: 7 };
    let region = Region::create(fd, &geometry).expect("region");
    let setup = boot::RunSetup { mounts: &[b"/light"], ..boot::RunSetup::default() };
    let run = boot::claim_run(region, &setup).expect("run");
    let process = boot::claim_process(region, run).expect("process");
    let lane = boot::attach(region, process, 1).expect("attach");
    let task = Task::new(region, process, lane, clock::now);
    boot::arrive(&task);
    boot::mkfs(&task, 0).expect("mkfs");
    let empty = page::free_count(region);

    let rounds = std::env::var("LIGHTPATH_CRASH_ROUNDS").map_or(ROUNDS, |n| n.parse().expect("a number"));
    let seed = std::env::var("LIGHTPATH_CRASH_SEED").map_or(1, |n| n.parse().expect("a number"));
    let mut random = Random(seed);
    let buffer = [9u8; 9000];
    for round in 0..rounds {
        make_directories(&task);
        let children = [start(&task, random.0 ^ 0x5555), start(&task, random.0 ^ 0xaaaa)];
        for (pid, _) in children {
            std::thread::sleep(Duration::from_micros(100 + random.below(3000) as u64));
            kill(pid);
            // The first one is dead and not reaped; the second runs or is dead. Calls must still complete.
            for _ in 0..20 {
                let begun = Instant::now();
                step(&task, &mut random, &buffer);
                assert!(begun.elapsed() < PATIENCE, "round {round}: a call hung");
            }
        }
        close::close_range(&task, 0, u32::MAX);
        check(&task, round);
        if round % 10 == 9 {
            remove_all(&task, "/light");
            for _ in 0..2 {
                reclaim::run(&task);
            }
            assert_eq!(task.region.in_use::<Inode>(), 1, "round {round}");
            // An empty directory may keep the page for its next entry.
            let root = boot::root(&task, 0).expect("root").id;
            let kept = map::count(region, region.inode(root));
            assert!(kept <= 1, "round {round}: {kept} pages in an empty directory");
            assert_eq!(page::free_count(region) + kept, empty, "round {round}: pages");
        }
    }
}
