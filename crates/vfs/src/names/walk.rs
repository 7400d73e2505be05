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

mod dots;
pub(super) mod limited;
mod links;

use core::slice;

use lp_abi::linux::{RESOLVE_CACHED, RESOLVE_NO_XDEV, S_IFDIR, S_IFMT};
use lp_abi::{Errno, Fd, NAME_MAX, PATH_MAX, Result, UserPtr};
use lp_region::records::{COVERED, Inode};
use lp_region::sync::Ordering;
use lp_region::{DirentId, InodeId, InodeRef, MountId, Spot};

use crate::caller::below::{self, Need};
use crate::caller::prefix_cache::Prefix;
use crate::caller::prefixes;
use crate::caller::task::{Outside, Place, Task};
pub use crate::names::goal::{End, Follow, Found, LastType, Parent};
pub(crate) use crate::names::goal::{Ended, Named};
use crate::names::goal::{Existing, Goal, Making, Placing};
pub(crate) use crate::names::known::{
    AtKnown, beside, found, in_known, is_current, is_end, known, look_up, named_in,
};
use crate::names::known::{Bare, Whole, base, may_everyone_search};
use crate::names::limits::{Free, Limits};
use crate::names::mounts::{self, Crossing};
use crate::names::name::Name;
pub use crate::names::path_text::PathBuffer;
pub(crate) use crate::names::path_text::{PathText, copied, copy_path, is_empty, keep};
use crate::names::path_text::{buffer, shorten};
use crate::names::{hash, listing};
use crate::rights::permission::{self, EXEC};

/// Bytes of `scratch.walk` available for text, including its NUL.
const TEXT: usize = 2 * PATH_MAX;

/// Walks before a name that leads to a freed inode each time counts as damage: `ESTALE`.
pub(crate) const TRIES: u32 = 1000;

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

/// Where a path ends and what is there, possibly nothing: for an open that may create.
///
/// # Errors
/// Those of [`inode`], except that a missing last component is not an error.
pub(crate) fn end<'t>(
    task: &'t Task<'_>,
    dirfd: Fd,
    path: UserPtr,
    follow: Follow,
) -> Result<Place<Ended<'t>>> {
    let text = copy_path(task, PathBuffer::Path, path)?;
    Ok(again(task, dirfd, text, Making(follow))?.map(|end| end.named(task)))
}

/// The place that a path names, whatever is there.
///
/// # Errors
/// Those of [`inode`], except that the last component is not looked up.
pub(crate) fn parent(task: &Task<'_>, dirfd: Fd, path: UserPtr, which: PathBuffer) -> Result<Place<Parent>> {
    let text = copy_path(task, which, path)?;
    match known(task, dirfd, text, Bare(text)) {
        Some(place) => Ok(Place::Inside(place)),
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
    match known(task, dirfd, text, Whole) {
        Some(named) => Ok(Place::Inside(named)),
        None => named_slow(task, dirfd, text),
    }
}

/// [`named`] of a path whose last name may be too long; whether it is.
///
/// # Errors
/// Those of [`parent`].
#[cold]
pub(crate) fn named_or_longer<'t>(
    task: &'t Task<'_>,
    dirfd: Fd,
    path: UserPtr,
    which: PathBuffer,
) -> Result<(Place<Named<'t>>, bool)> {
    let (text, is_longer) = shorten(task, copy_path(task, which, path)?);
    Ok((named_slow(task, dirfd, text)?, is_longer))
}

