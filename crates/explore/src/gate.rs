//! The same at the gate: a thread of a program under `lightpath run` is stopped inside a gated call, the program forks, and
//! the child makes a call of its own, within a bound of instructions.
//!
//! The program steps itself. Its handler is set by a system call that no object holds, so that the gate neither sees it nor
//! defers it.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};

/// A call on a file.
type Call = fn(i32);

/// What victims and children do, on a file that is open already.
const CALLS: [(&str, Call); 5] = [
    ("mmap", |fd| {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping, which nobody uses.
        unsafe {
            let at = libc::mmap(std::ptr::null_mut(), 4096, access, kind, fd, 0);
            libc::munmap(at, 4096);
        }
    }),
    ("pwrite", |fd| {
        // SAFETY: the buffer is as long as said.
        let _ = unsafe { libc::pwrite(fd, c"text".as_ptr().cast(), 4, 100) };
    }),
    ("open", |_| {
        // SAFETY: the path ends in NUL.
        unsafe { libc::close(libc::open(c"/light/other".as_ptr(), libc::O_RDWR | libc::O_CREAT, 0o600)) };
    }),
    ("dup", |fd| {
        // SAFETY: a descriptor of this program's.
        unsafe { libc::close(libc::dup(fd)) };
    }),
    ("truncate", |fd| {
        // SAFETY: a descriptor of this program's.
        unsafe { libc::ftruncate(fd, 8192) };
    }),
];

/// Instructions that a child may take: its call takes a few thousand.
const BOUND: u32 = 30_000;
/// Looks at a fork before it counts as waiting. One that is only slow costs a schedule, not a finding.
const LOOKS: u32 = 20_000;
/// How a child ends that takes more.
const BLOCKED: i32 = 77;
const FILE: &std::ffi::CStr = c"/light/file";

/// Instructions until the stop, and whether the victim stands there or has come to its end.
static LEFT: AtomicU32 = AtomicU32::new(0);
static PLACE: AtomicU32 = AtomicU32::new(place::RUNNING);
/// 1 while the program forks.
static FORKING: AtomicU32 = AtomicU32::new(0);
/// Code that makes system calls.
static CODE: AtomicUsize = AtomicUsize::new(0);

mod place {
    pub const RUNNING: u32 = 0;
    pub const STOPPED: u32 = 1;
    pub const GOING_ON: u32 = 2;
    pub const ENDED: u32 = 3;
    /// The stepped one is the child: at the end of its instructions it is blocked.
    pub const CHILD: u32 = 4;
}

/// Explores every `stride`-th instruction of every victim with every child; the number of findings.
///
/// # Errors
/// When `lightpath` does not run.
pub fn explore(stride: u32, only: Option<&str>) -> Result<(u64, u32)> {
    let me = std::env::current_exe()?;
    let command: PathBuf = me.with_file_name("lightpath");
    let (mut schedules, mut bad) = (0, 0);
    for (victim, _) in CALLS {
        for (child, _) in CALLS {
            let case = format!("{victim}:{child}");
            if only.is_some_and(|only| !only.starts_with(&case)) {
                continue;
            }
            let range = only
                .and_then(|only| only.splitn(3, ':').nth(2))
                .map_or_else(String::new, |at| format!(":{at}"));
            let inside = format!("{case}{range}");
            let mut run = Command::new(&command);
            run.arg("run").arg("--").arg(&me).args(["--stride", &stride.to_string(), "--inside", &inside]);
            let output = run.output().with_context(|| format!("{}", command.display()))?;
            let text = String::from_utf8_lossy(&output.stdout);
            let mut counted = false;
            for line in text.lines() {
                match line.strip_prefix("schedules ") {
                    Some(count) => {
                        schedules += count.parse::<u64>()?;
                        counted = true;
                    }
                    None => {
                        println!("{line}");
                        bad += u32::from(line.starts_with("gate:"));
                    }
                }
            }
            if !counted {
                println!(
                    "gate: {case} ends with {}: {}",
                    output.status,
                    String::from_utf8_lossy(&output.stderr)
                );
                bad += 1;
            }
        }
    }
    Ok((schedules, bad))
}

/// The program: one victim, one child, every `stride`-th instruction or one.
///
/// # Errors
/// When the case does not exist.
pub fn inside(case: &str, stride: u32) -> Result<()> {
    let fields: Vec<&str> = case.split(':').collect();
    let call = |name: &str| CALLS.iter().find(|(known, _)| *known == name).map(|(_, call)| *call);
    let (Some(victim), Some(child)) = (call(fields[0]), fields.get(1).and_then(|name| call(name))) else {
        bail!("no case is called {case}")
    };
    // SAFETY: the path ends in NUL.
    let fd = unsafe { libc::open(FILE.as_ptr(), libc::O_RDWR | libc::O_CREAT, 0o600) };
    // SAFETY: a descriptor of this program's.
    unsafe { libc::ftruncate(fd, 1 << 20) };
    prepare();
    std::thread::spawn(watch);
    let only: Option<u32> = fields.get(2).map(|at| at.parse()).transpose()?;
    let (first, last) = only.map_or((1, u32::MAX), |at| (at, at));
    let (mut schedules, mut blocked) = (0, 0);
    for at in (first..=last).step_by(stride.max(1) as usize) {
        schedules += 1;
        let (stopped, status) = schedule(at, fd, victim, child);
        if status != 0 {
            blocked += 1;
            if blocked == 1 {
                let how = if status == BLOCKED << 8 {
                    "never ends".into()
                } else {
                    format!("ends with {status:x}")
                };
                println!(
                    "gate: {}, in a child of a program whose thread is inside {}, {how}\n    lp-explore --gate \
                     --replay {}:{}:{at}",
                    fields[1], fields[0], fields[0], fields[1]
                );
            }
        }
        // A few of a kind are enough: each takes a while.
        if !stopped || blocked == 3 {
            break;
        }
    }
    println!("schedules {schedules}");
    Ok(())
}

