//! Times of files that the program writes to through shared mappings.
//!
//! The kernel protects the pages of such mappings and lifts the protection at the first write to each, the
//! program's or its own for a system call, without a signal (`UFFD_FEATURE_WP_ASYNC` of userfaultfd(2),
//! `missing.rs`). The process looks which were written to (`PAGEMAP_SCAN` of ioctl_pagemap_scan(2)) before it
//! reads or sets the times of the file, and before the mapping or the process is gone. It protects them anew,
//! so that a later write counts again.

use lp_abi::linux::{
    __NR_ioctl, __NR_openat, AT_FDCWD, O_CLOEXEC, O_RDONLY, PAGE_IS_WPALLOWED, PAGE_IS_WRITTEN,
    PM_SCAN_WP_MATCHING, page_region, pm_scan_arg,
};
use lp_abi::{Fd, OwnedFd, Result};
use lp_region::InodeId;
use lp_vfs::mapping;
use lp_vfs::task::Task;

use crate::high::memory::areas::{self, Area, LockedAreas};
use crate::high::memory::missing;

/// Number of the request `PAGEMAP_SCAN`: `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: usize = 3 << 30 | size_of::<pm_scan_arg>() << 16 | (b'f' as usize) << 8 | 16;
/// Runs of pages that one request reports.
const RUNS: usize = 16;

/// Sets the times of one file, if the program has written to it. The caller must hold no lock.
pub(crate) fn of_file(task: &Task, of: InodeId) {
    if !areas::is_empty() {
        look(task, &mut areas::list(), 0, usize::MAX, &|area| area.of.id == of);
    }
}

/// Sets the times of all files that the program has written to: the process or its image is about to end.
pub(crate) fn of_all(task: &Task) {
    if !areas::is_empty() {
        within(task, &mut areas::list(), 0, usize::MAX);
    }
}

/// Sets the times of the files in `start..end`, whose mappings are about to change.
pub(crate) fn within(task: &Task, list: &mut LockedAreas, start: usize, end: usize) {
    look(task, list, start, end, &|_| true);
}

fn look(task: &Task, list: &mut LockedAreas, start: usize, end: usize, is_asked: &dyn Fn(&Area) -> bool) {
    if !missing::tells(task) {
        return;
    }
    let mut pagemap = None;
    list.each(start, end, &mut |area| {
        let (from, to) = (area.start.max(start), area.beyond.min(end));
        if from < to
            && missing::is_told(area)
            && is_asked(area)
            && let Ok(pagemap) = pagemap.get_or_insert_with(open)
            && is_written(pagemap.get(), from, to)
        {
            mapping::written(task, area.of);
        }
    });
}

/// # Errors
/// Those of open(2): no /proc, a process that is not dumpable.
fn open() -> Result<OwnedFd> {
    let (path, flags) = (c"/proc/self/pagemap".as_ptr(), O_RDONLY | O_CLOEXEC);
    // SAFETY: creates a descriptor, closed when it is dropped.
    unsafe { lp_abi::syscall!(__NR_openat, AT_FDCWD, path, flags) }.map(OwnedFd::new)
}

/// Whether pages of `start..end` were written to since they were protected, which they are again.
fn is_written(pagemap: Fd, start: usize, end: usize) -> bool {
    let mut runs = [page_region { start: 0, end: 0, categories: 0 }; RUNS];
    let (mut at, mut found) = (start as u64, false);
    while at < end as u64 {
        let mut asked = pm_scan_arg {
            size: size_of::<pm_scan_arg>() as u64,
            flags: PM_SCAN_WP_MATCHING.into(),
            start: at,
            end: end as u64,
            walk_end: 0,
            vec: runs.as_mut_ptr().addr() as u64,
            vec_len: RUNS as u64,
            max_pages: 0,
            category_inverted: 0,
            category_mask: (PAGE_IS_WPALLOWED | PAGE_IS_WRITTEN).into(),
            category_anyof_mask: 0,
            return_mask: PAGE_IS_WRITTEN.into(),
        };
        // SAFETY: the kernel writes to the record and to `runs`, and changes no byte of the mapping.
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
