//! Open file descriptions, like `struct file`, except that nobody counts who names them.
//!
//! One that no fork has shared is freed by the close of its only descriptor, or of its last in the table where it was
//! duplicated. A shared one, or any while threads share the table, is kept by the lane that closes it ([`crate::reclaim`])
//! until a sweep finds no table and no pin that names it.

use lp_abi::Result;
use lp_region::marks;
use lp_region::order::{self, Rank};
use lp_region::records::OpenFile;
use lp_region::sync::{AtomicU64, Ordering};
use lp_region::{DirentId, FileId, InodeId, InodeRef};

use crate::table::{Held, entry};
use crate::task::Task;
use crate::{pin, reclaim};

/// What a new open file is made of.
pub struct Opening {
    /// The inode.
    pub inode: InodeRef,
    /// `f_flags`: access mode and status flags.
    pub flags: u32,
    /// [`lp_region::records::file_mode`].
    pub mode: u32,
    /// Directory in which the entry was found.
    pub parent: InodeId,
    /// Entry found; none for a root or a file without a name.
    pub dirent: DirentId,
}

/// Makes an open file at position 0. It is pinned in the lane until [`crate::table::install`] or [`discard`]; the caller
/// has pinned its inode.
///
/// # Errors
/// `ENFILE` when there are none left.
#[inline]
pub fn create(task: &Task, opening: &Opening) -> Result<FileId> {
    let id = match task.region.take::<OpenFile>(task.lane) {
        Ok(id) => id,
        Err(_) => reclaim::file_slot_slow(task)?,
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
    file.mode.store(opening.mode, Ordering::Relaxed);
    // Release: who finds the pin finds the file's inode. From here on the file's pin keeps the inode.
    task.lane.pins[pin::slot::OPEN].store(u64::from(id.0), Ordering::Release);
    Ok(id)
}

/// The file that was being opened stands in a table.
#[inline]
pub(crate) fn arrived(task: &Task) {
    task.region.settle::<OpenFile>(task.lane);
    pin::clear(task, pin::slot::OPEN);
}

/// Frees an open file that was made and not installed: the descriptor could not be had.
pub fn discard(task: &Task, id: FileId) {
    free(task, id);
    pin::clear(task, pin::slot::OPEN);
}

/// Puts `instead` in the place of `id` in a table's `entry`: from here until [`left`] the lane answers for it.
#[inline]
pub(crate) fn leave(task: &Task, entry: &AtomicU64, id: FileId, instead: u64) {
    marks::take_out(entry, &task.lane.pins[pin::slot::CLOSE], u64::from(id.0), instead);
}

/// Says that `id` has left a table: frees it if that was the only name it had, else leaves it to be looked for.
#[inline]
pub(crate) fn left(task: &Task, id: FileId) {
    let file = task.region.file(id);
    // Relaxed: `shared` was set by this process or before it was forked.
    let others = file.shared.load(Ordering::Relaxed) | task.process.threads.load(Ordering::Relaxed);
    if others != 0 && !left_by_duplicate(task, id) {
        return;
    }
    let inode = InodeRef::from_word(file.inode.load(Ordering::Relaxed));
    if file.locked.load(Ordering::Relaxed) != 0 {
        crate::lock::drop_file_slow(task, id);
    }
    free(task, id);
    pin::clear(task, pin::slot::CLOSE);
    // Relaxed: whoever unlinks it from now on looks for open files itself.
    if task.region.inode(inode.id).nlink.load(Ordering::Relaxed) == 0 {
        reclaim::let_go_slow(task, inode);
    }
}

/// [`left`] for a file that a second descriptor may name: whether none does and it is to be freed at once.
///
/// What was only duplicated, as by a redirection that opens, dup2s and closes, is looked for in the process's own table:
/// with one name left it is as good as new. What other tables may name is left to be looked for.
#[inline(never)]
fn left_by_duplicate(task: &Task, id: FileId) -> bool {
    let file = task.region.file(id);
    // Relaxed: changes in this process only, until it is shared.
    let limit = task.process.fd_limit.load(Ordering::Relaxed) as usize;
    let known = file.shared.load(Ordering::Relaxed) <= sharing::DUPLICATED
        && task.process.threads.load(Ordering::Relaxed) == 0
        && file.custody.get() == 0
        && limit <= FEW;
    if !known {
        reclaim::closed_slow(task, id);
        return false;
    }
    let names = |word: &&AtomicU64| {
        let word = word.load(Ordering::Relaxed);
        word & entry::OPEN != 0 && word as u32 == id.0
    };
    match task.table[..limit].iter().filter(names).count() {
        0 => return true,
        1 => file.shared.store(sharing::ALONE, Ordering::Relaxed),
        _ => {}
    }
    pin::clear(task, pin::slot::CLOSE);
    false
}

/// Gives the slot back. No table names the file.
#[inline]
pub(crate) fn free(task: &Task, id: FileId) {
    let file = task.region.file(id);
    file.inode.store(0, Ordering::Relaxed);
    let generation = file.generation.load(Ordering::Relaxed);
    file.generation.store(generation.wrapping_add(1), Ordering::Release);
    task.region.give::<OpenFile>(task.lane, id);
    task.region.settle::<OpenFile>(task.lane);
}

/// Whether a file that was taken out of the caller's table has no other name there, and was never another
/// table's too.
#[cold]
pub(crate) fn is_last(task: &Task, id: FileId) -> bool {
    let names = |(_, word): (i32, u64)| word as u32 == id.0;
    // Relaxed: as in `left`.
    task.region.file(id).shared.load(Ordering::Relaxed) != sharing::SHARED
        && !crate::table::open_entries(task).any(names)
}

/// Values of `OpenFile::shared`.
mod sharing {
    /// One descriptor names it.
    pub(super) const ALONE: u32 = 0;
    /// Descriptors of one process's table name it.
    pub(super) const DUPLICATED: u32 = 1;
    /// Another table may name it.
    pub(super) const SHARED: u32 = 2;
}

/// Descriptors of a table that a close looks through rather than leave the file to [`crate::reclaim`].
const FEW: usize = 256;

/// Marks an open file shared: another table is about to name it.
#[inline]
pub fn share(file: &OpenFile) {
    file.shared.store(sharing::SHARED, Ordering::Release);
}

/// Marks an open file as named by a second descriptor of the same table.
#[inline]
pub fn duplicate(file: &OpenFile) {
    if file.shared.load(Ordering::Relaxed) == sharing::ALONE {
        file.shared.store(sharing::DUPLICATED, Ordering::Release);
    }
}

/// `f_pos` for the length of a call. While the file is shared, or threads share the table, it is held under the file's
/// lock, as Linux's `f_pos_lock`; else it is a plain load and store.
pub struct Position<'f> {
    file: &'f OpenFile,
    locked: bool,
    of: order::Of,
}

impl Position<'_> {
    /// Where the next read or write starts.
    #[inline]
    pub fn get(&self) -> u64 {
        self.file.position.load(Ordering::Relaxed) // Relaxed: plain, or ordered by the lock.
    }

    /// Moves it.
    #[inline]
    pub fn set(&self, position: u64) {
        self.file.position.store(position, Ordering::Relaxed); // Relaxed: as above.
    }
}

impl Drop for Position<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.locked {
            self.file.lock.unlock();
            order::gave(self.of, &self.file.lock);
        }
    }
}

/// Takes hold of the position of an open file.
#[inline(always)]
#[cfg_attr(any(debug_assertions, feature = "order"), track_caller)]
pub fn position<'f>(task: &Task, held: &Held<'f>) -> Position<'f> {
    let shared = held.file.shared.load(Ordering::Relaxed) | task.process.threads.load(Ordering::Relaxed);
    if shared != 0 {
        order::wait(order::of(&task.lane.holding), order::what(Rank::Position, &held.file.lock));
        held.file.lock.lock(task.lane_id, task);
    }
    Position { file: held.file, locked: shared != 0, of: order::of(&task.lane.holding) }
}
