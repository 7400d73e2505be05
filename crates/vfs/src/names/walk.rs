//! Path walk, path_resolution(7): from a path as the program gave it to an inode or to a place in a
//! directory.
//!
//! Like Linux's `namei.c` in RCU mode, and never in another: the walk writes nothing that others read. A
//! directory is named by slot and generation. After each step the generation is checked again, so a step is
//! equivalent to an atomic one on a live directory. A reused slot makes the walk start over. A caller that
//! gets an [`InodeRef`] from a walk must check the generation after using it, or pin it; see
//! [`crate::lane::pin`].
//!
//! What is left to walk is text: the program's path or, once a symbolic link was met, `scratch.walk`, which
//! has the text at its end so that a link's target can be put before it.

use core::slice;

use lp_abi::linux::{
    RESOLVE_BENEATH, RESOLVE_CACHED, RESOLVE_IN_ROOT, RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV, S_IFDIR, S_IFMT,
};
use lp_abi::{Errno, Fd, MAX_SYMLINKS, NAME_MAX, PATH_MAX, Result, UserPtr};
use lp_region::mount::mount_flags;
use lp_region::records::{COVERED, Inode};
use lp_region::sync::Ordering;
use lp_region::{DirentId, InodeId, InodeRef, MountId, Spot, ucopy};

use crate::caller::below::{self, Need};
use crate::caller::prefix_cache::{self, Prefix};
use crate::caller::task::{Outside, Place, SLACK, Task};
use crate::inodes::inode as inodes;
use crate::names::hash::Hit;
use crate::names::limits::{Free, Limited, Limits, SCOPED, Top};
use crate::names::mounts::{self, AboveRoot, Crossing};
use crate::names::name::Name;
use crate::names::{dir, hash, link_target, tree};
use crate::rights::permission::{self, EXEC};
use crate::rights::protected;

/// Bytes of `scratch.walk` available for text, including its NUL.
const TEXT: usize = 2 * PATH_MAX;

/// Walks before a name that leads to a freed inode each time counts as damage: `ESTALE`.
pub(crate) const TRIES: u32 = 1000;

/// The task's buffer for a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathBuffer {
    /// `scratch.path`.
    Path,
    /// `scratch.other`, for the second path of a call.
    Other,
}

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
    which: PathBuffer,
    start: u16,
    length: u16,
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

    fn named<'t>(&self, task: &'t Task<'_>) -> Named<'t> {
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
    fn named<'t>(&self, task: &'t Task<'_>) -> Ended<'t> {
        Ended { place: self.place.named(task), found: self.found }
    }
}

/// The goal of a walk: how it treats the last component, and its result.
trait Goal: Copy {
    /// The result of the walk.
    type End;
    /// Whether the last component, with or without a trailing slash, is not looked up.
    fn leaves_alone(self, trailing_slash: bool) -> bool;
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
struct Existing(Follow);

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
struct Making(Follow);

impl Goal for Making {
    type End = End;

