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
use lp_region::{DirentId, InodeId, InodeRef, MountId, Spot};

use crate::caller::below::{self, Need};
use crate::caller::prefix_cache::{self, Prefix};
use crate::caller::task::{Outside, Place, Task};
use crate::inodes::inode as inodes;
pub use crate::names::goal::{End, Follow, Found, LastType, Parent};
pub(crate) use crate::names::goal::{Ended, Named};
use crate::names::goal::{Existing, Goal, Making, Placing};
pub(crate) use crate::names::known::{
    AtKnown, beside, found, in_known, is_current, is_end, known, look_up, named_in,
};
use crate::names::known::{Bare, Whole, base, may_everyone_search};
use crate::names::limits::{Free, Limited, Limits, SCOPED, Top};
use crate::names::mounts::{self, AboveRoot, Crossing};
use crate::names::name::Name;
pub use crate::names::path_text::PathBuffer;
pub(crate) use crate::names::path_text::{PathText, copied, copy_path, is_empty, keep};
use crate::names::path_text::{buffer, shorten};
use crate::names::{dir, dirent, hash, link_target, listing, root, tree};
use crate::rights::permission::{self, EXEC};
use crate::rights::protected;

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
        false => base(task, dirfd).or_else(|| root::base_of_run(task, dirfd)),
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
    let (here, mount, which, base) = (from.inode, from.mount, given.which, from.to_word());
    let mut walk =
        Walk { task, limits, which, text, end, here, mount, settled: true, links: 0, base, tree: ODD };
    if absolute {
        match walk.enter() {
            Crossing::Inside { .. }
                if limits.has(RESOLVE_NO_XDEV) && root::of(task).is_none() && !mounts::are_whole(task) =>
            {
                return Err(Errno::EXDEV);
            }
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

    /// `.` or `..`.
    #[cold]
    fn dots(&mut self, name: &Name<'_>) -> Result<Turn> {
        self.tree = ODD;
        self.may_search(LooksUp::Nothing)?;
        let after = name.end();
        self.text = past_slashes(after);
        let last = if name.is_dot() { LastType::Dot } else { LastType::DotDot };
        if last == LastType::DotDot {
            self.base = 0;
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
                AboveRoot::Host if mounts::are_whole(task) => return Ok(Up::Here),
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

    /// Whether `..` of this leads nowhere else: it is the directory that confines the walk, or the root
    /// directory.
    #[inline]
    fn is_top(&self, spot: Spot) -> bool {
        match self.limits.has(SCOPED) {
            true => self.limits.top() == Top::Spot(spot),
            false => root::is(self.task, spot),
        }
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
        self.lead(mounts::enter_from_host(self.task, self.rest(), self.which as usize))
    }

    /// Continues where a step failed because the current inode stands for a directory of the host's: there.
    #[cold]
    fn failed(&mut self, errno: Errno) -> Result<Turn> {
        if errno != HOSTS {
            return Err(errno);
        }
        self.cross()?;
        let (region, mut name) = (self.task.region, [0; NAME_MAX]);
        let entry = region.dirent(DirentId(self.inode().self_dirent.load(Ordering::Acquire)));
        let length = dirent::copy_name(region, entry, &mut name);
        // SAFETY: `text` does not pass `end`, where a NUL is.
        let is_name = !matches!(unsafe { *self.text }, 0 | b'/');
        self.prepend(self.text, 1 + length + usize::from(is_name), |to| {
            to.fill(b'/');
            to[1..=length].copy_from_slice(&name[..length]);
            Ok(())
        })?;
        self.lead(Crossing::Outside)
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
            // As in the kernel, the mount of a root directory that the walk has not met yet is another one.
            let has_met = self.base == 0;
            if !has_met || root::of(self.task).is_none_or(|root| root.mount != self.mount) {
                self.cross()?;
            }
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
        self.lead(self.enter())
    }

    /// Goes where the text, an absolute path, leads.
    fn lead(&mut self, crossing: Crossing) -> Result<Turn> {
        match crossing {
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
