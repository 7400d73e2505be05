//! `trace -p`: a tracer that comes while the run is under way, and goes.
//!
//! The rings are in a memfd of the tracer's, which the run's processes open by its name in /proc. Each
//! process that runs is stopped by ptrace(2) for a moment, and made to look at its run's record at its next
//! call: see the gate's `high::life::look`. What starts meanwhile finds the tracer in the record.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use lp_abi::Fd;
use lp_abi::image::{GATE_PAGE, GatePage, QUICK_CALLS, TracerDoor};
use lp_region::process::{CALLS_ALL_TRACED, CALLS_COUNTED, CALLS_TRACED};
use lp_region::sync::Ordering::{Acquire, Relaxed, Release};
use lp_region::trace::{BYTES, is_held};
use lp_region::{Region, RunId};
use rustix::fs::{MemfdFlags, SealFlags};

use super::plan::Plan;
use crate::command::output::failure::{CANNOT_RUN, Failure, REGION, reason};
use crate::command::run::join;
use crate::command::run::under_way::{self, Run};

/// How long a thread is waited for that does not stop: one that waits in the kernel for its vfork(2) child.
const STOPS: Duration = Duration::from_millis(200);
/// How long a process that is starting is waited for, and how often.
const START: Duration = Duration::from_millis(10);
const STARTS: u32 = 20;
/// How often it is looked whether the run has ended.
const LOOK: Duration = Duration::from_millis(100);

/// Traces the run of process `pid` until a signal comes or the run ends.
pub(super) fn attach(pid: u32, plan: &Plan, output: Box<dyn Write + Send>) -> Result<u8, Failure> {
    let (member, _) = join::member(pid)?;
    // The region's locks are asked for through this file.
    let (_file, region) = member.open()?;
    let run = found(pid)?;
    let ids: BTreeSet<u32> = run.members.iter().map(|member| member.run().0).collect();
    for id in &ids {
        check(region, RunId(*id), &run)?;
    }
    // Before anything is changed. What does not tell tracers cannot be told of one by the record either.
    for member in &run.members {
        Door::of(member.pid).map(drop).or_else(|e| refused(member.pid, e))?;
    }
    let file = new_rings()?;
    let rings = plan.ask(Fd::new(file.as_raw_fd()))?;
    let signals = block_signals();
    let tracer = u64::from(std::process::id()) << 32 | file.as_raw_fd() as u64;
    let calls = if plan.host { CALLS_ALL_TRACED } else { CALLS_TRACED };
    for id in &ids {
        let record = region.run(RunId(*id));
        record.tracer.store(tracer, Relaxed); // Relaxed: ordered by the next store.
        record.stats.store(calls, Release); // PAIRS: the acquire of the gate's `calls_of`.
    }
    let known: Vec<u32> = run.members.iter().map(|member| member.pid).collect();
    if let Err(failure) = tell_all(&known) {
        leave(region, &ids, tracer);
        let _ = tell_all(&known);
        return Err(failure);
    }
    let beside = plan.begin(region, rings, pid, output);
    wait(&signals, || ids.iter().any(|id| region.run_is_held(RunId(*id))));
    leave(region, &ids, tracer);
    // Those that could be told before can be told again, or have ended.
    let _ = tell_all(&known);
    beside.finish()?;
    Ok(0)
}

/// The run of process `pid`.
fn found(pid: u32) -> Result<Run, Failure> {
    let of = |run: &Run| run.members.iter().any(|member| member.pid == pid);
    under_way::all().into_iter().find(of).ok_or_else(|| under_way::gone(pid))
}

/// Refuses a run whose calls are recorded already.
fn check(region: Region<'static>, id: RunId, run: &Run) -> Result<(), Failure> {
    let record = region.run(id);
    let name = run.name();
    let line = match record.stats.load(Acquire) {
        CALLS_COUNTED => format!("run {name} counts its calls (--stats), and cannot be traced as well"),
        CALLS_TRACED | CALLS_ALL_TRACED if has_tracer(record.tracer.load(Relaxed), region, run) => {
            format!("run {name} is traced already")
        }
        _ => return Ok(()),
    };
    Err(Failure::new(REGION, line))
}

