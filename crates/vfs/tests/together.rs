//! Threads that change and look up names concurrently: invariants must hold throughout, and all rules
//! afterwards.

use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lp_abi::linux::*;
use lp_abi::{Errno, Fd};
use lp_region::{Geometry, Region, RunId};
use lp_vfs::open::Opened;
use lp_vfs::walk::{Follow, Found};
use lp_vfs::{
    Place, Task, boot, close, getdents, link, mkdir, mknod, open, reclaim, rename, symlink, table, unlink,
    walk,
};

mod setup;
use setup::{Random, another, fsck, lent};

const TIME: Duration = Duration::from_secs(3);

fn c(path: &str) -> CString {
    CString::new(path).unwrap()
}

/// A region and its run, with the first task.
fn first() -> (Region<'static>, RunId, Task<'static>) {
    let geometry = Geometry { data_bytes: 64 << 20, inodes: 100_000, identity: 3 };
    let region = Region::create_private(&geometry).expect("region");
    let setup = boot::RunSetup { mounts: &[b"/light"], ..boot::RunSetup::default() };
    let run = boot::claim_run(region, &setup).expect("run");
    let task = another(region, run);
    boot::mkfs(&task, 0).expect("mkfs");
    (region, run, task)
}

fn found(task: &Task, path: &str) -> Result<Found, Errno> {
    match walk::inode(task, Fd::CWD, lent::path(&c(path)), Follow::Link)? {
        Place::Inside(found) => Ok(found),
        Place::Outside(outside) => panic!("{outside:?}"),
    }
}

fn moved(task: &Task, old: &str, new: &str, flags: u32) {
    let _ = rename::renameat2(task, Fd::CWD, lent::path(&c(old)), Fd::CWD, lent::path(&c(new)), flags);
}

/// Makes one of the calls that change names, on few names, so that they collide.
fn change(task: &Task, random: &mut Random) {
    const NAMES: [&str; 7] = ["a", "b", "c", "a/x", "a/a", "b/a", "a/b/a-name-that-does-not-fit-in-an-entry"];
    let path = |random: &mut Random| c(&format!("/light/w/{}", NAMES[random.below(NAMES.len())]));
    let (one, other) = (path(random), path(random));
    let (one, other) = (lent::path(&one), lent::path(&other));
    match random.below(10) {
        0 | 1 => drop(mkdir::mkdirat(task, Fd::CWD, one, 0o777)),
        2 => drop(mknod::mknodat(task, Fd::CWD, one, S_IFREG | 0o644, 0)),
        3 => drop(symlink::symlinkat(task, lent::path(c"../a"), Fd::CWD, one)),
        4 => drop(link::linkat(task, Fd::CWD, one, Fd::CWD, other, 0)),
        5 => drop(unlink::unlink(task, Fd::CWD, one)),
        6 => drop(unlink::rmdir(task, Fd::CWD, one)),
        7 => drop(rename::renameat2(task, Fd::CWD, one, Fd::CWD, other, RENAME_EXCHANGE)),
        _ => drop(rename::renameat2(task, Fd::CWD, one, Fd::CWD, other, 0)),
    }
}

fn list(task: &Task, path: &str, names: &mut Vec<String>) {
    let Ok(Place::Inside(Opened::File(id))) =
        open::openat(task, Fd::CWD, lent::path(&c(path)), O_DIRECTORY, 0)
    else {
        return;
    };
    table::install(task, Fd::new(3), id, 0).expect("install");
    let mut buffer = [0u8; 300];
    while let Ok(got @ 1..) = getdents::getdents64(task, Fd::new(3), lent::room(&mut buffer)) {
        let mut at = 0;
        while at < got {
            let length = u16::from_le_bytes([buffer[at + 16], buffer[at + 17]]) as usize;
            let name = buffer[at + 19..at + length].split(|byte| *byte == 0).next().unwrap();
            names.push(String::from_utf8(name.to_vec()).expect("a name, whole"));
            at += length;
        }
    }
    close::close(task, Fd::new(3)).expect("close");
}

/// Ends the tests with a message if they hang, as they do when two changes wait for each other's locks.
struct Watchdog(Arc<AtomicBool>);

