//! The victim: a thread of a program under `lightpath run`, stopped by ptrace(2), and how it is waited for.

use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::control::{Page, VICTIM, order, state};
use crate::life::End;

/// Checks after which nothing can be in progress any more.
const ALL_LOOKS: u32 = 6000;
/// How long a thread must only sleep before that counts as waiting.
const ASLEEP: Duration = Duration::from_millis(300);

/// A traced thread of another process.
pub(super) struct Victim {
    pub(super) tid: i32,
    /// Whom to wait for: the thread; or its process group, where a thread that executes a program goes on
    /// under its process's number.
    awaited: i32,
    /// The signal to deliver when it continues.
    signal: Cell<i32>,
    gone: Cell<bool>,
}

impl Victim {
    /// Stops the victim after `at` instructions of its call; none if the call is over before.
    pub(super) fn stop(page: &Page, pid: i32, at: u32, end: End) -> Result<Option<Victim>> {
        let slot = &page.slots[VICTIM];
        let tid = slot.pid.load(Ordering::Acquire) as i32;
        let awaited = if end == End::Image { -pid } else { tid };
        let victim = Victim { tid, awaited, signal: Cell::new(0), gone: Cell::new(false) };
        // It stops after an exec(2) of its own, too.
        victim.ask(libc::PTRACE_SEIZE, libc::PTRACE_O_TRACEEXEC)?;
        victim.ask(libc::PTRACE_INTERRUPT, 0)?;
        victim.wait()?;
        slot.tell(order::CALLS);
        for _ in 0..at {
            let stopped = victim.step();
            if end != End::Report && stopped.is_err() {
                return Ok(None);
            }
            stopped?;
            if slot.state.load(Ordering::Acquire) == state::DONE {
                victim.let_go();
                return Ok(None);
            }
        }
        Ok(Some(victim))
    }

    fn ask(&self, what: libc::c_uint, data: i32) -> Result<()> {
        // SAFETY: the thread is a child's; the call changes nothing here.
        let done = unsafe { libc::ptrace(what, self.tid, 0usize, data as usize) };
        if done < 0 { bail!("ptrace {what:x}: {}", std::io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Waits until it stops.
    fn wait(&self) -> Result<()> {
        let mut status = 0;
        // SAFETY: waits for a traced thread.
        let got = unsafe { libc::waitpid(self.awaited, &raw mut status, libc::__WALL) };
        if got != self.tid || !libc::WIFSTOPPED(status) {
            bail!("the victim ends with {status:x}");
        }
        let signal = libc::WSTOPSIG(status);
        self.signal.set(if signal == libc::SIGTRAP { 0 } else { signal });
        Ok(())
    }

    fn step(&self) -> Result<()> {
        self.ask(libc::PTRACE_SINGLESTEP, self.signal.get())?;
        self.wait()
    }

    pub(super) fn let_go(&self) {
        // It may have been killed meanwhile.
        let _ = self.ask(libc::PTRACE_DETACH, self.signal.get());
    }

    /// Whether it has been killed. Its process cannot end before this was asked.
    pub(super) fn is_gone(&self) -> bool {
        let mut status = 0;
        // SAFETY: asks about a traced thread.
        let got = unsafe { libc::waitpid(self.tid, &raw mut status, libc::__WALL | libc::WNOHANG) };
        self.gone.set(self.gone.get() || got < 0 || got == self.tid && !libc::WIFSTOPPED(status));
        self.gone.get()
    }
}

/// Whether a program that may have ended has done so with status 0.
pub(super) fn succeeded(ended: Option<std::process::ExitStatus>) -> bool {
    ended.is_some_and(|status| status.success())
}

/// Polls until `is_so`; false once the thread `tid`, which could make it so, only sleeps.
pub(super) fn in_time(tid: i32, mut is_so: impl FnMut() -> bool) -> bool {
    let mut awake = Instant::now();
    for _ in 0..ALL_LOOKS {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
        if !sleeps(tid) {
            awake = Instant::now();
        }
        if awake.elapsed() > ASLEEP {
            return false;
        }
    }
    false
}

/// Whether a thread sleeps in a system call that waits for others: futex(2), nanosleep(2),
/// clock_nanosleep(2), fcntl(2).
fn sleeps(tid: i32) -> bool {
    let call = std::fs::read_to_string(Path::new("/proc").join(tid.to_string()).join("syscall"));
    call.is_ok_and(|call| ["202 ", "35 ", "230 ", "72 "].iter().any(|number| call.starts_with(number)))
}
