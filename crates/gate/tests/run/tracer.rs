//! A tracer that checks where system calls are made.
//!
//! A patched site is recognised by its bytes: a jump, followed by nothing but `int3` up to the `syscall`,
//! which is therefore reached only through the thunk.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use libc::{c_long, c_void, pid_t};
use lp_abi::gated::is_gated;
use lp_abi::image::GATE_PAGE;

/// The result of a traced session.
pub struct Report {
    /// Gated calls at patched sites.
    pub covered: usize,
    /// Gated calls elsewhere: number, object and offset in it, and how often.
    pub missed: BTreeMap<String, usize>,
}

/// Calls that the dynamic linker makes by itself when it starts a program or ends one with a message.
const LINKERS_OWN: &[c_long] =
    &[libc::SYS_write, libc::SYS_writev, libc::SYS_access, libc::SYS_execve, libc::SYS_readlink];

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// The dynamic linker is loading the program.
    Starting,
    /// The gate is attaching: its page is mapped.
    Attaching,
    /// The program runs.
    Running,
}

/// Runs a command to its end, with all its children.
pub fn run(mut command: Command) -> Report {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: only system calls between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            Ok(())
        });
    }
    let child = command.spawn().expect("the command starts");
    let mut report = Report { covered: 0, missed: BTreeMap::new() };
    let mut states = HashMap::<pid_t, State>::new();
    let mut known = HashMap::<(pid_t, u64), bool>::new();
    let mut optioned = BTreeSet::new();
    let mut early = BTreeSet::new();
    let first = child.id() as pid_t;
    loop {
        let mut status = 0;
        // SAFETY: waits for children; this test has no others.
        let pid = unsafe { libc::waitpid(-1, &mut status, libc::__WALL) };
        if pid < 0 {
            break;
        }
        if !libc::WIFSTOPPED(status) {
            states.remove(&pid);
            continue;
        }
        if optioned.insert(pid) {
            let options = libc::PTRACE_O_TRACESYSGOOD
                | libc::PTRACE_O_TRACEFORK
                | libc::PTRACE_O_TRACEVFORK
                | libc::PTRACE_O_TRACECLONE
                | libc::PTRACE_O_TRACEEXEC
                | libc::PTRACE_O_EXITKILL;
            // SAFETY: the child is stopped.
            unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, c_long::from(options)) };
        }
        let signal = libc::WSTOPSIG(status);
        if pid != first && !states.contains_key(&pid) {
            // A new child whose parent's event has not arrived yet.
            early.insert(pid);
            continue;
        }
        let event = status >> 16;
        let mut pass = 0;
        if event == libc::PTRACE_EVENT_EXEC {
            states.insert(pid, State::Starting);
            known.retain(|(of, _), _| *of != pid);
        } else if matches!(
            event,
            libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE
        ) {
            let mut new: libc::c_ulong = 0;
            // SAFETY: the child is stopped, and the kernel writes one word.
            unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, pid, 0, &raw mut new) };
            let (new, state) = (new as pid_t, states.get(&pid).copied().unwrap_or(State::Starting));
            states.insert(new, state);
            if early.remove(&new) {
                resume(new, 0);
            }
        } else if signal == libc::SIGTRAP | 0x80 {
            step(pid, states.entry(pid).or_insert(State::Starting), &mut known, &mut report);
        } else if event == 0 && signal != libc::SIGSTOP && signal != libc::SIGTRAP {
            pass = signal;
        }
        resume(pid, pass);
    }
    drop(child);
    report
}

/// Continues a stopped child to its next system call, with a signal or 0.
fn resume(pid: pid_t, signal: i32) {
    // SAFETY: the child is stopped.
    unsafe { libc::ptrace(libc::PTRACE_SYSCALL, pid, 0, c_long::from(signal)) };
}

/// Examines one entry to the kernel.
fn step(pid: pid_t, state: &mut State, known: &mut HashMap<(pid_t, u64), bool>, report: &mut Report) {
    let mut info = std::mem::MaybeUninit::<libc::ptrace_syscall_info>::zeroed();
    // SAFETY: the child is stopped at a system call; the kernel fills the record in, for which zeros are
    // valid.
    let info = unsafe {
        let size = size_of::<libc::ptrace_syscall_info>();
        libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, pid, size as *mut c_void, info.as_mut_ptr());
        info.assume_init()
    };
    if info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
        return;
    }
    // SAFETY: the record describes an entry.
    let (nr, first) = unsafe { (info.u.entry.nr as c_long, info.u.entry.args[0]) };
    let at = info.instruction_pointer;
    if nr == libc::SYS_mmap && first == GATE_PAGE as u64 {
        *state = State::Attaching;
    }
    if *state == State::Starting || !is_gated(nr as u32) {
        return;
    }
    let in_gate = *known.entry((pid, at)).or_insert_with(|| object_at(pid, at).contains("liblp_preload"));
    if in_gate {
        return;
    }
    // The first call that is not the gate's ends the attach phase.
    *state = State::Running;
    // Another thread has ended the process: its call will not be made.
    let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else { return };
    if is_patched(&memory, at) {
        report.covered += 1;
        return;
    }
    let object = object_at(pid, at);
    if object.contains("/ld-linux") && LINKERS_OWN.contains(&nr) {
        return;
    }
    *report.missed.entry(format!("call {nr} at {object}")).or_default() += 1;
}

/// Whether the `syscall` before `at` follows a jump and `int3`s, or is in a thunk (where the site's own was
/// displaced).
fn is_patched(memory: &File, at: u64) -> bool {
    // In a thunk the distance of the site precedes the syscall. The site was displaced with what followed.
    let mut distance = [0u8; 4];
    let site = memory.read_exact_at(&mut distance, at - 2 - 4).ok();
    let site = site.map(|()| (at - 2).wrapping_add_signed(i64::from(i32::from_le_bytes(distance))));
    follows_jump(memory, at - 2)
        || site.is_some_and(|site| (site + 2..site + 9).any(|end| follows_jump(memory, end)))
}

/// Whether a jump, and `int3`s after it, end at `end`.
fn follows_jump(memory: &File, end: u64) -> bool {
    const BEFORE: u64 = 24;
    let mut bytes = [0u8; BEFORE as usize];
    if memory.read_exact_at(&mut bytes, end.wrapping_sub(BEFORE)).is_err() {
        return false;
    }
    let fill = bytes.iter().rev().take_while(|byte| **byte == 0xcc).count();
    let jump = bytes.len() - fill;
    jump >= 5 && bytes[jump - 5] == 0xe9
}

/// The object at an address, and the offset in its file.
fn object_at(pid: pid_t, at: u64) -> String {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    for line in maps.lines() {
        let mut fields = line.split_whitespace();
        let Some((start, end)) = fields.next().and_then(|range| range.split_once('-')) else { continue };
        let (Ok(start), Ok(end)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16)) else {
            continue;
        };
        if (start..end).contains(&at) {
            let offset = fields.nth(1).and_then(|offset| u64::from_str_radix(offset, 16).ok()).unwrap_or(0);
            let name = fields.nth(2).unwrap_or("anonymous memory");
            return format!("{name}+{:#x}", at - start + offset);
        }
    }
    format!("{at:#x}")
}
