//! The shape of the tree: who may change which directory stands where, and what [`crate::prefix_cache`] must know of it.
//!
//! Changes that alter where the paths of others lead, or whether everyone may walk them, are made inside a section of
//! `Header::tree`. If one of them dies the count stays odd until the next comes: whoever takes `rename_lock` over has
//! replayed what the dead one had begun.

use crate::task::Task;

/// Whether where the paths of others lead changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Paths {
    /// It does not: names of files come and go.
    Stay,
    /// It does: a directory moves, or becomes one that not everyone may search.
    Change,
}

/// `rename_lock`, held until this is dropped.
pub struct Tree<'t, 'r> {
    task: &'t Task<'r>,
    paths: Paths,
}

/// Takes `rename_lock`. The caller holds no inode's lock.
pub fn lock<'t, 'r>(task: &'t Task<'r>, paths: Paths) -> Tree<'t, 'r> {
    let header = task.region.header();
    header.rename_lock.lock(task.lane_id, task);
    if paths == Paths::Change {
        header.tree.begin();
    }
    Tree { task, paths }
}

impl Drop for Tree<'_, '_> {
    fn drop(&mut self) {
        let header = self.task.region.header();
        if self.paths == Paths::Change {
            header.tree.end();
        }
        header.rename_lock.unlock();
    }
}
