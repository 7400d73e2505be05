//! The restrictions of `fs.protected_*`, for each value that the sysctls can have: proc_sys_fs(5).

use std::ffi::CString;

use lp_abi::linux::*;
use lp_abi::{Errno, Fd, Result};
use lp_region::process::protections::{self, FIFOS, HARDLINKS, REGULAR, REGULAR_BY_GROUP, SYMLINKS};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{Geometry, Region};
use lp_vfs::open::Opened;
use lp_vfs::{Place, Task, boot, chmod, chown, clock, file, link, mkdir, mknod, open, symlink};

mod setup;
use setup::lent;

const THEIRS: u32 = 2000;
const NOBODY: u32 = 65534;

fn c(path: &str) -> CString {
    CString::new(path).unwrap()
}

/// A directory of user 1000 with a mode, and in it a file, a link to it and a FIFO of another user, seen by a
/// third.
fn world(protections: u64, mode: u32) -> Task<'static> {
    let geometry = Geometry { data_bytes: 1 << 20, inodes: 1000, identity: 3 };
    let region = Region::create_private(&geometry).expect("region");
    let setup = boot::RunSetup { mounts: &[b"/light"], protections, ..boot::RunSetup::default() };
    let run = boot::claim_run(region, &setup).expect("run");
    let process = boot::claim_process(region, run).expect("process");
    let lane = boot::attach(region, process, 1).expect("attach");
    let task = Task::new(region, process, lane, clock::now);
    boot::arrive(&task);
    boot::mkfs(&task, 0).expect("mkfs");
    let done = |done: Result<Place<()>>| assert_eq!(done, Ok(Place::Inside(())));
    task.process.umask.store(0, Relaxed);
    done(mkdir::mkdirat(&task, Fd::CWD, lent::path(&c("/light/d")), 0o777));
    done(mknod::mknodat(&task, Fd::CWD, lent::path(&c("/light/d/file")), S_IFREG | 0o666, 0));
    done(mknod::mknodat(&task, Fd::CWD, lent::path(&c("/light/d/own")), S_IFREG | 0o600, 0));
    done(mknod::mknodat(&task, Fd::CWD, lent::path(&c("/light/d/fifo")), S_IFIFO | 0o666, 0));
    done(symlink::symlinkat(&task, lent::path(&c("file")), Fd::CWD, lent::path(&c("/light/d/link"))));
    for (name, owner) in [("file", THEIRS), ("fifo", THEIRS), ("link", THEIRS), ("own", NOBODY), ("", 1000)] {
        let path = c(&format!("/light/d/{name}"));
        let path = if name.is_empty() { c("/light/d") } else { path };
        done(chown::fchownat(&task, Fd::CWD, lent::path(&path), owner, NOBODY, AT_SYMLINK_NOFOLLOW));
    }
    done(chmod::fchmodat(&task, Fd::CWD, lent::path(&c("/light/d")), mode, 0));
    for id in [&task.process.ruid, &task.process.fsuid, &task.process.fsgid] {
        id.store(NOBODY, Relaxed);
    }
    task.process.caps.store(0, Relaxed);
    task
}

fn opens(task: &Task, name: &str, flags: u32) -> Result<()> {
    let path = c(&format!("/light/d/{name}"));
    match open::openat(task, Fd::CWD, lent::path(&path), flags, 0o600)? {
        Place::Inside(Opened::File(id)) => file::discard(task, id),
        Place::Inside(_) => {}
        Place::Outside(_) => panic!("{name} is outside"),
    }
    Ok(())
}

#[test]
fn links_of_others_are_not_followed_in_sticky_directories() {
    for (protections, mode, expected) in [
        (SYMLINKS, 0o1777, Err(Errno::EACCES)),
        (0, 0o1777, Ok(())),
        (SYMLINKS, 0o777, Ok(())),
        (SYMLINKS, 0o1775, Ok(())),
    ] {
        let task = world(protections, mode);
        assert_eq!(opens(&task, "link", O_RDONLY), expected, "{protections} {mode:o}");
        assert_eq!(opens(&task, "file", O_RDONLY), Ok(()), "{protections} {mode:o}");
    }
}

#[test]
fn files_of_others_are_not_created_over_in_sticky_directories() {
    let both = REGULAR | REGULAR_BY_GROUP;
    for (protections, mode, expected) in [
        (REGULAR, 0o1777, Err(Errno::EACCES)),
        (0, 0o1777, Ok(())),
        (REGULAR, 0o777, Ok(())),
        (REGULAR, 0o1775, Ok(())),
        (both, 0o1775, Err(Errno::EACCES)),
        (both, 0o1755, Ok(())),
        (FIFOS, 0o1777, Ok(())),
    ] {
        let task = world(protections, mode);
        assert_eq!(opens(&task, "file", O_RDWR | O_CREAT), expected, "{protections} {mode:o}");
        assert_eq!(opens(&task, "file", O_RDWR), Ok(()), "{protections} {mode:o}");
        assert_eq!(opens(&task, "own", O_RDWR | O_CREAT), Ok(()), "{protections} {mode:o}");
    }
}

#[test]
fn fifos_of_others_are_not_opened_to_create_in_sticky_directories() {
    for (protections, expected) in
        [(FIFOS, Err(Errno::EACCES)), (0, Ok(())), (protections::FIFOS_BY_GROUP, Ok(()))]
    {
        let task = world(protections, 0o1777);
        assert_eq!(opens(&task, "fifo", O_RDWR | O_CREAT), expected, "{protections}");
        assert_eq!(opens(&task, "fifo", O_RDWR), Ok(()), "{protections}");
    }
}

#[test]
fn files_that_one_may_not_write_are_not_linked() {
    for (protections, expected) in [(HARDLINKS, Err(Errno::EPERM)), (0, Ok(link::Two::Done))] {
        let task = world(protections, 0o777);
        let (old, new) = (c("/light/d/fifo"), c("/light/d/new"));
        let made = link::linkat(&task, Fd::CWD, lent::path(&old), Fd::CWD, lent::path(&new), 0);
        assert_eq!(made, expected, "{protections}");
    }
}
