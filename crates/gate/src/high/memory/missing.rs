//! Truncation by other processes, which raises SIGBUS in this one's mappings.
//!
//! A process cannot change the mappings of another. But it can take the memory from the pages that it cuts
//! off ([`lp_vfs::bare_mapping`]), which removes them from every mapping. The kernel would give them memory
//! again at the next touch. It is therefore asked by userfaultfd(2) to raise SIGBUS instead
//! (`UFFD_FEATURE_SIGBUS`), and to let its own accesses on the program's behalf fail with `EFAULT`, as behind
//! the end of any file. No process waits for another, is interrupted or needs to run for this.
//!
//! The same descriptor has the kernel remember which pages of shared mappings the program writes to
//! (`written.rs`).
//!
//! The descriptor belongs to the address space. It is closed at exec, and a child of fork(2) makes its own;
//! a child of vfork(2) uses its parent's. Where it cannot be made, mappings show zeros.

use core::ffi::c_int;

use lp_abi::ioctl::{UFFDIO_API, UFFDIO_REGISTER, UFFDIO_UNREGISTER, UFFDIO_WRITEPROTECT};
use lp_abi::linux::*;
use lp_abi::{Errno, Fd, Result};
use lp_region::sync::Ordering;
use lp_vfs::bare_mapping;
use lp_vfs::task::Task;

use crate::high::memory::areas::{self, Area, Sharing};
use crate::high::memory::own_fd::{OwnFd, STOPPED, beside_region, may_call};
use crate::high::memory::pagemap;
use crate::low::tools::close::close_number;

/// Index of the process's word in `Process::gate_words`: the number of its descriptor plus one, and bits.
pub(crate) const WORD: usize = 7;
/// Bit of the process's word: [`STOPPED`] holds for the images that the process executes, too, because it has
/// a filter of system calls.
const FILTERED: u32 = 1 << 30;
/// Bit of the process's word: the descriptor tells which pages were written to.
const TELLS: u32 = 1 << 29;
const NUMBER: u32 = TELLS - 1;
/// What that takes (Linux 6.7): writes to protected pages lift the protection, without a signal.
const TELLING: u32 = UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED | UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
/// Mode of `UFFDIO_WRITEPROTECT`, which the headers' crate leaves out: protect.
const UFFDIO_WRITEPROTECT_MODE_WP: u64 = 1;
/// Bytes of the longest mapping whose pages are protected: each first touch costs a fault more, and the
/// kernel no longer maps pages around it.
const MOST_TOLD: usize = 16 << 20;

/// The descriptor.
pub(crate) const FD: OwnFd = OwnFd { word: WORD, number: NUMBER };

/// The process is about to get a filter of system calls, which may deny those made here.
pub(crate) fn stop(task: &Task) {
    let mut list = areas::list();
    if FD.word(task).fetch_and(!TELLS, Ordering::Relaxed) & (TELLS | STOPPED) == TELLS {
        // Nobody will ask which pages were written to, and nobody could lift their protection (`unwatch`).
        list.areas().iter().for_each(|area| {
            unwatch(task, area);
            watch(task, area);
        });
    }
    FD.word(task).fetch_or(STOPPED | FILTERED, Ordering::Relaxed);
    pagemap::stop(task);
}

/// After exec, which has closed the descriptor.
pub(crate) fn after_exec(task: &Task) {
    let is_filtered = FD.word(task).load(Ordering::Relaxed) & FILTERED != 0;
    FD.word(task).store(if is_filtered { STOPPED | FILTERED } else { 0 }, Ordering::Relaxed);
    pagemap::after_exec(task, !is_filtered);
}

/// In a child of fork(2), whose copy of the descriptor is that of its parent's memory, and whose mappings the
/// kernel does not watch.
pub(crate) fn after_fork(task: &Task, shares_table: bool) {
    pagemap::after_fork(task, shares_table);
    if !areas::is_empty() {
        let mut list = areas::list();
        list.forget_left_out(task);
        list.areas().iter_mut().for_each(|area| area.is_written = false);
    }
    let Some(parents) = FD.own(task) else { return };
    let left =
        FD.word(task).load(Ordering::Relaxed) & !(NUMBER | TELLS) | if shares_table { STOPPED } else { 0 };
    FD.word(task).store(left, Ordering::Relaxed);
    if !shares_table {
        close_number(parents);
    }
    if left == 0 && !areas::is_empty() {
        keep(task, open(task));
        areas::list().areas().iter().for_each(|area| watch(task, area));
    }
}

/// Makes the kernel raise SIGBUS where a page of an area is touched that a truncation has taken. The list
/// must be locked.
pub(crate) fn watch(task: &Task, area: &Area) {
    if area.beyond <= area.start {
        return;
    }
    let Some(fd) = FD.get(task, make) else { return };
    if !bare_mapping::may_be(task, area.of) {
        return register(task, fd, area, (area.start, area.beyond - area.start));
    }
    let bytes = area.beyond - area.start;
    bare_mapping::each_part(task, area.of, area.offset, bytes, &mut |offset, bytes| {
        register(task, fd, area, (area.start + (offset - area.offset) as usize, bytes));
    });
}

