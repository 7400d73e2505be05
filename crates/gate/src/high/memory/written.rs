//! Times of files that the program writes to through shared mappings.
//!
//! The kernel protects the pages of such mappings and lifts the protection at the first write to each, the
//! program's or its own for a system call, without a signal (`UFFD_FEATURE_WP_ASYNC` of userfaultfd(2),
//! `missing.rs`). The process looks which were written to (`pagemap.rs`) before it reads or sets the times of
//! the file, and before the mapping or the process is gone. If the mapping stays, the pages are protected
//! anew, so that a later write counts again.
//!
//! Two kinds of pages are not protected, because that would cost a fault for each:
//! - those of holes that the program has touched by a write: the fault tells, and [`Area::is_written`] says
//!   so until the next look;
//! - those of large mappings, and where the kernel cannot: a page that was touched since the last look counts
//!   as written to. If the mapping stays, the pages are unmapped, so that a later touch counts again.

use core::mem;

use lp_abi::linux::{__NR_madvise, MADV_DONTNEED};
use lp_region::InodeId;
use lp_vfs::mapping;
use lp_vfs::task::Task;

use crate::high::memory::areas::{self, Area, LockedAreas};
use crate::high::memory::missing;
use crate::high::memory::pagemap::{self, Found};

/// What becomes of a mapping after a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum After {
    /// It stays, and a write counts if it comes after the look.
    Stays,
    /// It stays, after msync(2): the same, but what is not protected stays touched.
    Synced,
    /// It goes. If it stays after all, the next look may see the same writes again.
    Goes,
}

/// Sets the times of one file, if the program has written to it. The caller must hold no lock.
pub(crate) fn of_file(task: &Task, of: InodeId) {
    if !areas::is_empty() {
        look(task, &mut areas::list(), (0, usize::MAX), After::Stays, &|area| area.of.id == of);
    }
}

/// Sets the times of all files that the program has written to: the process or its image is about to end.
pub(crate) fn of_all(task: &Task) {
    if !areas::is_empty() {
        within(task, &mut areas::list(), 0, usize::MAX, After::Goes);
    }
}

/// Sets the times of the files in `start..end`, whose mappings are about to change.
pub(crate) fn within(task: &Task, list: &mut LockedAreas, start: usize, end: usize, after: After) {
    look(task, list, (start, end), after, &|_| true);
}

fn look(
    task: &Task,
    list: &mut LockedAreas,
    (start, end): (usize, usize),
    after: After,
    is_asked: &dyn Fn(&Area) -> bool,
) {
    list.each(start, end, &mut |area| {
        let (from, to) = (area.start.max(start), area.beyond.min(end));
        if from < to && missing::is_told(area) && is_asked(area) && is_written(task, area, from, to, after) {
            mapping::written(task, area.of);
        }
    });
}

/// Whether the program has written to `from..to` of an area since the last look.
fn is_written(task: &Task, area: &mut Area, from: usize, to: usize, after: After) -> bool {
    let is_protected = missing::tells(task) && !missing::is_large(area);
    let is_touched = |then| pagemap::is_touched(task, from, to, then);
    match after {
        After::Stays | After::Synced if is_protected => {
            let was_written = mem::replace(&mut area.is_written, false);
            if was_written {
                missing::watch(task, area);
            }
            was_written || is_touched(Found::Protected)
        }
        After::Stays => {
            let is_new = (area.is_written || is_touched(Found::Reported)) && is_dropped(from, to);
            area.is_written &= !is_new;
            is_new
        }
        After::Synced | After::Goes => area.is_written || is_touched(Found::Reported),
    }
}

/// Has the kernel forget that pages of `start..end` were touched. Their content stays, because the mapping is
/// shared. Fails for locked memory.
fn is_dropped(start: usize, end: usize) -> bool {
    // SAFETY: the pages are mapped again as they are at the next touch.
    unsafe { lp_abi::syscall!(__NR_madvise, start, end - start, MADV_DONTNEED) }.is_ok()
}
