//! link(2), linkat(2).

use lp_abi::linux::{AT_EMPTY_PATH, AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::DirentId;
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering;

use crate::caller::below;
use crate::caller::event;
use crate::caller::task::{Outside, Place, Task};
use crate::calls::create;
use crate::calls::landlock::{self, Refer};
use crate::calls::target;
use crate::content::allowance::{self, What};
use crate::inodes::{inode, watched};
use crate::life::reclaim;
use crate::names::change::{self, Links, Plain, Seats};
use crate::names::hash::{self, Load, Way};
use crate::names::walk::{self, Found, LastType, Parent, PathBuffer};
use crate::names::{dir, dirent, mounts, name};
use crate::rights::{permission, protected};
use crate::watches::watch_names;

/// The result of a call with two paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Two {
    /// Both paths were ours and the call is done.
    Done,
    /// Neither path is ours. A rewritten path is in `scratch.path` or `scratch.other`, not in
    /// `scratch.outside`.
    Outside {
        /// The first path for the kernel.
        old: Outside,
        /// The second path for the kernel.
        new: Outside,
    },
}

/// Gives a file another name.
///
/// # Errors
/// Those of path_resolution(7); `EINVAL` for unknown flags; `EEXIST`; `EXDEV` for another file system;
/// `EPERM` for a directory; `ENOENT` for a file without names that may not get one; `EMLINK`, `ENOSPC`,
/// `EROFS`, `EACCES`.
pub fn linkat(
    task: &Task<'_>,
    old_dirfd: Fd,
    old: UserPtr,
    new_dirfd: Fd,
    new: UserPtr,
    flags: u32,
) -> Result<Two> {
    if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    for _ in 0..walk::TRIES {
        let turn = mounts::turn(task);
        let from = match source(task, old_dirfd, old, flags)? {
            Place::Inside(found) => Place::Inside(found),
            Place::Outside(outside) => Place::Outside(walk::keep(task, outside, PathBuffer::Path)?),
        };
        let to = match walk::parent(task, new_dirfd, new, PathBuffer::Other) {
            // The kernel may find an error in the first path.
            Err(_) if matches!(from, Place::Outside(_)) => return Err(Errno::EXDEV),
            to => to?,
        };
        let (found, parent) = match (from, to) {
            (Place::Inside(found), Place::Inside(parent)) => (found, parent),
            (Place::Outside(old), Place::Outside(new)) => {
                return Ok(Two::Outside { old, new: walk::keep(task, new, PathBuffer::Other)? });
            }
            _ => return Err(Errno::EXDEV),
        };
        match reclaim::once_more(task, || link_at(task, &found, &parent)) {
            Err(Errno::ESTALE) => {}
            // The first path led into a mount that was gone before the second was walked.
            Err(Errno::EXDEV) if turn != mounts::turn(task) => {}
            done => return done.map(|()| Two::Done),
        }
    }
    Err(Errno::ESTALE)
}

fn source(task: &Task<'_>, dirfd: Fd, path: UserPtr, flags: u32) -> Result<Place<Found>> {
    let follow = if flags & AT_SYMLINK_FOLLOW != 0 { 0 } else { AT_SYMLINK_NOFOLLOW };
    target::found(task, (dirfd, path), flags & AT_EMPTY_PATH | follow, PathBuffer::Path)
}