/// Takes back what [`watch`] has done, until it is called again. The list must be locked.
#[cold]
pub(crate) fn unwatch(task: &Task, area: &Area) {
    let Some(fd) = FD.own(task).filter(|_| FD.word(task).load(Ordering::Relaxed) & STOPPED == 0) else {
        return;
    };
    let mut range = uffdio_range { start: area.start as u64, len: area.bytes() as u64 };
    // SAFETY: the kernel reads the record, and changes no byte of the mapping.
    let _ = unsafe { lp_abi::syscall!(__NR_ioctl, fd, UFFDIO_UNREGISTER, &raw mut range) };
}

fn register(task: &Task, fd: Fd, area: &Area, (start, bytes): (usize, usize)) {
    let range = uffdio_range { start: start as u64, len: bytes as u64 };
    let protects = is_told(area) && !area.is_written && !is_large(area) && tells(task);
    if !protects || !is_protected(fd, range) {
        // A failure leaves zeros.
        let _ = watch_range(fd, range, UFFDIO_REGISTER_MODE_MISSING);
    }
}

/// Modes of pages that raise SIGBUS and that can be protected.
const BOTH: u32 = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP;

fn watch_range(fd: Fd, range: uffdio_range, modes: u32) -> Result<usize> {
    let mut asked = uffdio_register { range, mode: modes.into(), ioctls: 0 };
    // SAFETY: the kernel reads and writes the record, and changes no byte of the mapping.
    unsafe { lp_abi::syscall!(__NR_ioctl, fd, UFFDIO_REGISTER, &raw mut asked) }
}

/// Watches a range and protects its pages, so that the kernel knows which are written to.
fn is_protected(fd: Fd, range: uffdio_range) -> bool {
    if watch_range(fd, range, BOTH).is_err() {
        return false;
    }
    let mut asked = uffdio_writeprotect { range, mode: UFFDIO_WRITEPROTECT_MODE_WP };
    // Pages that are not protected count as written to. SAFETY: as in `watch_range`.
    let _ = unsafe { lp_abi::syscall!(__NR_ioctl, fd, UFFDIO_WRITEPROTECT, &raw mut asked) };
    true
}

/// Whether writes to an area change its file's times.
pub(crate) fn is_told(area: &Area) -> bool {
    area.sharing == Sharing::Shared && area.protection & PROT_WRITE != 0
}

/// Whether an area is so large that its pages are not protected.
pub(crate) fn is_large(area: &Area) -> bool {
    area.bytes() > MOST_TOLD
}

/// Whether the pages of an area that is about to be mapped will be protected.
pub(crate) fn will_protect(task: &Task, area: &Area) -> bool {
    is_told(area) && !is_large(area) && FD.get(task, make).is_some() && tells(task)
}

/// Whether the kernel can be asked which pages were written to.
pub(crate) fn tells(task: &Task) -> bool {
    FD.word(task).load(Ordering::Relaxed) & (TELLS | STOPPED) == TELLS
}

#[cold]
fn make(task: &Task) -> Option<Fd> {
    if bare_mapping::is_possible(task.region) && may_call() {
        keep(task, open(task))
    } else {
        keep(task, Err(Errno::EPERM))
    }
}

/// Records the descriptor that was made, if one was, and whether it tells of writes.
fn keep(task: &Task, made: Result<(Fd, bool)>) -> Option<Fd> {
    let tells = |tells: bool| if tells { TELLS } else { 0 };
    let kept = made.map_or(STOPPED, |(fd, is_telling)| (fd.raw() as u32 + 1) | tells(is_telling));
    FD.word(task).store(kept, Ordering::Relaxed);
    made.ok().map(|(fd, _)| fd)
}

/// A descriptor, and whether it tells of writes.
///
/// # Errors
/// Those of userfaultfd(2) and of its `UFFDIO_API`; `EMFILE`.
fn open(task: &Task) -> Result<(Fd, bool)> {
    let flags = O_CLOEXEC | UFFD_USER_MODE_ONLY;
    // SAFETY: creates a descriptor, closed below.
    let low = Fd::new(unsafe { lp_abi::syscall!(__NR_userfaultfd, flags) }? as c_int);
    let tells = choose(low, UFFD_FEATURE_SIGBUS | TELLING).is_ok();
    let ready = if tells { Ok(0) } else { choose(low, UFFD_FEATURE_SIGBUS) };
    if let Err(errno) = ready {
        close_number(low);
        return Err(errno);
    }
    beside_region(task, low).map(|fd| (fd, tells))
}

/// Tells a new descriptor what it is to do. One that refuses may be asked again.
fn choose(fd: Fd, features: u32) -> Result<usize> {
    let mut asked = uffdio_api { api: UFFD_API.into(), features: features.into(), ioctls: 0 };
    // SAFETY: the kernel reads and writes the record.
    unsafe { lp_abi::syscall!(__NR_ioctl, fd, UFFDIO_API, &raw mut asked) }
}
