//! What a path walk is for and what it finds.

use lp_abi::{Errno, Result};
use lp_region::sync::Ordering;
use lp_region::{DirentId, InodeId, InodeRef, MountId, Spot};

use crate::caller::task::Task;
use crate::descriptors::fget::HeldFile;
use crate::names::name::Name;
use crate::names::path_text::{PathBuffer, buffer};

/// How to treat a symbolic link at the end of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Follow {
    /// Follow it.
    Link,
    /// Use the link itself (`O_NOFOLLOW`, `AT_SYMLINK_NOFOLLOW`), unless a slash follows it.
    No,
}

/// The kind of a path's last component.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LastType {
    /// A name.
    Name,
    /// `.`.
    Dot,
    /// `..`.
    DotDot,
    /// None: the path is a mount's.
    Root,
}

/// An inode and how it was reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The inode.
    pub inode: InodeRef,
    /// The entry that led to it; none for a root.
    pub dirent: DirentId,
    /// The directory of that entry. A root is its own.
    pub parent: InodeId,
    /// The mount through which it was reached.
    pub mount: MountId,
}

impl Found {
    /// What a descriptor names, as its open found it.
    pub fn of(held: &HeldFile<'_>) -> Found {
        // Relaxed, both: immutable while the file is open.
        let dirent = DirentId(held.file.dirent.load(Ordering::Relaxed));
        let parent = InodeId(held.file.parent.load(Ordering::Relaxed));
        Found { inode: held.inode_ref(), dirent, parent, mount: held.mount() }
    }

    /// The inode and the mount.
    #[inline]
    pub fn spot(&self) -> Spot {
        Spot { inode: self.inode, mount: self.mount }
    }

    /// It, and the directory that has it.
    fn reached(&self) -> (Spot, Spot) {
        let within = match self.dirent.is_none() {
            true => self.inode,
            false => InodeRef { id: self.parent, generation: 0 },
        };
        (self.spot(), Spot { inode: within, mount: self.mount })
    }
}

/// A place in a directory where a call creates or removes a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parent {
    /// The directory.
    pub dir: InodeRef,
    /// The mount through which it was reached.
    pub mount: MountId,
    /// The kind of the last component.
    pub last: LastType,
    /// Whether a slash follows the last component.
    pub trailing_slash: bool,
    /// The buffer that has the last component, where it starts there, and its length.
    pub(super) which: PathBuffer,
    pub(super) start: u16,
    pub(super) length: u16,
}

impl Parent {
    /// The last component, if it is a name; the walk has checked its length. Valid until the next walk into
    /// the same buffer.
    #[inline]
    pub fn name<'a>(&self, task: &'a Task<'_>) -> Name<'a> {
        let buffer = buffer(task, self.which).cast::<u8>();
        // SAFETY: the walk left the name there, with a NUL or a slash behind it. The buffer belongs to the
        // task, which makes one call at a time.
        let name = unsafe { Name::scan(buffer.add(self.start as usize)) };
        debug_assert!(self.last != LastType::Name || name.len() == self.length as usize);
        name
    }

    pub(super) fn named<'t>(&self, task: &'t Task<'_>) -> Named<'t> {
        let Parent { dir, mount, last, trailing_slash, .. } = *self;
        Named { dir, mount, last, trailing_slash, name: self.name(task) }
    }
}

/// A [`Parent`] with its name at hand.
#[derive(Clone, Copy)]
pub(crate) struct Named<'t> {
    /// The directory.
    pub dir: InodeRef,
    /// The mount through which it was reached.
    pub mount: MountId,
    /// The kind of the last component.
    pub last: LastType,
    /// Whether a slash follows the last component.
    pub trailing_slash: bool,
    /// The last component, if it is a name. Valid until the next walk into the same buffer.
    pub name: Name<'t>,
}

/// Where a path ends, with the name at hand.
pub(crate) struct Ended<'t> {
    /// The place.
    pub place: Named<'t>,
    /// What the walk found there.
    pub found: Option<Found>,
}

