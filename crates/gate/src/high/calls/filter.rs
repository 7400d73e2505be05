//! Programs that limit themselves: prctl(2) with `PR_SET_SECCOMP`, and seccomp(2).
//!
//! A filter that allows every call that the gate makes on its own, such as a container's or a deny-list,
//! changes nothing. Neither does one that denies calls in [`DISPENSABLE`] with an errno. Under any other the
//! process becomes *limited*: the gate makes no system call but the program's own
//! ([`crate::high::table::limited`]). What the gate would need later is prepared before the filter takes
//! effect: descriptors for files of ours, records for threads, and in the region an end of biases
//! ([`lp_vfs::limit`]).
//!
//! The gate interprets the filter as the kernel does: a program of classic BPF
//! (Documentation/userspace-api/seccomp_filter.rst).

use crate::High;
use crate::high::frame::handler::thread;
use crate::low::above::Above;
use lp_abi::linux::*;
use lp_abi::prctl::{PR_SET_SECCOMP, PR_SET_SECUREBITS, PR_SET_SYSCALL_USER_DISPATCH};
use lp_abi::{Errno, Result};
use lp_region::ucopy;
use lp_vfs::limit;

use crate::high::calls::limit as limit_calls;
use crate::high::fd::placeholder;
use crate::high::frame::handler::{handlers, kernel, ret, task};
use crate::high::life::credentials::securebits_changed;
use crate::high::life::way;
use crate::high::memory::{holes, missing};
use crate::low::cover::patch;
use crate::low::dispatch::{AGAIN, NOT_OURS};
use crate::low::live::deferred;
use crate::low::thread::pool;

/// Constants of linux/seccomp.h and linux/audit.h.
const MODE_STRICT: u32 = 1;
const MODE_FILTER: u32 = 2;
const SET_STRICT: u32 = 0;
const SET_FILTER: u32 = 1;
const ALLOW: u32 = 0x7fff_0000;
const ACTION: u32 = 0xffff_0000;
/// `SECCOMP_RET_ERRNO` with the errnos of filters, `EPERM` and `ENOSYS`.
const DENIALS: [u32; 2] = [0x5_0000 | 1, 0x5_0000 | 38];
const ARCH: u32 = 0xc000_003e;
/// Maximum number of instructions in a filter (`BPF_MAXINSNS`).
const MOST: usize = 4096;
/// Size of `struct seccomp_data`.
const DATA: u32 = 64;

handlers! {
    /// prctl(2).
    fn prctl(task, option: u32, mode: u32, program: usize, c: usize, d: usize) {
        if option == PR_SET_SECUREBITS {
            return securebits_changed(task, mode, kernel!(__NR_prctl, option, mode, program, c, d));
        }
        // It would trap the gate's calls, too, and end the gate's own traps.
        if option == PR_SET_SYSCALL_USER_DISPATCH {
            return Errno::EINVAL.to_ret();
        }
        if option != PR_SET_SECCOMP || lp_abi::sys::is_limited() {
            return NOT_OURS;
        }
        let program = (mode == MODE_FILTER).then_some(program);
        if program.is_none() && mode != MODE_STRICT {
            return NOT_OURS; // The kernel returns the error.
        }
        install(__NR_prctl, [option as usize, mode as usize, program.unwrap_or(0), c, d], program)
    }

    /// seccomp(2).
    fn seccomp(task, operation: u32, flags: usize, program: usize) {
        let program = match operation {
            _ if lp_abi::sys::is_limited() => return NOT_OURS,
            SET_STRICT => None,
            SET_FILTER => Some(program),
            _ => return NOT_OURS,
        };
        install(__NR_seccomp, [operation as usize, flags, program.unwrap_or(0), 0, 0], program)
    }
}

/// Installs a filter, or strict mode without one.
fn install(nr: u32, [a, b, c, d, e]: [usize; 5], program: Option<usize>) -> isize {
    if let Some(program) = program {
        let Ok(is_harmless) = allows_all(program) else {
            return NOT_OURS; // The kernel returns the error.
        };
        missing::stop(task());
        if is_harmless {
            return NOT_OURS;
        }
    }
    let task = task();
    way::before_losing(task);
    holes::touch(task, 0, usize::MAX); // A limited process cannot give pages to a hole.
    if let Err(errno) = limit::begin(task) {
        return errno.to_ret();
    }
    placeholder::keep_ready(task);
    pool::keep_ready();
    limit_calls::begin();
    // Run the handler of a signal that arrived before this first: it has blocked the thread's signals, which
    // a limited process cannot undo.
    if deferred::interrupted() {
        limit_calls::end();
        limit::end(task);
        return AGAIN;
    }
    // SAFETY: the program's own call with its own arguments.
    let done = ret(Errno::from_ret(unsafe { lp_abi::sys::syscall6(nr, a, b, c, d, e, 0) }));
    if done < 0 {
        limit_calls::end();
        limit::end(task);
        return done;
    }
    // Close the fast paths, which do not know of the limit.
    patch::change_calls(&High::calls(thread()));
    done
}