    #[inline(always)]
    fn leaves_alone(self, trailing_slash: bool) -> bool {
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
struct Placing;

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

/// A path in one of the task's buffers.
#[derive(Clone, Copy)]
pub(crate) struct PathText {
    which: PathBuffer,
    /// Its bytes, without the NUL.
    length: usize,
    /// Length of the part up to and including its last slash.
    prefix: usize,
}

/// Copies a path of the program's into one of the task's buffers.
///
/// # Errors
/// `EFAULT`, `ENAMETOOLONG`; `ENOENT` if it is empty.
#[inline]
pub(crate) fn copy_path(task: &Task<'_>, which: PathBuffer, path: UserPtr) -> Result<PathText> {
    // SAFETY: the buffer belongs to the task, and no other reference to it is alive.
    let buffer = unsafe { slice::from_raw_parts_mut(buffer(task, which).cast::<u8>(), PATH_MAX) };
    // SAFETY: the copy routine handles bad pointers.
    match unsafe { ucopy::path(buffer, path.as_ptr()) }? {
        (0, _) => Err(Errno::ENOENT),
        (length, prefix) => Ok(PathText { which, length, prefix }),
    }
}

/// The path that [`copy_path`] left in a buffer.
pub(crate) fn copied<'t>(task: &'t Task<'_>, which: PathBuffer) -> &'t [u8] {
    // SAFETY: the buffer belongs to the task, which makes one call at a time; nobody writes it while the call
    // uses the path.
    let bytes = unsafe { slice::from_raw_parts(buffer(task, which).cast::<u8>(), PATH_MAX) };
    &bytes[..bytes.iter().position(|byte| *byte == 0).unwrap_or(PATH_MAX)]
}

/// Moves a path that a walk left in `scratch.outside` to its own buffer, for calls with two paths.
///
/// # Errors
/// `ENAMETOOLONG` if the kernel would not take it either.
pub(crate) fn keep(task: &Task<'_>, outside: Outside, which: PathBuffer) -> Result<Outside> {
    if let Outside::Rewritten(length) = outside {
        if length >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let from = task.scratch.outside.get().cast::<u8>();
        // SAFETY: both are the task's buffers, distinct, and large enough for the path and its NUL.
        unsafe { buffer(task, which).cast::<u8>().copy_from_nonoverlapping(from, length + 1) };
    }
    Ok(outside)
}

/// Whether a path of the program's is empty, for calls with `AT_EMPTY_PATH`.
///
/// # Errors
/// `EFAULT`.
#[inline]
pub(crate) fn is_empty(path: UserPtr) -> Result<bool> {
    // SAFETY: the copy routine handles bad pointers.
    Ok(unsafe { ucopy::get(path.as_ptr()) }? == 0)
}

/// The inode that a path names.
///
/// # Errors
/// Those of path_resolution(7): `ENOENT`, `ENOTDIR`, `EACCES`, `ELOOP`, `ENAMETOOLONG`, `EFAULT`.
#[inline]
pub fn inode(task: &Task<'_>, dirfd: Fd, path: UserPtr, follow: Follow) -> Result<Place<Found>> {
    let text = copy_path(task, PathBuffer::Path, path)?;
    match in_known(task, dirfd, text, follow) {
        Some(found) => found.map(Place::Inside),
        None => inode_of(task, dirfd, text, follow),
    }
}

/// [`inode`] for a path that was copied, without a look at [`in_known`].
///
/// # Errors
/// As [`inode`].
pub(crate) fn inode_of(task: &Task<'_>, dirfd: Fd, text: PathText, follow: Follow) -> Result<Place<Found>> {
    again(task, dirfd, text, Existing(follow))
}

/// [`inode`] for the second path of a call, in its own buffer.
///
/// # Errors
/// Those of [`inode`].
pub(crate) fn second_inode(
    task: &Task<'_>,
    dirfd: Fd,
    path: UserPtr,
    follow: Follow,
) -> Result<Place<Found>> {
    again(task, dirfd, copy_path(task, PathBuffer::Other, path)?, Existing(follow))
}

/// Fast path of [`inode`]: a name in a directory whose prefix is known. `None` to fall back to a walk.
///
/// Not made of [`known`] and [`look_up`]: with the name in registers it takes fifty instructions less.
#[inline(always)]
pub(crate) fn in_known(task: &Task<'_>, dirfd: Fd, given: PathText, follow: Follow) -> Option<Result<Found>> {
    let text = buffer(task, given.which).cast::<u8>().cast_const();
    // SAFETY: the buffer holds the text and a NUL, with SLACK bytes behind it, and is not written while these
    // are used.
    let (absolute, name, prefix) = unsafe {
        let absolute = *text == b'/';
        let base = if absolute { Spot::NONE } else { base(task, dirfd)? };
        let prefix = Prefix::new(base.to_word(), text, given.prefix);
        (absolute, Name::scan(text.add(given.prefix)), prefix)
    };
    if name.is_empty() || name.starts_with_dot() || name.len() > NAME_MAX || given.prefix == 0 && absolute {
        return None;
    }
    let Spot { inode: dir, mount } = match given.prefix {
        0 => Spot::from_word(prefix.base),
        _ => prefix_cache::find(task, prefix)?,
    };
    let inode = task.region.inode(dir.id);
    if !may_everyone_search(inode) {
        return None;
    }
    let hit = hash::lookup(task.region, dir.id, &name);
    // Acquire: an inode's generation is incremented before its slot is reused.
    if inode.generation.load(Ordering::Acquire) != dir.generation {
        return None;
    }
    match hit {
        Some(hit) if !hit.is_plain() && (follow == Follow::Link || !hit.is_link()) => None,
        Some(hit) => Some(Ok(Found { inode: hit.target(), dirent: hit.dirent(), parent: dir.id, mount })),
        None => Some(Err(Errno::ENOENT)),
    }
}

/// The directory that a path's prefix is known to lead to, if everyone may search it, and the name behind the
/// prefix, which ends the path. Whoever uses the directory looks at its generation afterwards.
#[inline(always)]
fn known<'t>(task: &'t Task<'_>, dirfd: Fd, given: PathText) -> Option<(Spot, Name<'t>)> {
    let text = buffer(task, given.which).cast::<u8>().cast_const();
    // SAFETY: the buffer holds the text and a NUL, with SLACK bytes behind it, and is not written while these
    // are used.
    let (absolute, name, prefix) = unsafe {
        let absolute = *text == b'/';
        let base = if absolute { Spot::NONE } else { base(task, dirfd)? };
        let prefix = Prefix::new(base.to_word(), text, given.prefix);
        (absolute, Name::scan(text.add(given.prefix)), prefix)
    };
    if name.is_empty() || name.starts_with_dot() || name.len() > NAME_MAX || given.prefix == 0 && absolute {
        return None;
    }
    let dir = match given.prefix {
        0 => Spot::from_word(prefix.base),
        _ => prefix_cache::find(task, prefix)?,
    };
    may_everyone_search(task.region.inode(dir.inode.id)).then_some((dir, name))
}

/// What a name stands for in a directory; `None` if the directory was freed since.
#[inline(always)]
fn look_up(task: &Task<'_>, Spot { inode: dir, .. }: Spot, name: &Name<'_>) -> Option<Option<Hit>> {
    let hit = hash::lookup(task.region, dir.id, name);
    // Acquire: an inode's generation grows before its slot is used again.
    let generation = task.region.inode(dir.id).generation.load(Ordering::Acquire);
    (generation == dir.generation).then_some(hit)
}

/// The place that a known prefix and a name behind it make.
#[inline(always)]
fn named_in(Spot { inode: dir, mount }: Spot, name: Name<'_>) -> Named<'_> {
    Named { dir, mount, last: LastType::Name, trailing_slash: false, name }
}

/// [`named_in`] without the name.
#[inline(always)]
fn place_in(dir: Spot, name: &Name<'_>, given: PathText) -> Parent {
    Parent {
        dir: dir.inode,
        mount: dir.mount,
        last: LastType::Name,
        trailing_slash: false,
        which: given.which,
        start: given.prefix as u16,
        length: name.len() as u16,
    }
}

/// Fast path of [`end`], as [`in_known`].
#[inline(always)]
fn end_in_known<'t>(task: &'t Task<'_>, dirfd: Fd, given: PathText, follow: Follow) -> Option<Ended<'t>> {
    let (dir, name) = known(task, dirfd, given)?;
    let hit = look_up(task, dir, &name)?;
    if hit.is_some_and(|hit| !hit.is_plain() && (follow == Follow::Link || !hit.is_link())) {
        return None;
    }
    let (parent, mount) = (dir.inode.id, dir.mount);
    let found = hit.map(|hit| Found { inode: hit.target(), dirent: hit.dirent(), parent, mount });
    Some(Ended { place: named_in(dir, name), found })
}

/// Whether everyone may search this: a directory whose mode says so, without an ACL, and with nothing mounted
/// on it.
#[inline(always)]
fn may_everyone_search(inode: &Inode) -> bool {
    // Relaxed: each is one word and used as seen; see `permission::check`.
    let mode = inode.mode.load(Ordering::Relaxed);
    // An ACL word of 0 also says that the names are there (`below::names`). x86-64 reads the names after this
    // word, on which they depend.
    mode & (S_IFMT | 0o111) == S_IFDIR | 0o111 && inode.acl.load(Ordering::Relaxed) == 0
}

/// Where a path ends and what is there, possibly nothing: for an open that may create.
///
/// # Errors
/// Those of [`inode`], except that a missing last component is not an error.
#[inline(always)]
pub(crate) fn end<'t>(
    task: &'t Task<'_>,
    dirfd: Fd,
    path: UserPtr,
    follow: Follow,
) -> Result<Place<Ended<'t>>> {
    let text = copy_path(task, PathBuffer::Path, path)?;
    match end_in_known(task, dirfd, text, follow) {
        Some(end) => Ok(Place::Inside(end)),
        None => end_slow(task, dirfd, text, follow),
    }
}

#[inline(never)]
fn end_slow<'t>(task: &'t Task<'_>, dirfd: Fd, text: PathText, follow: Follow) -> Result<Place<Ended<'t>>> {
    Ok(again(task, dirfd, text, Making(follow))?.map(|end| end.named(task)))
}

/// The place that a path names, whatever is there.
///
/// # Errors
/// Those of [`inode`], except that the last component is not looked up.
pub(crate) fn parent(task: &Task<'_>, dirfd: Fd, path: UserPtr, which: PathBuffer) -> Result<Place<Parent>> {
    let text = copy_path(task, which, path)?;
    match known(task, dirfd, text) {
        Some((dir, name)) => Ok(Place::Inside(place_in(dir, &name, text))),
        None => again(task, dirfd, text, Placing),
    }
}

/// [`parent`], with the name.
///
/// # Errors
/// Those of [`parent`].
#[inline(always)]
pub(crate) fn named<'t>(
    task: &'t Task<'_>,
    dirfd: Fd,
    path: UserPtr,
    which: PathBuffer,
) -> Result<Place<Named<'t>>> {
    let text = copy_path(task, which, path)?;
    match known(task, dirfd, text) {
        Some((dir, name)) => Ok(Place::Inside(named_in(dir, name))),
        None => named_slow(task, dirfd, text),
    }
}