/// Whether the tracer in a run's record lives; 0 is the run's launcher.
fn has_tracer(tracer: u64, region: Region<'static>, run: &Run) -> bool {
    let open = |path: String| File::options().read(true).write(true).open(path).ok();
    let file = match tracer {
        0 => run.members.iter().find_map(|member| open(member.flights_link(region)?)),
        tracer => open(format!("/proc/{}/fd/{}", tracer >> 32, tracer & u64::from(u32::MAX))),
    };
    file.is_some_and(|file| is_held(Fd::new(file.as_raw_fd())))
}

fn new_rings() -> Result<OwnedFd, Failure> {
    let fail = |e: rustix::io::Errno| {
        Failure::new(REGION, format!("cannot make shared memory: {}", reason(&e.into())))
    };
    let flags = MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC;
    let made = rustix::fs::memfd_create("lightpath-trace", flags).map_err(fail)?;
    rustix::fs::ftruncate(&made, BYTES as u64).map_err(fail)?;
    let fixed = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW;
    rustix::fs::fcntl_add_seals(&made, fixed).map_err(fail)?;
    Ok(made)
}

/// Takes the tracer out of the records.
fn leave(region: Region<'static>, ids: &BTreeSet<u32>, tracer: u64) {
    for record in ids.iter().map(|id| region.run(RunId(*id))) {
        // Relaxed: the record may be another run's by now, which has no tracer or another one.
        if record.tracer.load(Relaxed) == tracer {
            record.stats.store(0, Release); // PAIRS: the acquire of the gate's `calls_of`.
            record.tracer.store(0, Release);
        }
    }
}

