//! A file system without a free inode, used by several processes, and one without a free page.

use std::ffi::CString;

use lp_abi::linux::*;
use lp_abi::{Errno, Fd};
use lp_region::records::Inode;
use lp_region::{Geometry, Region};
use lp_vfs::open::Opened;
use lp_vfs::xattr::{self, XattrValue};
use lp_vfs::{Place, Task, boot, file, link, mkdir, open, page, reclaim, rename, table, unlink, write};

mod setup;
use setup::{Fixture, another, lent};

const INODES: u64 = 100;
const PROCESSES: usize = 4;

fn create(task: &Task, name: &CString) -> lp_abi::Result<()> {
    match open::openat(task, Fd::CWD, lent::path(name), O_WRONLY | O_CREAT | O_EXCL, 0o600)? {
        Place::Inside(Opened::File(id)) => file::discard(task, id),
        other => panic!("{other:?}"),
    }
    Ok(())
}

/// What one process frees is there for each of those that have found nothing.
#[test]
fn who_has_found_no_inode_gets_one_that_another_frees() {
    let geometry = Geometry { data_bytes: 1 << 20, inodes: INODES, identity: 4 };
    let region = Region::create_private(&geometry).expect("region");
    let setup = boot::RunSetup { mounts: &[b"/light"], ..boot::RunSetup::default() };
    let run = boot::claim_run(region, &setup).expect("run");
    let tasks: Vec<_> = (0..PROCESSES).map(|_| another(region, run)).collect();
    boot::mkfs(&tasks[0], 0).expect("mkfs");
    let names: Vec<_> = (0..INODES).map(|n| CString::new(format!("/light/{n}")).expect("name")).collect();
    let mut left = names.iter();
    let (mut made, mut full) = (0, [false; PROCESSES]);
    while !full.iter().all(|full| *full) {
        for (task, full) in tasks.iter().zip(&mut full) {
            match create(task, left.as_slice().first().expect("not more names than inodes")) {
                Ok(()) => {
                    left.next();
                    made += 1;
                }
                Err(Errno::ENOSPC) => *full = true,
                Err(errno) => panic!("{errno:?}"),
            }
        }
    }
    assert!(made < INODES as usize && region.in_use::<Inode>() <= INODES, "{made}");
    for name in &names[..made] {
        unlink::unlink(&tasks[0], Fd::CWD, lent::path(name)).expect("unlink");
    }
    reclaim::run(&tasks[0]);
    for (task, name) in tasks.iter().zip(&names) {
        create(task, name).expect("an inode for each");
    }
}

/// Removed files that nothing has looked at yet: fewer than justify a sweep.
const REMOVED: usize = 7;
const REMOVED_BYTES: usize = 32 << 10;

fn fill(task: &Task, name: &CString, most: usize) {
    let opened = open::openat(task, Fd::CWD, lent::path(name), O_WRONLY | O_CREAT, 0o600).expect("open");
    let Place::Inside(Opened::File(id)) = opened else { panic!("{opened:?}") };
    let fd = task.table.lowest(0, 1024).expect("descriptor");
    table::install(task, fd, id, 0).expect("install");
    let (bytes, mut left) = (vec![7; 4096], most);
    while left > 0 {
        match write::write(task, fd, lent::bytes(&bytes)) {
            Ok(done) => left -= done,
            Err(Errno::ENOSPC) => break,
            Err(errno) => panic!("{errno:?}"),
        }
    }
    lp_vfs::close::close(task, fd).expect("close");
}

type Call<'a> = &'a dyn Fn(&Task) -> lp_abi::Result<()>;

/// Any call gets the space of what was removed, not only those that write or make files.
#[test]
fn a_name_or_an_attribute_gets_the_space_of_removed_files() {
    const F: &std::ffi::CStr = c"/light/f";
    let value = vec![1; 20_000];
    let value = XattrValue { bytes: lent::bytes(&value), flags: 0 };
    let attribute = |task: &Task| {
        xattr::setxattr(task, Fd::CWD, lent::path(F), 0, lent::path(c"user.a"), value).map(drop)
    };
    let second = |task: &Task| {
        link::linkat(task, Fd::CWD, lent::path(F), Fd::CWD, lent::path(c"/light/d/l"), 0).map(drop)
    };
    let moved = |task: &Task| {
        rename::renameat2(task, Fd::CWD, lent::path(F), Fd::CWD, lent::path(c"/light/d/r"), 0).map(drop)
    };
    let calls: [(&str, Call); 3] = [("setxattr", &attribute), ("link", &second), ("rename", &moved)];
    for (call, perform) in calls {
        let fs = Fixture::private(1 << 20);
        let task = &fs.task;
        mkdir::mkdirat(task, Fd::CWD, lent::path(c"/light/d"), 0o700).expect("mkdir");
        create(task, &F.to_owned()).expect("a file");
        let removed: Vec<_> =
            (0..REMOVED).map(|n| CString::new(format!("/light/{n}")).expect("name")).collect();
        removed.iter().for_each(|name| fill(task, name, REMOVED_BYTES));
        fill(task, &c"/light/rest".to_owned(), usize::MAX);
        for name in &removed {
            unlink::unlink(task, Fd::CWD, lent::path(name)).expect("unlink");
        }
        assert_eq!(page::free_count(task.region), 0, "nothing has looked yet");
        perform(task).unwrap_or_else(|errno| panic!("{call}: {errno:?}"));
    }
}
