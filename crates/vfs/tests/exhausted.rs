//! A file system without a free inode, used by several processes.

use std::ffi::CString;

use lp_abi::linux::*;
use lp_abi::{Errno, Fd};
use lp_region::records::Inode;
use lp_region::{Geometry, Region};
use lp_vfs::open::Opened;
use lp_vfs::{Place, Task, boot, file, open, reclaim, unlink};

mod setup;
use setup::{another, lent};

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
