//! Waiting for the command when something remains to be done at its end (`--stats`, `--apply`, `--ask`).
//!
//! The command runs as a child in the same process group and shares the terminal. This process forwards the
//! signals sent to it (those of the terminal reach the child directly), stops when the child stops, and ends
//! as the child ends.

use std::io::Error;
use std::mem::MaybeUninit;

use super::exec::Launch;
use crate::command::output::failure::{Failure, REGION, reason};
use crate::command::output::message::message;
use crate::command::run::claim::{Claim, Slot};

/// How the command ended.
pub(crate) enum End {
    Exited(u8),
    Killed(libc::c_int),
}

/// What became of a command, and of what was begun beside it.
pub(crate) struct Ended<T> {
    pub(crate) end: End,
    pub(crate) beside: T,
}

impl End {
    /// Ends this process as the command ended; the status is for `main` to return.
    pub(crate) fn pass_on(self) -> u8 {
        match self {
            End::Exited(status) => status,
            End::Killed(signal) => die_by(signal),
        }
    }
}

/// Runs the command as a child in a slot, and `begin` with the child's id as it starts; waits for the
/// command.
pub(crate) fn run_beside<T>(
    launch: &mut Launch,
    claim: &Claim,
    slot: &Slot,
    begin: impl FnOnce(libc::pid_t) -> T,
) -> Result<Ended<T>, Failure> {
    let all = every_signal();
    let before = set_mask(&all);
    // It may be ignored; then the kernel would reap the child without notice, however soon that ends.
    let disposition = set_disposition(libc::SIGCHLD, libc::SIG_DFL);
    // SAFETY: no other thread runs, so the child may do whatever a process may.
    let child = unsafe { libc::fork() };
    match child {
        -1 => {
            Err(Failure::new(REGION, format!("cannot start a process: {}", reason(&Error::last_os_error()))))
        }
        0 => {
            set_disposition(libc::SIGCHLD, disposition);
            set_mask(&before);
            let failure = launch.exec(claim, Some(slot));
            message(&failure);
            // SAFETY: ends the child without running what the parent has registered for its own exit.
            unsafe { libc::_exit(i32::from(failure.status)) }
        }
        child => {
            let beside = begin(child);
            let end = wait(child, &all);
            if claim.missed(slot) {
                message(format_args!(
                    "{} ran without the gate: all of its calls went to the kernel",
                    launch.name
                ));
            }
            Ok(Ended { end, beside })
        }
    }
}

/// From here on signals have their usual effect on this process.
pub(crate) fn take_signals() {
    set_mask(&no_signal());
}

fn wait(child: libc::pid_t, all: &libc::sigset_t) -> End {
    loop {
        while let Some(status) = changed(child) {
            if libc::WIFEXITED(status) {
                return End::Exited(libc::WEXITSTATUS(status) as u8);
            }
            if libc::WIFSIGNALED(status) {
                return End::Killed(libc::WTERMSIG(status));
            }
            if libc::WIFSTOPPED(status) {
                stop_by(libc::WSTOPSIG(status));
                // SAFETY: the child is not reaped yet, so the pid is its own.
                unsafe { libc::kill(child, libc::SIGCONT) };
            }
        }
        let mut info = MaybeUninit::<libc::siginfo_t>::uninit();
        // SAFETY: both point to live objects of the right type.
        let signal = unsafe { libc::sigwaitinfo(all, info.as_mut_ptr()) };
        if signal <= 0 || signal == libc::SIGCHLD {
            continue;
        }
        // SAFETY: sigwaitinfo succeeded, so it filled the structure.
        let sent_by_a_process = unsafe { info.assume_init() }.si_code <= 0;
        // The kernel sends the terminal's signals to the whole group, so the child already has them.
        if sent_by_a_process {
            // SAFETY: the child is not reaped yet, so the pid is its own.
            unsafe { libc::kill(child, signal) };
        }
    }
}

/// The child's next change of state, if there is one.
fn changed(child: libc::pid_t) -> Option<libc::c_int> {
    let mut status = 0;
    // SAFETY: `status` is writable.
    let found = unsafe { libc::waitpid(child, &mut status, libc::WNOHANG | libc::WUNTRACED) };
    (found == child).then_some(status)
}

/// Stops this process as `signal` stopped the child, so that the shell sees its job stopped; returns when it
/// continues.
fn stop_by(signal: libc::c_int) {
    act_on(signal);
}

/// Ends this process as `signal` ended the child, without a second core file; the return value is a shell's
/// exit status.
fn die_by(signal: libc::c_int) -> u8 {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `none` is a limit.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
    act_on(signal);
    128 + signal as u8
}

/// Takes the default action of `signal`.
fn act_on(signal: libc::c_int) {
    let mut only = every_signal();
    // SAFETY: `only` is a set; the default disposition runs no code of ours.
    unsafe {
        libc::sigemptyset(&mut only);
        libc::sigaddset(&mut only, signal);
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &only, std::ptr::null_mut());
        libc::sigprocmask(libc::SIG_BLOCK, &only, std::ptr::null_mut());
    }
}

fn every_signal() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigfillset initialises the set.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        set.assume_init()
    }
}

fn no_signal() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

/// Sets what a signal does, and returns what it did.
fn set_disposition(signal: libc::c_int, to: libc::sighandler_t) -> libc::sighandler_t {
    // SAFETY: `to` is no handler, or one that this function has returned.
    unsafe { libc::signal(signal, to) }
}

/// Sets the signal mask and returns the previous one.
fn set_mask(mask: &libc::sigset_t) -> libc::sigset_t {
    let mut before = MaybeUninit::uninit();
    // SAFETY: both point to sets; the call fills the second.
    unsafe {
        libc::sigprocmask(libc::SIG_SETMASK, mask, before.as_mut_ptr());
        before.assume_init()
    }
}
