//! Limits of a walk: the `resolve` flags of openat2(2).
//!
//! A walk is generic over [`Limits`], so one without limits ([`Free`]) has no code for them. A limited walk
//! neither uses nor fills the cache of prefixes, which records where paths lead but not how.

use lp_abi::linux::{RESOLVE_BENEATH, RESOLVE_IN_ROOT};
use lp_abi::{Errno, Result};
use lp_region::sync::Ordering;
use lp_region::{InodeId, InodeRef, Spot};

use crate::caller::task::Task;
use crate::names::mounts::{self, AboveRoot};
use crate::names::tree;

/// The flags that confine a walk to a directory.
pub(crate) const SCOPED: u32 = RESOLVE_BENEATH | RESOLVE_IN_ROOT;

/// The limits of a walk.
pub(crate) trait Limits: Copy {
    /// Whether any of these `RESOLVE_*` flags is set.
    fn has(self, flags: u32) -> bool;
    /// The directory that confines the walk, if the flags in [`SCOPED`] say so.
    fn top(&self) -> Top<'_>;
    /// Whether directories have moved since the walk began.
    fn has_shifted(self, task: &Task<'_>) -> bool;
}

/// The directory that confines a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Top<'a> {
    /// The one from which relative paths start, in a mount. A walk that is not confined has this too.
    Base,
    /// A directory in a mount.
    Spot(Spot),
    /// A directory of the host, without a trailing slash. The door interprets the host's part of the path.
    Host(&'a [u8]),
}

/// No limits.
#[derive(Clone, Copy)]
pub(crate) struct Free;

impl Limits for Free {
    #[inline(always)]
    fn has(self, _flags: u32) -> bool {
        false
    }

    #[inline(always)]
    fn top(&self) -> Top<'_> {
        Top::Base
    }

    #[inline(always)]
    fn has_shifted(self, _task: &Task<'_>) -> bool {
        false
    }
}

/// Limits as openat2(2) gives them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limited<'a> {
    /// The `RESOLVE_*` flags.
    pub resolve: u32,
    /// The directory that confines the walk.
    pub top: Top<'a>,
    /// `Header::tree` when the walk began.
    pub(crate) tree: u32,
}

impl<'a> Limited<'a> {
    /// The limits of a call.
    pub(crate) fn new(resolve: u32, top: Top<'a>) -> Self {
        Limited { resolve, top, tree: 0 }
    }

    /// As of now: the count that [`Limits::has_shifted`] compares.
    pub(crate) fn begin(self, task: &Task<'_>) -> Self {
        Limited { tree: task.region.header().tree.read(), ..self }
    }

    /// Checks that a confined walk, which reached `end` in the directory `within`, was not led out by a
    /// rename.
    ///
    /// # Errors
    /// `EXDEV`, as the kernel's complete_walk.
    pub(crate) fn check(self, task: &Task<'_>, end: Spot, within: Spot) -> Result<()> {
        match self.top {
            Top::Spot(top) if self.has(SCOPED) && end != top && !is_under(task, top, within) => {
                Err(Errno::EXDEV)
            }
            _ => Ok(()),
        }
    }
}

impl Limits for Limited<'_> {
    fn has(self, flags: u32) -> bool {
        self.resolve & flags != 0
    }

    fn top(&self) -> Top<'_> {
        self.top
    }

    fn has_shifted(self, task: &Task<'_>) -> bool {
        task.region.header().tree.read() != self.tree
    }
}

/// Whether a directory, or the root of a mount, is `top` or below it, as in the kernel's path_is_under.
fn is_under(task: &Task<'_>, top: Spot, mut spot: Spot) -> bool {
    while spot.mount != top.mount {
        match mounts::above(task, spot.mount, mounts::ASIDE) {
            AboveRoot::Point(point, entry) if task.region.mount(point.mount).root() != point.inode => {
                let parent = task.region.dirent(entry).parent.load(Ordering::Relaxed);
                spot = point;
                // A file mount covers a file: go on from the directory that has it.
                if !task.region.inode(point.inode.id).is_dir() {
                    spot.inode = InodeRef { id: InodeId(parent), generation: 0 };
                }
            }
            AboveRoot::Point(point, _) => spot = point,
            AboveRoot::Host | AboveRoot::Nothing => return false,
        }
    }
    spot.inode.id == top.inode.id || tree::is_above(task, top.inode.id, spot.inode.id)
}
