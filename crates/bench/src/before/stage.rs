//! A region of its own and its workers: processes or threads that all start at once.

use super::MOST_WORKERS;
use super::calls::{Design, FILE_SIZE, Kind, Old, Worker};
use anyhow::{Context, Result, anyhow, bail};
use lp_abi::linux::{O_CREAT, O_RDONLY, O_RDWR};
use lp_abi::{Errno, Fd, lent};
use lp_region::sync::{AtomicU32, AtomicU64, Ordering, spin};
use lp_region::{Geometry, LaneId, ProcessId, Region, RunId};
use lp_vfs::boot::{self, RunSetup};
use lp_vfs::open::{self, Opened};
use lp_vfs::{Place, Task, clock, file, table};
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::CString;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Calls between two reads of the clock.
const ROUND: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Workers {
    /// Each with a table of its own.
    Processes,
    /// Sharing one table, but for the old design of finding an open file: [`Stage::perform_in_threads`].
    Threads,
}

/// Messages between workers, in shared memory; initially zero.
#[repr(C)]
struct Board {
    old: Old,
    ready: AtomicU32,
    go: AtomicU32,
    failed: AtomicU32,
    /// Calls and nanoseconds of each worker.
    calls: [AtomicU64; MOST_WORKERS],
    took: [AtomicU64; MOST_WORKERS],
}

pub(super) struct Stage {
    board: *mut Board,
    region: Region<'static>,
    run: RunId,
    workers: Workers,
    count: usize,
    _memory: [OwnedFd; 2],
}

/// Shared by the threads of one stage.
#[derive(Clone, Copy)]
struct Shared<'s>(&'s Stage);

// SAFETY: the stage points to a region and a board, both made of atomics.
unsafe impl Send for Shared<'_> {}

impl<'s> Shared<'s> {
    /// A method, so that a closure captures all of it and not the inner reference.
    fn stage(self) -> &'s Stage {
        self.0
    }
}

