//! getrlimit(2), setrlimit(2), prlimit64(2). The kernel keeps the limits.
//!
//! Of the address space (`RLIMIT_AS`) the region and the gate take a part, which a program's own limit does
//! not mean: the kernel gets it with that part added, and the program sees it without.

use lp_abi::linux::*;
use lp_region::ucopy;
use lp_vfs::load::load_limit;
use lp_vfs::task::Task;

use crate::high::fd::fd_info::process_of;
use crate::high::fd::{placeholder, soft_limit};
use crate::high::frame::handler::{handlers, kernel};
use crate::low::cover::loaded;
use crate::low::dispatch::NOT_OURS;

/// Address space that the gate takes besides the region, in bytes: its text and data, its site images, the
/// records of some threads.
const GATE: u64 = 8 << 20;

handlers! {
    /// getrlimit(2).
    fn getrlimit(task, resource: u32, limits: *mut Limits) {
        match resource {
            RLIMIT_AS => get_and_set(task, 0, resource, core::ptr::null(), limits),
            _ => NOT_OURS,
        }
    }

    /// setrlimit(2).
    fn setrlimit(task, resource: u32, limits: *const Limits) {
        before_limit(task, resource, limits);
        match resource {
            RLIMIT_AS if !limits.is_null() => get_and_set(task, 0, resource, limits, core::ptr::null_mut()),
            _ => limited(task, resource, kernel!(__NR_setrlimit, resource, limits)),
        }
    }

    /// prlimit64(2): the slot follows for processes of the run.
    fn prlimit64(task, pid: i32, resource: u32, new: *const Limits, old: *mut Limits) {
        before_limit(task, resource, new);
        let done = get_and_set(task, pid, resource, new, old);
        if new.is_null() || done < 0 {
            return done;
        }
        if resource == RLIMIT_FSIZE && pid != 0 {
            limited_other(task, pid);
        }
        limited(task, resource, done)
    }
}

/// The kernel's `RLIM64_INFINITY`.
const INFINITY: u64 = u64::MAX;

/// `struct rlimit64`: the soft and the hard limit.
type Limits = [u64; 2];

/// prlimit64(2) of the kernel's.
fn get_and_set(task: &Task, pid: i32, resource: u32, new: *const Limits, old: *mut Limits) -> isize {
    let is_ours = || pid == 0 || process_of(task, pid as u32).is_some();
    if resource != RLIMIT_AS || !is_ours() {
        return kernel!(__NR_prlimit64, pid, resource, new, old);
    }
    let taken = task.region.length() as u64 + GATE;
    let change = |limits: Limits, by: fn(u64, u64) -> u64| {
        limits.map(|limit| if limit == INFINITY { limit } else { by(limit, taken) })
    };
    // SAFETY: the copy routine handles bad pointers.
    let given = match (!new.is_null()).then(|| unsafe { ucopy::get(new) }).transpose() {
        Ok(limits) => limits.map(|limits| change(limits, u64::saturating_add)),
        Err(errno) => return errno.to_ret(),
    };
    let mut was: Limits = [0; 2];
    let given = given.as_ref().map_or(core::ptr::null(), |limits| limits as *const Limits);
    let done = kernel!(__NR_prlimit64, pid, resource, given, &raw mut was);
    if done < 0 || old.is_null() {
        return done;
    }
    // SAFETY: as above.
    match unsafe { ucopy::put(old, &change(was, u64::saturating_sub)) } {
        Ok(()) => done,
        Err(errno) => errno.to_ret(),
    }
}

/// Before a limit may become lower.
fn before_limit(task: &'static Task<'static>, resource: u32, new: *const Limits) {
    if !new.is_null() && [RLIMIT_AS, RLIMIT_NOFILE].contains(&resource) {
        loaded::cover_rest();
    }
    if resource != RLIMIT_NOFILE {
        return;
    }
    // SAFETY: the copy routine handles bad pointers.
    if let Ok([soft, _]) = unsafe { ucopy::get(new) } {
        placeholder::before_limit(task, soft);
    }
}

/// The limit of file sizes of the process `pid` may have changed.
#[cold]
fn limited_other(task: &Task, pid: i32) {
    let other = process_of(task, pid as u32).filter(|id| *id != task.process_id);
    if let Some(other) = other {
        load_limit(task.region.process(other), pid);
    }
}

fn limited(task: &Task, resource: u32, done: isize) -> isize {
    if done >= 0 && resource == RLIMIT_FSIZE {
        load_limit(task.process, 0);
    }
    soft_limit::changed();
    done
}
