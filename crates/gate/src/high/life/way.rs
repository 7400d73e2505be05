//! What a process does while it can: it is about to change who it is, or where its paths lead. It takes in
//! what it needs from a layer below its mounts, and patches the loader.

use lp_vfs::below::opened;
use lp_vfs::task::Task;

use crate::high::memory::{bus, holes};
use crate::low::cover::loaded;

/// Patches what waits for that, and takes in what the process's small open files and its mappings still lack.
/// What fails now fails when it is read, or touched.
#[cold]
pub(crate) fn before_losing(task: &Task) {
    loaded::cover_rest();
    opened::complete(task);
    if bus::exist() {
        holes::complete(task);
    }
}