impl Stage {
    /// A new file system with the directory `/a/b` of another owner, for `count` workers.
    pub(super) fn new(workers: Workers, count: usize) -> Result<Self> {
        if count == 0 || count > MOST_WORKERS {
            bail!("from 1 to {MOST_WORKERS} workers, not {count}");
        }
        // SAFETY: the address comes from the kernel.
        unsafe { clock::init(libc::getauxval(libc::AT_SYSINFO_EHDR) as usize) };
        let memory = rustix::fs::memfd_create("lightpath-bench", MemfdFlags::CLOEXEC)?;
        let memory = lp_region::life_file::beside(Fd::new(memory.into_raw_fd()))
            .map_err(failed("make a life file"))?;
        // SAFETY: the region's descriptor and its life file's, which nobody else owns.
        let held = [memory, memory.next()].map(|fd| unsafe { OwnedFd::from_raw_fd(fd.raw()) });
        let geometry = Geometry { data_bytes: 512 << 20, inodes: 4096, identity: 1 };
        let region = Region::create(memory, &geometry).map_err(|error| anyhow!("{error:?}"))?;
        let setup = RunSetup { mounts: &[b""], ..RunSetup::default() };
        let run = boot::claim_run(region, &setup).map_err(failed("claim a run"))?;
        // SAFETY: a new anonymous mapping, where the kernel chooses.
        let board = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                size_of::<Board>(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
            )
        }?;
        let stage = Self { board: board.cast(), region, run, workers, count, _memory: held };
        let task = stage.task()?;
        boot::mkfs(&task, 0).map_err(failed("make the root"))?;
        make_directory(&task, "/a")?;
        make_directory(&task, "/a/b")?;
        fill(&task, open_file(&task, "/a/b/shared", O_RDWR | O_CREAT)?)?;
        for index in 0..count {
            fill(&task, open_file(&task, &own_path(index), O_RDWR | O_CREAT)?)?;
        }
        boot::exit(&task);
        Ok(stage)
    }

    /// Makes all workers call for `time`, and returns their total calls per second.
    pub(super) fn perform(&self, design: Design, kind: Kind, time: Duration) -> Result<f64> {
        match self.workers {
            Workers::Processes => self.perform_in_processes(design, kind, time)?,
            Workers::Threads => self.perform_in_threads(design, kind, time)?,
        }
        if self.board().failed.load(Ordering::Acquire) != 0 {
            bail!("a worker failed");
        }
        let rate = |index: usize| {
            let calls = self.board().calls[index].load(Ordering::Acquire) as f64;
            calls * 1e9 / self.board().took[index].load(Ordering::Acquire) as f64
        };
        Ok((0..self.count).map(rate).sum())
    }

    fn perform_in_processes(&self, design: Design, kind: Kind, time: Duration) -> Result<()> {
        for index in 0..self.count {
            // SAFETY: this process has one thread, so the child may do whatever its parent could.
            match unsafe { libc::fork() } {
                -1 => return Err(std::io::Error::last_os_error()).context("cannot fork"),
                0 => {
                    let done = self.task().and_then(|task| self.work(task, index, index, design, kind, time));
                    self.note_failure(&done);
                    // SAFETY: ends the child without its parent's exit handlers.
                    unsafe { libc::_exit(i32::from(done.is_err())) };
                }
                _ => {}
            }
        }
        self.start_when_ready();
        for _ in 0..self.count {
            rustix::process::wait(rustix::process::WaitOptions::empty())?;
        }
        Ok(())
    }

    fn perform_in_threads(&self, design: Design, kind: Kind, time: Duration) -> Result<()> {
        // The lock on the table is what pins replaced. Where it is put back, it stands for the sharing: each
        // thread has its own table, so that it does not also pay for the pin. The other changes left the
        // table as it was, so threads share it in both designs.
        let is_shared = (design, kind) != (Design::Before, Kind::Lookup);
        let main = self.task()?;
        let mut tasks = Vec::new();
        for _ in 0..self.count {
            tasks.push(if is_shared { self.thread_of(&main)? } else { self.task()? });
        }
        let shared = Shared(self);
        let threads = |task: &Task| task.process.threads.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            for (index, task) in tasks.into_iter().enumerate() {
                let task = Moved(task);
                scope.spawn(move || {
                    let stage = shared.stage();
                    stage.note_failure(&stage.work(task.into_inner(), index, 0, design, kind, time));
                });
            }
            self.start_when_ready();
        });
        debug_assert!(!is_shared || threads(&main) == self.count as u32);
        Ok(())
    }

    /// One worker: sets up, waits for the start, makes calls until the time is over, records how many.
    fn work(
        &self,
        task: Box<Task<'static>>,
        index: usize,
        table: usize,
        design: Design,
        kind: Kind,
        time: Duration,
    ) -> Result<()> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let processor = index % processors;
        bind_to(processor);
        let own = open_file(&task, &own_path(index), O_RDWR)?;
        let shared = open_file(&task, "/a/b/shared", O_RDONLY)?;
        let worker = Worker { task, index, table, processor, own, shared };
        let board = self.board();
        let mut calls = 0;
        for turn in 0..ROUND {
            worker.call(design, kind, &board.old, turn).map_err(failed("make the call"))?;
        }
        board.ready.fetch_add(1, Ordering::AcqRel);
        while board.go.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        let start = Instant::now();
        while start.elapsed() < time {
            for turn in 0..ROUND {
                worker.call(design, kind, &board.old, calls + turn).map_err(failed("make the call"))?;
            }
            calls += ROUND;
        }
        board.calls[index].store(calls as u64, Ordering::Release);
        board.took[index].store(start.elapsed().as_nanos() as u64, Ordering::Release);
        Ok(())
    }

    /// Starts the workers once all are ready, or once one has failed and the others need not wait.
    fn start_when_ready(&self) {
        let board = self.board();
        while board.ready.load(Ordering::Acquire) + board.failed.load(Ordering::Acquire) < self.count as u32 {
            std::thread::sleep(Duration::from_micros(200));
            spin();
        }
        board.go.store(1, Ordering::Release);
    }

    fn note_failure(&self, done: &Result<()>) {
        if let Err(error) = done {
            eprintln!("{error:#}");
            self.board().failed.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn board(&self) -> &Board {
        // SAFETY: mapped until the stage is dropped; a board consists of atomics, for which zero is valid.
        unsafe { &*self.board }
    }

    /// Makes the caller a process of the region.
    fn task(&self) -> Result<Box<Task<'static>>> {
        let process = boot::claim_process(self.region, self.run).map_err(failed("claim a process"))?;
        let lane = boot::attach(self.region, process, std::process::id()).map_err(failed("attach"))?;
        Ok(self.task_of(process, lane))
    }

    /// Another thread of `main`'s process, with its table.
    fn thread_of(&self, main: &Task<'static>) -> Result<Box<Task<'static>>> {
        boot::before_thread(main);
        let lane = boot::thread_lane(self.region, main.process_id, std::process::id())
            .map_err(failed("get a lane"))?;
        Ok(self.task_of(main.process_id, lane))
    }

    fn task_of(&self, process: ProcessId, lane: LaneId) -> Box<Task<'static>> {
        Box::new(Task::new(self.region, process, lane, clock::now))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // SAFETY: the workers have ended, and nothing else refers to the region or the board.
        unsafe {
            self.region.unmap();
            let _ = munmap(self.board.cast(), size_of::<Board>());
        }
    }
}

