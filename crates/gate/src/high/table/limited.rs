//! The calls of a process that has limited itself ([`crate::high::calls::filter`]): the gate makes no system
//! call of its own.
//!
//! [`LIMITED`] is one stub for all numbers. A call that concerns nothing of ours goes to the kernel from its
//! site, with the program's number and arguments. Any other is handled by
//! [`crate::high::table::calls::CALLS`]. What the handler asks of the kernel fails, except for calls with the
//! program's own number ([`permits`]); the handler then returns an errno.
//!
//! | call | in a limited process |
//! |---|---|
//! | exit, exit_group | the slot, and the lane of a thread, are left to the reaper |
//! | opening | uses reserved descriptors; `EMFILE` when there are none left |
//! | closing | as always; the number becomes reserved again |
//! | mapping a file of ours | `ENODEV` |
//! | fork | a process without anything of ours: the child leaves the run; else `EAGAIN` |
//! | creating a thread | `EAGAIN` without a reserved record, and in a static program |
//! | vfork, posix_spawn | `EAGAIN`: what is executed cannot attach |
//! | landlock_restrict_self | `EPERM`: rules on mounts could not be found |
//! | execve | `EPERM`: the new image cannot attach |
//! | changing ids or `RLIMIT_FSIZE` | `EPERM`: the file system could not follow |
//! | waiting for a lock | spins; others find what a dead process holds |

// Calls are patterns here, under the kernel's names.
#![allow(non_upper_case_globals)]

use crate::High;
use crate::high::life::join;
use crate::high::table::arguments::{PathArgument, descriptors, paths};
use crate::low::above::Above;
use core::arch::global_asm;

use lp_abi::linux::*;
use lp_abi::{Errno, Fd};
use lp_region::sync::Ordering;
use lp_vfs::task::Task;

use crate::high::calls::refused;
use crate::high::fd::descriptor;
use crate::high::frame::at::{At, Last, Route, Which};
use crate::high::memory::areas;
use crate::high::route::path::{route, route_apart};
use crate::high::special::address;
use crate::high::table::calls::CALLS;
use crate::high::table::mapped;
use crate::low::dispatch::{NOT_OURS, stub_table};
use crate::low::live::deferred;
use crate::low::thread::current;
use crate::low::thread::pool;
use crate::low::thread::record::Thread;
use crate::low::thread::tls;

global_asm!(
    ".pushsection .text.lp_limited,\"ax\",@progbits",
    ".hidden lp_limited",
    "lp_limited:",
    ".cfi_startproc",
    // The entry has kept the number and the arguments below its rbp.
    "mov edi, [rbp - 56]",
    "lea rsi, [rbp - 48]",
    "jmp {answer}",
    ".cfi_endproc",
    ".popsection",
    answer = sym answer,
);

stub_table! {
    /// The table of a limited process.
    pub(crate) LIMITED "lp_table_limited": "lp_limited"
}

/// Answers call `nr`. `words` holds its arguments in reverse order.
extern "sysv64" fn answer(nr: u32, words: &[usize; 6]) -> isize {
    let [f, e, d, c, b, a] = *words;
    let words = [a, b, c, d, e, f];
    // SAFETY: in the gate `current` is set, and only this thread uses its record.
    let thread = unsafe { &*current::thread() };
    thread.limited_to.set(nr);
    if let Some(done) = of_process(thread, nr, words) {
        return done;
    }
    // SAFETY: null or the thread's own task.
    let task = unsafe { thread.task.get().as_ref() };
    let Some(handler) = mapped::table(task, nr).handler(nr) else { return NOT_OURS };
    let Some(task) = task else { return without(nr, words) };
    if !concerns(task, nr, words) {
        return NOT_OURS;
    }
    // SAFETY: the thread has a task, and the arguments are the program's.
    match unsafe { handler(a, b, c, d, e, f) } {
        done if done == Errno::ENOSYS.to_ret() => instead(nr),
        done => {
            mapped::show(task, nr, done, words);
            done
        }
    }
}

/// The errno of a call that needs something unavailable.
fn instead(nr: u32) -> isize {
    match nr {
        __NR_open | __NR_openat | __NR_openat2 | __NR_creat | __NR_dup | __NR_fcntl => Errno::EMFILE,
        __NR_mmap => Errno::ENODEV,
        _ => Errno::ENOSYS,
    }
    .to_ret()
}

/// Calls that concern the process, whether or not their arguments are ours.
fn of_process(thread: &Thread, nr: u32, words: [usize; 6]) -> Option<isize> {
    let [a, b, c, ..] = words;
    Some(match nr {
        __NR_exit_group => NOT_OURS,
        // SAFETY: the program's own call; it takes no pointers.
        __NR_exit => unsafe { crate::low::live::process::exit(a, 0, 0, 0, 0, 0) },
        __NR_fork => fork(thread, nr, words, 0, 0),
        __NR_clone => fork(thread, nr, words, a as u64, b),
        __NR_clone3 => {
            // SAFETY: the copy routine handles bad pointers.
            let Ok(given) = (unsafe { lp_region::ucopy::get(a as *const [u64; 7]) }) else {
                return Some(NOT_OURS);
            };
            fork(thread, nr, words, given[0], given[5].wrapping_add(given[6]) as usize)
        }
        // The rules on mounts could not be read from its rulesets.
        __NR_landlock_restrict_self => Errno::EPERM.to_ret(),
        __NR_vfork => Errno::EAGAIN.to_ret(),
        __NR_execve | __NR_execveat => Errno::EPERM.to_ret(),
        __NR_setuid | __NR_setgid | __NR_setreuid | __NR_setregid | __NR_setresuid | __NR_setresgid
        | __NR_setfsuid | __NR_setfsgid | __NR_setgroups | __NR_capset => Errno::EPERM.to_ret(),
        __NR_setrlimit if a as u32 == RLIMIT_FSIZE => Errno::EPERM.to_ret(),
        __NR_prlimit64 if b as u32 == RLIMIT_FSIZE && c != 0 => Errno::EPERM.to_ret(),
        __NR_setrlimit | __NR_prlimit64 => NOT_OURS,
        // New code cannot be covered in a limited process.
        __NR_mmap if c as u32 & PROT_EXEC != 0 && words[3] as u32 & MAP_ANONYMOUS == 0 => {
            Errno::EACCES.to_ret()
        }
        _ => return None,
    })
}

