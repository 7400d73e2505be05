//! Creating an inode with a name: the common part of mkdir, mknod, symlink and open with `O_CREAT`.

use lp_abi::linux::{S_IFDIR, S_IFMT};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::sync::Ordering;
use lp_region::{DirentId, InodeRef, MountId};

use crate::caller::task::{Place, Task};
use crate::calls::landlock;
use crate::inodes::{inode, watched};
use crate::lane::pin;
use crate::lane::writer::{self, Writing};
use crate::life::reclaim;
use crate::names::change::{self, Links, Plain, Seats};
use crate::names::hash::{self, Load, Way};
use crate::names::name::{self, Name};
use crate::names::walk::{self, Found, LastType, Parent, PathBuffer};
use crate::names::{dir, dirent, link_target, mounts};
use crate::rights::{initial, permission};

/// The kind of a new inode.
#[derive(Clone, Copy)]
pub(crate) struct InodeKind {
    /// Type and requested permissions; the umask is applied here.
    pub mode: u32,
    /// Device number of a device node.
    pub rdev: u32,
    /// Its initial content.
    pub content: InitialContent,
}

/// The initial content of a new inode.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum InitialContent {
    /// Nothing.
    Empty,
    /// Nothing. The new inode is pinned by [`pin::slot::OPEN`], for a caller that opens it.
    Pinned,
    /// A symbolic link's target, which is in this path buffer.
    Target(PathBuffer),
}

/// The result of creating a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Made {
    /// It was created.
    New(Found),
    /// The name existed.
    Existing(Found),
}

/// Walks to a path and creates there what `decide` says, which may refuse.
///
/// # Errors
/// Those of path_resolution(7) and of `decide`; `EEXIST`; `ENOSPC`, `EROFS`, `EACCES`.
pub(crate) fn at(
    task: &Task<'_>,
    dirfd: Fd,
    path: UserPtr,
    decide: impl Fn(&Parent) -> Result<InodeKind>,
) -> Result<Place<()>> {
    for _ in 0..walk::TRIES {
        let parent = match walk::parent(task, dirfd, path, PathBuffer::Path)? {
            Place::Inside(parent) => parent,
            Place::Outside(outside) => return Ok(Place::Outside(outside)),
        };
        if parent.last != LastType::Name {
            return Err(Errno::EEXIST);
        }
        let name = parent.name(task);
        let place = name::Key::new(parent.dir.id, &name);
        let way = Way::of(task.region, place.hash);
        // The kernel's filename_create: EEXIST for an existing name precedes any other refusal.
        match walk::look_up(task, parent.dir, &place, &way) {
            Some(Some(_)) => return Err(Errno::EEXIST),
            Some(None) => {}
            None => continue,
        }
        let what = decide(&parent)?;
        if landlock::is_held(task) {
            may_make_slow(task, &parent, what.mode)?;
        }
        return match reclaim::once_more(task, || {
            after_miss(task, (parent.dir, parent.mount), (&place, &way), &what)
        }) {
            Err(Errno::ESTALE) => continue,
            Err(errno) => Err(errno),
            Ok(Made::Existing(_)) => Err(Errno::EEXIST),
            Ok(Made::New(_)) => Ok(Place::Inside(())),
        };
    }
    Err(Errno::ESTALE)
}

/// Checks that a thread that has restricted itself may make a file. The kernel's filename_create precedes.
///
/// # Errors
/// `EROFS`; `EACCES`.
#[cold]
fn may_make_slow(task: &Task<'_>, parent: &Parent, mode: u32) -> Result<()> {
    drop(begin_in(task, parent.dir, parent.mount)?);
    landlock::may_make(task, parent.dir, parent.mount, mode)
}

/// [`writer::begin_walked`], to make a name in a directory.
///
/// # Errors
/// `EROFS`; `ENOENT` if the directory was removed, which the kernel's lookup finds first; `ESTALE` if the
/// mount was unmounted since the walk: walk again.
#[inline(always)]
pub(crate) fn begin_in<'t, 'r>(task: &'t Task<'r>, dir: InodeRef, mount: MountId) -> Result<Writing<'t, 'r>> {
    writer::begin_walked(task, mount).map_err(|errno| refused_slow(task, dir, errno))
}

#[cold]
fn refused_slow(task: &Task<'_>, dir: InodeRef, errno: Errno) -> Errno {
    if errno == Errno::EROFS && mounts::is_gone(task, dir) { Errno::ENOENT } else { errno }
}