#[inline(never)]
fn named_slow<'t>(task: &'t Task<'_>, dirfd: Fd, text: PathText) -> Result<Place<Named<'t>>> {
    Ok(again(task, dirfd, text, Placing)?.map(|parent| parent.named(task)))
}

fn buffer(task: &Task<'_>, which: PathBuffer) -> *mut [u8; PATH_MAX + SLACK] {
    match which {
        PathBuffer::Path => task.scratch.path.get(),
        PathBuffer::Other => task.scratch.other.get(),
    }
}

#[inline(always)]
fn again<G: Goal>(task: &Task<'_>, dirfd: Fd, text: PathText, goal: G) -> Result<Place<G::End>> {
    match walk(task, dirfd, text, goal) {
        Err(Errno::ESTALE) => again_slow(task, dirfd, text, goal),
        done => done,
    }
}

#[cold]
fn again_slow<G: Goal>(task: &Task<'_>, dirfd: Fd, text: PathText, goal: G) -> Result<Place<G::End>> {
    for _ in 0..TRIES {
        match walk(task, dirfd, text, goal) {
            Err(Errno::ESTALE) => {}
            done => return done,
        }
    }
    Err(Errno::ESTALE)
}

fn walk<G: Goal>(task: &Task<'_>, dirfd: Fd, given: PathText, goal: G) -> Result<Place<G::End>> {
    let text = buffer(task, given.which).cast::<u8>().cast_const();
    // SAFETY: the buffer holds `length` bytes and a NUL.
    let (end, absolute) = unsafe { (text.add(given.length), *text == b'/') };
    let base = if absolute { Some(Spot::NONE) } else { base(task, dirfd) };
    let Some(base) = base else { return Ok(Place::Outside(Outside::AsGiven)) };
    let (here, mount) = (base.inode, base.mount);
    let base = base.to_word();
    let mut walk = Walk {
        task,
        limits: Free,
        which: given.which,
        text,
        end,
        here,
        mount,
        settled: true,
        links: 0,
        base,
        tree: ODD,
    };
    // The cache does not handle a trailing slash.
    if given.prefix != 0 && given.prefix != given.length {
        // SAFETY: the text stays in the buffer, which is longer, until the walk is over.
        let prefix = unsafe { Prefix::new(walk.base, text, given.prefix) };
        if let Some(dir) = prefix_cache::find(task, prefix) {
            walk.start(dir, given.prefix);
            return walk.run(goal);
        }
        if let Some(dir) = prefix_cache::find_inner(task, prefix, given.which as usize) {
            walk.start(dir, given.prefix);
            return walk.run(goal);
        }
        walk.tree = task.region.header().tree.read();
    }
    if absolute {
        match walk.enter() {
            Crossing::Inside { root, walked } => walk.start(root, walked),
            Crossing::Outside => return Ok(Place::Outside(Outside::AsGiven)),
        }
    }
    walk.run(goal)
}

