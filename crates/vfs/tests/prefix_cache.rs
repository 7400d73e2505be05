//! Paths with a cached prefix must still lead where the tree says, after renames, removals and revoked
//! permissions.

use std::ffi::CString;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lp_abi::linux::*;
use lp_abi::{Errno, Fd, Result};
use lp_region::{Geometry, InodeId, Region};
use lp_vfs::walk::Follow;
use lp_vfs::{
    Place, Task, boot, chmod, clock, mkdir, mknod, open, rename, symlink, table, unlink, walk, xattr,
};

#[path = "setup/lent.rs"]
#[allow(dead_code, reason = "each test file uses a part")]
mod lent;

/// Process slots are claimed with the real process's credentials and umask, so only one test at a time may do
/// so.
static SETUP: Mutex<()> = Mutex::new(());

fn c(path: &str) -> CString {
    CString::new(path).unwrap()
}

/// A region and several processes on it, as far as the file system can see.
fn tasks<const N: usize>() -> [Task<'static>; N] {
    let _one = SETUP.lock().unwrap();
    let geometry = Geometry { data_bytes: 64 << 20, inodes: 100_000, identity: 3 };
    let region = Region::create_private(&geometry).expect("region");
    let setup = boot::RunSetup { mounts: &[b"/light"], ..boot::RunSetup::default() };
    let run = boot::claim_run(region, &setup).expect("run");
    let tasks = std::array::from_fn(|_| {
        let process = boot::claim_process(region, run).expect("process");
        let lane = boot::attach(region, process, 1).expect("attach");
        let task = Task::new(region, process, lane, clock::now);
        boot::arrive(&task);
        task
    });
    boot::mkfs(&tasks[0], 0).expect("mkfs");
    tasks
}

/// The inode that a path names.
fn find(task: &Task, path: &str) -> Result<InodeId> {
    match walk::inode(task, Fd::CWD, lent::path(&c(path)), Follow::Link)? {
        Place::Inside(found) => Ok(found.inode.id),
        Place::Outside(outside) => panic!("{path}: {outside:?}"),
    }
}

/// [`find`], with the prefix cached.
fn find_again(task: &Task, path: &str) -> Result<InodeId> {
    let _ = find(task, path);
    find(task, path)
}

fn dir(task: &Task, path: &str) {
    mkdir::mkdirat(task, Fd::CWD, lent::path(&c(path)), 0o755).expect(path);
}

fn file(task: &Task, path: &str) {
    mknod::mknodat(task, Fd::CWD, lent::path(&c(path)), S_IFREG | 0o644, 0).expect(path);
}

fn mv(task: &Task, old: &str, new: &str, flags: u32) {
    rename::renameat2(task, Fd::CWD, lent::path(&c(old)), Fd::CWD, lent::path(&c(new)), flags).expect(old);
}

/// Makes a task an ordinary user.
fn be_nobody(task: &Task) {
    for id in [&task.process.fsuid, &task.process.fsgid] {
        id.store(65534, Ordering::Relaxed);
    }
    task.process.caps.store(0, Ordering::Relaxed);
    task.process.group_count.store(0, Ordering::Relaxed);
}

#[test]
fn a_directory_that_moves_takes_its_names_along() {
    let [one, other] = tasks();
    for path in ["/light/d", "/light/d/e", "/light/a", "/light/a/e"] {
        dir(&one, path);
    }
    file(&one, "/light/d/e/f");
    let found = find_again(&one, "/light/d/e/f").unwrap();
    mv(&other, "/light/d", "/light/x", 0);
    assert_eq!(find_again(&one, "/light/d/e/f"), Err(Errno::ENOENT));
    assert_eq!(find_again(&one, "/light/x/e/f"), Ok(found));
    mv(&other, "/light/x", "/light/d", 0);
    assert_eq!(find_again(&one, "/light/d/e/f"), Ok(found));
    mv(&other, "/light/d", "/light/a", RENAME_EXCHANGE);
    assert_eq!(find_again(&one, "/light/d/e/f"), Err(Errno::ENOENT));
    assert_eq!(find_again(&one, "/light/a/e/f"), Ok(found));
    mv(&other, "/light/a/e", "/light/e", 0);
    assert_eq!(find_again(&one, "/light/a/e/f"), Err(Errno::ENOENT));
    assert_eq!(find_again(&one, "/light/e/f"), Ok(found));
}

