//! A process that is stepped into a call and killed there.

use lp_abi::Result;
use lp_region::{LaneId, ProcessId};
use lp_vfs::{Task, clock, fork};

use crate::sandbox::Sandbox;

/// How a victim ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Killed within the call, after this many instructions.
    Killed,
    /// The call was over before: it takes this many instructions.
    Finished(u64),
}

/// More steps than any call has: the victim lives to finish it.
pub const WHOLE: u64 = u64::MAX;

/// What the victim does. It is a forked child of a threaded process: it must not allocate.
pub type Call<'a> = &'a dyn Fn(&Task<'static>) -> Result<()>;

/// Forks a victim that makes `call`, kills it after `steps` instructions of it ([`WHOLE`]: not at all) and waits for its
/// end.
pub fn run(sandbox: &Sandbox, before: Call, call: Call, steps: u64) -> End {
    let task = &sandbox.task;
    let slot = fork::before(task).expect("a process slot for the victim");
    // SAFETY: the child makes only system calls and calls on the region, and leaves by _exit.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        child(task, slot, before, call);
    }
    fork::parent(task);
    let end = step(pid, steps);
    if end == End::Killed {
        // SAFETY: the victim is our child and not waited for yet.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        wait(pid);
    }
    end
}

fn child(survivor: &Task<'static>, slot: ProcessId, before: Call, call: Call) -> ! {
    let done = (|| {
        let region = survivor.region;
        let lane: LaneId = fork::child(region, slot, 0)?;
        let task = Task::new(region, slot, lane, clock::now);
        before(&task)?;
        // SAFETY: asks to be traced by the parent, which waits for the breakpoint.
        unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
        breakpoint();
        let done = call(&task);
        breakpoint();
        done
    })();
    // SAFETY: ends the process without running the parent's exit handlers.
    unsafe { libc::_exit(if done.is_ok() { 0 } else { 9 }) }
}

fn breakpoint() {
    // SAFETY: the tracer takes the trap.
    unsafe { core::arch::asm!("int3", options(nomem, nostack)) };
}

/// Steps from the first breakpoint on. Only a victim that is to live is looked at between steps: looking costs more than
/// stepping, and the length of the call is known by the time that it is cut short.
fn step(pid: i32, steps: u64) -> End {
    assert!(is_trap(wait(pid)), "the victim did not come to its first breakpoint");
    for done in 0..steps {
        if steps == WHOLE && at_breakpoint(pid) {
            finish(pid);
            return End::Finished(done);
        }
        // SAFETY: the victim is stopped.
        unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, pid, 0, 0) };
        let status = wait(pid);
        assert!(is_trap(status), "the victim stopped with status {status:#x} at step {done}");
    }
    End::Killed
}

fn at_breakpoint(pid: i32) -> bool {
    // SAFETY: the victim is stopped; the words read are its registers' and its code's.
    unsafe {
        let mut registers: libc::user_regs_struct = core::mem::zeroed();
        libc::ptrace(libc::PTRACE_GETREGS, pid, 0, &raw mut registers);
        libc::ptrace(libc::PTRACE_PEEKTEXT, pid, registers.rip, 0) as u8 == 0xcc
    }
}

fn finish(pid: i32) {
    // SAFETY: the victim is stopped before its second breakpoint, then at it.
    unsafe {
        libc::ptrace(libc::PTRACE_CONT, pid, 0, 0);
        wait(pid);
        libc::ptrace(libc::PTRACE_CONT, pid, 0, 0);
    }
    let status = wait(pid);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "the call failed: status {status:#x}");
}

fn wait(pid: i32) -> i32 {
    let mut status = 0;
    // SAFETY: our child.
    let got = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
    assert_eq!(got, pid, "waitpid: {}", std::io::Error::last_os_error());
    status
}

fn is_trap(status: i32) -> bool {
    libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGTRAP
}