impl Watchdog {
    fn start() -> Watchdog {
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        std::thread::spawn(move || {
            std::thread::sleep(20 * TIME);
            if !seen.load(Ordering::Relaxed) {
                eprintln!("the changes wait for each other: a ring of locks");
                std::process::abort();
            }
        });
        Watchdog(done)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn everybody_changes_the_same_names() {
    let _watchdog = Watchdog::start();
    let (region, run, task) = first();
    for dir in ["/light/w", "/light/still"] {
        mkdir::mkdirat(&task, Fd::CWD, lent::path(&c(dir)), 0o777).unwrap();
    }
    for number in 0..200 {
        mknod::mknodat(&task, Fd::CWD, lent::path(&c(&format!("/light/still/{number}"))), 0o644, 0).unwrap();
    }
    let end = Instant::now() + TIME;
    std::thread::scope(|scope| {
        for seed in 1..=4 {
            let task = another(region, run);
            scope.spawn(move || {
                let mut random = Random(seed * 77 + 1);
                let mut names = Vec::new();
                while Instant::now() < end {
                    (0..50).for_each(|_| change(&task, &mut random));
                    names.clear();
                    list(&task, "/light/w", &mut names);
                    // An insert that makes the table split must not hide existing names.
                    let own = format!("/light/still/{seed}-{}", random.below(3000));
                    let _ = mknod::mknodat(&task, Fd::CWD, lent::path(&c(&own)), 0o644, 0);
                    found(&task, &format!("/light/still/{}", random.below(200))).expect("stands still");
                    assert_eq!(found(&task, "/light/still/none"), Err(Errno::ENOENT));
                }
            });
        }
    });
    let root = boot::root(&task, 0).unwrap().id;
    reclaim::run(&task);
    fsck::check(&task, root);
}

/// Directories that move into each other concurrently: some of these moves would close a ring.
#[test]
fn directories_that_move_at_once_close_no_ring() {
    const COUNT: usize = 6;
    let _watchdog = Watchdog::start();
    let (region, run, task) = first();
    let name = |number: usize| c(&format!("n{number}"));
    for number in 0..COUNT {
        mkdir::mkdirat(&task, Fd::CWD, lent::path(&c(&format!("/light/n{number}"))), 0o777).unwrap();
    }
    let open = |task: &Task, fd: Fd, path: &str| {
        let opened = open::openat(task, Fd::CWD, lent::path(&c(path)), O_DIRECTORY, 0).unwrap();
        let Place::Inside(Opened::File(id)) = opened else { panic!("{path} is ours") };
        table::install(task, fd, id, 0).expect("install");
    };
    // The root is the last.
    let movers: Vec<Task> = (0..4).map(|_| another(region, run)).collect();
    for task in &movers {
        (0..COUNT).for_each(|number| open(task, Fd::new(3 + number as i32), &format!("/light/n{number}")));
        open(task, Fd::new(3 + COUNT as i32), "/light");
    }
    let end = Instant::now() + TIME;
    let refused = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for (seed, task) in movers.iter().enumerate() {
            let task = Whole(task);
            let refused = &refused;
            scope.spawn(move || {
                let task = task;
                let task = task.0;
                let mut random = Random(seed as u64 * 91 + 5);
                while Instant::now() < end {
                    let (one, other) = (name(random.below(COUNT)), name(random.below(COUNT)));
                    let [from, to] = [(); 2].map(|()| Fd::new(3 + random.below(COUNT + 1) as i32));
                    let (other, flags) = if random.below(4) == 0 {
                        (&other, RENAME_EXCHANGE)
                    } else {
                        (&one, RENAME_NOREPLACE)
                    };
                    let moved = rename::renameat2(task, from, lent::path(&one), to, lent::path(other), flags);
                    refused.fetch_add(u32::from(moved.err() == Some(Errno::EINVAL)), Ordering::Relaxed);
                }
            });
        }
    });
    assert_ne!(refused.into_inner(), 0, "some moves would close a ring");
    let found = fsck::check(&task, boot::root(&task, 0).unwrap().id);
    assert_eq!(found.tree.len(), COUNT, "{:?}", found.tree);
    assert_eq!(region.header().tree.read() & 1, 0, "nobody changes the tree's shape");
}

/// A task that one thread uses at a time.
struct Whole<'t>(&'t Task<'static>);
// SAFETY: one thread uses the task at a time.
unsafe impl Send for Whole<'_> {}