/// Creates a child that is a copy, or a thread.
fn fork(thread: &Thread, nr: u32, words: [usize; 6], flags: u64, stack: usize) -> isize {
    let has = |flag: u32| flags & u64::from(flag) != 0;
    if has(CLONE_THREAD) {
        // Where the words are found by gs, signals would have to be blocked.
        return match pool::are_ready() && !tls::is_by_gs() {
            true => {
                if !thread.task.get().is_null() {
                    High::before_thread(thread, stack);
                }
                NOT_OURS
            }
            false => Errno::EAGAIN.to_ret(),
        };
    }
    // SAFETY: null or the thread's own task.
    let holds = unsafe { thread.task.get().as_ref() }.is_some_and(holds_anything);
    if has(CLONE_VM) || stack != 0 || holds {
        return Errno::EAGAIN.to_ret();
    }
    // SAFETY: the program's own call; both sides return here, each with its own memory.
    let result = unsafe { deferred::fork(nr, words) };
    if result == 0 {
        join::leave(thread);
    }
    result
}

/// Whether the process has anything of ours that a child would inherit.
fn holds_anything(task: &Task) -> bool {
    let process = task.process;
    // Relaxed, all: the process's own words.
    task.table.open().next().is_some()
        || task.directories.get().cwd.load(Ordering::Relaxed) != 0
        || process.exe.load(Ordering::Relaxed) != 0
        || process.mappings.load(Ordering::Relaxed) != 0
        || !areas::is_empty()
}

/// In a child that has left the run: mounts are out of its reach.
fn without(nr: u32, words: [usize; 6]) -> isize {
    let is_host = |place: &PathArgument| {
        matches!(route_apart(Which::First, place.of(&words), place.last()), Route::Host)
    };
    if !paths(nr).iter().all(is_host) {
        return Errno::EACCES.to_ret();
    }
    match socket_address(nr, words)
        .is_some_and(|at| !matches!(route_apart(Which::First, at, Last::Follow), Route::Host))
    {
        true => Errno::EACCES.to_ret(),
        false if CALLS.is_same(nr, __NR_io_uring_setup) => Errno::ENOSYS.to_ret(),
        false => NOT_OURS,
    }
}

/// Whether an argument of the call is ours, or the call changes what the gate knows of the process.
fn concerns(task: &Task, nr: u32, words: [usize; 6]) -> bool {
    let paths = paths(nr);
    let always = matches!(
        nr,
        __NR_rt_sigaction
            | __NR_munmap
            | __NR_mprotect
            | __NR_mremap
            | __NR_madvise
            | __NR_pkey_mprotect
            | __NR_shmat
            | __NR_umask
            | __NR_getcwd
            | __NR_close_range
            | __NR_poll
            | __NR_ppoll
            | __NR_select
            | __NR_pselect6
            | __NR_kcmp
            | __NR_io_submit
            | __NR_prctl
            | __NR_seccomp
    );
    let leaves =
        matches!(nr, __NR_chdir | __NR_fchdir) && task.directories.get().cwd.load(Ordering::Relaxed) != 0;
    if always || leaves || CALLS.is_same(nr, __NR_io_uring_setup) {
        return true;
    }
    if !paths.is_empty() {
        let is_host = |place: &PathArgument| {
            matches!(route(task, Which::First, place.of(&words), place.last()), Route::Host)
        };
        return !paths.iter().all(is_host);
    }
    if nr == __NR_mmap && words[3] as u32 & MAP_ANONYMOUS != 0 {
        return words[3] as u32 & MAP_FIXED != 0 && !areas::is_empty();
    }
    let is_ours = |index: &usize| {
        let fd = Fd::new(words[*index] as i32);
        descriptor::is_listed(task, fd) || descriptor::is_hidden(task, fd)
    };
    descriptors(nr).iter().any(is_ours)
        || socket_address(nr, words).is_some_and(|at| refused::concerns(task, at))
        || matches!(nr, __NR_sendmsg | __NR_sendmmsg) && descriptor_in_message(task, nr, words)
}

fn descriptor_in_message(task: &Task, nr: u32, words: [usize; 6]) -> bool {
    let count = if nr == __NR_sendmsg { 1 } else { words[2] as u32 };
    crate::high::frame::message::messages(words[1], count)
        .any(|message| crate::high::fd::rights::carries_ours(task, &message))
}

/// The path in a call's socket address, if the address is one.
fn socket_address(nr: u32, words: [usize; 6]) -> Option<At> {
    let (at, length) = match nr {
        __NR_bind | __NR_connect => (words[1], words[2]),
        __NR_sendto => (words[4], words[5]),
        __NR_sendmsg => {
            let message = crate::high::frame::message::messages(words[1], 1).next()?;
            (message.name, message.name_length as usize)
        }
        _ => return None,
    };
    address::path_of(at as *const u8, length).map(At::text)
}