/// Where a path ends: the place, and what the walk found there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// The place.
    pub place: Parent,
    /// What the walk found there.
    pub found: Option<Found>,
}

impl End {
    pub(super) fn named<'t>(&self, task: &'t Task<'_>) -> Ended<'t> {
        Ended { place: self.place.named(task), found: self.found }
    }
}

/// The goal of a walk: how it treats the last component, and its result.
pub(super) trait Goal: Copy {
    /// The result of the walk.
    type End;
    /// Whether the last component, with or without a trailing slash, is not looked up.
    fn leaves_alone(self, trailing_slash: bool) -> bool;
    /// Whether the call fails at a last component, whatever its name: even at one that is too long.
    #[inline(always)]
    fn fails_at(self, _trailing_slash: bool) -> bool {
        false
    }
    /// Whether a symbolic link at the end is followed.
    fn follows(self) -> bool;
    /// The walk ended at a place where nothing exists, or that was not looked up.
    fn place(self, place: impl FnOnce() -> Parent) -> Result<Self::End>;
    /// The walk ended at something that exists.
    fn found(self, place: impl FnOnce() -> Parent, found: Found) -> Self::End;
    /// What the walk reached, and the directory that has it; a root is its own.
    fn reached(end: &Self::End) -> (Spot, Spot);
}

/// An existing inode.
#[derive(Clone, Copy)]
pub(super) struct Existing(pub Follow);

impl Goal for Existing {
    type End = Found;

    #[inline(always)]
    fn leaves_alone(self, _trailing_slash: bool) -> bool {
        false
    }

    #[inline(always)]
    fn follows(self) -> bool {
        self.0 == Follow::Link
    }

    #[inline(always)]
    fn place(self, _place: impl FnOnce() -> Parent) -> Result<Found> {
        Err(Errno::ENOENT)
    }

    #[inline(always)]
    fn found(self, _place: impl FnOnce() -> Parent, found: Found) -> Found {
        found
    }

    fn reached(end: &Found) -> (Spot, Spot) {
        end.reached()
    }
}

/// An inode that exists or may be created. With a trailing slash the call must fail, whatever exists.
#[derive(Clone, Copy)]
pub(super) struct Making(pub Follow);

impl Goal for Making {
    type End = End;

    #[inline(always)]
    fn leaves_alone(self, trailing_slash: bool) -> bool {
        trailing_slash
    }

    #[inline(always)]
    fn fails_at(self, trailing_slash: bool) -> bool {
        trailing_slash
    }

    #[inline(always)]
    fn follows(self) -> bool {
        self.0 == Follow::Link
    }

    #[inline(always)]
    fn place(self, place: impl FnOnce() -> Parent) -> Result<End> {
        Ok(End { place: place(), found: None })
    }

    #[inline(always)]
    fn found(self, place: impl FnOnce() -> Parent, found: Found) -> End {
        End { place: place(), found: Some(found) }
    }

    fn reached(end: &End) -> (Spot, Spot) {
        end.found.map_or_else(|| Placing::reached(&end.place), |found| found.reached())
    }
}

/// A place in a directory.
#[derive(Clone, Copy)]
pub(super) struct Placing;

impl Goal for Placing {
    type End = Parent;

    #[inline(always)]
    fn leaves_alone(self, _trailing_slash: bool) -> bool {
        true
    }

    #[inline(always)]
    fn follows(self) -> bool {
        false
    }

    #[inline(always)]
    fn place(self, place: impl FnOnce() -> Parent) -> Result<Parent> {
        Ok(place())
    }

    #[inline(always)]
    fn found(self, place: impl FnOnce() -> Parent, _found: Found) -> Parent {
        place()
    }

    fn reached(end: &Parent) -> (Spot, Spot) {
        let dir = Spot { inode: end.dir, mount: end.mount };
        (dir, dir)
    }
}
