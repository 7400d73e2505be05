//! lseek(2).

use lp_abi::linux::{SEEK_CUR, SEEK_DATA, SEEK_END, SEEK_HOLE, SEEK_SET};
use lp_abi::{Errno, Fd, Result};
use lp_region::records::{OpenFile, file_mode};
use lp_region::sync::Ordering;

use crate::caller::below;
use crate::caller::task::Task;
use crate::content::seek;
use crate::descriptors::fget::HeldFile;
use crate::descriptors::position;
use crate::descriptors::table::entry;

/// Moves the position of `fd` and returns the new one. Takes no lock while the open file is not shared,
/// and no atomic instruction while one thread uses its position; SEEK_END is one load.
///
/// # Errors
/// `EBADF`; `EINVAL` for a bad `whence` or a negative position; `ENXIO` for SEEK_DATA and SEEK_HOLE beyond
/// the end.
#[inline]
pub fn lseek(task: &Task, fd: Fd, offset: i64, whence: u32) -> Result<u64> {
    match quick(task, task.table.load(fd), offset, whence, || None) {
        Some(target) => Ok(target),
        None => lseek_slow(task, fd, offset, whence),
    }
}

/// Fast path of [`lseek`], for an entry just read: the position is this thread's alone. Returns `None` to
/// fall back to the whole call.
#[inline(always)]
pub fn quick(
    task: &Task,
    entry: u64,
    offset: i64,
    whence: u32,
    otherwise: impl FnOnce() -> Option<u64>,
) -> Option<u64> {
    let Some(file) = task.sole(entry, file_mode::REGULAR) else { return otherwise() };
    // Relaxed, here and below: nobody else has the position.
    let target = target(task, file, offset, whence, || file.position.load(Ordering::Relaxed))?;
    file.position.store(target, Ordering::Relaxed);
    Some(target)
}

/// [`quick`] for a position that others may move.
#[inline(always)]
pub fn quick_beside(task: &Task, fd: Fd, offset: i64, whence: u32) -> Option<u64> {
    let held = task.pin_for(fd, entry::DATA, file_mode::REGULAR)?;
    let file = held.file;
    // Relaxed: one word. A call that moves the position to where it is takes effect at this load.
    let at = file.position.load(Ordering::Relaxed);
    if target(task, file, offset, whence, || at)? == at {
        return Some(at);
    }
    let position = position::hold_biased(task, file)?;
    let target = target(task, file, offset, whence, || position.get())?;
    position.set(target);
    Some(target)
}

/// Where a call moves the position of a regular file; `None` if the whole call must tell.
#[inline(always)]
fn target(
    task: &Task,
    file: &OpenFile,
    offset: i64,
    whence: u32,
    position: impl FnOnce() -> u64,
) -> Option<u64> {
    let from = match whence {
        SEEK_SET => 0,
        SEEK_CUR => position() as i64,
        // Relaxed: the size stands alone.
        SEEK_END => task.inode_of(file).size.load(Ordering::Relaxed) as i64,
        _ => return None,
    };
    from.checked_add(offset).filter(|target| *target >= 0).map(|target| target as u64)
}

/// Slow path: a position that others may move, holes, and errors.
#[inline(never)]
fn lseek_slow(task: &Task, fd: Fd, offset: i64, whence: u32) -> Result<u64> {
    if let Some(target) = quick_beside(task, fd, offset, whence) {
        return Ok(target);
    }
    let held = task.fget(fd)?;
    if held.file.mode.load(Ordering::Relaxed) & file_mode::PATH != 0 {
        return Err(Errno::EBADF);
    }
    let position = position::hold(task, &held);
    let target = match whence {
        SEEK_SET => Some(offset),
        SEEK_CUR => (position.get() as i64).checked_add(offset),
        _ => elsewhere(task, &held, offset, whence)?,
    };
    // The kernel's generic_file_llseek: a sum that overflows or is negative.
    let target = target.filter(|target| *target >= 0).ok_or(Errno::EINVAL)? as u64;
    position.set(target);
    Ok(target)
}

fn elsewhere(task: &Task, held: &HeldFile, offset: i64, whence: u32) -> Result<Option<i64>> {
    let directory = held.file.mode.load(Ordering::Relaxed) & file_mode::DIR != 0;
    match whence {
        // The kernel's dcache_dir_lseek, which tmpfs's directories use, supports only SEEK_SET and SEEK_CUR.
        _ if directory => Err(Errno::EINVAL),
        // Relaxed: the size stands alone.
        SEEK_END => Ok((held.inode.size.load(Ordering::Relaxed) as i64).checked_add(offset)),
        SEEK_DATA | SEEK_HOLE if offset >= 0 && below::is_pending(held.inode) => {
            below::complete(task, held.inode)?;
            elsewhere(task, held, offset, whence)
        }
        SEEK_DATA => seek::data(task, held.inode, offset).map(Some),
        SEEK_HOLE => seek::hole(task, held.inode, offset).map(Some),
        _ => Err(Errno::EINVAL),
    }
}