/// Has all processes of the run look at its record; `known` are some of them, as far as they live. One that
/// was missed because it had just been made is found by the next look at /proc.
fn tell_all(known: &[u32]) -> Result<(), Failure> {
    let mut told = BTreeSet::new();
    let mut failed = None;
    while let Some(run) = known.iter().chain(&told).find_map(|pid| found(*pid).ok()) {
        let new: Vec<u32> =
            run.members.iter().map(|member| member.pid).filter(|pid| told.insert(*pid)).collect();
        if new.is_empty() {
            break;
        }
        for pid in new {
            if let Err(failure) = tell(pid).or_else(|e| refused(pid, e)) {
                failed = Some(failure);
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Why a process cannot be traced, unless it has ended.
fn refused(pid: u32, e: io::Error) -> Result<(), Failure> {
    let line = match e.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT) => return Ok(()),
        Some(libc::EPERM | libc::EACCES) => {
            "ptrace(2) is not permitted (another tracer, or kernel.yama.ptrace_scope)".to_owned()
        }
        // It reads the record when it starts.
        _ if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
        _ => reason(&e),
    };
    Err(Failure::new(CANNOT_RUN, format!("process {pid} cannot be traced: {line}")))
}

/// Has a process look at its run's record at its next call.
fn tell(pid: u32) -> io::Result<()> {
    for _ in 0..STARTS {
        match tell_once(pid) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(START),
            done => return done,
        }
    }
    Ok(())
}

/// Does it once, on a thread of its own, whose end lets go of every thread that did not stop in time.
fn tell_once(pid: u32) -> io::Result<()> {
    let telling = std::thread::spawn(move || {
        let stopped = Stopped::all(pid)?;
        let done = Door::of(pid).and_then(|door| door.point_at_look());
        drop(stopped);
        done
    });
    telling.join().unwrap_or_else(|_| Err(io::Error::other("the tracer failed")))
}

/// The threads of a process, stopped.
struct Stopped(Vec<(i32, i32)>);

impl Stopped {
    fn all(pid: u32) -> io::Result<Stopped> {
        let mut seen = BTreeSet::new();
        let mut stopped = Stopped(Vec::new());
        // A thread that was made before its creator stopped is found by the next look.
        loop {
            let listed = fs::read_dir(format!("/proc/{pid}/task"))?.flatten();
            let threads = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
            let new: Vec<i32> = threads.filter(|tid| seen.insert(*tid)).collect();
            if new.is_empty() {
                return Ok(stopped);
            }
            for tid in &new {
                request(libc::PTRACE_SEIZE, *tid, 0)?;
                request(libc::PTRACE_INTERRUPT, *tid, 0)?;
            }
            let since = Instant::now();
            stopped.0.extend(new.iter().filter_map(|tid| Some((*tid, stop_of(*tid, since)?))));
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        for (tid, signal) in &self.0 {
            let _ = request(libc::PTRACE_DETACH, *tid, *signal as usize);
        }
    }
}

/// Waits for a thread to stop; the signal that it is about to get, or 0.
fn stop_of(tid: i32, since: Instant) -> Option<i32> {
    while since.elapsed() < STOPS {
        let mut status = 0;
        // SAFETY: `status` is writable.
        let found = unsafe { libc::waitpid(tid, &mut status, libc::__WALL | libc::WNOHANG) };
        if found == tid && libc::WIFSTOPPED(status) {
            let is_ours = status >> 16 == libc::PTRACE_EVENT_STOP;
            return Some(if is_ours { 0 } else { libc::WSTOPSIG(status) });
        }
        if found != 0 {
            return None;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    None
}

fn request(request: libc::c_uint, tid: i32, data: usize) -> io::Result<()> {
    // SAFETY: none of the requests made here writes to this process.
    match unsafe { libc::ptrace(request, tid, 0, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// What the gate of a process tells tracers, and the process's memory.
struct Door {
    memory: File,
    words: [u8; size_of::<TracerDoor>()],
}

impl Door {
    /// # Errors
    /// Those of opening the memory; `ESRCH` if the process has ended; `WouldBlock` if its gate has yet to
    /// start; one that says why if the gate is another version's.
    fn of(pid: u32) -> io::Result<Door> {
        let memory = File::options().read(true).write(true).open(format!("/proc/{pid}/mem"))?;
        let mut words = [0; size_of::<TracerDoor>()];
        let read = memory.read_exact_at(&mut words, (GATE_PAGE + size_of::<GatePage>()) as u64);
        let door = Door { memory, words };
        match door.word(core::mem::offset_of!(TracerDoor, magic)) {
            TracerDoor::MAGIC => Ok(door),
            // It is starting: its gate has not come so far.
            0 if read.is_ok() || read.is_err_and(|e| e.raw_os_error() == Some(libc::EIO)) => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            0 => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            _ => Err(io::Error::other("it was started by another version of lightpath")),
        }
    }

    fn word(&self, offset: usize) -> u64 {
        let bytes = self.words.get(offset..offset + 8).and_then(|bytes| bytes.try_into().ok());
        u64::from_ne_bytes(bytes.unwrap_or_default())
    }

    /// Stores the address of the gate's table for such processes where the process, which is stopped, finds
    /// its own.
    fn point_at_look(&self) -> io::Result<()> {
        let look = self.word(core::mem::offset_of!(TracerDoor, look));
        let entry = self.word(core::mem::offset_of!(TracerDoor, entry));
        let slots = self.word(core::mem::offset_of!(TracerDoor, slots));
        let table = (GATE_PAGE + core::mem::offset_of!(GatePage, table)) as u64;
        self.memory.write_all_at(&look.to_ne_bytes(), table)?;
        let entries = [entry.to_ne_bytes(); QUICK_CALLS.len()].concat();
        let places = [core::mem::offset_of!(GatePage, quick), core::mem::offset_of!(GatePage, quick_scratch)];
        for place in places {
            for page in [GATE_PAGE as u64, slots] {
                self.memory.write_all_at(&entries, page + place as u64)?;
            }
        }
        Ok(())
    }
}

/// Blocks the signals that end the trace, in this thread and those that it starts.
fn block_signals() -> libc::sigset_t {
    let mut set = core::mem::MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set, to which the others add or which they read.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
        set.assume_init()
    }
}

/// Waits for one of the signals, or the end of the run.
fn wait(signals: &libc::sigset_t, lives: impl Fn() -> bool) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
    while lives() {
        // SAFETY: both point to live objects of the right type.
        if unsafe { libc::sigtimedwait(signals, std::ptr::null_mut(), &time) } > 0 {
            return;
        }
    }
}
