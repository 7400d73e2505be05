//! Giving an inode a shadow, with those of the directories above it and of a directory's entries.

use lp_abi::{Errno, Result};
use lp_region::records::inode_flags;
use lp_region::sync::Ordering;
use lp_region::{DirentId, InodeId, InodeRef};
use lp_vfs::below;
use lp_vfs::task::Task;
use lp_vfs::walk::Found;
use lp_vfs::watch::{self, ShadowKind};
use lp_vfs::{dirent, inode};

use crate::high::frame::at::spare_buffer;
use crate::high::watch::{shadow, shadow_end, shadow_path};

/// Gives a pinned inode a shadow. From here on its events are reported; of a file `marks` are set besides.
/// Returns [`shadow_path::secret`], which the caller compares once it has used the shadow.
///
/// # Errors
/// `ESTALE` if it has moved; `ENOSPC` if a shadow could not be created.
pub(crate) fn give(task: &Task, found: &Found, marks: u32) -> Result<[u64; 3]> {
    let id = found.inode.id;
    let record = task.region.inode(id);
    let kind = watch::kind(record);
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
            watch::mark_locked(record, inode_flags::SHADOW | inode_flags::WATCHED | marks);
        }
    }
    watch::look_at_closes(task);
    Ok(secret)
}

/// The error for a shadow that could not be created: something was renamed, or space ran out.
pub(crate) fn unmade(errno: Errno) -> Errno {
    if errno == Errno::ENOENT { Errno::ESTALE } else { Errno::ENOSPC }
}

/// Places the shadow of a file at the name by which it was found; what was found as the root of a mount, at
/// some name.
fn place(task: &Task, found: &Found) -> Result<()> {
    let record = task.region.inode(found.inode.id);
    if watch::kind(record) == ShadowKind::Directory {
        return Ok(());
    }
    let _held = inode::lock(task, found.inode.id);
    // Relaxed: under the lock.
    if record.self_dirent.load(Ordering::Relaxed) == 0 || !watch::has_shadow(record) {
        let entry = match found.dirent {
            DirentId::NONE => dirent::any(task.region, found.inode),
            entry => entry,
        };
        let name = task.region.dirent(entry);
        if dirent::target(name) != found.inode {
            return Err(Errno::ESTALE);
        }
        // Relaxed: the file's lock keeps its names.
        watch::place(record, InodeId(name.parent.load(Ordering::Relaxed)), entry);
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
