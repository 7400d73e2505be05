//! Remounts: exact, and cancelled by writers if the remounter does not return.

mod setup;

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use lp_abi::linux::{O_CREAT, O_RDONLY, O_RDWR};
use lp_abi::{Errno, Fd, Result};
use lp_region::mount::mount_flags::{READ_ONLY, SB_READ_ONLY, SHUTTING};
use lp_region::sync::Ordering;
use lp_vfs::open::Opened;
use lp_vfs::task::Place;
use lp_vfs::writer::{self, RemountTarget};
use lp_vfs::{Task, boot, chmod, close, open, table};
use setup::Fixture;
use setup::lent;

fn opened(task: &Task, path: &str, flags: u32) -> Result<Fd> {
    let path = CString::new(path).unwrap();
    match open::openat(task, Fd::CWD, lent::path(&path), flags, 0o600)? {
        Place::Inside(Opened::File(id)) => {
            let fd = task.table.lowest(0, 1024)?;
            table::install(task, fd, id, 0).map(|()| fd)
        }
        other => panic!("{other:?}"),
    }
}

fn change(task: &Task, path: &str) -> Result<()> {
    let path = CString::new(path).unwrap();
    chmod::fchmodat(task, Fd::CWD, lent::path(&path), 0o640, 0).map(|_| ())
}

fn shut(task: &Task, what: RemountTarget) -> Result<()> {
    writer::shut(task, what, |_, was| Some(was | what.bit()))
}

fn reopen(task: &Task, what: RemountTarget) {
    writer::open(task, what);
}

/// What can be made read-only: the mount, and the file system.
fn both(task: &Task) -> [RemountTarget; 2] {
    [RemountTarget::mount(boot::root_spot(task, 0).unwrap().mount), RemountTarget::Superblock(0)]
}

#[test]
fn remount_shuts_writers_out() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    for what in both(task) {
        let fd = opened(task, "/light/f", O_RDWR | O_CREAT).unwrap();
        assert_eq!(shut(task, what), Err(Errno::EBUSY));
        assert_eq!(change(task, "/light/f"), Ok(()));
        close::close(task, fd).unwrap();
        assert_eq!(shut(task, what), Ok(()));
        assert_eq!(opened(task, "/light/f", O_RDWR), Err(Errno::EROFS));
        assert_eq!(opened(task, "/light/g", O_RDWR | O_CREAT), Err(Errno::EROFS));
        assert_eq!(change(task, "/light/f"), Err(Errno::EROFS));
        let fd = opened(task, "/light/f", O_RDONLY).unwrap();
        assert_eq!(task.lane.writing_depth.load(Ordering::Relaxed), 0);
        assert_eq!(task.lane.writing.load(Ordering::Relaxed), 0);
        reopen(task, what);
        close::close(task, fd).unwrap();
        assert_eq!(change(task, "/light/f"), Ok(()));
    }
}

#[test]
fn a_mount_whose_flags_may_not_change_stays_open() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    for what in both(task) {
        assert_eq!(writer::shut(task, what, |_, _| None), Err(Errno::EPERM));
        let fd = opened(task, "/light/f", O_RDWR | O_CREAT).unwrap();
        close::close(task, fd).unwrap();
        // A remount that fails leaves read-only what another has made so.
        assert_eq!(shut(task, what), Ok(()));
        assert_eq!(writer::shut(task, what, |_, _| None), Err(Errno::EPERM));
        assert_eq!(change(task, "/light/f"), Err(Errno::EROFS));
        reopen(task, what);
    }
}

/// A remounter that died, or is stopped, between its first step and its last.
#[test]
fn a_remount_that_stays_on_its_way_shuts_nobody_out() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    let fd = opened(task, "/light/f", O_RDWR | O_CREAT).unwrap();
    let mount = boot::root_spot(task, 0).unwrap().mount;
    let flags = &task.region.mount(mount).flags;
    flags.fetch_or(SHUTTING, Ordering::SeqCst);
    assert_eq!(change(task, "/light/f"), Ok(()));
    assert_eq!(flags.load(Ordering::SeqCst) & (SHUTTING | READ_ONLY | SB_READ_ONLY), 0);
    close::close(task, fd).unwrap();
}

/// Writers count their changes. Once the mount is shut, the count must not change.
#[test]
fn nothing_changes_once_a_remount_returns() {
    let fixture = Fixture::private(1 << 20);
    let task = &fixture.task;
    let fd = opened(task, "/light/f", O_RDWR | O_CREAT).unwrap();
    close::close(task, fd).unwrap();
    let (done, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let writers: Vec<Task<'static>> = (0..2)
        .map(|_| setup::another(task.region, lp_region::RunId(task.process.run.load(Ordering::Relaxed))))
        .collect();
    let mount = boot::root_spot(task, 0).unwrap().mount;
    thread::scope(|scope| {
        for writer in writers {
            let (done, count) = (&done, &count);
            // SAFETY: only this thread uses the task.
            let writer = setup::Sent(writer);
            scope.spawn(move || {
                let writer = writer;
                while !done.load(SeqCst) {
                    if let Ok(writing) = writer::begin(&writer.0, mount) {
                        count.fetch_add(1, SeqCst);
                        count.fetch_add(1, SeqCst);
                        drop(writing);
                    }
                }
            });
        }
        let mut shuts = 0;
        for turn in 0..2000 {
            let what = both(task)[turn % 2];
            if shut(task, what).is_ok() {
                shuts += 1;
                let before = count.load(SeqCst);
                for _ in 0..200 {
                    std::hint::spin_loop();
                }
                assert_eq!(count.load(SeqCst), before);
                assert_eq!(before % 2, 0);
                reopen(task, what);
            }
        }
        done.store(true, SeqCst);
        assert!(shuts > 0);
    });
}

/// A process was stopped, or died, between the exchange that makes its change and the first step of it.
#[test]
fn a_launcher_finishes_a_change_that_is_under_way() {
    let fixture = Fixture::private(1 << 20);
    let (task, region) = (&fixture.task, fixture.task.region);
    let stopped = setup::another(region, lp_region::RunId(task.process.run.load(Ordering::Relaxed)));
    let header = region.header();
    let joining = header.mount_limit.fetch_add(1, Ordering::SeqCst) + 1;
    let record = region.mount(lp_region::MountId(joining));
    record.run.store(task.process.run.load(Ordering::Relaxed), Ordering::SeqCst);
    record.maker.store(stopped.lane_id.0, Ordering::SeqCst);
    region.mount_plan(stopped.lane_id)[0].store(1 << joining, Ordering::SeqCst);
    let turn = header.mount_turn.load(Ordering::SeqCst);
    header.mount_turn.store(turn | u64::from(stopped.lane_id.0), Ordering::SeqCst);

    let setup = boot::RunSetup { mounts: &[b"/light"], ..boot::RunSetup::default() };
    let run = boot::claim_run(region, &setup).unwrap();
    let launcher = setup::another(region, run);
    boot::mkfs(&launcher, 0).unwrap();
    assert_eq!(header.mount_turn.load(Ordering::SeqCst) as u32, 0);
    // It has joined, and has left again with all mounts of its run, which nobody holds here.
    assert_eq!(record.state().kind(), lp_region::mount::mount_state::DETACHED);
    assert!(boot::root_spot(&launcher, 0).is_ok());
}
