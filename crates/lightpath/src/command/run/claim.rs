//! [`Claim`]: the run record that this process has claimed, and the command's process slot.

use std::ffi::CString;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use lp_abi::{Errno, Fd, UserPtr};
use lp_region::backing::FileAge;
use lp_region::layout::RUNS;
use lp_region::life::SlotState;
use lp_region::sync::Ordering::{Acquire, Relaxed, Release};
use lp_region::{ProcessId, Region, RunId};
use lp_vfs::boot;
use lp_vfs::walk::{self, Follow};
use lp_vfs::{Place, Task};
use rustix::fs::FlockOperation;

use super::counts::Counts;
use super::part::take_part;
use super::record::{self, Paths};
use super::{roots, under_way};
use crate::command::copies::branch::{self, Branch};
use crate::command::descriptors::numbers::raise;
use crate::command::descriptors::{flights, life};
use crate::command::options::run::{Options, RegionOwner};
use crate::command::output::failure::{Failure, REGION, reason};
use crate::command::region::file::{self, no_room};
use crate::command::region::{make, sound};

/// How often processes that live on are looked for, and how far apart.
const PATIENCE: u32 = 50;
const PAUSE: Duration = Duration::from_millis(10);

/// A run record that this process has claimed: that of a run about to start, or one to look at a region by.
pub(crate) struct Claim {
    region: Region<'static>,
    run: RunId,
    /// Counters from earlier runs on the same region.
    started: Counts,
}

/// The process slot of the command.
pub(crate) struct Slot {
    process: ProcessId,
    generation: u32,
}

fn full(errno: Errno) -> Failure {
    Failure::new(REGION, format!("the region has no place for another process ({errno:?})"))
}

impl Claim {
    /// Creates the region, or opens `--region FILE`, and claims a run record in it.
    pub(crate) fn open(options: &Options, paths: &Paths) -> Result<Claim, Failure> {
        let (branch, name) = match (&options.region, &options.from) {
            (Some(path), _) => (file::open(path)?.into(), path.display().to_string()),
            (None, Some(path)) => (branch::of(path)?, format!("the branch of {}", path.display())),
            (None, None) => (make::open_memory()?.into(), "region".to_owned()),
        };
        let Branch { fd, below } = branch;
        // Two launchers must not initialise the same file, or claim the same run record. Record locks would
        // work only within one process; this lock is released with its descriptor if this process is killed.
        file::locked(&fd, &name, FlockOperation::LockExclusive)?;
        let changed = file::changed(&fd);
        if options.region.is_some() {
            file::make_room(&fd).map_err(|e| no_room(&name, e))?;
        }
        let is_empty = rustix::fs::fstat(&fd).is_ok_and(|found| found.st_size == 0);
        let age = if is_empty { FileAge::New } else { FileAge::Old };
        let region = make::prepare(&fd, &name, options)?;
        if options.from.is_some() {
            branch::own(region)?;
        }
        let alone = life::numbers(region).is_empty();
        let life = life::of(region, &name)?;
        let fd = raise(fd, life)?;
        let region = region.with_fd(Fd::new(fd.as_raw_fd()));
        if options.region.is_some() && alone {
            sound::rebuild_after_boot(region, &name)?;
        }
        // What was frozen has been checked, and nobody has changed it since; a new region is as it was made.
        let is_sound = match options.owner {
            RegionOwner::Session => region.was_left_in_order(changed),
            RegionOwner::User => options.from.is_some() || is_empty,
        };
        if !is_sound {
            sound::check(region, &name)?;
        }
        region.header().frozen.store(0, Relaxed); // Relaxed: under the flock.
        if options.region.is_some() && alone {
            region.set_in_file(age);
            region.mark_boot();
            boot::back(region).map_err(|e| no_room(&name, e))?;
        }
        let claim = Claim::begin(region, fd, &name, options, paths)?;
        if let Some(below) = below {
            let laid = claim.with_task(|task| below.lay(task));
            laid.flatten().map_err(|e| below.failed(e))?;
        }
        Ok(claim)
    }

    /// Claims a run record in the region behind `fd`, that of run `pid`, for another command.
    pub(crate) fn join(fd: OwnedFd, pid: u32, options: &Options, paths: &Paths) -> Result<Claim, Failure> {
        let name = format!("the region of run {pid}");
        file::locked(&fd, &name, FlockOperation::LockExclusive)?;
        let region = make::prepare(&fd, &name, options)?;
        // The last process may have ended since the run was found.
        if life::numbers(region).is_empty() {
            return Err(under_way::gone(pid));
        }
        let life = life::of(region, &name)?;
        let fd = raise(fd, life)?;
        Claim::begin(region.with_fd(Fd::new(fd.as_raw_fd())), fd, &name, options, paths)
    }