/// A task that is moved to the thread that will use it.
struct Moved(Box<Task<'static>>);

// SAFETY: one thread uses a task at a time; its buffers are its own and the rest is the region.
unsafe impl Send for Moved {}

impl Moved {
    fn into_inner(self) -> Box<Task<'static>> {
        self.0
    }
}

fn failed(what: &'static str) -> impl Fn(Errno) -> anyhow::Error {
    move |errno| anyhow!("cannot {what}: {errno:?}")
}

fn own_path(index: usize) -> String {
    format!("/a/own{index}")
}

fn open_file(task: &Task, path: &str, flags: u32) -> Result<Fd> {
    let path = CString::new(path)?;
    let opened =
        open::openat(task, Fd::CWD, lent::path(&path), flags, 0o644).map_err(failed("open a file"))?;
    let Place::Inside(Opened::File(id)) = opened else { bail!("{path:?} is not a file of the region") };
    // Threads open files in turn only while they do not race for a number, so each uses the lowest number in
    // a range of its own.
    let first = task.lane_id.0 % MOST_WORKERS as u32 * 4;
    let fd = task.table.lowest(first, u32::MAX).map_err(failed("find a descriptor"))?;
    table::install(task, fd, id, 0).map_err(|errno| {
        file::discard(task, id);
        failed("install a descriptor")(errno)
    })?;
    Ok(fd)
}

fn make_directory(task: &Task, path: &str) -> Result<()> {
    /// Neither the caller's user nor its group.
    const SOMEBODY: u32 = 65533;
    let path = CString::new(path)?;
    lp_vfs::mkdir::mkdirat(task, Fd::CWD, lent::path(&path), 0o755).map_err(failed("make a directory"))?;
    // Only root can change the owner; otherwise the permission check takes the owner's path, which is just as
    // short.
    let _ = lp_vfs::chown::fchownat(task, Fd::CWD, lent::path(&path), SOMEBODY, SOMEBODY, 0);
    Ok(())
}

fn fill(task: &Task, fd: Fd) -> Result<()> {
    let bytes = vec![b'x'; FILE_SIZE];
    let wrote = lp_vfs::write::write(task, fd, lent::bytes(&bytes)).map_err(failed("write"))?;
    if wrote != bytes.len() {
        bail!("wrote {wrote} of {} bytes", bytes.len());
    }
    lp_vfs::close::close(task, fd).map_err(failed("close"))
}

/// Binds the caller to one processor, if permitted.
fn bind_to(processor: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(processor);
    let _ = rustix::thread::sched_setaffinity(None, &set);
}