/// Whether under a filter, a `struct sock_fprog` of the program's, every call of the gate's own is allowed or
/// fails harmlessly.
fn allows_all(program: usize) -> Result<bool> {
    // SAFETY: the copy routine handles bad pointers.
    let (length, at) =
        unsafe { (ucopy::get(program as *const u16)?, ucopy::get((program + 8) as *const usize)?) };
    for (nr, arguments) in OWN {
        let action = run(length as usize, at, *nr, arguments)?;
        let fails = DENIALS.contains(&action) && DISPENSABLE.contains(nr);
        if action & ACTION != ALLOW && !fails {
            return Ok(false);
        }
    }
    for pair in REPLACED {
        let [programs, own] = pair.map(|nr| run(length as usize, at, nr, &[0; 4]));
        let (programs, own) = (programs?, own?);
        if programs & ACTION != ALLOW && own != programs {
            return Ok(false);
        }
    }
    Ok(true)
}

/// `struct sock_filter`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Instruction {
    code: u16,
    jump_true: u8,
    jump_false: u8,
    value: u32,
}

/// Runs a filter for one call and returns its result. A filter that the kernel would reject allows nothing.
fn run(length: usize, program: usize, nr: u32, arguments: &[u64; 4]) -> Result<u32> {
    let (mut a, mut x, mut memory) = (0u32, 0u32, [0u32; 16]);
    let mut at = 0usize;
    while at < length.min(MOST) {
        // SAFETY: the copy routine handles bad pointers; every bit pattern is a valid instruction.
        let i = unsafe { ucopy::get((program as *const Instruction).wrapping_add(at)) }?;
        let (k, slot) = (i.value, i.value as usize % memory.len());
        at += 1;
        let operand = if i.code & 0x08 != 0 { x } else { k };
        match (i.code & 7, i.code & 0xf0) {
            // Loads into A: a word of the data (mode 0x20), a constant, memory, the length of the data.
            (0, mode) | (1, mode) => {
                let value = match (i.code & 0xe0, mode) {
                    (0x20, _) => word(nr, arguments, k),
                    (0x00, _) => k,
                    (0x60, _) => memory[slot],
                    (0x80, _) => DATA,
                    _ => return Ok(0),
                };
                if i.code & 7 == 0 { a = value } else { x = value }
            }
            (2, _) => memory[slot] = a,
            (3, _) => memory[slot] = x,
            (4, operation) => a = compute(operation, a, operand).unwrap_or(0),
            (5, 0x00) => at += k as usize,
            (5, test) => {
                let holds = match test {
                    0x10 => a == operand,
                    0x20 => a > operand,
                    0x30 => a >= operand,
                    _ => a & operand != 0,
                };
                at += usize::from(if holds { i.jump_true } else { i.jump_false });
            }
            (6, _) => return Ok(if i.code & 0x18 == 0x10 { a } else { k }),
            (_, 0x80 | 0x90) => a = x,
            _ => x = a,
        }
    }
    Ok(0)
}

fn compute(operation: u16, a: u32, operand: u32) -> Option<u32> {
    Some(match operation {
        0x00 => a.wrapping_add(operand),
        0x10 => a.wrapping_sub(operand),
        0x20 => a.wrapping_mul(operand),
        0x30 => a.checked_div(operand)?,
        0x40 => a | operand,
        0x50 => a & operand,
        0x60 => a.checked_shl(operand)?,
        0x70 => a.checked_shr(operand)?,
        0x80 => a.wrapping_neg(),
        0x90 => a.checked_rem(operand)?,
        0xa0 => a ^ operand,
        _ => return None,
    })
}

/// A word of `struct seccomp_data`. The instruction pointer has an arbitrary value.
fn word(nr: u32, arguments: &[u64; 4], offset: u32) -> u32 {
    let argument = |index: u32| arguments.get(index as usize).copied().unwrap_or(0);
    match offset {
        0 => nr,
        4 => ARCH,
        16.. => (argument((offset - 16) / 8) >> (offset % 8 * 8)) as u32,
        _ => 0,
    }
}

/// A call whose arguments filters do not examine, or whose arguments may be anything.
const fn plain(nr: u32) -> (u32, [u64; 4]) {
    (nr, [0; 4])
}

/// A call whose second argument selects the operation.
const fn with(nr: u32, second: u32) -> (u32, [u64; 4]) {
    (nr, [3, second as u64, 0, 0])
}

const CODE: u64 = (PROT_READ | PROT_EXEC) as u64;

