//! The way from a file up to the host's root directory, on which rules of landlock(7) are looked for.
//!
//! It takes no lock: it is walked again if a directory has moved meanwhile.

use lp_region::sync::Ordering::{Acquire, Relaxed};
use lp_region::{InodeId, InodeRef, MountId};

use crate::caller::task::Task;
use crate::names::goal::Found;
use crate::names::mounts::{self, AboveRoot};
use crate::rights::domain::Level;

/// Ways up that are walked again because directories have moved meanwhile.
const TRIES: u32 = 100;

/// Repeats a look at the way up if directories have moved meanwhile.
pub(crate) fn consistently<T>(task: &Task<'_>, look: impl Fn() -> T) -> T {
    let shape = &task.region.header().tree;
    for _ in 0..TRIES {
        let before = shape.read();
        let seen = look();
        if !shape.retry(before) {
            return seen;
        }
    }
    look()
}

/// An inode as it is now.
pub(crate) fn current(task: &Task<'_>, id: InodeId) -> InodeRef {
    // Acquire: an inode's generation is incremented before its slot is reused.
    InodeRef { id, generation: task.region.inode(id).generation.load(Acquire) }
}

/// The way from a file up to the host's root directory, as in the kernel's is_access_to_paths_allowed: what
/// a mount covers is not on it.
pub(crate) struct Climb<'t, 'r> {
    task: &'t Task<'r>,
    next: Option<Step>,
    /// Steps left. Bounded, in case the tree is damaged.
    left: u32,
}

#[derive(Clone, Copy)]
enum Step {
    /// An inode in a mount, and the directory that has it if it is none.
    In(InodeRef, InodeId, MountId),
    Host(u32),
    Root,
}

/// Steps of a way up at most.
const STEPS: u32 = 1 << 16;

impl<'t, 'r> Climb<'t, 'r> {
    pub(crate) fn from(task: &'t Task<'r>, file: &Found) -> Self {
        Climb { task, next: Some(Step::In(file.inode, file.parent, file.mount)), left: STEPS }
    }

    /// What is above an inode in a mount.
    fn above(&self, mut inode: InodeRef, mut parent: InodeId, mut mount: MountId) -> Option<Step> {
        let region = self.task.region;
        while region.mount(mount).root() == inode {
            match mounts::above(self.task, mount, mounts::ASIDE) {
                AboveRoot::Host => {
                    let bases = &self.task.run.bases;
                    // Relaxed: immutable while the run lives.
                    let index = bases.iter().position(|base| base.load(Relaxed) == mount.0)?;
                    return Some(Step::Host(index as u32));
                }
                AboveRoot::Point(spot, dirent) => {
                    (inode, mount) = (spot.inode, spot.mount);
                    parent = InodeId(region.dirent(dirent).parent.load(Relaxed)); // Relaxed: as seen.
                }
                AboveRoot::Nothing => return None,
            }
        }
        let record = region.inode(inode.id);
        let is_dir = record.is_dir();
        if is_dir {
            parent = InodeId(record.parent.load(Relaxed)); // Relaxed: as seen; `consistently` looks again.
        }
        if parent.is_none() || parent == inode.id {
            return None;
        }
        let up = current(self.task, parent);
        // A removed directory remembers its parent, which may have been removed too.
        let is_lost = is_dir && record.is_dead() && record.tail.load(Acquire) != u64::from(up.generation);
        (!is_lost && region.inode(parent).is_dir()).then_some(Step::In(up, parent, mount))
    }
}

impl Iterator for Climb<'_, '_> {
    type Item = Level;

    fn next(&mut self) -> Option<Level> {
        let step = self.next?;
        self.left = self.left.checked_sub(1)?;
        let (level, next) = match step {
            Step::In(inode, parent, mount) => (Level::Inode(inode), self.above(inode, parent, mount)),
            Step::Host(mount) => (Level::Above(mount), Some(Step::Root)),
            Step::Root => (Level::Root, None),
        };
        self.next = next;
        Some(level)
    }
}