fn schedule(at: u32, fd: i32, victim: Call, child: Call) -> (bool, i32) {
    LEFT.store(at, Ordering::Relaxed);
    PLACE.store(place::RUNNING, Ordering::Release);
    let thread = std::thread::spawn(move || {
        trap(|| victim(fd));
        let _ = PLACE.compare_exchange(place::RUNNING, place::ENDED, Ordering::AcqRel, Ordering::Relaxed);
    });
    while PLACE.load(Ordering::Acquire) == place::RUNNING {
        std::thread::yield_now();
    }
    let stopped = PLACE.load(Ordering::Acquire) == place::STOPPED;
    FORKING.store(1, Ordering::Release);
    // SAFETY: the child calls nothing that the child of a program with threads may not.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // Whatever it waits for without an instruction ends it as well.
        // SAFETY: changes this process only.
        unsafe { libc::alarm(10) };
        LEFT.store(BOUND, Ordering::Relaxed);
        PLACE.store(place::CHILD, Ordering::Release);
        trap(|| child(fd));
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    FORKING.store(0, Ordering::Release);
    let mut status = 0;
    // SAFETY: waits for the child.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    PLACE.store(place::GOING_ON, Ordering::Release);
    let _ = thread.join();
    (stopped, status)
}

/// A fork may have to wait for another thread of its process: then the victim goes on. A thread of its own, which allocates
/// nothing: fork holds the allocator's locks.
fn watch() {
    let mut looks = 0;
    loop {
        std::thread::yield_now();
        looks = if FORKING.load(Ordering::Acquire) == 0 { 0 } else { looks + 1 };
        if looks == LOOKS {
            let (from, to) = (place::STOPPED, place::GOING_ON);
            let _ = PLACE.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// Runs `call` under the trap flag.
fn trap(call: impl FnOnce()) {
    // SAFETY: the flag makes the processor trap, and the handler is there. The red zone is stepped over.
    unsafe {
        std::arch::asm!("sub rsp, 128", "pushfq", "or qword ptr [rsp], 0x100", "popfq", "add rsp, 128")
    };
    call();
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("sub rsp, 128", "pushfq", "and qword ptr [rsp], -257", "popfq", "add rsp, 128")
    };
}

/// Writes code that makes system calls, and sets the handler with it.
fn prepare() {
    // Moves the arguments of a C function to a system call's; and behind it, rt_sigreturn(2).
    const CALL: [u8; 21] = [
        0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, 0x4d, 0x89, 0xc2, 0x4d, 0x89,
        0xc8, 0x0f, 0x05, 0xc3,
    ];
    const RETURN: [u8; 7] = [0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05];
    let access = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    // SAFETY: a new page that holds two pieces of code, and stays.
    let page = unsafe {
        let page =
            libc::mmap(std::ptr::null_mut(), 4096, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        page.cast::<[u8; 21]>().write(CALL);
        page.byte_add(64).cast::<[u8; 7]>().write(RETURN);
        page as usize
    };
    CODE.store(page, Ordering::Release);
    const RESTORER: usize = 0x0400_0000;
    let flags = libc::SA_SIGINFO as usize | libc::SA_NODEFER as usize | RESTORER;
    let action: [usize; 4] = [on_trap as *const () as usize, flags, page + 64, 0];
    let set = call(libc::SYS_rt_sigaction, libc::SIGTRAP as usize, action.as_ptr() as usize, 0, 8);
    assert_eq!(set, 0, "rt_sigaction");
}

fn call(number: i64, one: usize, two: usize, three: usize, four: usize) -> i64 {
    type Raw = extern "C" fn(i64, usize, usize, usize, usize) -> i64;
    // SAFETY: the page holds code of this type.
    let call: Raw = unsafe { std::mem::transmute(CODE.load(Ordering::Relaxed)) };
    call(number, one, two, three, four)
}

extern "C" fn on_trap(_: i32, _: *mut libc::siginfo_t, context: *mut libc::ucontext_t) {
    if LEFT.fetch_sub(1, Ordering::Relaxed) != 1 {
        return;
    }
    if PLACE.load(Ordering::Relaxed) == place::CHILD {
        call(libc::SYS_exit_group, BLOCKED as usize, 0, 0, 0);
    }
    PLACE.store(place::STOPPED, Ordering::Release);
    while PLACE.load(Ordering::Acquire) != place::GOING_ON {
        call(libc::SYS_sched_yield, 0, 0, 0, 0);
    }
    // SAFETY: the kernel's own record of what is interrupted.
    unsafe { (*context).uc_mcontext.gregs[libc::REG_EFL as usize] &= !0x100 };
}
