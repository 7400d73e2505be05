//! Whether a live process still names an open file, for a thread that meets a conflicting lock of that file.
//!
//! A sweep ([`crate::life::sweep`]) finds what nothing names and frees it, and counts a dead process's table
//! as a reference until the reaper has emptied it. Here a dead process's references count for nothing, no
//! matter which process empties its table. The sweep's argument why a scan that is not atomic suffices
//! applies here.

use lp_region::sync::heavy_barrier;
use lp_region::{FileId, ProcessId};

use crate::caller::task::Task;
use crate::descriptors::flight;
use crate::descriptors::table::{self, FdTable};
use crate::lane::pin;

/// Scans before a file counts as named, if references move all the time. A scan may take as long as the
/// machine's other processors need for a barrier, and a few forks may happen meanwhile.
const LOOKS: u32 = 1024;

/// Whether a live process's table, a call under way or a message names an open file. Returns true when in
/// doubt. A close under way does not count.
pub(crate) fn by_the_living(task: &Task, id: FileId) -> bool {
    for _ in 0..LOOKS {
        let before = table::moves(task.region);
        // A file on its way into a table leaves its pin there. A call under way ends, or its table names the
        // file.
        let pinned = is_pinned(task, id);
        let calm = match in_tables(task, id) {
            Some(true) => return true,
            found => found.is_some(),
        };
        // PAIRS: the light barriers of `pin`.
        if !heavy_barrier() {
            return true;
        }
        let pinned = pinned || is_pinned(task, id);
        if flight::is_in_flight(task, id) {
            return true;
        }
        if calm && !pinned && table::moves(task.region) == before {
            return false;
        }
    }
    true
}

/// Whether the table of a live process names the file; `None` if not, but references moved within a table.
fn in_tables(task: &Task, id: FileId) -> Option<bool> {
    let mut calm = true;
    for process in task.region.processes() {
        let mut hit = false;
        calm &= FdTable::of(task.region, process).look_through(|file| hit |= file == id);
        if hit && !is_dead(task, process) {
            return Some(true);
        }
    }
    calm.then_some(false)
}

fn is_pinned(task: &Task, id: FileId) -> bool {
    let names = |pin: &_| lp_region::marks::pinned(pin) == u64::from(id.0);
    task.region.lanes().any(|lane| {
        // A file that is being closed has left the table already, removed by its owner or by a reaper.
        let pins = task.region.lane(lane).pins.iter().enumerate();
        let mut in_use = pins.filter(|(slot, _)| *slot != pin::slot::CLOSE).map(|(_, pin)| pin);
        in_use.any(names) && !task.region.lane_is_dead(lane, task.process_id)
    })
}

fn is_dead(task: &Task, process: ProcessId) -> bool {
    task.region.process_is_dead(process, task.process_id)
}