/// [`inode`] within limits.
///
/// # Errors
/// Those of [`inode`] and of openat2(2).
pub(crate) fn limited_inode(
    task: &Task<'_>,
    dirfd: Fd,
    path: UserPtr,
    follow: Follow,
    limits: Limited<'_>,
) -> Result<Place<Found>> {
    let text = copy_path(task, PathBuffer::Path, path)?;
    limited_again(task, dirfd, text, Existing(follow), limits)
}

/// [`end`] within limits.
///
/// # Errors
/// Those of [`end`] and of openat2(2).
pub(crate) fn limited_end<'t>(
    task: &'t Task<'_>,
    dirfd: Fd,
    path: UserPtr,
    follow: Follow,
    limits: Limited<'_>,
) -> Result<Place<Ended<'t>>> {
    let text = copy_path(task, PathBuffer::Path, path)?;
    Ok(limited_again(task, dirfd, text, Making(follow), limits)?.map(|end| end.named(task)))
}

fn limited_again<G: Goal>(
    task: &Task<'_>,
    dirfd: Fd,
    text: PathText,
    goal: G,
    limits: Limited<'_>,
) -> Result<Place<G::End>> {
    for _ in 0..TRIES {
        match walk_limited(task, dirfd, text, goal, limits.begin(task)) {
            Err(Errno::ESTALE) => {}
            done => return done,
        }
    }
    Err(Errno::ESTALE)
}

/// A walk that openat2(2) limits. An absolute path is one of a mount, which a door has found on the host; or
/// it starts from the base ([`RESOLVE_IN_ROOT`]).
fn walk_limited<G: Goal>(
    task: &Task<'_>,
    dirfd: Fd,
    given: PathText,
    goal: G,
    mut limits: Limited<'_>,
) -> Result<Place<G::End>> {
    let text = buffer(task, given.which).cast::<u8>().cast_const();
    // SAFETY: the buffer holds `length` bytes and a NUL.
    let (end, slash) = unsafe { (text.add(given.length), *text == b'/') };
    let absolute = slash && !(limits.has(RESOLVE_IN_ROOT) && limits.top == Top::Base);
    let mut from = Spot::NONE;
    if !absolute {
        let Some(base) = base(task, dirfd) else { return Ok(Place::Outside(Outside::AsGiven)) };
        if !dir::is(task.region.inode(base.inode.id)) {
            return Err(Errno::ENOTDIR);
        }
        if limits.top == Top::Base {
            limits.top = Top::Spot(base);
        }
        from = base;
    }
    let (here, mount, which) = (from.inode, from.mount, given.which);
    let mut walk =
        Walk { task, limits, which, text, end, here, mount, settled: true, links: 0, base: 0, tree: ODD };
    if absolute {
        match walk.enter() {
            Crossing::Inside { .. } if limits.has(RESOLVE_NO_XDEV) => return Err(Errno::EXDEV),
            Crossing::Inside { root, walked } => walk.start(root, walked),
            Crossing::Outside => return Ok(Place::Outside(Outside::AsGiven)),
        }
    }
    let done = walk.run(goal)?;
    if let Place::Inside(end) = &done {
        let (end, within) = G::reached(end);
        limits.check(task, end, within)?;
    }
    Ok(done)
}

