//! Path walk, path_resolution(7): from a path as the program gave it to an inode or to a place in a directory.
//!
//! Like Linux's `namei.c` in RCU mode, and never in another: the walk writes nothing that others read. A directory is
//! named by slot and generation; after each step the generation is looked at again, so a step is as if done at once
//! on a directory that lived. A slot that was reused makes the walk start over. Who gets an [`InodeRef`] from a walk
//! looks at the generation after using it, or pins it; see [`crate::pin`].
//!
//! What is left to walk is text: the program's path, or, once a symbolic link was met, `scratch.walk`, where the text
//! stands at the end and a link's target is put before it.

use core::slice;

use lp_abi::linux::{AT_FDCWD, S_IFDIR, S_IFLNK, S_IFMT};
use lp_abi::{Errno, MAX_SYMLINKS, NAME_MAX, PATH_MAX, Result};
use lp_region::records::Inode;
use lp_region::sync::Ordering;
use lp_region::{DirentId, InodeId, InodeRef, ucopy};

use crate::hash;
use crate::mounts::{self, Crossing};
use crate::name::{Name, SLACK};
use crate::permission::{self, EXEC};
use crate::symlink;
use crate::table;
use crate::task::{Outside, Place, Task};

/// Bytes of `scratch.walk` that text may take, its NUL included.
const TEXT: usize = 2 * PATH_MAX;

/// Times that a walk starts over before it gives up with `ESTALE`: each means that another process made progress.
const TRIES: u32 = 1000;

/// Which buffer of the task takes a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// `scratch.path`.
    Path,
    /// `scratch.other`, for the second path of a call.
    Other,
}

/// What a symbolic link at the end of a path means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Follow {
    /// What it leads to.
    Link,
    /// Itself (`O_NOFOLLOW`, `AT_SYMLINK_NOFOLLOW`), unless a slash follows it.
    No,
}

/// What the last component of a path is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Last {
    /// A name.
    Name,
    /// `.`.
    Dot,
    /// `..`.
    DotDot,
    /// There is none: the path is a mount's.
    Root,
}

/// An inode and how it was reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The inode.
    pub inode: InodeRef,
    /// The entry that led to it; none for a root.
    pub dirent: DirentId,
    /// The directory of that entry; a root's is itself.
    pub parent: InodeId,
}

/// A place in a directory: where a call makes or removes a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parent {
    /// The directory.
    pub dir: InodeRef,
    /// What stands last in the path.
    pub last: Last,
    /// Whether a slash follows the last component.
    pub trailing_slash: bool,
    which: Which,
    start: u16,
    length: u16,
}

impl Parent {
    /// The last component. The next walk into the same buffer ends its life.
    ///
    /// # Errors
    /// `ENAMETOOLONG`.
    pub fn name<'a>(&self, task: &'a Task<'_>) -> Result<Name<'a>> {
        let buffer = buffer(task, self.which).cast::<u8>();
        // SAFETY: the walk left the name there; the buffer is the task's, which makes one call at a time.
        Name::new(unsafe { slice::from_raw_parts(buffer.add(self.start as usize), self.length as usize) })
    }
}

/// Where a path ends: the place, and what stands there now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// The place.
    pub place: Parent,
    /// What the walk found there.
    pub found: Option<Found>,
}

/// What a walk does with the last component.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Final {
    /// Leaves it alone.
    Place,
    /// Looks it up.
    Look(Follow),
    /// Looks it up for a call that may make it; with a slash behind it the call refuses, whatever is there.
    Make(Follow),
}

/// Copies a path of the program's into one of the task's buffers.
///
/// # Errors
/// `EFAULT`, `ENAMETOOLONG`; `ENOENT` when it is empty.
pub fn copy_path(task: &Task<'_>, which: Which, path: *const u8) -> Result<usize> {
    // SAFETY: the buffer is the task's; no other reference to it lives.
    let buffer = unsafe { slice::from_raw_parts_mut(buffer(task, which).cast::<u8>(), PATH_MAX) };
    // SAFETY: bad pointers are the fault handler's.
    match unsafe { ucopy::string(buffer, path) }? {
        0 => Err(Errno::ENOENT),
        length => Ok(length),
    }
}

/// The path that [`copy_path`] left in a buffer.
pub fn copied<'t>(task: &'t Task<'_>, which: Which) -> &'t [u8] {
    // SAFETY: the buffer is the task's, which makes one call at a time; nobody writes it while the call uses the path.
    let bytes = unsafe { slice::from_raw_parts(buffer(task, which).cast::<u8>(), PATH_MAX) };
    &bytes[..bytes.iter().position(|byte| *byte == 0).unwrap_or(PATH_MAX)]
}

