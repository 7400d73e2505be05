//! unlink(2), rmdir(2), unlinkat(2).

use lp_abi::linux::AT_REMOVEDIR;
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::sync::Ordering;
use lp_region::{InodeId, Spot};

use crate::caller::below::{self, Need};
use crate::caller::event;
use crate::caller::task::{Place, Task};
use crate::calls::{landlock, unlink_plain};
use crate::inodes::{inode, watched};
use crate::lane::writer;
use crate::life::reclaim;
use crate::names::name::Name;
use crate::names::walk::{self, AtKnown, LastType, Named, PathBuffer};
use crate::names::{dir, hash, mounts, removal};
use crate::rights::permission::{self, Victim};
use crate::watches::watch_names;

/// Removes a name or, with `AT_REMOVEDIR`, an empty directory.
///
/// # Errors
/// Those of path_resolution(7); `EINVAL` for other flags; those of [`unlink`] and [`rmdir`].
pub fn unlinkat(task: &Task<'_>, dirfd: Fd, path: UserPtr, flags: u32) -> Result<Place<()>> {
    match flags {
        0 => unlink(task, dirfd, path),
        AT_REMOVEDIR => rmdir(task, dirfd, path),
        _ => Err(Errno::EINVAL),
    }
}

/// [`unlinkat`] by a thread that may have restricted itself (landlock(7)).
///
/// # Errors
/// Those of [`unlinkat`].
pub fn unlinkat_checked(task: &Task<'_>, dirfd: Fd, path: UserPtr, flags: u32) -> Result<Place<()>> {
    match flags {
        0 => remove(task, dirfd, path, Victim::File),
        _ => unlinkat(task, dirfd, path, flags),
    }
}

/// Removes the name of anything but a directory.
///
/// # Errors
/// Those of path_resolution(7); `EISDIR`, `EACCES`, `EPERM`, `EROFS`; `ENOTDIR` for a slash after a file's
/// name.
pub fn unlink(task: &Task<'_>, dirfd: Fd, path: UserPtr) -> Result<Place<()>> {
    let text = walk::copy_path(task, PathBuffer::Path, path)?;
    match walk::known(task, dirfd, text, Unlink(task)) {
        Some(done) => done.map(Place::Inside),
        None => remove(task, dirfd, path, Victim::File),
    }
}

/// [`unlink`] at a place that is known.
struct Unlink<'t, 'r>(&'t Task<'r>);

impl<'t> AtKnown<'t> for Unlink<'t, '_> {
    type End = Result<()>;

    #[inline(always)]
    fn at(self, dir: Spot, name: Name<'t>) -> Option<Result<()>> {
        match unlink_plain::unlink(self.0, dir, &name) {
            Some(done) => Some(done),
            None => remove_known(self.0, walk::named_in(dir, name)),
        }
    }
}

/// [`unlink`] at a place that is known.
#[inline(never)]
fn remove_known(task: &Task<'_>, named: Named<'_>) -> Option<Result<()>> {
    if !walk::is_current(task, named.dir) {
        return None;
    }
    match remove_at(task, &named, Victim::File, || Ok(())) {
        Err(Errno::ESTALE | below::MISSING) => None,
        done => Some(done),
    }
}

/// Removes an empty directory.
///
/// # Errors
/// Those of path_resolution(7); `ENOTDIR`, `ENOTEMPTY`, `EACCES`, `EPERM`, `EROFS`; `EBUSY` for a root,
/// `EINVAL` for `.`.
pub fn rmdir(task: &Task<'_>, dirfd: Fd, path: UserPtr) -> Result<Place<()>> {
    remove(task, dirfd, path, Victim::Directory)
}

#[inline(never)]
fn remove(task: &Task<'_>, dirfd: Fd, path: UserPtr, expected: Victim) -> Result<Place<()>> {
    for _ in 0..walk::TRIES {
        let named = match walk::named(task, dirfd, path, PathBuffer::Path)? {
            Place::Inside(named) => named,
            Place::Outside(outside) => return Ok(Place::Outside(outside)),
        };
        let allowed = || landlock::may_remove(task, named.dir, named.mount, expected == Victim::Directory);
        match remove_at(task, &named, expected, allowed) {
            Err(Errno::ESTALE) => {}
            Err(below::MISSING) => {
                if let Some(hit) = hash::lookup(task.region, named.dir.id, &named.name) {
                    below::take(task, hit.target().id, Need::Map)?;
                }
            }
            done => return done.map(Place::Inside),
        }
    }
    Err(Errno::ESTALE)
}

/// Removes a name, unless `allowed` refuses.
#[inline(always)]
fn remove_at(
    task: &Task<'_>,
    named: &Named<'_>,
    expected: Victim,
    allowed: impl Fn() -> Result<()>,
) -> Result<()> {
    match (expected, named.last) {
        (_, LastType::Name) => {}
        (Victim::File, _) => return Err(Errno::EISDIR),
        (Victim::Directory, LastType::Dot) => return Err(Errno::EINVAL),
        (Victim::Directory, LastType::DotDot) => return Err(Errno::ENOTEMPTY),
        (Victim::Directory, LastType::Root) => return Err(Errno::EBUSY),
    }
    let Named { dir: parent, mount, ref name, .. } = *named;
    let dir = task.region.inode(parent.id);
    if expected == Victim::Directory
        && let Some(hit) = hash::lookup(task.region, parent.id, name)
    {
        below::complete(task, task.region.inode(hit.target().id))?;
    }
    let _writing = writer::begin_walked(task, mount)?;
    let mut locked = dir::enter(task, parent)?;
    let (hit, victim_locked) = loop {
        let hit = hash::lookup(task.region, parent.id, name).ok_or(Errno::ENOENT)?;
        let victim = task.region.inode(hit.target().id);
        if expected == Victim::File && named.trailing_slash {
            return Err(if victim.is_dir() { Errno::EISDIR } else { Errno::ENOTDIR });
        }
        allowed()?;
        permission::may_delete(task, dir, victim, expected)?;
        if let Some(victim_locked) = inode::lock_soon(task, hit.target().id) {
            break (hit, victim_locked);
        }
        // The holder may be stopped: let others use the directory meanwhile.
        drop(locked);
        inode::wait(task, hit.target().id);
        locked = dir::enter(task, parent)?;
    };
    let victim = hit.target().id;
    let shadow = watched::has_shadow(task.region.inode(victim)) || watched::is_watched(dir);
    if mounts::is_point(task, hit.target(), hit.dirent()) {
        return Err(Errno::EBUSY);
    }
    let nlink = removal::take(task, parent, hit.dirent(), hit.target(), expected)?;
    if shadow {
        let at = event::NameAt { dir: parent.id, name: name.bytes() };
        watch_names::removed_slow(task, at, victim, expected, nlink);
    }
    drop(victim_locked);
    drop(locked);
    if nlink == 0 {
        reclaim::after_unlink(task);
    }
    Ok(())
}

/// Called after the removal of a name, which may have left an inode without links.
pub(crate) fn removed(task: &Task<'_>, id: InodeId) {
    // Relaxed: a hint.
    if id.is_some() && task.region.inode(id).nlink.load(Ordering::Relaxed) == 0 {
        reclaim::after_unlink(task);
    }
}