#[test]
fn a_directory_that_is_made_anew_is_another() {
    let [one, other] = tasks();
    dir(&one, "/light/d");
    file(&one, "/light/d/f");
    find_again(&one, "/light/d/f").unwrap();
    // Held open, so that its slot is not reused.
    let Ok(Place::Inside(open::Opened::File(id))) =
        open::openat(&one, Fd::CWD, lent::path(&c("/light/d")), O_DIRECTORY, 0)
    else {
        panic!("open");
    };
    table::install(&one, Fd::new(3), id, 0).unwrap();
    for _ in 0..2 {
        unlink::unlink(&other, Fd::CWD, lent::path(&c("/light/d/f"))).unwrap();
        assert_eq!(find_again(&one, "/light/d/f"), Err(Errno::ENOENT));
        unlink::rmdir(&other, Fd::CWD, lent::path(&c("/light/d"))).unwrap();
        dir(&other, "/light/d");
        file(&other, "/light/d/f");
        assert_eq!(find(&one, "/light/d/f"), find(&other, "/light/d/f"));
    }
}

#[test]
fn permission_to_search_can_be_taken_away() {
    let [one, other] = tasks();
    be_nobody(&one);
    dir(&other, "/light/d");
    dir(&other, "/light/d/e");
    file(&other, "/light/d/e/f");
    let found = find_again(&one, "/light/d/e/f").unwrap();
    let chmod = |mode| chmod::fchmodat(&other, Fd::CWD, lent::path(&c("/light/d")), mode, 0).unwrap();
    chmod(0o700);
    assert_eq!(find_again(&one, "/light/d/e/f"), Err(Errno::EACCES));
    assert_eq!(find_again(&other, "/light/d/e/f"), Ok(found));
    chmod(0o755);
    assert_eq!(find_again(&one, "/light/d/e/f"), Ok(found));
    // An ACL with an entry for the user that grants nothing.
    let entries = [(1u16, 7u16, !0u32), (2, 0, 65534), (4, 5, !0), (0x10, 7, !0), (0x20, 5, !0)];
    let mut acl = 2u32.to_ne_bytes().to_vec();
    for (tag, perm, id) in entries {
        acl.extend(tag.to_ne_bytes());
        acl.extend(perm.to_ne_bytes());
        acl.extend(id.to_ne_bytes());
    }
    let value = xattr::XattrValue { bytes: lent::bytes(&acl), flags: 0 };
    let name = lent::path(c"system.posix_acl_access");
    xattr::setxattr(&other, Fd::CWD, lent::path(&c("/light/d")), 0, name, value).unwrap();
    assert_eq!(find_again(&one, "/light/d/e/f"), Err(Errno::EACCES));
}

#[test]
fn a_link_on_the_way_may_lead_elsewhere_the_next_time() {
    let [one, other] = tasks();
    for name in ["d", "e"] {
        dir(&one, &format!("/light/{name}"));
        file(&one, &format!("/light/{name}/f"));
    }
    let link = |target: &str| {
        let _ = unlink::unlink(&other, Fd::CWD, lent::path(&c("/light/l")));
        symlink::symlinkat(&other, lent::path(&c(target)), Fd::CWD, lent::path(&c("/light/l"))).unwrap();
    };
    for target in ["d", "e", "d"] {
        link(target);
        assert_eq!(find_again(&one, "/light/l/f"), find(&other, &format!("/light/{target}/f")));
    }
}

/// Tells the other thread to stop, even if an assertion fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_one_has_seen_moved_nobody_finds_in_the_old_place() {
    let [mover, reader, idle] = tasks();
    dir(&mover, "/light/d");
    file(&mover, "/light/d/f");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (done, idle) = (&done, idle);
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                for path in ["/light/d/f", "/light/e/f"] {
                    assert!(matches!(find(&idle, path), Ok(_) | Err(Errno::ENOENT)));
                }
            }
        });
        let _done = Done(done);
        let end = Instant::now() + Duration::from_secs(1);
        let (mut from, mut to) = ("d", "e");
        while Instant::now() < end {
            mv(&mover, &format!("/light/{from}"), &format!("/light/{to}"), 0);
            let seen = [from, to].map(|name| find(&reader, &format!("/light/{name}/f")));
            assert!(seen[0] == Err(Errno::ENOENT) && seen[1].is_ok(), "{seen:?}");
            (from, to) = (to, from);
        }
    });
}
