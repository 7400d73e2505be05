//! Checks of the kernel.

use rustix::fs::MemfdFlags;

use super::finding::{Finding, setting};
use crate::command::output::failure::reason;

/// The oldest kernel with all that the region needs: `MADV_POPULATE_WRITE` came with 5.14.
const OLDEST: (u32, u32) = (5, 14);

pub(super) fn findings() -> Vec<Finding> {
    vec![version(), membarrier(), memfd(), record_locks(), ptrace(), core_pattern()]
}

fn version() -> Finding {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let machine = name.machine().to_string_lossy();
    match found >= OLDEST {
        true => Finding::ok("kernel", format!("Linux {release}, {machine}")),
        false => {
            Finding::fail("kernel", format!("Linux {release}: {}.{} or newer is needed", OLDEST.0, OLDEST.1))
        }
    }
}

fn membarrier() -> Finding {
    const WHAT: &str = "membarrier";
    const QUERY: libc::c_int = 0;
    const WANTED: [(libc::c_long, &str); 2] =
        [(1 << 1, "GLOBAL_EXPEDITED"), (1 << 2, "REGISTER_GLOBAL_EXPEDITED")];
    // SAFETY: the query takes no pointers and changes nothing.
    let found = unsafe { libc::syscall(libc::SYS_membarrier, QUERY, 0, 0) };
    if found < 0 {
        return Finding::fail(WHAT, format!("not there: {}", reason(&std::io::Error::last_os_error())));
    }
    let missing: Vec<_> = WANTED.iter().filter(|(bit, _)| found & bit == 0).map(|(_, name)| *name).collect();
    match missing.is_empty() {
        true => Finding::ok(WHAT, "GLOBAL_EXPEDITED: readers need no fence"),
        false => Finding::fail(WHAT, format!("{} missing in this kernel", missing.join(" and "))),
    }
}

fn memfd() -> Finding {
    const WHAT: &str = "memfd";
    let policy = setting("/proc/sys/vm/memfd_noexec").unwrap_or_default();
    match rustix::fs::memfd_create("lightpath-doctor", MemfdFlags::CLOEXEC) {
        Err(e) => Finding::fail(WHAT, format!("cannot be made: {}", reason(&e.into()))),
        Ok(_) if policy == "2" => {
            Finding::warn(WHAT, "vm.memfd_noexec is 2: programs stored in the file system will not run")
        }
        Ok(_) => Finding::ok(WHAT, "shared memory without a name"),
    }
}

fn record_locks() -> Finding {
    const WHAT: &str = "record locks";
    let tried = rustix::fs::memfd_create("lightpath-doctor", MemfdFlags::CLOEXEC)
        .and_then(|fd| rustix::fs::fcntl_lock(&fd, rustix::fs::FlockOperation::NonBlockingLockExclusive));
    match tried {
        Ok(()) => Finding::ok(WHAT, "tell whether a process lives"),
        Err(e) => Finding::fail(WHAT, format!("not on shared memory: {}", reason(&e.into()))),
    }
}

fn ptrace() -> Finding {
    const WHAT: &str = "ptrace";
    match setting("/proc/sys/kernel/yama/ptrace_scope").as_deref() {
        Some("3") => {
            Finding::warn(WHAT, "kernel.yama.ptrace_scope is 3: the audit cannot trace its own children")
        }
        Some("2") if !rustix::process::geteuid().is_root() => {
            Finding::warn(WHAT, "kernel.yama.ptrace_scope is 2: the audit needs root")
        }
        _ => match trace_a_child() {
            Ok(()) => Finding::ok(WHAT, "the audit can trace its children"),
            Err(e) => Finding::warn(WHAT, format!("the audit cannot trace its children: {}", reason(&e))),
        },
    }
}

/// Whether a child of ours may ask to be traced.
fn trace_a_child() -> std::io::Result<()> {
    // SAFETY: no other thread runs; the child makes two system calls and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: PTRACE_TRACEME takes no pointers.
        let refused = unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) } != 0;
        // SAFETY: ends the child only.
        unsafe { libc::_exit(i32::from(refused)) };
    }
    let mut status = 0;
    // SAFETY: `status` is writable.
    if child < 0 || unsafe { libc::waitpid(child, &mut status, 0) } != child {
        return Err(std::io::Error::last_os_error());
    }
    match status {
        0 => Ok(()),
        _ => Err(std::io::Error::from_raw_os_error(libc::EPERM)),
    }
}

fn core_pattern() -> Finding {
    const WHAT: &str = "core dumps";
    let Some(pattern) = setting("/proc/sys/kernel/core_pattern") else {
        return Finding::warn(WHAT, "kernel.core_pattern cannot be read");
    };
    match pattern.strip_prefix('|') {
        Some(program) => {
            let program = program.split_whitespace().next().unwrap_or_default();
            Finding::ok(WHAT, format!("go to {program}, which runs outside and sees the host's files only"))
        }
        None if pattern.starts_with('/') => Finding::ok(WHAT, format!("go to {pattern} on the host")),
        None => Finding::ok(
            WHAT,
            format!(
                "go to '{pattern}' in the directory the kernel knows; of a process inside a mount, on the host"
            ),
        ),
    }
}