/// The directory from which relative paths start; `None` if it is the host's.
#[inline]
fn base(task: &Task<'_>, dirfd: Fd) -> Option<Spot> {
    if dirfd == Fd::CWD {
        let cwd = task.process.cwd.load(Ordering::Relaxed); // Relaxed: only the calling process writes it.
        return (cwd != 0).then(|| Spot::from_word(cwd));
    }
    task.fget_any(dirfd).ok().map(|held| held.spot())
}

/// The text after leading slashes.
#[inline(always)]
fn past_slashes(text: *const u8) -> *const u8 {
    let mut text = text;
    // SAFETY: a NUL ends the text.
    unsafe {
        while *text == b'/' {
            text = text.add(1);
        }
    }
    text
}

struct Walk<'t, 'r, L> {
    task: &'t Task<'r>,
    limits: L,
    which: PathBuffer,
    /// The text left to walk: up to `end`, where a NUL and [`SLACK`] bytes follow.
    text: *const u8,
    end: *const u8,
    /// The current inode.
    here: InodeRef,
    /// The mount through which the walk reached it.
    mount: MountId,
    /// Whether the lookup of what is mounted here is done: the walk started here, or has looked.
    settled: bool,
    links: u32,
    /// Where the path starts: a directory, or 0 for `/`.
    base: u64,
    /// `Header::tree` before the first step, or [`ODD`].
    tree: u32,
}

/// A count that no cache entry has: the walk must not be recorded in the cache.
const ODD: u32 = 1;

/// The result of a step.
enum Step<E> {
    /// Continue.
    Next,
    /// The walk is over.
    Over(E),
    /// Follow a symbolic link; the pointer is to the text behind it.
    Link(InodeRef, *const u8),
}

/// Where `..` leads.
enum Up {
    /// To the parent of the current inode.
    Parent,
    /// Nowhere else: the mount is out of the tree.
    Here,
    /// To a host directory.
    Host,
}

/// How a walk continues after an uncommon turn.
enum Turn {
    /// From the current inode.
    On,
    /// It left for a host path.
    Out(usize),
    /// It is over, at a directory.
    At(LastType, Found),
}