/// Moves a path that a walk left in `scratch.outside` to a buffer of its own, for calls with two paths.
///
/// # Errors
/// `ENAMETOOLONG` when the kernel would not take it either.
pub fn keep(task: &Task<'_>, outside: Outside, which: Which) -> Result<Outside> {
    if let Outside::Rewritten(length) = outside {
        if length >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let from = task.scratch.outside.get().cast::<u8>();
        // SAFETY: both are the task's buffers, distinct, and hold the path and its NUL.
        unsafe { buffer(task, which).cast::<u8>().copy_from_nonoverlapping(from, length + 1) };
    }
    Ok(outside)
}

/// Whether a path of the program's is empty, for calls with `AT_EMPTY_PATH`.
///
/// # Errors
/// `EFAULT`.
pub fn is_empty(path: *const u8) -> Result<bool> {
    // SAFETY: bad pointers are the fault handler's.
    Ok(unsafe { ucopy::get(path) }? == 0)
}

/// The inode that a path names.
///
/// # Errors
/// Those of path_resolution(7): `ENOENT`, `ENOTDIR`, `EACCES`, `ELOOP`, `ENAMETOOLONG`, `EFAULT`.
#[inline]
pub fn inode(task: &Task<'_>, dirfd: i32, path: *const u8, follow: Follow) -> Result<Place<Found>> {
    let length = copy_path(task, Which::Path, path)?;
    match again(task, dirfd, Which::Path, length, Final::Look(follow))? {
        Place::Inside(End { found: Some(found), .. }) => Ok(Place::Inside(found)),
        Place::Inside(_) => Err(Errno::ENOENT),
        Place::Outside(outside) => Ok(Place::Outside(outside)),
    }
}

/// Where a path ends and what stands there, nothing included: what an open that may create asks.
///
/// # Errors
/// As [`inode`], but a missing last component is no error.
pub fn end(task: &Task<'_>, dirfd: i32, path: *const u8, follow: Follow) -> Result<Place<End>> {
    let length = copy_path(task, Which::Path, path)?;
    again(task, dirfd, Which::Path, length, Final::Make(follow))
}

/// The place that a path names, whatever stands there.
///
/// # Errors
/// As [`inode`], but the last component is not looked at.
pub fn parent(task: &Task<'_>, dirfd: i32, path: *const u8, which: Which) -> Result<Place<Parent>> {
    let length = copy_path(task, which, path)?;
    Ok(again(task, dirfd, which, length, Final::Place)?.map(|end| end.place))
}

fn buffer(task: &Task<'_>, which: Which) -> *mut [u8; PATH_MAX + SLACK] {
    match which {
        Which::Path => task.scratch.path.get(),
        Which::Other => task.scratch.other.get(),
    }
}

#[inline]
fn again(task: &Task<'_>, dirfd: i32, which: Which, length: usize, last: Final) -> Result<Place<End>> {
    for _ in 0..TRIES {
        match walk(task, dirfd, which, length, last) {
            Err(Errno::ESTALE) => continue,
            other => return other,
        }
    }
    Err(Errno::ESTALE)
}

fn walk(task: &Task<'_>, dirfd: i32, which: Which, length: usize, last: Final) -> Result<Place<End>> {
    let text = buffer(task, which).cast::<u8>().cast_const();
    // SAFETY: the buffer holds `length` bytes and a NUL.
    let (end, absolute) = unsafe { (text.add(length), *text == b'/') };
    let mut walk = Walk { task, which, text, end, here: InodeRef::NONE, links: 0 };
    if absolute {
        match mounts::enter(task, walk.rest()) {
            Crossing::Inside { root, walked } => walk.start(root, walked),
            Crossing::Outside => return Ok(Place::Outside(Outside::AsGiven)),
        }
    } else {
        match base(task, dirfd) {
            Some(base) => walk.here = base,
            None => return Ok(Place::Outside(Outside::AsGiven)),
        }
    }
    walk.run(last)
}

/// The directory that relative paths start from; none if it is the host's.
#[inline]
fn base(task: &Task<'_>, dirfd: i32) -> Option<InodeRef> {
    if dirfd == AT_FDCWD {
        let cwd = task.process.cwd.load(Ordering::Relaxed); // Relaxed: written by the calling process only.
        return (cwd != 0).then(|| InodeRef::from_word(cwd));
    }
    table::fget_any(task, dirfd).ok().map(|held| held.inode_ref())
}

