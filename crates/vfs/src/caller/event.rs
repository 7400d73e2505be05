//! The events of watched inodes: [`Task::notify`](crate::caller::task::Task::notify) gets an [`Event`].

use core::cell::Cell;

use lp_abi::{Fd, Result};
use lp_region::InodeId;

/// An event to report to watchers. The door's `Task::notify` reports it.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Something happened to an inode.
    Touched(InodeId, Touched),
    /// A name was added to a directory. The caller holds the directory's lock.
    Named(NameAt<'a>, NameOrigin),
    /// A name was removed. The caller holds the directory's lock.
    Removed(NameAt<'a>, ShadowKind),
    /// A name was changed. The caller holds the locks of both directories.
    Moved(&'a Move<'a>),
    /// A descriptor with this `entry::shadow` was closed.
    Closed(Fd),
    /// A descriptor was closed that had been opened with these flags before its inode had a shadow.
    ClosedLate(InodeId, u32),
    /// A file system is destroyed that had watches. The root directory is still there.
    Unmounted(InodeId),
    /// A leased inode is about to be opened or truncated: the door waits until the holders of leases have
    /// given way. The caller holds no lock.
    Breaks(&'a LeaseBreak),
}

/// A call that conflicts with a lease (fcntl(2), `F_SETLEASE`).
#[derive(Debug)]
pub struct LeaseBreak {
    /// The leased inode, which the caller has pinned.
    pub inode: InodeId,
    /// open(2)'s flags; none for truncate(2).
    pub flags: Option<u32>,
    /// `EWOULDBLOCK` or `EINTR` if the call must not go on. The door sets it.
    pub outcome: Cell<Result<()>>,
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
    /// Its link count changed, by a name in a directory that is not watched.
    Links,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub struct NameAt<'a> {
    /// The directory.
    pub dir: InodeId,
    /// The name.
    pub name: &'a [u8],
}

/// The kind of a shadow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShadowKind {
    /// A directory.
    Directory,
    /// It stands for anything but a directory.
    File,
}

/// The origin of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameOrigin {
    /// Created with its inode.
    Made(ShadowKind),
    /// Added to an inode with other names, this one among them if they have shadows.
    Link(InodeId),
}

/// A rename.
#[derive(Clone, Copy, Debug)]
pub struct Move<'a> {
    /// The old name.
    pub from: NameAt<'a>,
    /// The new name.
    pub to: NameAt<'a>,
    /// The kind of what was renamed.
    pub what: ShadowKind,
    /// In an exchange, the kind of what got the old name.
    pub swapped: Option<ShadowKind>,
    /// Which sides are watched.
    pub sides: Sides,
}

/// The sides of a rename that have shadows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sides {
    /// Both the old name and the directory of the new one.
    Both,
    /// The old name; nobody watches the new place.
    Old,
    /// The directory of the new name.
    New,
}
