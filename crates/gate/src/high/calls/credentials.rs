//! umask(2), and the calls that change ids, groups and capabilities: the kernel makes the change, the
//! process's slot follows, for the file system checks against that. Credentials are a thread's in Linux: one
//! that changes them beside others has a record of its own from then on.

use lp_abi::linux::*;
use lp_region::process::Process;
use lp_region::sync::{AtomicU32, Ordering};
use lp_vfs::boot::{load_credentials, load_limit};
use lp_vfs::task::Task;

use crate::high::frame::handler::{handlers, kernel};
use crate::high::run::words::STALE;
use crate::low::thread::tls;
use crate::low::tools::report;

handlers! {
    /// umask(2).
    fn umask(task, mask: u32) {
        task.process.umask.store(mask & 0o777, Ordering::Relaxed); // Relaxed: the process's own word.
        crate::low::dispatch::NOT_OURS
    }

    /// setuid(2).
    fn setuid(task, id: usize) {
        changed(task, kernel!(__NR_setuid, id))
    }

    /// setgid(2).
    fn setgid(task, id: usize) {
        changed(task, kernel!(__NR_setgid, id))
    }

    /// setreuid(2).
    fn setreuid(task, real: usize, effective: usize) {
        changed(task, kernel!(__NR_setreuid, real, effective))
    }

    /// setregid(2).
    fn setregid(task, real: usize, effective: usize) {
        changed(task, kernel!(__NR_setregid, real, effective))
    }

    /// setresuid(2).
    fn setresuid(task, real: usize, effective: usize, saved: usize) {
        changed(task, kernel!(__NR_setresuid, real, effective, saved))
    }

    /// setresgid(2).
    fn setresgid(task, real: usize, effective: usize, saved: usize) {
        changed(task, kernel!(__NR_setresgid, real, effective, saved))
    }

    /// setfsuid(2), whose result is the id before.
    fn setfsuid(task, id: usize) {
        changed(task, kernel!(__NR_setfsuid, id))
    }

    /// setfsgid(2), likewise.
    fn setfsgid(task, id: usize) {
        changed(task, kernel!(__NR_setfsgid, id))
    }

    /// setgroups(2).
    fn setgroups(task, count: usize, list: usize) {
        changed(task, kernel!(__NR_setgroups, count, list))
    }

    /// capset(2).
    fn capset(task, header: usize, data: usize) {
        changed(task, kernel!(__NR_capset, header, data))
    }

    /// setrlimit(2).
    fn setrlimit(task, resource: u32, limit: usize) {
        limited(task, resource, kernel!(__NR_setrlimit, resource, limit))
    }

    /// prlimit64(2): only for the calling process does the slot follow.
    fn prlimit64(task, pid: i32, resource: u32, new: usize, old: usize) {
        let done = kernel!(__NR_prlimit64, pid, resource, new, old);
        if new == 0 { done } else { limited(task, resource, done) }
    }
}

fn changed(task: &'static Task<'static>, done: isize) -> isize {
    if done >= 0 {
        // Relaxed: only this thread can have made others.
        if is_shared(task) && task.process.threads.load(Ordering::Relaxed) != 0 {
            part(task);
        }
        load_credentials(task.credentials.get());
    }
    done
}

/// Whether a thread's credentials are those of the process.
fn is_shared(task: &Task) -> bool {
    core::ptr::eq(task.credentials.get(), task.process)
}

/// Nonzero once a thread has had credentials of its own: what a new thread has is to be asked of the kernel.
static PARTED: AtomicU32 = AtomicU32::new(0);

/// Gives the calling thread a record of its own for its credentials; the caller fills it in.
#[cold]
fn part(task: &'static Task<'static>) {
    PARTED.store(1, Ordering::Relaxed); // Relaxed: the kernel's clone orders it for threads that this one makes.
    // SAFETY: the record is the thread's own.
    let place = unsafe { &raw mut (*tls::current()).credentials };
    // SAFETY: as above; a new mapping, of zeros, which are a valid record of atomics, and which lives as long
    // as the thread.
    unsafe {
        if (*place).is_null() {
            let (protection, flags) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
            let bytes = size_of::<Process>();
            match lp_abi::syscall!(__NR_mmap, 0, bytes, protection, flags, -1i32, 0) {
                Ok(at) => *place = at as *mut Process,
                Err(_) => report::refuse(&[b"no memory for a thread's credentials"]),
            }
        }
        task.credentials.set(&**place);
    }
}

/// A thread has made its first call, and has the credentials of the thread that made it.
pub fn of_new_thread(task: &'static Task<'static>) {
    if PARTED.load(Ordering::Relaxed) != 0 {
        part(task);
        load_credentials(task.credentials.get());
    }
}

/// The new image has this thread's credentials, and the slot perhaps others'.
pub fn before_exec(task: &Task) {
    if !is_shared(task) {
        task.process.spare[STALE].store(1, Ordering::Relaxed); // Relaxed, here and below: orders nothing.
    }
}

/// The exec has failed.
pub fn exec_failed(task: &Task) {
    if !is_shared(task) {
        task.process.spare[STALE].store(0, Ordering::Relaxed);
    }
}

/// In the new image.
pub fn after_exec(task: &Task) {
    if task.process.spare[STALE].swap(0, Ordering::Relaxed) != 0 {
        load_credentials(task.process);
    }
}

fn limited(task: &Task, resource: u32, done: isize) -> isize {
    if done >= 0 && resource == RLIMIT_FSIZE {
        load_limit(task.process);
    }
    done
}
