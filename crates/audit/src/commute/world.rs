//! The world in which pairs of calls are made: a small tree, and two actors in the state that each pair
//! finds.

use super::calls;
use super::tree::{self, FIRST, SECOND};
use crate::library::failed;
use anyhow::{Context, Result, anyhow};
use lp_abi::linux::O_RDWR;
use lp_abi::{Fd, PAGE_SIZE, lent};
use lp_region::{Geometry, ProcessId, Region};
use lp_vfs::boot::{self, RunSetup};
use lp_vfs::{Task, clock, fork};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use nix::unistd::{Whence, lseek};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fs::File;
use std::num::NonZero;
use std::os::fd::IntoRawFd;
use std::ptr::NonNull;
use std::time::Duration;

/// What the two actors are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actors {
    /// Processes, the second of which was forked by the first: descriptor 5 is the same open file
    /// description.
    Processes,
    /// Threads of one process: all descriptors are the same.
    Threads,
}

/// Longer than the clock's resolution, however coarse.
const TICK: Duration = Duration::from_millis(20);
/// Rounds of calls that fill caches before the state is kept.
const WARM_UP: usize = 100;

/// A region with two actors, whose state can be restored.
pub(super) struct World {
    memory: File,
    tasks: [Box<Task<'static>>; 2],
    /// The region's file, mapped once more.
    mapping: NonNull<c_void>,
    /// Its pages that held data when the state was kept.
    kept: BTreeMap<usize, Box<[u8; PAGE_SIZE]>>,
    /// Time at which the state was kept, in seconds and nanoseconds.
    pub(super) began: (i64, i64),
}

impl World {
    pub(super) fn new(actors: Actors) -> Result<Self> {
        // SAFETY: the address comes from the kernel.
        unsafe { clock::init(nix::libc::getauxval(nix::libc::AT_SYSINFO_EHDR) as usize) };
        // The tracer recognises the region by this name.
        let memory = memfd_create("lightpath-audit", MFdFlags::MFD_CLOEXEC)?;
        let copy = File::from(memory.try_clone()?);
        let geometry = Geometry { data_bytes: 16 << 20, inodes: 4096, identity: 1 };
        // Leaked: the region lives as long as the process.
        let memory =
            lp_region::life_file::beside(Fd::new(memory.into_raw_fd())).map_err(failed("a life file"))?;
        let region = Region::create(memory, &geometry).map_err(|error| anyhow!("{error:?}"))?;
        let setup = RunSetup { mounts: &[b""], ..RunSetup::default() };
        let run = boot::claim_run(region, &setup).map_err(failed("a run"))?;
        let process = boot::claim_process(region, run).map_err(failed("a process"))?;
        let lane = boot::attach(region, process, std::process::id()).map_err(failed("attach"))?;
        let first = Box::new(Task::new(region, process, lane, clock::now));
        boot::arrive(&first);
        boot::mkfs(&first, 0).map_err(failed("mkfs"))?;
        tree::make(&first)?;
        let second = match actors {
            Actors::Processes => forked(region, &first)?,
            Actors::Threads => thread(region, process, &first)?,
        };
        let length = NonZero::new(copy.metadata()?.len() as usize).context("an empty region")?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a mapping at an address that the kernel chooses; it stays.
        let mapping = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, &copy, 0) }?;
        let tasks = [first, second];
        let mut world = Self { memory: copy, tasks, mapping, kept: BTreeMap::new(), began: (0, 0) };
        world.open_own(actors)?;
        for _ in 0..WARM_UP {
            for task in &world.tasks {
                calls::warm_up(task).map_err(failed("warm up"))?;
            }
        }
        world.keep()?;
        Ok(world)
    }

    /// The task of actor 0 or 1.
    pub(super) fn task(&self, actor: usize) -> &Task<'static> {
        &self.tasks[actor]
    }

    fn open_own(&self, actors: Actors) -> Result<()> {
        for (index, task) in self.tasks.iter().enumerate() {
            if index == 1 && actors == Actors::Threads {
                break;
            }
            for (fd, path) in [(FIRST, c"/d/a"), (SECOND, c"/d/b")] {
                tree::open_at(task, fd, path, O_RDWR).map_err(failed("open"))?;
            }
        }
        Ok(())
    }

    /// Keeps the present state as the one that pairs find. All files have been read since they were written,
    /// so that reads set no access time (relatime).
    fn keep(&mut self) -> Result<()> {
        std::thread::sleep(TICK);
        for fd in [FIRST, SECOND] {
            lp_vfs::read::pread(&self.tasks[0], fd, lent::room(&mut [0; 16]), 0).map_err(failed("read"))?;
        }
        // SAFETY: the page is mapped, and nobody makes a call on the region meanwhile.
        let copy = |page: usize| (page, Box::new(unsafe { *self.at(page) }));
        self.kept = self.pages()?.into_iter().map(copy).collect();
        let now = clock::now();
        self.began = (now.sec, now.nsec as i64);
        std::thread::sleep(TICK);
        Ok(())
    }

    /// Restores that state.
    pub(super) fn restore(&self) -> Result<()> {
        for page in self.pages()? {
            let kept = self.kept.get(&page).map_or(&[0; PAGE_SIZE], |kept| &**kept);
            let at = self.at(page);
            // SAFETY: the page is mapped, and nobody makes a call on the region meanwhile.
            if unsafe { *at != *kept } {
                // SAFETY: as for the look.
                unsafe { *at = *kept };
            }
        }
        Ok(())
    }

    /// Where a page of the region's file is mapped.
    fn at(&self, page: usize) -> *mut [u8; PAGE_SIZE] {
        self.mapping.as_ptr().cast::<[u8; PAGE_SIZE]>().wrapping_add(page)
    }

    /// The pages of the region's file that hold data.
    fn pages(&self) -> Result<Vec<usize>> {
        let (mut found, mut at) = (Vec::new(), 0);
        while let Ok(start) = lseek(&self.memory, at, Whence::SeekData) {
            at = lseek(&self.memory, start, Whence::SeekHole)?;
            found.extend(start as usize / PAGE_SIZE..at as usize / PAGE_SIZE);
        }
        Ok(found)
    }
}

fn forked(region: Region<'static>, first: &Task<'static>) -> Result<Box<Task<'static>>> {
    let id = fork::before(first).map_err(failed("fork"))?;
    fork::copied(first);
    let lane = fork::child(region, id, std::process::id()).map_err(failed("become a child"))?;
    Ok(Box::new(Task::new(region, id, lane, clock::now)))
}

fn thread(region: Region<'static>, process: ProcessId, first: &Task<'static>) -> Result<Box<Task<'static>>> {
    boot::before_thread(first);
    let lane = boot::thread_lane(region, process, std::process::id()).map_err(failed("a thread's lane"))?;
    Ok(Box::new(Task::new(region, process, lane, clock::now)))
}
