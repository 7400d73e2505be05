//! What the program has asked for at addresses that are mapped anew because a file has changed its size or a
//! hole gets pages: guards (`MADV_GUARD_INSTALL`) and locked memory stay. Only the kernel knows them, so it
//! is asked before and told afterwards.

use lp_abi::linux::{
    __NR_madvise, __NR_mlock2, __NR_mmap, __NR_munmap, MADV_COLD, MADV_GUARD_INSTALL, MAP_ANONYMOUS,
    MAP_NORESERVE, MAP_PRIVATE, MLOCK_ONFAULT, PROT_READ, PROT_WRITE, page_region,
};
use lp_abi::{Errno, PAGE_SIZE};
use lp_region::sync::{AtomicU32, Ordering};
use lp_vfs::task::Task;

use crate::high::memory::areas::Area;
use crate::high::memory::{missing, pagemap};

/// Nonzero once the program, or an ancestor whose memory it has, has asked for a guard or locked memory.
static ASKED: AtomicU32 = AtomicU32::new(0);

/// The program asks for a guard, or locks memory.
pub(crate) fn asked() {
    ASKED.store(1, Ordering::Relaxed); // Relaxed: a thread that maps anew meanwhile may come first.
}

/// Guards and locked pages of a range, in memory of its own.
pub(crate) struct Kept {
    runs: *mut page_region,
    room: usize,
    guards: usize,
    locks: usize,
}

/// What there is in `start..end`, which is about to be mapped anew. The list must be locked.
pub(crate) fn of(task: &Task, start: usize, end: usize) -> Kept {
    let mut kept = Kept { runs: core::ptr::null_mut(), room: 0, guards: 0, locks: 0 };
    if start < end && ASKED.load(Ordering::Relaxed) != 0 {
        kept.find(task, start, end);
    }
    kept
}

impl Kept {
    #[cold]
    fn find(&mut self, task: &Task, start: usize, end: usize) {
        // Every other page may be a run of each kind.
        let room = (end - start) / PAGE_SIZE + 2;
        let (protection, flags) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
        let bytes = room * size_of::<page_region>();
        // SAFETY: a new mapping.
        let Ok(at) = (unsafe { lp_abi::syscall!(__NR_mmap, 0, bytes, protection, flags, -1i32, 0) }) else {
            return;
        };
        (self.runs, self.room) = (at as *mut page_region, room);
        // SAFETY: the mapping was made above; zeros are valid elements.
        let runs = unsafe { core::slice::from_raw_parts_mut(self.runs, room) };
        self.guards = pagemap::guards(task, start, end, runs);
        if is_locked(start, end) {
            self.locks = locked_runs(start, end, &mut runs[self.guards..]);
        }
    }

    /// Installs the guards again and locks again what was locked, in `area`, which is mapped anew.
    pub(crate) fn restore(self, task: &Task, area: &Area) {
        if self.runs.is_null() {
            return;
        }
        // SAFETY: the mapping that `find` made, which nobody else knows.
        let runs = unsafe { core::slice::from_raw_parts(self.runs, self.room) };
        let (guards, locks) = runs.split_at(self.guards);
        for run in guards {
            install(task, area, run.start as usize, run.end as usize);
        }
        for run in &locks[..self.locks] {
            let bytes = run.end - run.start;
            // SAFETY: changes no byte. A failure leaves the memory unlocked.
            let _ = unsafe { lp_abi::syscall!(__NR_mlock2, run.start, bytes, MLOCK_ONFAULT) };
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if !self.runs.is_null() {
            let bytes = self.room * size_of::<page_region>();
            // SAFETY: the mapping that `find` made.
            let _ = unsafe { lp_abi::syscall!(__NR_munmap, self.runs, bytes) };
        }
    }
}

/// Installs guards in part of an area. The kernel never finishes that where pages are protected.
fn install(task: &Task, area: &Area, start: usize, end: usize) {
    let Some(part) = area.cut(start, end) else { return };
    missing::unwatch(task, &part);
    // SAFETY: the program has asked for it. A failure leaves pages without a guard.
    let _ = unsafe { lp_abi::syscall!(__NR_madvise, part.start, part.bytes(), MADV_GUARD_INSTALL) };
    missing::watch(task, &part);
}

/// Whether some of `start..end` is locked: the kernel refuses this advice, which leaves contents alone.
fn is_locked(start: usize, end: usize) -> bool {
    // SAFETY: changes no byte.
    let done = unsafe { lp_abi::syscall!(__NR_madvise, start, end - start, MADV_COLD) };
    done == Err(Errno::EINVAL)
}

/// The runs of locked pages. Returns their number.
fn locked_runs(start: usize, end: usize, runs: &mut [page_region]) -> usize {
    let (mut count, mut was_locked) = (0, false);
    for page in (start..end).step_by(PAGE_SIZE) {
        let locked = is_locked(page, page + PAGE_SIZE);
        if locked && !was_locked {
            let Some(run) = runs.get_mut(count) else { break };
            *run = page_region { start: page as u64, end: page as u64, categories: 0 };
            count += 1;
        }
        if locked {
            runs[count - 1].end = (page + PAGE_SIZE) as u64;
        }
        was_locked = locked;
    }
    count
}
