//! What a process takes in from a layer below its mounts while it can: it is about to change who it is, or
//! where its paths lead.

use lp_vfs::below::opened;
use lp_vfs::task::Task;

use crate::high::memory::{bus, holes};

/// Takes in what the process's small open files and its mappings still lack. What fails now fails when it is
/// read, or touched.
#[cold]
pub(crate) fn before_losing(task: &Task) {
    opened::complete(task);
    if bus::exist() {
        holes::complete(task);
    }
}
