//! The descriptor of /proc/self/pagemap, by which the process asks the kernel what it has touched.
//!
//! It is opened at the first question and belongs to the address space, like that of `missing.rs`: it is
//! closed at exec, a child of fork(2) opens its own, a child of vfork(2) uses its parent's.

use lp_abi::linux::{
    __NR_ioctl, __NR_openat, AT_FDCWD, O_CLOEXEC, O_RDONLY, PAGE_IS_PRESENT, PAGE_IS_WPALLOWED,
    PAGE_IS_WRITTEN, PM_SCAN_WP_MATCHING, page_region, pm_scan_arg,
};
use lp_abi::{Errno, Fd, Result};
use lp_region::sync::Ordering;
use lp_vfs::task::Task;

use crate::high::memory::own_fd::{OwnFd, STOPPED, beside_region, may_call};
use crate::low::tools::close::close_number;

/// Index of the process's word in `Process::gate_words`: the number of its descriptor plus one, and a bit.
pub(crate) const WORD: usize = 8;
/// Number of the request `PAGEMAP_SCAN`: `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: usize = 3 << 30 | size_of::<pm_scan_arg>() << 16 | (b'f' as usize) << 8 | 16;
/// Category of pages, which the headers' crate leaves out: guards.
const PAGE_IS_GUARD: u64 = 1 << 8;
/// Runs of pages that one request reports.
const RUNS: usize = 16;

/// What [`is_touched`] does with the pages that it finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// Nothing: one is enough.
    Reported,
    /// It protects all, where userfaultfd(2) can.
    Protected,
}

/// The descriptor.
pub(crate) const FD: OwnFd = OwnFd { word: WORD, number: !STOPPED };

/// The process must not ask any more. The list must be locked.
pub(crate) fn stop(task: &Task) {
    FD.word(task).fetch_or(STOPPED, Ordering::Relaxed);
}

/// After exec, which has closed the descriptor.
pub(crate) fn after_exec(task: &Task, may_ask: bool) {
    FD.word(task).store(if may_ask { 0 } else { STOPPED }, Ordering::Relaxed);
}

/// In a child of fork(2), whose copy of the descriptor is that of its parent's memory.
pub(crate) fn after_fork(task: &Task, shares_table: bool) {
    let before = FD.word(task).load(Ordering::Relaxed);
    if let Some(parents) = FD.own(task).filter(|_| !shares_table) {
        close_number(parents);
    }
    FD.word(task).store(if shares_table { STOPPED } else { before & STOPPED }, Ordering::Relaxed);
}

#[cold]
fn make(task: &Task) -> Option<Fd> {
    let made = if may_call() { open(task) } else { Err(Errno::EPERM) };
    let kept = match made {
        Ok(fd) => fd.raw() as u32 + 1,
        // There may be a number at the next question.
        Err(Errno::EMFILE | Errno::ENFILE) => 0,
        Err(_) => STOPPED,
    };
    FD.word(task).store(kept, Ordering::Relaxed);
    made.ok()
}

/// # Errors
/// Those of open(2): no /proc, a process that is not dumpable; `EMFILE`.
fn open(task: &Task) -> Result<Fd> {
    let (path, flags) = (c"/proc/thread-self/pagemap".as_ptr(), O_RDONLY | O_CLOEXEC);
    // SAFETY: creates a descriptor, which `beside_region` closes.
    let low = unsafe { lp_abi::syscall!(__NR_openat, AT_FDCWD, path, flags) }?;
    beside_region(task, Fd::new(low as i32))
}

/// Finds the runs of guards in `start..end` (Linux 6.16). Returns their number.
#[cold]
pub(crate) fn guards(task: &Task, start: usize, end: usize, runs: &mut [page_region]) -> usize {
    let Some(pagemap) = FD.get(task, make) else { return 0 };
    let mut asked = pm_scan_arg {
        size: size_of::<pm_scan_arg>() as u64,
        flags: 0,
        start: start as u64,
        end: end as u64,
        walk_end: 0,
        vec: runs.as_mut_ptr().addr() as u64,
        vec_len: runs.len() as u64,
        max_pages: 0,
        category_inverted: 0,
        category_mask: PAGE_IS_GUARD,
        category_anyof_mask: 0,
        return_mask: PAGE_IS_GUARD,
    };
    // SAFETY: the kernel writes to the record and to `runs`, and changes no byte of the mapping.
    let found = unsafe { lp_abi::syscall!(__NR_ioctl, pagemap, PAGEMAP_SCAN, &raw mut asked) };
    found.unwrap_or(0).min(runs.len())
}

/// Whether the process has touched pages of `start..end` and, where they were protected, written to them.
pub(crate) fn is_touched(task: &Task, start: usize, end: usize, then: Found) -> bool {
    let Some(pagemap) = FD.get(task, make) else { return false };
    let (runs, flags, allowed) = match then {
        Found::Reported => (1, 0, 0),
        Found::Protected => (RUNS, PM_SCAN_WP_MATCHING, PAGE_IS_WPALLOWED),
    };
    let mut room = [page_region { start: 0, end: 0, categories: 0 }; RUNS];
    let (mut at, mut found) = (start as u64, false);
    while at < end as u64 && (then == Found::Protected || !found) {
        let mut asked = pm_scan_arg {
            size: size_of::<pm_scan_arg>() as u64,
            flags: flags.into(),
            start: at,
            end: end as u64,
            walk_end: 0,
            vec: room.as_mut_ptr().addr() as u64,
            vec_len: runs as u64,
            max_pages: if then == Found::Reported { 1 } else { 0 },
            category_inverted: 0,
            category_mask: (PAGE_IS_PRESENT | PAGE_IS_WRITTEN | allowed).into(),
            category_anyof_mask: 0,
            return_mask: PAGE_IS_WRITTEN.into(),
        };
        // SAFETY: the kernel writes to the record and to `room`, and changes no byte of the mapping.
        match unsafe { lp_abi::syscall!(__NR_ioctl, pagemap, PAGEMAP_SCAN, &raw mut asked) } {
            Ok(count) => found |= count != 0,
            Err(_) => break,
        }
        if asked.walk_end <= at {
            break;
        }
        at = asked.walk_end;
    }
    found
}
