//! Paths whose prefix the cache knows: one lookup in a directory, without a walk.

use lp_abi::linux::{S_IFDIR, S_IFMT};
use lp_abi::{Errno, Fd, NAME_MAX, Result};
use lp_region::records::Inode;
use lp_region::sync::Ordering;
use lp_region::{InodeRef, MountId, Spot};

use crate::caller::prefix_cache::Prefix;
use crate::caller::prefixes;
use crate::caller::task::Task;
use crate::names::goal::{Follow, Found, LastType, Named, Parent};
use crate::names::hash::{self, Hit};
use crate::names::name::{Key, Name};
use crate::names::path_text::{PathText, buffer, have_one_prefix};

/// What a call does at a place that is known. A continuation, because a place that is returned goes through
/// memory; not a closure, because those are not inlined where they are large.
pub(crate) trait AtKnown<'t> {
    /// The result.
    type End;
    /// Whether it falls back if the directory has another generation, so that [`known`] need not look.
    const FALLS_BACK: bool = true;
    /// Does it in the directory `dir`, which everyone may search, with the name that ends the path. Whoever
    /// uses the directory looks at its generation afterwards. `None` to fall back to a walk.
    fn at(self, dir: Spot, name: Name<'t>) -> Option<Self::End>;
}

/// Continues at the place of a path whose prefix the cache knows. `None` to fall back to a walk.
#[inline(always)]
pub(crate) fn known<'t, T: AtKnown<'t>>(
    task: &'t Task<'_>,
    dirfd: Fd,
    given: PathText,
    then: T,
) -> Option<T::End> {
    let text = buffer(task, given.which).cast::<u8>().cast_const();
    // SAFETY: the buffer holds the text and a NUL, with SLACK bytes behind it, and is not written while these
    // are used.
    let (absolute, name, prefix) = unsafe {
        let absolute = *text == b'/';
        let base = if absolute { Spot::NONE } else { base(task, dirfd)? };
        let prefix = Prefix::new(base.to_word(), text, given.prefix);
        (absolute, Name::scan(text.add(given.prefix)), prefix)
    };
    if name.is_empty() || name.starts_with_dot() || name.len() > NAME_MAX {
        return None;
    }
    let dir = match given.prefix {
        0 if absolute => return None,
        0 => Spot::from_word(prefix.base),
        _ if T::FALLS_BACK => prefixes::find_quick(task, prefix)?,
        _ => prefixes::find(task, prefix)?,
    };
    if !may_everyone_search(task.region.inode(dir.inode.id)) {
        return None;
    }
    then.at(dir, name)
}

/// The last name of a path whose prefix is that of another, which is known. `None` if it is not, or to fall
/// back to a walk.
#[inline(always)]
pub(crate) fn beside<'t>(
    task: &'t Task<'_>,
    (dirfd, known): (Fd, PathText),
    (other, text): (Fd, PathText),
) -> Option<Name<'t>> {
    // The base of a path that is not absolute.
    if dirfd != other || !have_one_prefix(task, known, text) {
        return None;
    }
    let start = buffer(task, text.which).cast::<u8>().cast_const();
    // SAFETY: as in `known`.
    let name = unsafe { Name::scan(start.add(text.prefix)) };
    (!name.is_empty() && !name.starts_with_dot() && name.len() <= NAME_MAX).then_some(name)
}

/// Fast path of [`crate::names::walk::inode`]: a name in a directory whose prefix is known. `None` to fall
/// back to a walk.
///
/// Not made of [`known`] and [`look_up`], whose checks would then go through memory: fifty instructions less.
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
    if name.is_empty() || name.starts_with_dot() || name.len() > NAME_MAX {
        return None;
    }
    let Spot { inode: dir, mount } = match given.prefix {
        0 if absolute => return None,
        0 => Spot::from_word(prefix.base),
        _ => prefixes::find_quick(task, prefix)?,
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

/// Whether a walk that finds this ends here.
#[inline(always)]
pub(crate) fn is_end(hit: Hit, follow: Follow) -> bool {
    hit.is_plain() || follow == Follow::No && hit.is_link()
}

/// What a lookup in a directory found.
#[inline(always)]
pub(crate) fn found(hit: Hit, dir: InodeRef, mount: MountId) -> Found {
    Found { inode: hit.target(), dirent: hit.dirent(), parent: dir.id, mount }
}

/// What a name, whose hash led to a bucket, stands for in a directory; `None` if the directory was freed
/// since.
#[inline(always)]
pub(crate) fn look_up(
    task: &Task<'_>,
    dir: InodeRef,
    key: &Key<'_, '_>,
    way: &hash::Way<'_>,
) -> Option<Option<Hit>> {
    let hit = way.find(key);
    is_current(task, dir).then_some(hit)
}

/// Whether a directory was not freed since it was found.
#[inline(always)]
pub(crate) fn is_current(task: &Task<'_>, dir: InodeRef) -> bool {
    // Acquire: an inode's generation is incremented before its slot is reused.
    task.region.inode(dir.id).generation.load(Ordering::Acquire) == dir.generation
}

/// The place itself.
pub(super) struct Whole;

impl<'t> AtKnown<'t> for Whole {
    type End = Named<'t>;
    const FALLS_BACK: bool = false;

    #[inline(always)]
    fn at(self, dir: Spot, name: Name<'t>) -> Option<Named<'t>> {
        Some(named_in(dir, name))
    }
}

/// The place without the name, which is in this text.
pub(super) struct Bare(pub PathText);

impl<'t> AtKnown<'t> for Bare {
    type End = Parent;
    const FALLS_BACK: bool = false;

    #[inline(always)]
    fn at(self, dir: Spot, name: Name<'t>) -> Option<Parent> {
        Some(place_in(dir, &name, self.0))
    }
}

/// The place that a known prefix and a name behind it make.
#[inline(always)]
pub(crate) fn named_in(Spot { inode: dir, mount }: Spot, name: Name<'_>) -> Named<'_> {
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
        let cwd = task.directories.get().cwd.load(Ordering::Relaxed); // Relaxed: one word, as seen.
        return (cwd != 0).then(|| Spot::from_word(cwd));
    }
    task.fget_any(dirfd).ok().map(|held| held.spot())
}
