//! lseek(2).

use lp_abi::linux::{SEEK_CUR, SEEK_DATA, SEEK_END, SEEK_HOLE, SEEK_SET};
use lp_abi::{Errno, Fd, Result};
use lp_region::records::file_mode;
use lp_region::sync::Ordering;

use crate::caller::below;
use crate::caller::task::Task;
use crate::content::seek;
use crate::descriptors::fget::HeldFile;
use crate::descriptors::position;

/// Moves the position of `fd` and returns the new one. Takes no lock while the open file is not shared;
/// SEEK_END is one load.
///
/// # Errors
/// `EBADF`; `EINVAL` for a bad `whence` or a negative position; `ENXIO` for SEEK_DATA and SEEK_HOLE beyond
/// the end.
#[inline]
pub fn lseek(task: &Task, fd: Fd, offset: i64, whence: u32) -> Result<u64> {
    match quick(task, task.table.load(fd), offset, whence) {
        Some(target) => Ok(target),
        None => lseek_slow(task, fd, offset, whence),
    }
}

/// Fast path of [`lseek`], for an entry just read: the position is this thread's alone. Returns `None` to
/// fall back to the whole call.
#[inline(always)]
pub fn quick(task: &Task, entry: u64, offset: i64, whence: u32) -> Option<u64> {
    let file = task.sole(entry, file_mode::REGULAR)?;
    // Relaxed throughout: nobody else has the position; the size stands alone.
    let from = match whence {
        SEEK_SET => 0,
        SEEK_CUR => file.position.load(Ordering::Relaxed) as i64,
        SEEK_END => task.inode_of(file).size.load(Ordering::Relaxed) as i64,
        _ => return None,
    };
    let target = from.checked_add(offset).filter(|target| *target >= 0)? as u64;
    file.position.store(target, Ordering::Relaxed);
    Some(target)
}

/// Slow path: a position that others may move, holes, and errors.
#[inline(never)]
fn lseek_slow(task: &Task, fd: Fd, offset: i64, whence: u32) -> Result<u64> {
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