/// The calls whose failure the gate expects.
///
/// | call | without it |
/// |---|---|
/// | openat2 | a path on the host that leads nowhere is walked by name ([`crate::high::route::hostlink`]) |
/// | memfd_create | executing a program in a mount, reading the list of mounts and mapping beyond the end fail |
/// | setfsuid, setfsgid | the ids are the effective ones ([`lp_vfs::load::load_credentials`]) |
/// | umask | /proc tells it |
/// | rt_tgsigqueueinfo | a deferred signal is sent by tgkill(2) ([`crate::low::live::deferred`]) |
const DISPENSABLE: [u32; 6] =
    [__NR_openat2, __NR_memfd_create, __NR_setfsuid, __NR_setfsgid, __NR_umask, __NR_rt_tgsigqueueinfo];

/// Calls of the program's, and the number under which the gate may make each of them: a filter that denies the
/// first may not know the second. A limited process makes them under their own.
const REPLACED: &[[u32; 2]] = &[
    [__NR_lstat, __NR_newfstatat],
    [__NR_access, __NR_faccessat],
    [__NR_rename, __NR_renameat2],
    [__NR_renameat, __NR_renameat2],
    [__NR_mkdir, __NR_mkdirat],
    [__NR_rmdir, __NR_unlinkat],
    [__NR_link, __NR_linkat],
    [__NR_unlink, __NR_unlinkat],
    [__NR_symlink, __NR_symlinkat],
    [__NR_chmod, __NR_fchmodat],
    [__NR_chown, __NR_fchownat],
    [__NR_lchown, __NR_fchownat],
    [__NR_mknod, __NR_mknodat],
    [__NR_utime, __NR_utimensat],
    [__NR_utimes, __NR_utimensat],
    [__NR_futimesat, __NR_utimensat],
    [__NR_dup2, __NR_dup3],
];

/// The calls that the gate makes on its own, here and in the images that the process executes.
const OWN: &[(u32, [u64; 4])] = &[
    plain(__NR_read),
    plain(__NR_write),
    plain(__NR_writev),
    plain(__NR_open),
    plain(__NR_openat),
    plain(__NR_openat2),
    plain(__NR_close),
    plain(__NR_stat),
    plain(__NR_fstat),
    plain(__NR_newfstatat),
    plain(__NR_faccessat),
    plain(__NR_readlink),
    plain(__NR_getcwd),
    plain(__NR_lseek),
    plain(__NR_pread64),
    plain(__NR_pwrite64),
    plain(__NR_dup3),
    plain(__NR_memfd_create),
    plain(__NR_fallocate),
    plain(__NR_munmap),
    plain(__NR_wait4),
    plain(__NR_exit_group),
    plain(__NR_execve),
    plain(__NR_nanosleep),
    plain(__NR_clock_gettime),
    plain(__NR_getpid),
    plain(__NR_kill),
    plain(__NR_tgkill),
    plain(__NR_gettid),
    plain(__NR_geteuid),
    plain(__NR_getresuid),
    plain(__NR_getgid),
    plain(__NR_getgroups),
    plain(__NR_setfsuid),
    plain(__NR_setfsgid),
    plain(__NR_capget),
    plain(__NR_umask),
    plain(__NR_rt_sigaction),
    plain(__NR_rt_sigprocmask),
    plain(__NR_rt_tgsigqueueinfo),
    plain(__NR_ppoll),
    plain(__NR_clone),
    (__NR_prlimit64, [0, RLIMIT_FSIZE as u64, 0, 0]),
    (__NR_prctl, [15, 0, 0, 0]),
    (__NR_mmap, [0, 4096, (PROT_READ | PROT_WRITE) as u64, (MAP_PRIVATE | MAP_ANONYMOUS) as u64]),
    (__NR_mmap, [0, 4096, (PROT_READ | PROT_WRITE) as u64, MAP_SHARED as u64]),
    (__NR_mmap, [0, 4096, CODE, (MAP_PRIVATE | MAP_FIXED) as u64]),
    (__NR_mprotect, [0, 4096, CODE, 0]),
    (__NR_madvise, [0, 4096, MADV_POPULATE_WRITE as u64, 0]),
    (__NR_madvise, [0, 4096, MADV_DONTDUMP as u64, 0]),
    (__NR_membarrier, [membarrier_cmd::MEMBARRIER_CMD_GLOBAL_EXPEDITED as u64, 0, 0, 0]),
    (__NR_membarrier, [membarrier_cmd::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED as u64, 0, 0, 0]),
    with(__NR_futex, FUTEX_WAIT),
    with(__NR_futex, FUTEX_WAKE),
    with(__NR_fcntl, F_SETLK),
    with(__NR_fcntl, F_GETLK),
    with(__NR_fcntl, F_OFD_SETLK),
    with(__NR_fcntl, F_OFD_GETLK),
    with(__NR_fcntl, F_SETFD),
    with(__NR_fcntl, F_GETFD),
    with(__NR_fcntl, F_DUPFD),
    with(__NR_fcntl, F_DUPFD_CLOEXEC),
    with(__NR_fcntl, F_ADD_SEALS),
];
