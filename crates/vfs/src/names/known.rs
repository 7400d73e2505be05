//! Paths whose prefix the cache knows: one lookup in a directory, without a walk.

use lp_abi::linux::{S_IFDIR, S_IFMT};
use lp_abi::{Errno, Fd, NAME_MAX, Result};
use lp_region::Spot;
use lp_region::records::Inode;
use lp_region::sync::Ordering;

use crate::caller::prefix_cache::{self, Prefix};
use crate::caller::task::Task;
use crate::names::goal::{Ended, Follow, Found, LastType, Named, Parent};
use crate::names::hash::{self, Hit};
use crate::names::name::Name;
use crate::names::path_text::{PathText, buffer};

/// Fast path of [`crate::names::walk::inode`]: a name in a directory whose prefix is known. `None` to fall
/// back to a walk.
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
pub(super) fn known<'t>(task: &'t Task<'_>, dirfd: Fd, given: PathText) -> Option<(Spot, Name<'t>)> {
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
pub(super) fn named_in(Spot { inode: dir, mount }: Spot, name: Name<'_>) -> Named<'_> {
    Named { dir, mount, last: LastType::Name, trailing_slash: false, name }
}

/// [`named_in`] without the name.
#[inline(always)]
pub(super) fn place_in(dir: Spot, name: &Name<'_>, given: PathText) -> Parent {
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

/// Fast path of [`crate::names::walk::end`], as [`in_known`].
#[inline(always)]
pub(super) fn end_in_known<'t>(
    task: &'t Task<'_>,
    dirfd: Fd,
    given: PathText,
    follow: Follow,
) -> Option<Ended<'t>> {
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
pub(super) fn may_everyone_search(inode: &Inode) -> bool {
    // Relaxed: each is one word and used as seen; see `permission::check`.
    let mode = inode.mode.load(Ordering::Relaxed);
    // An ACL word of 0 also says that the names are there (`below::names`). x86-64 reads the names after this
    // word, on which they depend.
    mode & (S_IFMT | 0o111) == S_IFDIR | 0o111 && inode.acl.load(Ordering::Relaxed) == 0
}

/// The directory from which relative paths start; `None` if it is the host's.
#[inline]
pub(super) fn base(task: &Task<'_>, dirfd: Fd) -> Option<Spot> {
    if dirfd == Fd::CWD {
        let cwd = task.process.cwd.load(Ordering::Relaxed); // Relaxed: only the calling process writes it.
        return (cwd != 0).then(|| Spot::from_word(cwd));
    }
    task.fget_any(dirfd).ok().map(|held| held.spot())
}