/// Creates an inode and its name at a place, unless the name exists.
///
/// # Errors
/// `ESTALE` if the directory was freed since the walk: walk again. `ENOENT` if it was removed; `EACCES`,
/// `ENOSPC`, `EROFS`, `EMLINK`.
#[inline(never)]
pub(crate) fn named(
    task: &Task<'_>,
    (dir, mount): (InodeRef, MountId),
    name: &Name<'_>,
    what: &InodeKind,
) -> Result<Made> {
    let key = name::Key::new(dir.id, name);
    reclaim::once_more(task, || after_miss(task, (dir, mount), (&key, &Way::of(task.region, key.hash)), what))
}

/// [`named`] for a name whose hash leads to a bucket that was looked at, without freeing anything on
/// `ENOSPC`.
///
/// # Errors
/// Those of [`named`].
#[inline(always)]
pub(crate) fn after_miss(
    task: &Task<'_>,
    (dir, mount): (InodeRef, MountId),
    place: (&name::Key<'_, '_>, &Way<'_>),
    what: &InodeKind,
) -> Result<Made> {
    let _writing = begin_in(task, dir, mount)?;
    named_once(task, dir, mount, place, what)
}

/// [`named`] in a directory that no mount shows.
///
/// # Errors
/// Those of [`named`].
pub(crate) fn hidden(task: &Task<'_>, dir: InodeRef, name: &Name<'_>, what: &InodeKind) -> Result<Made> {
    let key = name::Key::new(dir.id, name);
    let way = || Way::of(task.region, key.hash);
    reclaim::once_more(task, || named_once(task, dir, MountId::NONE, (&key, &way()), what))
}

/// The caller must be a writer of the mount.
#[inline(always)]
fn named_once(
    task: &Task<'_>,
    dir: InodeRef,
    mount: MountId,
    (place, way): (&name::Key<'_, '_>, &Way<'_>),
    what: &InodeKind,
) -> Result<Made> {
    let record = task.region.inode(dir.id);
    let locked = dir::enter(task, dir)?;
    if !way.lacks(place.hash)
        && let Some(hit) = hash::lookup_at(task.region, place)
    {
        let found = Found { inode: hit.target(), dirent: hit.dirent(), parent: dir.id, mount };
        return Ok(Made::Existing(found));
    }
    if !permission::may_change_plainly(task, record) {
        permission::may_create(task, record)?;
    }
    let (inode, entry, load) = make(task, (place, way), what)?;
    drop(locked);
    if load == Load::Crowded {
        hash::split(task);
    }
    Ok(Made::New(Found { inode, dirent: entry, parent: dir.id, mount }))
}

/// The caller must hold the directory's lock, have checked that it may create in it, and not have found the
/// name.
#[inline(always)]
fn make(
    task: &Task<'_>,
    (place, way): (&name::Key<'_, '_>, &Way<'_>),
    what: &InodeKind,
) -> Result<(InodeRef, DirentId, Load)> {
    let dir = task.region.inode(place.dir);
    let is_dir = what.mode & S_IFMT == S_IFDIR;
    // Relaxed: under the directory's lock.
    if is_dir && dir.nlink.load(Ordering::Relaxed) == u32::MAX {
        return Err(Errno::EMLINK);
    }
    let seat = dir::reserve(task, place.dir)?;
    let new = initial::create(task, dir, what.mode, what.rdev)?;
    let entry = fill(task, place, what, new.inode())?;
    let record = task.region.inode(new.inode().id);
    let mut after = dir::with_entry(task.region, place.dir, entry);
    if is_dir {
        after.nlink += 1;
        record.parent.store(place.dir.0, Ordering::Relaxed); // Relaxed: published with the name.
        record.self_dirent.store(entry.0, Ordering::Relaxed);
    }
    let (removed, links) = (DirentId::NONE, Links::NONE);
    let change = Plain { dir: after, added: entry, removed, links, time: inode::born(record) };
    let is_watched = watched::is_watched(dir);
    if is_watched {
        watched::mark_new(record, place.dir, entry);
    }
    let load = match is_dir {
        true => change::perform_plain(task, &change, Seats { added: Some(seat), removed: None }),
        false => {
            if what.content == InitialContent::Pinned {
                pin::known_inode(task, pin::slot::OPEN, new.inode().id);
            }
            change::perform_new(task, &change, seat, (way, place.hash))
        }
    };
    let inode = new.linked_in();
    if is_watched {
        watched::made_slow(task, place.dir, place.name.bytes(), record);
    }
    Ok((inode, entry, load))
}

#[inline(always)]
fn fill(task: &Task<'_>, place: &name::Key<'_, '_>, what: &InodeKind, inode: InodeRef) -> Result<DirentId> {
    if let InitialContent::Target(which) = what.content {
        link_target::set_target(task, inode.id, walk::copied(task, which))?;
    }
    dirent::take(task.region, task.lane, place, inode)
}
