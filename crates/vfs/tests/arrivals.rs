//! References that arrive in a table while a sweep scans all tables: what they name must stay.

use std::sync::atomic::{AtomicBool, Ordering};

use lp_abi::Fd;
use lp_abi::linux::*;
use lp_region::layout::FDS;
use lp_region::records::Inode;
use lp_region::{FileId, Geometry, InodeRef, Region};
use lp_vfs::open::Opened;
use lp_vfs::{Place, Task, boot, clock, close, dup, open, reclaim, table, unlink};

mod setup;
use setup::{Random, another, fsck, lent};

const ROUNDS: usize = 50;
/// Processes with large tables, scanned after the one at which files arrive, so that a sweep takes long.
const CROWD: usize = 24;
const PATH: &std::ffi::CStr = c"/light/f";

struct Mine(Task<'static>);
// SAFETY: a task is used by one thread at a time.
unsafe impl Send for Mine {}

/// The participants.
struct Stage {
    /// The process at whose table files arrive.
    opener: Task<'static>,
    /// Another thread of that process.
    closer: Task<'static>,
    /// The process that sweeps.
    sweeper: Mine,
}

impl Stage {
    fn new() -> Stage {
        let geometry = Geometry { data_bytes: 1 << 20, inodes: 1000, identity: 4 };
        let region = Region::create_private(&geometry).expect("region");
        let setup = boot::RunSetup { mounts: &[b"/light"], ..boot::RunSetup::default() };
        let run = boot::claim_run(region, &setup).expect("run");
        let opener = another(region, run);
        boot::mkfs(&opener, 0).expect("mkfs");
        boot::before_thread(&opener);
        let lane = boot::thread_lane(region, opener.process_id, 2).expect("lane");
        let closer = Task::new(region, opener.process_id, lane, clock::now);
        for _ in 0..CROWD {
            another(region, run).process.fd_limit.store(FDS as u32, lp_region::sync::Ordering::Release);
        }
        Stage { opener, closer, sweeper: Mine(another(region, run)) }
    }

    fn open(&self) -> FileId {
        match open::openat(&self.opener, Fd::CWD, lent::path(PATH), O_RDWR | O_CREAT | O_EXCL, 0o600) {
            Ok(Place::Inside(Opened::File(id))) => id,
            other => panic!("{other:?}"),
        }
    }

    /// Runs a sweep, and `arrive` at some point during it.
    fn sweep_while(&self, random: &mut Random, arrive: impl FnOnce()) {
        let begun = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (sweeper, begun) = (&self.sweeper, &begun);
            let sweeper =
                Mine(Task::new(sweeper.0.region, sweeper.0.process_id, sweeper.0.lane_id, clock::now));
            scope.spawn(move || {
                let sweeper = sweeper;
                begun.store(true, Ordering::Release);
                reclaim::run(&sweeper.0);
            });
            while !begun.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            // How long a scan of the tables takes depends on the machine.
            let most = 1 << (8 + random.below(14));
            (0..random.below(most)).for_each(|_| std::hint::spin_loop());
            arrive();
        });
    }

    fn generation_of(&self, id: FileId) -> u32 {
        self.opener.region.file(id).generation.load(lp_region::sync::Ordering::Relaxed)
    }

    fn inode_of(&self, id: FileId) -> InodeRef {
        InodeRef::from_word(self.opener.region.file(id).inode.load(lp_region::sync::Ordering::Relaxed))
    }

    /// Checks that the file of `fd` is the one of `generation`, and that its inode is in use.
    fn check(&self, round: usize, fd: Fd, generation: u32) {
        let held = self.opener.fget(fd).expect("open");
        assert_eq!(self.generation_of(held.id), generation, "round {round}: the open file was freed");
        let inode = held.inode_ref();
        let now = held.inode.generation.load(lp_region::sync::Ordering::Relaxed);
        assert_eq!(inode.generation, now, "round {round}: the inode of an open file was freed");
    }

    /// Closes what is left and removes the name.
    fn clear(&self, fd: Fd) {
        close::close(&self.opener, fd).expect("close");
        let _ = unlink::unlink(&self.opener, Fd::CWD, lent::path(PATH));
        reclaim::run(&self.opener);
    }

    /// Checks that nothing is left behind.
    fn end(&self) {
        fsck::check(&self.opener, boot::root(&self.opener, 0).expect("root").id);
        assert_eq!(self.opener.region.in_use::<Inode>(), 1);
    }
}

#[test]
fn what_is_unlinked_while_it_is_opened_stays() {
    let stage = Stage::new();
    let mut random = Random(7);
    for round in 0..ROUNDS {
        let id = stage.open();
        let generation = stage.generation_of(id);
        assert_ne!(stage.inode_of(id), InodeRef::NONE);
        unlink::unlink(&stage.sweeper.0, Fd::CWD, lent::path(PATH)).expect("unlink");
        stage.sweep_while(&mut random, || table::install(&stage.opener, Fd::new(3), id, 0).expect("install"));
        stage.check(round, Fd::new(3), generation);
        stage.clear(Fd::new(3));
    }
    stage.end();
}

#[test]
fn what_is_closed_while_it_is_duplicated_stays() {
    let stage = Stage::new();
    let mut random = Random(7);
    for round in 0..ROUNDS {
        let id = stage.open();
        let generation = stage.generation_of(id);
        table::install(&stage.opener, Fd::new(4), id, 0).expect("install");
        let copy = dup::dup(&stage.opener, Fd::new(4)).expect("dup");
        close::close(&stage.closer, Fd::new(4)).expect("close");
        // Into an entry that the sweep passes early.
        stage.sweep_while(&mut random, || dup::install(&stage.opener, Fd::new(3), copy, 0).expect("install"));
        stage.check(round, Fd::new(3), generation);
        stage.clear(Fd::new(3));
    }
    stage.end();
}

#[test]
fn what_is_opened_once_more_while_it_is_closed_stays() {
    let stage = Stage::new();
    let mut random = Random(7);
    for round in 0..ROUNDS {
        let id = stage.open();
        table::install(&stage.opener, Fd::new(4), id, 0).expect("install");
        unlink::unlink(&stage.sweeper.0, Fd::CWD, lent::path(PATH)).expect("unlink");
        let Ok(Opened::File(copy)) = open::reopen(&stage.opener, Fd::new(4), O_RDWR, 0) else {
            panic!("reopen")
        };
        let generation = stage.generation_of(copy);
        close::close(&stage.closer, Fd::new(4)).expect("close");
        stage.sweep_while(&mut random, || {
            table::install(&stage.opener, Fd::new(3), copy, 0).expect("install")
        });
        stage.check(round, Fd::new(3), generation);
        stage.clear(Fd::new(3));
    }
    stage.end();
}
