//! Short calls by two threads on the same names and the same file: for Miri, which finds races by rule
//! instead of by chance.

use std::ffi::CStr;

use lp_abi::linux::*;
use lp_abi::{Errno, Fd};
use lp_region::sync::Ordering;
use lp_region::{Region, RunId};
use lp_vfs::open::Opened;
use lp_vfs::walk::Follow;
use lp_vfs::{Place, Task, close, link, mkdir, open, rename, unlink, walk};

mod setup;
use setup::Fixture;
use setup::lent;

const ROUNDS: u32 = if cfg!(miri) { 3 } else { 300 };

/// Two threads, each its own process as far as the file system can see, make `calls` concurrently.
fn side_by_side(fixture: &Fixture, calls: [fn(&Task); 2]) {
    let region: Region<'static> = fixture.task.region;
    let run = RunId(fixture.task.process.run.load(Ordering::Relaxed));
    std::thread::scope(|scope| {
        for calls in calls {
            scope.spawn(move || {
                let task = setup::another(region, run);
                (0..ROUNDS).for_each(|_| calls(&task));
            });
        }
    });
}

/// Accepts success and the listed errors for a call beside another thread's.
#[track_caller]
fn may_fail<T: core::fmt::Debug>(done: lp_abi::Result<T>, errors: &[Errno]) {
    assert!(done.as_ref().err().is_none_or(|errno| errors.contains(errno)), "{done:?}");
}

fn make(task: &Task, path: &CStr) {
    let made = open::openat(task, Fd::CWD, lent::path(path), O_CREAT | O_RDWR, 0o644);
    if let Ok(Place::Inside(Opened::File(id))) = made {
        let fd = task.table.lowest(0, 64).expect("a number");
        lp_vfs::table::install(task, fd, id, 0).expect("installed");
        close::close(task, fd).expect("closed");
    }
}

fn look(task: &Task, path: &CStr) {
    may_fail(walk::inode(task, Fd::CWD, lent::path(path), Follow::Link), &[Errno::ENOENT]);
}

fn remove(task: &Task, path: &CStr) {
    may_fail(unlink::unlinkat(task, Fd::CWD, lent::path(path), 0), &[Errno::ENOENT]);
}

const ONE: &CStr = c"/light/one";
const LONG: &CStr = c"/light/a name that does not fit an entry by itself";

#[test]
fn names_come_and_go() {
    let fixture = Fixture::private(4 << 20);
    let changes = |task: &Task| {
        make(task, ONE);
        let (from, to) = (lent::path(ONE), lent::path(LONG));
        may_fail(rename::renameat2(task, Fd::CWD, from, Fd::CWD, to, 0), &[Errno::ENOENT]);
        remove(task, LONG);
    };
    let looks = |task: &Task| {
        look(task, ONE);
        look(task, LONG);
    };
    side_by_side(&fixture, [changes, changes]);
    side_by_side(&fixture, [changes, looks]);
}

#[test]
fn links_and_directories_come_and_go() {
    let fixture = Fixture::private(4 << 20);
    make(&fixture.task, ONE);
    let links = |task: &Task| {
        let (from, to) = (lent::path(ONE), lent::path(c"/light/two"));
        may_fail(link::linkat(task, Fd::CWD, from, Fd::CWD, to, 0), &[Errno::EEXIST, Errno::ENOENT]);
        remove(task, c"/light/two");
    };
    let directories = |task: &Task| {
        may_fail(mkdir::mkdirat(task, Fd::CWD, lent::path(c"/light/dir"), 0o755), &[Errno::EEXIST]);
        look(task, c"/light/dir/../two");
        may_fail(unlink::unlinkat(task, Fd::CWD, lent::path(c"/light/dir"), AT_REMOVEDIR), &[Errno::ENOENT]);
    };
    side_by_side(&fixture, [links, directories]);
    side_by_side(&fixture, [links, links]);
}