impl<'r, L: Limits> Walk<'_, 'r, L> {
    #[inline(always)]
    fn run<G: Goal>(&mut self, goal: G) -> Result<Place<G::End>> {
        loop {
            let start = past_slashes(self.text);
            self.text = start;
            // SAFETY: a NUL ends the text, SLACK bytes follow it, and nobody changes it while the name lives.
            let name = unsafe { Name::scan(start) };
            let turn = if name.is_empty() {
                self.at_root()?
            } else if name.starts_with_dot() && (name.is_dot() || name.is_dot_dot()) {
                self.dots(&name)?
            } else {
                match self.step(&name, goal)? {
                    Step::Next => continue,
                    Step::Over(end) => return Ok(Place::Inside(end)),
                    Step::Link(link, after) => self.follow(link, after)?,
                }
            };
            match turn {
                Turn::On => {}
                Turn::Out(length) => return Ok(Place::Outside(Outside::Rewritten(length))),
                Turn::At(last, found) => {
                    // SAFETY: the text is not at its start, because something was walked.
                    let slash = unsafe { *self.end.sub(1) } == b'/';
                    let end = goal.found(|| self.place_at(0, 0, last, slash), found);
                    return Ok(Place::Inside(end));
                }
            }
        }
    }

    /// Walks one name.
    #[inline(always)]
    fn step<G: Goal>(&mut self, name: &Name<'_>, goal: G) -> Result<Step<G::End>> {
        let everyone = self.may_search()?;
        let here = self.here;
        let after = name.end();
        let next = past_slashes(after);
        self.text = next;
        let (is_last, slash) = (next == self.end, next != after);
        if self.tree & 1 == 0 {
            self.note_slow(name, is_last, everyone);
        }
        if name.len() > NAME_MAX {
            return Err(self.missed(Errno::ENAMETOOLONG));
        }
        if is_last && goal.leaves_alone(slash) {
            return goal.place(|| self.place(name, slash)).map(Step::Over);
        }
        let hit = hash::lookup(self.task.region, here.id, name);
        self.check(here)?;
        let Some(hit) = hit else {
            if self.limits.has(RESOLVE_CACHED) {
                return Err(Errno::EAGAIN);
            }
            if is_last {
                return goal.place(|| self.place(name, slash)).map(Step::Over);
            }
            return Err(Errno::ENOENT);
        };
        if hit.is_link() && (!is_last || slash || goal.follows()) {
            return Ok(Step::Link(hit.target(), after));
        }
        if !is_last {
            self.here = hit.target();
            self.settled = false;
            return Ok(Step::Next);
        }
        if slash && !hit.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        let mut found =
            Found { inode: hit.target(), dirent: hit.dirent(), parent: here.id, mount: self.mount };
        if hit.is_covered() {
            found = self.uncover(found)?;
        }
        Ok(Step::Over(goal.found(|| self.place(name, slash), found)))
    }

    #[inline(always)]
    fn inode(&self) -> &'r Inode {
        self.task.region.inode(self.here.id)
    }

    /// Finds the mount that the text, an absolute path, leads into.
    #[inline(always)]
    fn enter(&self) -> Crossing {
        // SAFETY: `text` does not pass `end`, where a NUL and SLACK bytes follow; nobody writes the buffer
        // meanwhile.
        unsafe {
            mounts::enter(self.task, self.text, self.end.offset_from_unsigned(self.text), self.which as usize)
        }
    }

    /// The remaining text.
    fn rest(&self) -> &[u8] {
        // SAFETY: `text` does not pass `end`; the buffer belongs to the task and is not written while this
        // lives.
        unsafe { slice::from_raw_parts(self.text, self.end.offset_from_unsigned(self.text)) }
    }

    /// Moves to root `root` after `walked` bytes of the text.
    #[inline]
    fn start(&mut self, root: Spot, walked: usize) {
        self.stand(root);
        // SAFETY: `walked` is at most the length of the remaining text.
        self.text = unsafe { self.text.add(walked) };
    }

    /// Moves to the result of a lookup of mounts.
    #[inline]
    fn stand(&mut self, spot: Spot) {
        (self.here, self.mount, self.settled) = (spot.inode, spot.mount, true);
    }

    /// The current inode and mount.
    fn spot(&self) -> Spot {
        Spot { inode: self.here, mount: self.mount }
    }

    /// What is mounted on what was found, if anything.
    ///
    /// # Errors
    /// `EXDEV` if the walk must not cross mounts.
    #[cold]
    fn uncover(&self, found: Found) -> Result<Found> {
        let spot = Spot { inode: found.inode, mount: found.mount };
        let top = mounts::cover(self.task, spot, found.dirent, self.which as usize);
        if top == spot {
            return Ok(found);
        }
        self.cross()?;
        Ok(Found { inode: top.inode, dirent: DirentId::NONE, parent: top.inode.id, mount: top.mount })
    }

    /// The walk goes from one mount to another.
    ///
    /// # Errors
    /// `EXDEV` if it must not.
    #[inline(always)]
    fn cross(&self) -> Result<()> {
        if self.limits.has(RESOLVE_NO_XDEV) { Err(self.missed(Errno::EXDEV)) } else { Ok(()) }
    }

    /// The error of a turn that the kernel does not take by its cache alone.
    #[inline(always)]
    fn missed(&self, errno: Errno) -> Errno {
        if self.limits.has(RESOLVE_CACHED) { Errno::EAGAIN } else { errno }
    }

    /// Checks that what was just read of `inode` is still that inode's.
    ///
    /// # Errors
    /// `ESTALE` if the slot was freed since.
    #[inline(always)]
    fn check(&self, inode: InodeRef) -> Result<()> {
        // Acquire: an inode's generation is incremented before its slot is reused.
        let generation = self.task.region.inode(inode.id).generation.load(Ordering::Acquire);
        if generation == inode.generation { Ok(()) } else { Err(Errno::ESTALE) }
    }

    /// Once only the last name is left, records in the cache how the walk came here, if everyone may walk the
    /// same way.
    #[cold]
    fn note_slow(&mut self, name: &Name<'_>, is_last: bool, everyone: bool) {
        if !is_last {
            self.tree |= u32::from(!everyone);
            return;
        }
        let start = buffer(self.task, self.which).cast::<u8>().cast_const();
        let length = name.bytes().as_ptr() as usize - start as usize;
        // SAFETY: the text is in its buffer, because a walk that met a link has an odd count.
        let prefix = unsafe { Prefix::new(self.base, start, length) };
        prefix_cache::note(self.task, prefix, self.spot(), self.tree);
    }

    /// Checks that the current inode is a directory that the caller may search, and returns whether everyone
    /// may. If something is mounted there, moves to that first.
    #[inline(always)]
    fn may_search(&mut self) -> Result<bool> {
        if may_everyone_search(self.inode()) { Ok(true) } else { self.may_search_slow() }
    }

    #[inline(never)]
    fn may_search_slow(&mut self) -> Result<bool> {
        if !self.settled && self.inode().acl.load(Ordering::Relaxed) & COVERED != 0 {
            let top = mounts::cover(self.task, self.spot(), DirentId::NONE, self.which as usize);
            if top != self.spot() {
                self.cross()?;
            }
            self.stand(top);
            if may_everyone_search(self.inode()) {
                return Ok(true);
            }
        }
        let here = self.inode();
        let is_dir = here.mode.load(Ordering::Relaxed) & S_IFMT == S_IFDIR;
        let allowed =
            if is_dir { permission::check(self.task, here, EXEC) } else { Err(self.missed(Errno::ENOTDIR)) };
        match allowed {
            Ok(()) if below::is_pending(here) => {
                below::take(self.task, self.here.id, Need::All).map(|()| false)
            }
            Ok(()) => Ok(false),
            Err(errno) => Err(self.check(self.here).err().unwrap_or(errno)),
        }
    }

    /// The path ended without a component, at a root.
    #[cold]
    fn at_root(&self) -> Result<Turn> {
        Ok(Turn::At(LastType::Root, self.directory()?))
    }

    /// The current directory as a result.
    fn directory(&self) -> Result<Found> {
        let inode = self.inode();
        let (dirent, parent) = inode
            .seq
            .snapshot(|| (inode.self_dirent.load(Ordering::Relaxed), inode.parent.load(Ordering::Relaxed)));
        self.check(self.here)?;
        Ok(Found { inode: self.here, dirent: DirentId(dirent), parent: InodeId(parent), mount: self.mount })
    }

    /// `.` or `..`.
    #[cold]
    fn dots(&mut self, name: &Name<'_>) -> Result<Turn> {
        self.tree = ODD;
        self.may_search()?;
        let after = name.end();
        self.text = past_slashes(after);
        let last = if name.is_dot() { LastType::Dot } else { LastType::DotDot };
        if last == LastType::DotDot {
            match self.up()? {
                Up::Parent => {}
                Up::Here if self.limits.has(RESOLVE_BENEATH) => {
                    return Err(self.missed(Errno::EXDEV));
                }
                Up::Here if self.text != self.end => return Ok(Turn::On),
                Up::Here => return Ok(Turn::At(last, self.directory()?)),
                Up::Host => return self.leave(after),
            }
            let from = self.here;
            let up = self.directory()?;
            let parent = self.task.region.inode(up.parent);
            self.here = InodeRef { id: up.parent, generation: parent.generation.load(Ordering::Acquire) };
            // The parent of a directory that is still in place is live.
            if self.task.region.inode(from.id).parent.load(Ordering::Acquire) != up.parent.0 {
                return Err(Errno::ESTALE);
            }
            self.check(from)?;
            // A removed directory remembers its parent, which may have been removed too.
            let gone = self.task.region.inode(from.id).tail.load(Ordering::Acquire);
            if mounts::is_gone(self.task, from) && gone != u64::from(self.here.generation) {
                return Err(Errno::ENOENT);
            }
            if mounts::is_covered(self.task, self.here.id) {
                let top = mounts::cover(self.task, self.spot(), DirentId::NONE, self.which as usize);
                if top != self.spot() {
                    self.cross()?;
                }
                self.stand(top);
            }
            // The kernel's handle_dots: a directory that moved may have led `..` past the top.
            if self.limits.has(SCOPED) && self.limits.has_shifted(self.task) {
                return Err(Errno::EAGAIN);
            }
        }
        if self.text != self.end {
            return Ok(Turn::On);
        }
        Ok(Turn::At(last, self.directory()?))
    }

    /// For `..`: moves from the root of a mount to what the mount covers, repeatedly.
    ///
    /// # Errors
    /// `ENOENT` for a directory that has moved out of what its mount shows (the kernel's path_connected).
    fn up(&mut self) -> Result<Up> {
        let (task, from) = (self.task, self.spot());
        if self.is_top(from) {
            return Ok(Up::Here);
        }
        while task.region.mount(self.mount).root() == self.here {
            match mounts::above(task, self.mount, self.which as usize) {
                AboveRoot::Point(spot, _) if self.is_top(spot) => {
                    self.stand(from);
                    return Ok(Up::Here);
                }
                AboveRoot::Point(spot, _) => self.stand(spot),
                AboveRoot::Host => return self.cross().map(|()| Up::Host),
                AboveRoot::Nothing => return Ok(Up::Here),
            }
        }
        if self.mount != from.mount {
            self.cross()?;
        }
        let top = task.region.mount(self.mount).root();
        if mounts::is_gone(task, self.here) || mounts::is_root(task, top) {
            return Ok(Up::Parent);
        }
        if tree::is_above(task, top.id, self.here.id) { Ok(Up::Parent) } else { Err(Errno::ENOENT) }
    }

    /// Whether this is the directory that confines the walk.
    #[inline(always)]
    fn is_top(&self, spot: Spot) -> bool {
        self.limits.has(SCOPED) && self.limits.top() == Top::Spot(spot)
    }

    /// `..` of a root: continues in the host directory that contains the mount.
    #[cold]
    fn leave(&mut self, after: *const u8) -> Result<Turn> {
        let above = mounts::host_above(self.task, self.mount);
        self.prepend(after, above.len() + 1, |to| {
            to[..above.len()].copy_from_slice(above);
            to[above.len()] = b'/';
            Ok(())
        })?;
        self.absolute()
    }

    /// Continues with the target of a symbolic link; `after` is what follows the link in the text.
    #[cold]
    fn follow(&mut self, link: InodeRef, after: *const u8) -> Result<Turn> {
        if self.links == MAX_SYMLINKS || mounts::has(self.task, self.mount, mount_flags::NOSYMFOLLOW) {
            return Err(Errno::ELOOP);
        }
        if self.limits.has(RESOLVE_NO_SYMLINKS) {
            return Err(Errno::ELOOP);
        }
        self.links += 1;
        self.tree = ODD;
        let (task, inode) = (self.task, self.task.region.inode(link.id));
        if past_slashes(after) == self.end {
            protected::may_follow(task, self.inode(), inode)?;
        }
        if self.limits.has(RESOLVE_CACHED) && inodes::is_access_due(task, inode, self.mount) {
            return Err(Errno::EAGAIN);
        }
        let length = link_target::target_length(inode);
        self.check(link)?;
        self.prepend(after, length, |to| link_target::copy_target(task, inode, to))?;
        self.check(link)?;
        link_target::followed(task, Spot { inode: link, mount: self.mount });
        // SAFETY: the text is not empty, because no target is.
        if unsafe { *self.text } == b'/' { self.jump() } else { Ok(Turn::On) }
    }

    /// Continues with the text, an absolute target, from the root that the walk has: the kernel's
    /// nd_jump_root.
    fn jump(&mut self) -> Result<Turn> {
        if self.limits.has(RESOLVE_BENEATH) {
            return Err(Errno::EXDEV);
        }
        if !self.limits.has(RESOLVE_IN_ROOT) {
            self.cross()?; // The process's root is the host's.
            return self.absolute();
        }
        let limits = self.limits;
        match limits.top() {
            Top::Base => {}
            Top::Spot(top) => {
                if top.mount != self.mount {
                    self.cross()?;
                }
                self.stand(top);
            }
            Top::Host(above) => {
                self.cross()?;
                self.prepend(self.text, above.len(), |to| {
                    to.copy_from_slice(above);
                    Ok(())
                })?;
                return self.absolute();
            }
        }
        Ok(Turn::On)
    }

    /// Finds where the text, an absolute path, leads.
    fn absolute(&mut self) -> Result<Turn> {
        match self.enter() {
            Crossing::Inside { root, walked } => {
                self.start(root, walked);
                Ok(Turn::On)
            }
            Crossing::Outside => {
                let rest = self.rest();
                // SAFETY: the buffer belongs to the task and is longer than any text; `rest` lies in another.
                let to = unsafe { &mut *self.task.scratch.outside.get() };
                to[..rest.len()].copy_from_slice(rest);
                to[rest.len()] = 0;
                Ok(Turn::Out(rest.len()))
            }
        }
    }

    /// Puts `length` bytes, which `fill` writes, before the text that starts at `after`.
    fn prepend(
        &mut self,
        after: *const u8,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let walk = self.task.scratch.walk.get().cast::<u8>();
        // SAFETY: `after` is in the text, which ends at `end`.
        let left = unsafe { self.end.offset_from_unsigned(after) };
        if length + left >= TEXT {
            return Err(Errno::ENAMETOOLONG);
        }
        let rest = TEXT - 1 - left;
        // SAFETY: `rest + left` is the last of the TEXT bytes; text that is in this buffer already is in
        // place. The bytes below `rest` are no longer needed.
        let room = unsafe {
            if self.end != walk.add(TEXT - 1) {
                walk.add(rest).copy_from_nonoverlapping(after, left);
                *walk.add(TEXT - 1) = 0;
            }
            slice::from_raw_parts_mut(walk.add(rest - length), length)
        };
        fill(room)?;
        // SAFETY: within the buffer.
        (self.text, self.end) = unsafe { (walk.add(rest - length).cast_const(), walk.add(TEXT - 1)) };
        Ok(())
    }

    /// The place of `name`, the last in the text.
    #[inline]
    fn place(&self, name: &Name<'_>, slash: bool) -> Parent {
        let start = buffer(self.task, self.which).cast::<u8>();
        let from = name.bytes().as_ptr();
        let offset = (from as usize).wrapping_sub(start as usize);
        if offset < PATH_MAX {
            return self.place_at(offset as u16, name.len() as u16, LastType::Name, slash);
        }
        // The name is in `scratch.walk`, which the next walk uses. SAFETY: a name and a NUL fit the buffer,
        // and nobody reads the path after this.
        unsafe {
            start.copy_from_nonoverlapping(from, name.len());
            *start.add(name.len()) = 0;
        }
        self.place_at(0, name.len() as u16, LastType::Name, slash)
    }

    fn place_at(&self, start: u16, length: u16, last: LastType, trailing_slash: bool) -> Parent {
        let (dir, mount, which) = (self.here, self.mount, self.which);
        Parent { dir, mount, last, trailing_slash, which, start, length }
    }
}
