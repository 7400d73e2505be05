//! The life of an open file: created, installed in a table, removed, freed.

use lp_abi::{Errno, Fd, Result};
use lp_region::records::{OpenFile, file_mode};
use lp_region::sync::{AtomicU64, Ordering, light_barrier};
use lp_region::{DirentId, FileId, InodeId, InodeRef, MountId};

use crate::caller::task::Task;
use crate::descriptors::file::{self, sharing};
use crate::descriptors::table::{self, closing, entry};
use crate::descriptors::table_lock::{Alone, Beside};
use crate::lane::pin;
use crate::life::reclaim;
use crate::locks::file_lock;
use crate::watches::watch;

/// Contents of a new open file.
pub struct Opening {
    /// The inode.
    pub inode: InodeRef,
    /// `f_flags`: access mode and status flags.
    pub flags: u32,
    /// [`lp_region::records::file_mode`].
    pub mode: u32,
    /// Directory in which the entry was found.
    pub parent: InodeId,
    /// The entry found; none for a root or a file without a name.
    pub dirent: DirentId,
    /// The mount through which it was found.
    pub mount: MountId,
}

/// A new open file that nobody else knows. Dropping it frees it.
#[must_use = "the open file is freed once this is dropped"]
pub struct NewFile<'t, 'r> {
    task: &'t Task<'r>,
    id: FileId,
}

impl NewFile<'_, '_> {
    /// Passes the file to a later [`install`] or [`discard`].
    #[inline]
    pub fn hand_over(self) -> FileId {
        let id = self.id;
        core::mem::forget(self);
        id
    }
}

impl Drop for NewFile<'_, '_> {
    #[cold]
    fn drop(&mut self) {
        discard(self.task, self.id);
    }
}

/// Creates an open file at position 0. The lane pins it until [`install`] or [`discard`]. The caller must
/// have pinned its inode.
///
/// # Errors
/// `ENFILE` if there are none left.
#[inline(always)]
pub fn create<'t, 'r>(task: &'t Task<'r>, opening: &Opening) -> Result<NewFile<'t, 'r>> {
    let id = match task.region.take_cached::<OpenFile>(task.lane) {
        Some(id) => id,
        None => reclaim::file_slot_slow(task)?,
    };
    let file = task.region.file(id);
    // Relaxed throughout: published by the release store that installs it, or by the pin below.
    file.position.store(0, Ordering::Relaxed);
    file.inode.store(opening.inode.to_word(), Ordering::Relaxed);
    file.flags.store(opening.flags, Ordering::Relaxed);
    file.shared.store(0, Ordering::Relaxed);
    file.parent.store(opening.parent.0, Ordering::Relaxed);
    file.dirent.store(opening.dirent.0, Ordering::Relaxed);
    file.locked.store(0, Ordering::Relaxed);
    file.in_flight.store(0, Ordering::Relaxed);
    let mode = opening.mode | opening.mount.0 << file_mode::MOUNT_SHIFT;
    file.mode.store(mode, Ordering::Relaxed);
    // Release: a reader of the pin finds the file's inode. From here on the file's pin keeps the inode.
    task.lane.pins[pin::slot::OPEN].store(u64::from(id.0), Ordering::Release);
    Ok(NewFile { task, id })
}

/// The file that was being opened is in a table: ends its pin.
#[inline]
pub(crate) fn settle(task: &Task) {
    task.region.settle::<OpenFile>(task.lane);
    pin::clear(task, pin::slot::OPEN);
}

/// Frees an open file that was created but could not be installed.
pub fn discard(task: &Task, id: FileId) {
    free(task, id);
    pin::clear(task, pin::slot::OPEN);
}

/// After an entry of `id` was removed from a table: frees the file if that was its only entry, else keeps it
/// for a sweep.
#[inline(always)]
pub(crate) fn left(task: &Task, id: FileId) {
    let file = task.region.file(id);
    // PAIRS: the heavy barrier in `dup::of_process`.
    light_barrier();
    // Relaxed: `shared` was set by this process, before it was forked, or by one that has fetched the
    // descriptor.
    let others = file.shared.load(Ordering::Relaxed) | task.process.threads.load(Ordering::Relaxed);
    if others != 0 && !left_by_duplicate(task, id) {
        return;
    }
    let inode = InodeRef::from_word(file.inode.load(Ordering::Relaxed));
    if file.locked.load(Ordering::Relaxed) != 0 {
        file_lock::drop_file_slow(task, id);
    }
    free(task, id);
    pin::clear(task, pin::slot::CLOSE);
    // Relaxed: a lane that unlinks it from here on looks for open files itself.
    if task.region.inode(inode.id).is_dead() {
        reclaim::closed_unlinked_slow(task, inode);
    }
}

/// [`left`] for a file that a second descriptor may name. Returns whether none does, so that the file can be
/// freed at once.
///
/// A file that was only duplicated, as by a redirection that opens, dup2s and closes, is searched for in the
/// process's own table; with one entry left it counts as unshared again. What other tables may name, or calls
/// of other threads may use, is left to [`reclaim`].
#[inline(never)]
fn left_by_duplicate(task: &Task, id: FileId) -> bool {
    let file = task.region.file(id);
    // Relaxed: only this process changes it until it is shared.
    let limit = task.process.fd_limit.load(Ordering::Relaxed) as usize;
    let known = file.shared.load(Ordering::Relaxed) <= sharing::DUPLICATED
        && task.process.threads.load(Ordering::Relaxed) == 0
        && file.custody.get() == 0
        && limit <= FEW;
    if !known {
        reclaim::closed_slow(task, id);
        return false;
    }
    match task.table.open().filter(|(_, word)| *word as u32 == id.0).count() {
        0 => return true,
        1 => file::alone_again(file),
        _ => {}
    }
    pin::clear(task, pin::slot::CLOSE);
    false
}

