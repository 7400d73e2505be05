//! What watchers are told: [`Task::notify`](crate::caller::task::Task::notify) gets an [`Event`].

use lp_abi::Fd;
use lp_region::InodeId;

/// What a watcher must be told. The door's `Task::notify` does it.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Something happened to an inode.
    Touched(InodeId, Touched),
    /// A name has come into a directory. The caller holds the directory's lock.
    Named(At<'a>, New),
    /// A name is gone. The caller holds the directory's lock.
    Removed(At<'a>, Kind),
    /// A name is another one now. The caller holds the locks of both directories.
    Moved(&'a Move<'a>),
    /// A descriptor with this `entry::shadow` was closed.
    Closed(Fd),
    /// A descriptor was closed, opened with these flags before its inode had a shadow.
    ClosedLate(InodeId, u32),
}

/// What happened to an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touched {
    /// Content was read, or entries were listed.
    Accessed,
    /// Content was changed.
    Modified,
    /// Attributes were changed.
    Attributes,
    /// It has more links or fewer, by a name that no watched directory has.
    Links,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// The directory.
    pub dir: InodeId,
    /// The name.
    pub name: &'a [u8],
}

/// Whether a shadow is a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It is.
    Directory,
    /// It stands for anything else.
    File,
}

/// How a name came to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum New {
    /// With its inode.
    Made(Kind),
    /// For an inode that has other names: this one, if they have shadows.
    Link(InodeId),
}

/// A rename.
#[derive(Clone, Copy, Debug)]
pub struct Move<'a> {
    /// The old name.
    pub from: At<'a>,
    /// The new name.
    pub to: At<'a>,
    /// What it names.
    pub what: Kind,
    /// What had the new name and has the old one now.
    pub swapped: Option<Kind>,
    /// What of both sides is watched.
    pub sides: Sides,
}

/// Which sides of a rename have shadows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sides {
    /// Both the old name and the directory of the new one.
    Both,
    /// The old name, and nobody watches what it names now.
    Old,
    /// The directory of the new name.
    New,
}