/// Checks the directory and the file in Linux's order. The caller must hold the directory's lock.
fn check(
    task: &Task<'_>,
    (dir, file): (&Inode, &Inode),
    (found, parent): (&Found, &Parent),
    (place, way): (&name::Key<'_, '_>, &Way<'_>),
    is_same_mount: bool,
) -> Result<()> {
    if !way.lacks(place.hash) && hash::lookup_at(task.region, place).is_some() {
        return Err(Errno::EEXIST);
    }
    if !is_same_mount {
        // That a directory was removed is found with the name.
        return Err(if dir.is_dead() { Errno::ENOENT } else { Errno::EXDEV });
    }
    protected::may_link(task, file)?;
    let refer = Refer {
        old: (found.inode, found.parent),
        new_dir: parent.dir,
        new: None,
        mount: parent.mount,
        removes: false,
        exchanges: false,
    };
    landlock::may_refer(task, &refer)?;
    permission::may_create(task, dir)?;
    let flags = file.flags.load(Ordering::Relaxed);
    if flags & (inode_flags::IMMUTABLE | inode_flags::APPEND) != 0 || file.is_dir() {
        return Err(Errno::EPERM);
    }
    Ok(())
}

/// Gives the file `found` a name at a place.
///
/// # Errors
/// Those of [`linkat`]; `ESTALE` if either was freed since the walk.
fn link_at(task: &Task<'_>, found: &Found, parent: &Parent) -> Result<()> {
    if parent.last != LastType::Name {
        return Err(Errno::EEXIST);
    }
    let name = parent.name(task);
    let is_same_mount = found.mount == parent.mount;
    let target = found.inode;
    let (dir, file) = (task.region.inode(parent.dir.id), task.region.inode(target.id));
    below::try_attributes(task, file);
    let place = name::Key::new(parent.dir.id, &name);
    let way = Way::of(task.region, place.hash);
    // As in the kernel's filename_create, both precede EROFS. Link creates no directory.
    match walk::look_up(task, parent.dir, &place, &way).ok_or(Errno::ESTALE)? {
        Some(_) => return Err(Errno::EEXIST),
        None if parent.trailing_slash => return Err(Errno::ENOENT),
        None => {}
    }
    let _writing = create::begin_in(task, parent.dir, parent.mount)?;
    let mut locked = dir::enter(task, parent.dir)?;
    let file_locked = loop {
        check(task, (dir, file), (found, parent), (&place, &way), is_same_mount)?;
        if let Some(file_locked) = inode::lock_soon(task, target.id) {
            break file_locked;
        }
        // The holder may be stopped: let others use the directory meanwhile.
        drop(locked);
        inode::wait(task, target.id);
        locked = dir::enter(task, parent.dir)?;
    };
    if file.generation.load(Ordering::Acquire) != target.generation {
        return Err(Errno::ESTALE);
    }
    let nlink = file.nlink.load(Ordering::Relaxed); // Relaxed: under its lock.
    if nlink == 0 && file.flags.load(Ordering::Relaxed) & inode_flags::LINKABLE == 0 {
        return Err(Errno::ENOENT);
    }
    let nlink = nlink.checked_add(1).ok_or(Errno::EMLINK)?;
    // As on tmpfs, each further name counts as an inode. Relaxed: immutable.
    let root = file.root.load(Ordering::Relaxed);
    if nlink > 1 && !allowance::reserve(task, root, What::Inodes) {
        return Err(Errno::ENOSPC);
    }
    let seat = dir::reserve(task, parent.dir.id)?;
    let entry = dirent::take(task.region, task.lane, &place, target)?;
    let change = Plain {
        dir: dir::with_entry(task.region, parent.dir.id, entry),
        added: entry,
        removed: DirentId::NONE,
        links: Links { id: target.id, nlink },
        time: task.now(),
    };
    let load = change::perform_plain(task, &change, Seats { added: Some(seat), removed: None });
    if watched::is_watched(dir) || watched::has_shadow(file) {
        watch_names::linked_slow(
            task,
            event::NameAt { dir: parent.dir.id, name: name.bytes() },
            target.id,
            entry,
        );
    }
    // The kernel's vfs_link: having had a name once is enough. Relaxed: under the file's lock.
    let flags = file.flags.load(Ordering::Relaxed);
    if flags & inode_flags::LINKABLE != 0 {
        file.flags.store(flags & !inode_flags::LINKABLE, Ordering::Relaxed);
    }
    drop(file_locked);
    drop(locked);
    if load == Load::Crowded {
        hash::split(task);
    }
    Ok(())
}
