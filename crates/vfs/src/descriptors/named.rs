//! Whether a live process still names an open file, for a thread that meets a conflicting lock of that file.
//!
//! A sweep ([`crate::life::sweep`]) finds what nothing names and frees it, and counts a dead process's table
//! as a reference until the reaper has emptied it. Here a dead process's references count for nothing, no
//! matter which process empties its table. The sweep's argument why a scan that is not atomic suffices
//! applies here.

use lp_region::FileId;
use lp_region::sync::heavy_barrier;

use crate::caller::task::Task;
use crate::descriptors::{flight, opened, table};

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
        let names = |file| file == id;
        let pinned = opened::is_pinned(task, names);
        let calm = match opened::in_tables(task, names) {
            Some(true) => return true,
            found => found.is_some(),
        };
        // PAIRS: the light barriers of `pin`.
        if !heavy_barrier() {
            return true;
        }
        let pinned = pinned || opened::is_pinned(task, names);
        if flight::is_in_flight(task, id) {
            return true;
        }
        if calm && !pinned && table::moves(task.region) == before {
            return false;
        }
    }
    true
}