    /// Claims a run record. The region is sound and locked; the lock is let go.
    fn begin(
        region: Region<'static>,
        fd: OwnedFd,
        name: &str,
        options: &Options,
        paths: &Paths,
    ) -> Result<Claim, Failure> {
        let run = record::claim(region, options, paths)?;
        flights::inherit(region, run)?;
        roots::make(region, run, options)?;
        let started = Counts::of(region);
        file::locked(&fd, name, FlockOperation::Unlock)?;
        // The descriptors stay open for ever.
        let _ = fd.into_raw_fd();
        Ok(Claim { region, run, started })
    }

    /// Claims a process slot for the command.
    pub(crate) fn slot(&self) -> Result<Slot, Failure> {
        let process = boot::claim_process(self.region, self.run).map_err(full)?;
        let generation = self.region.process(process).life.get().generation();
        Ok(Slot { process, generation })
    }

    /// [`Claim::slot`]; its working directory is `directory` if that lies in a mount.
    pub(crate) fn slot_in(&self, directory: &Path) -> Result<Slot, Failure> {
        let slot = self.slot()?;
        let process = self.region.process(slot.process);
        let path = CString::new(directory.as_os_str().as_bytes()).unwrap_or_default();
        // SAFETY: the walk only reads the path, and keeps no pointer.
        let at = unsafe { UserPtr::new(path.as_ptr().cast()) };
        let found = self.with_task(|task| walk::inode(task, Fd::CWD, at, Follow::Link));
        match found.map_err(full)? {
            Ok(Place::Inside(found)) => process.cwd.store(found.spot().to_word(), Release),
            Ok(Place::Outside(_)) => {}
            Err(e) => {
                let reason = reason(&std::io::Error::from_raw_os_error(e.number()));
                return Err(Failure::new(REGION, format!("{} in the mount: {reason}", directory.display())));
            }
        }
        Ok(slot)
    }

    /// Whether other runs use the region.
    pub(crate) fn has_others(&self) -> bool {
        self.region.any_run_is_held()
            && (1..RUNS as u32).map(RunId).any(|run| run != self.run && self.region.run_is_held(run))
    }

    /// Whether processes of this run live beside this one. Waits a moment for those that are ending.
    pub(crate) fn has_left(&self) -> bool {
        (0..PATIENCE).all(|look| {
            if look != 0 {
                std::thread::sleep(PAUSE);
            }
            self.with_task(|task| self.lives_beside(task.process_id)).unwrap_or(true)
        })
    }

    fn lives_beside(&self, me: ProcessId) -> bool {
        self.region.processes().any(|id| {
            let process = self.region.process(id);
            let life = process.life.get();
            // The command's own slot, if it ran without the gate.
            let is_nobodys = life.state() == SlotState::Born && life.lane().is_none();
            // Relaxed: of a process that is no other's child, it was written before the command ended.
            process.run.load(Relaxed) == self.run.0
                && id != me
                && !is_nobodys
                && !self.region.process_is_dead(id, me)
        })
    }

    /// Has this process take part in the run for the length of a call.
    pub(crate) fn with_task<T>(&self, call: impl FnOnce(&Task<'static>) -> T) -> lp_abi::Result<T> {
        take_part(self.region, self.run, call)
    }

    /// What the gate of the command, which this process is about to exec, has to be told. With a slot this
    /// process becomes the slot's; without, the command takes one when it meets a mount.
    pub(crate) fn enter(&self, slot: Option<&Slot>) -> Result<String, Failure> {
        let (fd, length) = (self.region.fd().raw(), self.region.length());
        let Some(slot) = slot else { return Ok(format!("{fd}:@{}:{length}", self.run.0)) };
        self.region.animate(slot.process).map_err(full)?;
        Ok(format!("{fd}:{}:{length}", slot.process.0))
    }

    /// Whether the command, which has ended, ran without the gate.
    pub(crate) fn missed(&self, slot: &Slot) -> bool {
        let process = self.region.process(slot.process);
        // A process that attached has freed its slot, or left its mark in it.
        process.life.get().generation() == slot.generation && process.attached.load(Acquire) == 0
    }

    /// The region.
    pub(crate) fn region(&self) -> Region<'static> {
        self.region
    }

    /// The descriptor of the run's flights, where the rings of a traced run are.
    pub(crate) fn flights(&self) -> i32 {
        self.region.run(self.run).flights.load(Relaxed) as i32 - 1 // Relaxed: this launcher has set it.
    }

    /// The calls since the run began.
    pub(crate) fn counts(&self) -> Counts {
        Counts::of(self.region).since(&self.started)
    }
}
