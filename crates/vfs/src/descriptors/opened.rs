//! Whether a file is open somewhere. Opens are not counted; the tables of all processes are searched.

use lp_region::records::file_mode;
use lp_region::sync::{Ordering, heavy_barrier};
use lp_region::{FileId, InodeRef, marks};

use crate::caller::task::Task;
use crate::descriptors::flight;
use crate::descriptors::table::{self, FdTable};
use crate::lane::pin;

/// Scans before a file counts as open, if references move or calls use it all the time.
const LOOKS: u32 = 64;

/// Whether a living process has an open file for which `is_it` holds: in its table, in a call under way, or
/// in a message that it may receive. Returns true when in doubt.
///
/// It finds every open file that no table named when this began only if its open pins it before it looks at
/// what the caller has announced.
pub fn by_the_living(task: &Task, is_it: impl Fn(FileId) -> bool) -> bool {
    for _ in 0..LOOKS {
        let before = table::moves(task.region);
        // A file on its way into a table leaves its pin there, so pins come first.
        if !heavy_barrier() {
            return true;
        }
        let pinned = is_pinned(task, &is_it);
        let calm = match in_tables(task, &is_it) {
            Some(true) => return true,
            found => found.is_some(),
        };
        if flight::sent(task.region).any(|file| is_it(file) && flight::is_in_flight(task, file)) {
            return true;
        }
        if calm && !pinned && table::moves(task.region) == before {
            return false;
        }
    }
    true
}

/// Whether the table of a living process names such a file; `None` if not, but references moved within a
/// table.
pub(crate) fn in_tables(task: &Task, is_it: impl Fn(FileId) -> bool) -> Option<bool> {
    let mut calm = true;
    for process in task.region.processes() {
        let mut hit = false;
        calm &= FdTable::of(task.region, process).look_through(|file| hit |= is_it(file));
        if hit && !task.region.process_is_dead(process, task.process_id) {
            return Some(true);
        }
    }
    calm.then_some(false)
}

/// Whether a call of a living process names such a file, other than to close it: what is being closed has
/// left the table already, removed by its owner or by a reaper.
pub(crate) fn is_pinned(task: &Task, is_it: impl Fn(FileId) -> bool) -> bool {
    task.region.lanes().any(|lane| {
        let pins = task.region.lane(lane).pins.iter().map(marks::pinned).enumerate();
        let mut in_use = pins.filter(|(slot, _)| *slot != pin::slot::CLOSE).map(|(_, pin)| pin);
        in_use.any(|pin| pin != 0 && pin & pin::INODE == 0 && is_it(FileId(pin as u32)))
            && !task.region.lane_is_dead(lane, task.process_id)
    })
}

/// Whether a living process has `inode` open by another open file than `own` and with an access of `modes`
/// ([`file_mode`]). Returns true when in doubt.
pub fn by_others(task: &Task, inode: InodeRef, own: FileId, modes: u32) -> bool {
    by_the_living(task, |file| file != own && conflicts(task, file, inode, modes))
}

/// Whether a call is opening `inode` that may not have seen a flag that the caller has just set in it.
/// Whoever is not seen here is in a table already, or sees the flag. Returns true when in doubt.
pub fn is_being_opened(task: &Task, inode: InodeRef) -> bool {
    // PAIRS: the light barriers of `pin`, behind which an open reads the flags.
    if !heavy_barrier() {
        return true;
    }
    task.region.lanes().any(|lane| {
        let pinned = marks::pinned(&task.region.lane(lane).pins[pin::slot::OPEN]);
        let names = match pinned {
            0 => false,
            inode_pin if inode_pin & pin::INODE != 0 => inode_pin as u32 == inode.id.0,
            file => conflicts(task, FileId(file as u32), inode, file_mode::READ | file_mode::WRITE),
        };
        names && !task.region.lane_is_dead(lane, task.process_id)
    })
}

fn conflicts(task: &Task, file: FileId, inode: InodeRef, modes: u32) -> bool {
    let file = task.region.file(file);
    // Relaxed, both: immutable while a table names the file. That it may just be closed is the caller's race.
    let mode = file.mode.load(Ordering::Relaxed);
    file.inode.load(Ordering::Relaxed) == inode.to_word() && mode & file_mode::PATH == 0 && mode & modes != 0
}