struct Walk<'t, 'r> {
    task: &'t Task<'r>,
    which: Which,
    /// What is left to walk: up to `end`, where a NUL and [`SLACK`] bytes follow.
    text: *const u8,
    end: *const u8,
    /// Where the walk stands.
    here: InodeRef,
    links: u32,
}

/// What a step came to.
enum Step {
    /// The walk goes on.
    Next,
    /// It left for a path of the host's.
    Out(usize),
    /// It is over.
    Over(End),
}

impl<'r> Walk<'_, 'r> {
    fn run(&mut self, last: Final) -> Result<Place<End>> {
        loop {
            match self.step(last)? {
                Step::Next => {}
                Step::Out(length) => return Ok(Place::Outside(Outside::Rewritten(length))),
                Step::Over(end) => return Ok(Place::Inside(end)),
            }
        }
    }

    #[inline(always)]
    fn step(&mut self, last: Final) -> Result<Step> {
        // SAFETY: a NUL ends the text.
        unsafe {
            while *self.text == b'/' {
                self.text = self.text.add(1);
            }
        }
        // SAFETY: a NUL ends the text, SLACK bytes follow it, and nobody changes it while the name lives.
        let name = unsafe { Name::scan(self.text) };
        if name.is_empty() {
            return self.at_root();
        }
        let here = self.inode();
        self.may_search(here)?;
        // SAFETY: within the text.
        let after = unsafe { self.text.add(name.len()) };
        let mut next = after;
        // SAFETY: a NUL ends the text.
        unsafe {
            while *next == b'/' {
                next = next.add(1);
            }
        }
        let is_last = next == self.end;
        if name.is_dot() || name.is_dot_dot() {
            return self.dots(&name, after, next);
        }
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let slash = next != after;
        if is_last && (last == Final::Place || slash && matches!(last, Final::Make(_))) {
            return Ok(Step::Over(self.place(&name, Last::Name, slash, None)));
        }
        let hit = hash::lookup(self.task.region, self.here.id, &name);
        self.check(self.here)?;
        let Some(hit) = hit else {
            return if is_last {
                Ok(Step::Over(self.place(&name, Last::Name, slash, None)))
            } else {
                Err(Errno::ENOENT)
            };
        };
        let kind = self.task.region.inode(hit.target.id).mode.load(Ordering::Relaxed) & S_IFMT;
        if kind == S_IFLNK
            && (!is_last || slash || matches!(last, Final::Look(Follow::Link) | Final::Make(Follow::Link)))
        {
            return self.follow(hit.target, after);
        }
        if !is_last {
            self.here = hit.target;
            self.text = next;
            return Ok(Step::Next);
        }
        if slash && kind != S_IFDIR {
            self.check(hit.target)?;
            return Err(Errno::ENOTDIR);
        }
        let found = Found { inode: hit.target, dirent: hit.dirent, parent: self.here.id };
        Ok(Step::Over(self.place(&name, Last::Name, slash, Some(found))))
    }

    #[inline(always)]
    fn inode(&self) -> &'r Inode {
        self.task.region.inode(self.here.id)
    }

    /// The text that is left.
    fn rest(&self) -> &[u8] {
        // SAFETY: `text` does not pass `end`; the buffer is the task's and is not written while this lives.
        unsafe { slice::from_raw_parts(self.text, self.end.offset_from_unsigned(self.text)) }
    }

    /// Stands on root `root`, `walked` bytes of the text done.
    #[inline]
    fn start(&mut self, root: InodeRef, walked: usize) {
        self.here = root;
        // SAFETY: `walked` is at most what is left.
        self.text = unsafe { self.text.add(walked) };
    }

    /// Whether what was just read of `inode` is still that inode's.
    ///
    /// # Errors
    /// `ESTALE` when the slot was freed since.
    #[inline(always)]
    fn check(&self, inode: InodeRef) -> Result<()> {
        // Acquire: an inode's generation grows before its slot is used again.
        let generation = self.task.region.inode(inode.id).generation.load(Ordering::Acquire);
        if generation == inode.generation { Ok(()) } else { Err(Errno::ESTALE) }
    }

    #[inline(always)]
    fn may_search(&self, here: &Inode) -> Result<()> {
        let is_dir = here.mode.load(Ordering::Relaxed) & S_IFMT == S_IFDIR;
        let allowed = if is_dir { permission::check(self.task, here, EXEC) } else { Err(Errno::ENOTDIR) };
        match allowed {
            Ok(()) => Ok(()),
            Err(errno) => Err(self.check(self.here).err().unwrap_or(errno)),
        }
    }

    /// The path ended where no component stood: at a root.
    #[cold]
    fn at_root(&self) -> Result<Step> {
        let found = self.directory()?;
        let place = self.place_at(0, 0, Last::Root, false);
        Ok(Step::Over(End { place, found: Some(found) }))
    }

    /// The directory where the walk stands, as something found.
    fn directory(&self) -> Result<Found> {
        let inode = self.inode();
        let (dirent, parent) = inode
            .seq
            .snapshot(|| (inode.self_dirent.load(Ordering::Relaxed), inode.parent.load(Ordering::Relaxed)));
        self.check(self.here)?;
        Ok(Found { inode: self.here, dirent: DirentId(dirent), parent: InodeId(parent) })
    }

    /// `.` or `..`.
    #[cold]
    fn dots(&mut self, name: &Name<'_>, after: *const u8, next: *const u8) -> Result<Step> {
        let last = if name.is_dot() { Last::Dot } else { Last::DotDot };
        let from = self.here;
        if last == Last::DotDot {
            let up = self.directory()?;
            if up.dirent.is_none() && mounts::is_root(self.task, self.here) {
                return self.leave(after);
            }
            let parent = self.task.region.inode(up.parent);
            self.here = InodeRef { id: up.parent, generation: parent.generation.load(Ordering::Acquire) };
            // The parent of a directory that is still in place lives.
            if self.task.region.inode(from.id).parent.load(Ordering::Acquire) != up.parent.0 {
                return Err(Errno::ESTALE);
            }
            self.check(from)?;
            if mounts::is_gone(self.task, from) {
                return Err(Errno::ENOENT);
            }
        }
        if next != self.end {
            self.text = next;
            return Ok(Step::Next);
        }
        let found = self.directory()?;
        let place = Parent { dir: from, ..self.place_at(0, 0, last, next != after) };
        Ok(Step::Over(End { place, found: Some(found) }))
    }

    /// `..` of a root: on to the directory of the host that the mount stands in.
    #[cold]
    fn leave(&mut self, after: *const u8) -> Result<Step> {
        let above = mounts::above(self.task, self.inode());
        self.prepend(after, above.len() + 1, |to| {
            to[..above.len()].copy_from_slice(above);
            to[above.len()] = b'/';
            Ok(())
        })?;
        self.absolute()
    }

    /// Goes on with the target of a symbolic link; `after` is what follows the link in the text.
    #[cold]
    fn follow(&mut self, link: InodeRef, after: *const u8) -> Result<Step> {
        if self.links == MAX_SYMLINKS {
            return Err(Errno::ELOOP);
        }
        self.links += 1;
        let (task, inode) = (self.task, self.task.region.inode(link.id));
        let length = symlink::target_length(inode);
        self.check(link)?;
        self.prepend(after, length, |to| symlink::copy_target(task, inode, to))?;
        self.check(link)?;
        symlink::followed(task, link);
        // SAFETY: the text is not empty: no target is.
        if unsafe { *self.text } == b'/' { self.absolute() } else { Ok(Step::Next) }
    }

    /// Looks where the text, an absolute path, leads.
    fn absolute(&mut self) -> Result<Step> {
        match mounts::enter(self.task, self.rest()) {
            Crossing::Inside { root, walked } => {
                self.start(root, walked);
                Ok(Step::Next)
            }
            Crossing::Outside => {
                let rest = self.rest();
                // SAFETY: the buffer is the task's, is longer than any text, and `rest` lies in another.
                let to = unsafe { &mut *self.task.scratch.outside.get() };
                to[..rest.len()].copy_from_slice(rest);
                to[rest.len()] = 0;
                Ok(Step::Out(rest.len()))
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
        // SAFETY: `rest + left` is the last of the TEXT bytes; if the text is in this buffer, it is there already. The
        // bytes below `rest` hold nothing that is still wanted.
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

    /// The end of the walk at `name`.
    #[inline]
    fn place(&self, name: &Name<'_>, last: Last, slash: bool, found: Option<Found>) -> End {
        let start = buffer(self.task, self.which).cast::<u8>();
        let from = name.bytes().as_ptr();
        let offset = (from as usize).wrapping_sub(start as usize);
        let place = if offset < PATH_MAX {
            self.place_at(offset as u16, name.len() as u16, last, slash)
        } else {
            // The name stands in `scratch.walk`, which the next walk uses.
            // SAFETY: a name fits the buffer, and nobody reads the path any more.
            unsafe { start.copy_from_nonoverlapping(from, name.len()) };
            self.place_at(0, name.len() as u16, last, slash)
        };
        End { place, found }
    }

    fn place_at(&self, start: u16, length: u16, last: Last, trailing_slash: bool) -> Parent {
        Parent { dir: self.here, last, trailing_slash, which: self.which, start, length }
    }
}