/// Frees the slot. No table may name the file.
#[inline]
pub(crate) fn free(task: &Task, id: FileId) {
    let file = task.region.file(id);
    file.inode.store(0, Ordering::Relaxed);
    let generation = file.generation.load(Ordering::Relaxed);
    file.generation.store(generation.wrapping_add(1), Ordering::Release);
    task.region.give::<OpenFile>(task.lane, id);
    task.region.settle::<OpenFile>(task.lane);
}

/// Maximum number of table entries that a close searches before it leaves the file to
/// [`crate::life::reclaim`].
const FEW: usize = 256;

/// Makes `fd` name the open file `id`. `flags` is [`entry::CLOEXEC`], [`entry::HOST`] or 0. What `fd` named
/// before is closed, as by dup2(2). Ends the file's pin in the lane.
///
/// # Errors
/// `EBADF` for a number that no table holds, `ENOSPC` as for [`table::reach`]. The file then remains the
/// caller's.
#[inline]
pub fn install(task: &Task, fd: Fd, id: FileId, flags: u64) -> Result<()> {
    install_and(task, fd, id, flags, || ())
}

/// [`install`] that calls `arrived` between the store of the entry and the end of the pin.
#[inline(always)]
pub(crate) fn install_and(task: &Task, fd: Fd, id: FileId, flags: u64, arrived: impl FnOnce()) -> Result<()> {
    let beside = Beside::take(task);
    let place = table::reach(task, fd)?;
    let old = beside.replace(task, place, entry::naming(id, flags));
    drop(beside);
    arrived();
    settle(task);
    let_go(task, old);
    Ok(())
}

/// Releases what an entry named that this thread has removed: the rest of close(2).
#[inline(always)]
pub fn let_go(task: &Task, old: u64) {
    if old & entry::OPEN == 0 {
        return;
    }
    let id = FileId(old as u32);
    // Relaxed: only this process makes it nonzero.
    if task.process.posix_locks.load(Ordering::Relaxed) != 0 {
        look_slow(task, old);
    }
    left(task, id);
}

/// Additional work of a close.
#[cold]
fn look_slow(task: &Task, old: u64) {
    let reasons = task.process.posix_locks.load(Ordering::Relaxed);
    if reasons & closing::LOCKS != 0 {
        drop_locks(task, FileId(old as u32));
    }
    if reasons & closing::SHADOWS != 0 {
        watch::closed_slow(task, old);
    }
}

/// close(2), and dup2(2) onto a descriptor, drop the process's POSIX locks on the file, whichever descriptor
/// they were taken through. A descriptor of `O_PATH` has none (the kernel's filp_flush).
fn drop_locks(task: &Task, id: FileId) {
    let file = task.region.file(id);
    let inode = InodeRef::from_word(file.inode.load(Ordering::Relaxed)).id;
    let is_path = file.mode.load(Ordering::Relaxed) & file_mode::PATH != 0; // Relaxed: immutable.
    if !is_path && file_lock::is_locked(task, inode) {
        file_lock::drop_posix(task, inode);
    }
}

/// Removes `fd` from the table and releases what it named: close(2) for an entry without a kernel descriptor.
///
/// # Errors
/// `EBADF` if it is not ours.
#[inline]
pub(crate) fn remove(task: &Task, fd: Fd) -> Result<()> {
    let Some(place) = task.table.covered(fd) else { return Err(Errno::EBADF) };
    take_out_beside(task, Beside::take(task), place, 0, |_| ())
}

/// Replaces an open file in the entry `place` by `instead` and releases it. `then` runs before other threads
/// may have the table alone. Of two that close the same number one gets `EBADF`.
///
/// # Errors
/// `EBADF` if it is not ours.
#[inline(always)]
pub fn take_out_beside<'t, 'r>(
    task: &Task,
    beside: Beside<'t, 'r>,
    place: &AtomicU64,
    instead: u64,
    then: impl FnOnce(&Beside<'t, 'r>),
) -> Result<()> {
    let old = loop {
        let old = place.load(Ordering::Relaxed); // Relaxed: the exchange looks again.
        if old & entry::OPEN == 0 {
            return Err(Errno::EBADF);
        }
        if beside.leave_file(task, place, old, instead) {
            break old;
        }
    };
    then(&beside);
    drop(beside);
    let_go(task, old);
    Ok(())
}

/// Removes `fd` from the table and releases what it named. `vacate` handles the kernel's descriptor behind
/// the entry and stores what is left. The entry is [`entry::TRANSIT`] meanwhile, and other threads that
/// change the table wait. Of two that close the same number one gets `EBADF`, and nobody gets the number too
/// early.
///
/// # Errors
/// `EBADF` if it is not ours.
#[cold]
pub fn take_out(task: &Task, fd: Fd, vacate: impl FnOnce(&AtomicU64)) -> Result<()> {
    let Some(place) = task.table.covered(fd) else { return Err(Errno::EBADF) };
    let alone = Alone::take(task);
    let old = place.load(Ordering::Relaxed);
    if old & entry::OPEN == 0 {
        return Err(Errno::EBADF);
    }
    file::leave_alone(task, place, FileId(old as u32), entry::TRANSIT);
    vacate(place);
    drop(alone);
    let_go(task, old);
    Ok(())
}
