//! Kills a process at a chosen instruction of a call.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use lp_abi::Fd;
use lp_region::{Geometry, Region};
use lp_vfs::{Task, boot, clock, inode};

use super::{Random, fsck};

/// A region in a file, so that record locks tell its processes apart.
fn region() -> Region<'static> {
    // SAFETY: the name is NUL-terminated.
    let fd = unsafe { libc::memfd_create(c"deaths".as_ptr(), libc::MFD_CLOEXEC) };
    let fd = lp_region::life_file::beside(Fd::new(fd)).expect("life");
    let geometry = Geometry { data_bytes: 64 << 20, inodes: 100_000, identity: 7 };
    Region::create(fd, &geometry).expect("region")
}

/// Lets one test of a file run at a time, because they share the count of instructions.
pub fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A task on its own file system.
pub fn task() -> Task<'static> {
    let region = region();
    let setup = boot::RunSetup { mounts: &[b"/light"], ..boot::RunSetup::default() };
    let run = boot::claim_run(region, &setup).expect("run");
    let process = boot::claim_process(region, run).expect("process");
    let lane = boot::attach(region, process, 1).expect("attach");
    let task = Task::new(region, process, lane, clock::now);
    boot::arrive(&task);
    boot::mkfs(&task, 0).expect("mkfs");
    task
}

/// Runs `call` in a child that is killed after `steps` instructions. Returns whether it got that far.
pub fn interrupt(task: &Task, steps: u32, call: &dyn Fn(&Task)) -> bool {
    interrupt_after(task, steps, &|_| (), call)
}

/// [`interrupt`] of a child that has called `prepare` before.
pub fn interrupt_after(task: &Task, steps: u32, prepare: &dyn Fn(&Task), call: &dyn Fn(&Task)) -> bool {
    let run = lp_region::RunId(task.process.run.load(lp_region::sync::Ordering::Relaxed));
    let id = boot::claim_process(task.region, run).expect("process");
    left(); // Both processes must have it.
    // SAFETY: the child calls only what the child of a process with threads may call.
    match unsafe { libc::fork() } {
        0 => {
            let region = task.region;
            let Ok(lane) = boot::attach(region, id, 2) else { std::process::abort() };
            let child = Task::new(region, id, lane, clock::now);
            boot::arrive(&child);
            fsck::warm(&child);
            if steps & 2 == 0 {
                own_root(&child);
            }
            prepare(&child);
            signal_after(steps, libc::SIGKILL);
            call(&child);
            // SAFETY: _exit(2) ends only the child.
            unsafe { libc::_exit(0) }
        }
        pid => {
            let mut status = 0;
            // SAFETY: the child is this process's own.
            unsafe { libc::waitpid(pid, &raw mut status, 0) };
            assert!(libc::WIFSIGNALED(status) || status == 0, "the child failed by itself: {status:x}");
            libc::WIFSIGNALED(status)
        }
    }
}

/// Runs `call` in a child that has no slot yet and is stopped after `steps` instructions, and `meanwhile` as
/// long as it is; then it dies. Returns whether it got that far.
pub fn stop_newcomer(steps: u32, call: &dyn Fn(), meanwhile: &dyn Fn()) -> bool {
    left(); // Both processes must have it.
    // SAFETY: the child calls only what the child of a process with threads may call.
    match unsafe { libc::fork() } {
        0 => {
            signal_after(steps, libc::SIGSTOP);
            call();
            // SAFETY: _exit(2) ends only the child.
            unsafe { libc::_exit(0) }
        }
        pid => {
            let mut status = 0;
            // SAFETY: the child is this process's own, and not waited for before it has ended.
            unsafe { libc::waitpid(pid, &raw mut status, libc::WUNTRACED) };
            let is_stopped = libc::WIFSTOPPED(status);
            if is_stopped {
                meanwhile();
                // SAFETY: as above.
                unsafe {
                    libc::kill(pid, libc::SIGKILL);
                    libc::waitpid(pid, &raw mut status, 0);
                }
            } else {
                assert!(status == 0, "the child failed by itself: {status:x}");
            }
            is_stopped
        }
    }
}