#[test]
fn a_rename_is_one_event() {
    let _watchdog = Watchdog::start();
    let (region, run, task) = first();
    for name in ["one", "two", "spare"] {
        mknod::mknodat(&task, Fd::CWD, lent::path(&c(&format!("/light/{name}"))), 0o644, 0).unwrap();
    }
    for dir in ["/light/d", "/light/e"] {
        mkdir::mkdirat(&task, Fd::CWD, lent::path(&c(dir)), 0o777).unwrap();
    }
    mknod::mknodat(&task, Fd::CWD, lent::path(&c("/light/d/inside")), 0o644, 0).unwrap();
    let (one, two) = (found(&task, "/light/one").unwrap().inode, found(&task, "/light/two").unwrap().inode);
    moved(&task, "/light/spare", "/light/always", 0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let task = another(region, run);
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    // It is replaced repeatedly, but must never be absent.
                    found(&task, "/light/always").expect("a name that is replaced is there");
                    // Exchanged repeatedly: each name must always have one of the two.
                    for name in ["/light/one", "/light/two"] {
                        let inode = found(&task, name).expect("a name that is swapped is there").inode;
                        assert!(inode == one || inode == two);
                    }
                    let up = found(&task, "/light/wander/..");
                    assert!(matches!(up, Ok(_) | Err(Errno::ENOENT)), "{up:?}");
                }
            });
        }
        mkdir::mkdirat(&task, Fd::CWD, lent::path(&c("/light/d/wander")), 0o777).unwrap();
        let end = Instant::now() + TIME;
        while Instant::now() < end {
            mknod::mknodat(&task, Fd::CWD, lent::path(&c("/light/new")), 0o644, 0).unwrap();
            moved(&task, "/light/new", "/light/always", 0);
            moved(&task, "/light/one", "/light/two", RENAME_EXCHANGE);
            moved(&task, "/light/d/wander", "/light/wander", 0);
            moved(&task, "/light/wander", "/light/d/wander", 0);
        }
        done.store(true, Ordering::Relaxed);
    });
    fsck::check(&task, boot::root(&task, 0).unwrap().id);
}

/// Number of files without names, more than a lane's list holds, so that some go to its chain.
const KEPT: usize = 60;
/// Most rounds; they end earlier once [`TIME`] is over, as barriers take long where processors are shared.
const ROUNDS: usize = 10_000;

/// Creates files without names, makes them go to the lane's chain, and closes them, which leaves husks for
/// the lane to remove. No inode may belong to two files at once.
fn keep_and_close(task: &Task) {
    let end = Instant::now() + TIME;
    for round in (0..ROUNDS).take_while(|_| Instant::now() < end) {
        let path = c(&format!("/light/{}", task.process_id.0));
        let mut inodes = std::collections::BTreeSet::new();
        for fd in (0..KEPT as i32).map(Fd::new) {
            let opened = open::openat(task, Fd::CWD, lent::path(&path), O_RDWR | O_CREAT | O_EXCL, 0o600);
            let Ok(Place::Inside(Opened::File(id))) = opened else { panic!("round {round}: {opened:?}") };
            table::install(task, fd, id, 0).expect("install");
            inodes.insert(task.fget(fd).expect("open").inode_id().0);
            unlink::unlink(task, Fd::CWD, lent::path(&path)).expect("unlink");
        }
        assert_eq!(inodes.len(), KEPT, "round {round}: an inode is two files");
        reclaim::run(task);
        for fd in (0..KEPT as i32).map(Fd::new) {
            close::close(task, fd).expect("close");
        }
        reclaim::run(task);
    }
}

#[test]
fn sweeps_look_at_a_chain_while_its_lane_takes_husks_out() {
    let _watchdog = Watchdog::start();
    let (region, run, task) = first();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (task, done) = (another(region, run), &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    reclaim::run(&task);
                }
            });
        }
        let keepers = [(); 2].map(|()| {
            let task = another(region, run);
            scope.spawn(move || keep_and_close(&task))
        });
        let kept = keepers.map(std::thread::ScopedJoinHandle::join);
        done.store(true, Ordering::Relaxed);
        kept.into_iter().for_each(|one| one.expect("a keeper"));
    });
    reclaim::run(&task);
    fsck::check(&task, boot::root(&task, 0).unwrap().id);
}
