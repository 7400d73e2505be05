//! inotify_add_watch(2) on an inode of ours: the program's own inotify descriptor watches the inode's shadow.
//!
//! Watch descriptors, masks, queues and events are the kernel's. The gate does not see inotify_rm_watch(2)
//! and read(2).

use lp_abi::linux::{__NR_inotify_add_watch, AT_SYMLINK_NOFOLLOW, IN_DONT_FOLLOW, IN_ONLYDIR};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::records::inode_flags;
use lp_region::sync::Ordering;
use lp_region::{InodeId, InodeRef};
use lp_vfs::below;
use lp_vfs::task::{Place, Task};
use lp_vfs::walk::{Follow, Found};
use lp_vfs::watch::{self, ShadowKind};
use lp_vfs::{dirent, inode, permission, pin, walk};

use crate::high::calls::chmod::last_of;
use crate::high::calls::refused::on_file;
use crate::high::frame::at::{At, spare_buffer};
use crate::high::frame::handler::{handlers, kernel};
use crate::high::route::path::one;
use crate::high::watch::{shadow, shadow_end, shadow_path};

/// Maximum number of retries when something on the path is moved meanwhile.
const TRIES: u32 = 100;

handlers! {
    /// inotify_add_watch(2).
    fn inotify_add_watch(task, fd: Fd, path: UserPtr, mask: u32) {
        if let Some(refused) = on_file(task, fd, Errno::EINVAL) {
            return refused;
        }
        let flags = if mask & IN_DONT_FOLLOW != 0 { AT_SYMLINK_NOFOLLOW } else { 0 };
        let ours = |at: At| add_watch(task, fd, at, mask);
        let host = |at: At| kernel!(__NR_inotify_add_watch, fd, at.path, mask);
        one(task, At::cwd(path), last_of(flags), ours, host)
    }
}

fn add_watch(task: &Task, fd: Fd, at: At, mask: u32) -> Result<Place<isize>> {
    let follow = if mask & IN_DONT_FOLLOW != 0 { Follow::No } else { Follow::Link };
    for _ in 0..TRIES {
        // The kernel checks the mask and the descriptor before the path.
        let probe = kernel!(__NR_inotify_add_watch, fd, c"".as_ptr(), mask);
        if probe != Errno::ENOENT.to_ret() {
            return Ok(Place::Inside(probe));
        }
        let found = match walk::inode(task, at.dirfd, at.path, follow)? {
            Place::Inside(found) => found,
            Place::Outside(outside) => return Ok(Place::Outside(outside)),
        };
        let Ok(_pin) = pin::hold(task, pin::slot::WALK, found.inode) else { continue };
        match watch_found(task, fd, &found, mask) {
            Err(Errno::ESTALE) => {}
            done => return done.map(Place::Inside),
        }
    }
    Err(Errno::ENOENT)
}

/// Watches the pinned result of a walk.
///
/// # Errors
/// `ESTALE` if it has moved: walk again.
fn watch_found(task: &Task, fd: Fd, found: &Found, mask: u32) -> Result<isize> {
    let id = found.inode.id;
    let record = task.region.inode(id);
    let kind = watch::kind(record);
    if mask & IN_ONLYDIR != 0 && kind != ShadowKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    permission::check(task, record, permission::READ)?;
    // The error for exhausted watches, on which programs fall back to polling.
    if lp_abi::sys::is_limited() {
        return Err(Errno::ENOSPC);
    }
    shadow::prepare(task, shadow_end::note_watcher(task)).map_err(|_| Errno::ENOSPC)?;
    let secret = shadow_path::secret(task);
    place(task, found)?;
    let is_new = make_shadow(task, id, kind)?;
    match kind {
        ShadowKind::Directory => populate(task, id, is_new).map_err(unmade)?,
        ShadowKind::File => {
            let _held = inode::lock(task, id);
            watch::mark_locked(record, inode_flags::SHADOW | inode_flags::WATCHED);
        }
    }
    watch::look_at_closes(task);
    let path = shadow_path::path_of(task, id, spare_buffer()).map_err(unmade)?;
    let done = kernel!(__NR_inotify_add_watch, fd, path.as_ptr(), mask | IN_DONT_FOLLOW);
    // Another watcher may have created a new directory of shadows.
    let is_stale = done == Errno::ENOENT.to_ret() || shadow_path::secret(task) != secret;
    if is_stale { Err(Errno::ESTALE) } else { Ok(done) }
}

/// The error for a shadow that could not be created: something was renamed, or space ran out.
fn unmade(errno: Errno) -> Errno {
    if errno == Errno::ENOENT { Errno::ESTALE } else { Errno::ENOSPC }
}

/// Places the shadow of a file at the name by which it was found.
fn place(task: &Task, found: &Found) -> Result<()> {
    let record = task.region.inode(found.inode.id);
    if watch::kind(record) == ShadowKind::Directory {
        return Ok(());
    }
    let _held = inode::lock(task, found.inode.id);
    // Relaxed: under the lock.
    if record.self_dirent.load(Ordering::Relaxed) == 0 || !watch::has_shadow(record) {
        if dirent::target(task.region.dirent(found.dirent)) != found.inode {
            return Err(Errno::ESTALE);
        }
        watch::place(record, found.parent, found.dirent);
    }
    Ok(())
}

/// Creates the shadow of an inode and those of the directories above it. Returns whether it is new.
fn make_shadow(task: &Task, id: InodeId, kind: ShadowKind) -> Result<bool> {
    watch::mark_way(task, id).map_err(unmade)?;
    let path = shadow_path::path_of(task, id, spare_buffer()).map_err(unmade)?;
    shadow::make_way(task, path).map_err(unmade)?;
    match shadow::make(task, path, kind) {
        Ok(()) => Ok(true),
        Err(Errno::EEXIST) => Ok(false),
        Err(errno) => Err(unmade(errno)),
    }
}

/// Creates shadows for all entries of a directory and marks the directory watched. Holds its lock, so that
/// the names are complete and stay. `is_new` says that the directory's own shadow is new.
fn populate(task: &Task, dir: InodeId, is_new: bool) -> Result<()> {
    let record = task.region.inode(dir);
    below::complete(task, record)?;
    let held = inode::lock(task, dir);
    if !is_new && watch::is_watched(record) {
        return Ok(());
    }
    watch::each_entry(task, dir, |entry, name, target| {
        let child = task.region.inode(target.id);
        let path = shadow_path::path_at(task, watch::NameAt { dir, name }, spare_buffer())?;
        // Relaxed: any of the file's names will do.
        let known = child.self_dirent.load(Ordering::Relaxed);
        let made = match watch::kind(child) {
            ShadowKind::File if known != 0 && known != entry.0 => shadow::link(task, target.id, path),
            kind => shadow::make(task, path, kind),
        };
        if watch::kind(child) == ShadowKind::File && known == 0 {
            watch::place(child, dir, entry);
        }
        if made == Err(Errno::EEXIST) { Ok(()) } else { made }
    })?;
    watch::mark_locked(record, inode_flags::SHADOW | inode_flags::WATCHED);
    drop(held);
    // Their locks must not be waited for while the directory's is held.
    watch::each_entry(task, dir, |_, _, target| {
        mark(task, target);
        Ok(())
    })
}

fn mark(task: &Task, target: InodeRef) {
    let child = task.region.inode(target.id);
    let _held = inode::lock(task, target.id);
    // Acquire: the generation is incremented before the slot is reused.
    if child.generation.load(Ordering::Acquire) == target.generation {
        watch::mark_locked(child, inode_flags::SHADOW);
    }
}