/// Gives this task the bias of the root directory's lock, after the former owner's was revoked.
fn own_root(task: &Task) {
    let Ok(root) = boot::root(task, 0) else { std::process::abort() };
    for _ in 0..300 {
        drop(inode::enter(task, root.id));
    }
}

/// Number of instructions that the child may still execute, in memory that parent and child share.
fn left() -> &'static AtomicU32 {
    static PAGE: OnceLock<usize> = OnceLock::new();
    let page = PAGE.get_or_init(|| {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping.
        unsafe { libc::mmap(std::ptr::null_mut(), 4096, access, kind, -1, 0) as usize }
    });
    // SAFETY: the mapping stays, and zeros are a valid atomic.
    unsafe { &*(*page as *const AtomicU32) }
}

/// Number of instructions of a call.
pub fn length(task: &Task, call: &dyn Fn(&Task)) -> u32 {
    assert!(!interrupt(task, u32::MAX, call), "the call ends");
    u32::MAX - left().load(Ordering::Relaxed)
}

/// Where to interrupt a call of `length` instructions: at random in each of `DEATHS` equal parts, or at every
/// instruction with `DEATHS=1`; and after its end.
pub fn samples(length: u32) -> impl Iterator<Item = u32> {
    let wanted = match wanted() {
        Some(1) => length,
        Some(count) => count,
        // Without optimisation a call takes ten times as many instructions.
        None if cfg!(debug_assertions) => 3,
        None => 15,
    };
    places((length / wanted).max(1)).take_while(move |steps| *steps <= length).chain([length + 1000])
}

/// Sets the processor's trap flag: the handler runs after each instruction from here on, and sends `signal`
/// to its process after `steps`.
fn signal_after(steps: u32, signal: i32) {
    static SIGNAL: AtomicI32 = AtomicI32::new(0);
    extern "C" fn step(_: i32) {
        if left().fetch_sub(1, Ordering::Relaxed) == 1 {
            // SAFETY: the signal goes to this process only.
            unsafe { libc::kill(libc::getpid(), SIGNAL.load(Ordering::Relaxed)) };
        }
    }
    SIGNAL.store(signal, Ordering::Relaxed);
    left().store(steps, Ordering::Relaxed);
    // SAFETY: the handler calls only async-signal-safe functions; the flag only makes the processor trap.
    unsafe {
        libc::signal(libc::SIGTRAP, step as extern "C" fn(i32) as libc::sighandler_t);
        std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq");
    }
}

/// Where to interrupt a call that is repeated until it ends: at every instruction with `DEATHS=1`, by default
/// at the first, and at random in each part of a length that makes the tests short.
pub fn strides() -> impl Iterator<Item = u32> {
    let stride = match wanted() {
        Some(_) => 1,
        // Without optimisation a call takes ten times as many instructions.
        None if cfg!(debug_assertions) => 1499,
        None => 101,
    };
    std::iter::once(1).chain(places(stride).filter(|steps| *steps != 1))
}

/// The value of `DEATHS`.
fn wanted() -> Option<u32> {
    std::env::var("DEATHS")
        .ok()
        .map(|count| count.parse::<u32>().expect("DEATHS=1, or a number of places").max(1))
}

/// One instruction at random in each `stride` of them, so that many runs cover all. `DEATHS_SEED` repeats the
/// choice of a run, which prints it.
fn places(stride: u32) -> impl Iterator<Item = u32> {
    static SEED: OnceLock<u64> = OnceLock::new();
    let seed = *SEED.get_or_init(|| {
        let seed = match std::env::var("DEATHS_SEED") {
            Ok(seed) => seed.parse().expect("DEATHS_SEED is a number"),
            Err(_) => RandomState::new().hash_one(0) % 1_000_000,
        };
        eprintln!("DEATHS_SEED={seed}");
        seed
    });
    let mut random = Random(seed * 2 + 1);
    (0..).map(move |part: u32| 1 + part * stride + random.below(stride as usize) as u32)
}