#[inline(never)]
fn named_slow<'t>(task: &'t Task<'_>, dirfd: Fd, text: PathText) -> Result<Place<Named<'t>>> {
    Ok(again(task, dirfd, text, Placing)?.map(|parent| parent.named(task)))
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
    let base = match absolute {
        true => Some(Spot::NONE),
        false => base(task, dirfd).or_else(|| mounts::base_of_run(task, dirfd)),
    };
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
        if let Some(dir) = prefixes::find(task, prefix) {
            walk.start(dir, given.prefix);
            return walk.run(goal);
        }
        if let Some(dir) = prefixes::find_inner(task, prefix, given.which as usize) {
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
    /// The text left to walk: up to `end`, where a NUL and SLACK bytes follow.
    text: *const u8,
    end: *const u8,
    /// The current inode.
    here: InodeRef,
    /// The mount through which the walk reached it.
    mount: MountId,
    /// Whether the lookup of what is mounted here is done: the walk started here, or has looked.
    settled: bool,
    links: u32,
    /// Where the path starts: a directory, or 0 for `/`. 0 also after `..`, which looks at the root
    /// directory.
    base: u64,
    /// `Header::tree` before the first step, or [`ODD`].
    tree: u32,
}

/// The error of a step to a directory that stands for the host's of its name, which no call returns.
const HOSTS: Errno = Errno::EREMOTE;

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

/// What a step looks up in the current directory.
#[derive(Clone, Copy)]
enum LooksUp {
    /// Nothing: the text is at `.` or `..`.
    Nothing,
    /// A name.
    Name,
    /// A name, unless it is the last: that is for the call to create, remove or replace.
    Place,
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
                self.dots(&name).or_else(|errno| self.failed(errno))?
            } else {
                match self.step(&name, goal) {
                    Ok(Step::Next) => continue,
                    Ok(Step::Over(end)) => return Ok(Place::Inside(end)),
                    Ok(Step::Link(link, after)) => self.follow(link, after)?,
                    Err(errno) => self.failed(errno)?,
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
        let looks_up = if goal.leaves_alone(true) { LooksUp::Place } else { LooksUp::Name };
        let everyone = self.may_search(looks_up)?;
        let here = self.here;
        let after = name.end();
        let next = past_slashes(after);
        self.text = next;
        let (is_last, slash) = (next == self.end, next != after);
        if self.tree & 1 == 0 {
            self.note_slow(name, is_last, everyone);
        }
        if name.len() > NAME_MAX && !(is_last && goal.fails_at(slash)) {
            return Err(self.too_long());
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
            self.text = after;
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
    /// `EXDEV` if the walk must not cross mounts; [`HOSTS`].
    #[cold]
    fn uncover(&mut self, found: Found) -> Result<Found> {
        if below::is_hosts(self.task.region.inode(found.inode.id)) {
            self.here = found.inode;
            return Err(HOSTS);
        }
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

    /// The error for a name that no directory has: one that was removed is not asked for it (the kernel's
    /// lookup_slow).
    #[cold]
    fn too_long(&self) -> Errno {
        self.missed(if mounts::is_gone(self.task, self.here) { Errno::ENOENT } else { Errno::ENAMETOOLONG })
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
        prefixes::note(self.task, prefix, self.spot(), self.tree);
    }

    /// Checks that the current inode is a directory that the caller may search, and returns whether everyone
    /// may. If something is mounted there, moves to that first.
    #[inline(always)]
    fn may_search(&mut self, looks_up: LooksUp) -> Result<bool> {
        if may_everyone_search(self.inode()) { Ok(true) } else { self.may_search_slow(looks_up) }
    }

    #[inline(never)]
    fn may_search_slow(&mut self, looks_up: LooksUp) -> Result<bool> {
        if !self.settled && self.inode().acl.load(Ordering::Relaxed) & COVERED != 0 {
            if below::is_hosts(self.inode()) {
                return Err(HOSTS);
            }
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
            Ok(()) if below::is_pending(here) && !self.has_what_is(looks_up) => {
                below::take(self.task, self.here.id, Need::All).map(|()| false)
            }
            Ok(()) => Ok(false),
            Err(errno) => Err(self.check(self.here).err().unwrap_or(errno)),
        }
    }

    /// Whether a directory whose names are still to be taken has what the walk looks up in it: the names of
    /// subdirectories are there if it has a listing.
    #[cold]
    fn has_what_is(&self, looks_up: LooksUp) -> bool {
        // SAFETY: as in `run`: the text is at the name.
        let name = unsafe { Name::scan(self.text) };
        let is_last = past_slashes(name.end()) == self.end;
        match looks_up {
            LooksUp::Nothing => true,
            LooksUp::Place if is_last => false,
            LooksUp::Place | LooksUp::Name => {
                let has_listing = listing::mark_of(self.inode()).is_some();
                let hit = || hash::lookup(self.task.region, self.here.id, &name);
                has_listing && hit().is_some_and(|hit| hit.is_directory())
            }
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
