//! Open file descriptions, like `struct file`, except that nobody counts who names them.
//!
//! One that no fork has shared is freed by the close of its only descriptor, or of its last in the table
//! where it was duplicated. While threads share the table, one with a single descriptor is freed once no call
//! can use it ([`crate::life::grace`]). Any other is kept by the lane that closes it
//! ([`crate::life::reclaim`]) until a sweep finds no table and no pin that names it.

use lp_abi::Fd;
use lp_region::records::OpenFile;
use lp_region::sync::{AtomicU64, Ordering};
use lp_region::{FileId, marks};

use crate::caller::task::Task;
use crate::lane::pin;

/// Replaces `id` in a table's `entry` by `instead`. From here until [`left`] the lane answers for the file.
#[inline]
pub(crate) fn leave(task: &Task, entry: &AtomicU64, id: FileId, instead: u64) {
    marks::take_out(entry, &task.lane.pins[pin::slot::CLOSE], u64::from(id.0), instead);
}

/// [`leave`] of a thread that has the table alone ([`crate::descriptors::table_lock::Alone`]), even if other
/// threads share it: an exchange, as [`marks::confirm`] needs.
#[inline]
pub(crate) fn leave_alone(task: &Task, entry: &AtomicU64, id: FileId, instead: u64) {
    // Relaxed: only this thread can have created the second thread.
    if task.process.threads.load(Ordering::Relaxed) == 0 {
        return leave(task, entry, id, instead);
    }
    let pinned = &task.lane.pins[pin::slot::CLOSE];
    let name = u64::from(id.0);
    // Relaxed: nobody else changes it.
    while !marks::exchange_out(entry, pinned, (name, entry.load(Ordering::Relaxed)), instead) {}
}

/// Whether a file that was removed from the caller's table has no other entry there and was never in another
/// table.
#[cold]
pub(crate) fn is_last(task: &Task, id: FileId) -> bool {
    let names = |(_, word): (Fd, u64)| word as u32 == id.0;
    // Relaxed: `shared` was set by this process or before it was forked.
    !is_shared(task.region.file(id)) && !task.table.open().any(names)
}

/// Values of `OpenFile::shared`.
pub(crate) mod sharing {
    /// One descriptor names it.
    pub(crate) const ALONE: u32 = 0;
    /// Descriptors of one process's table name it.
    pub(crate) const DUPLICATED: u32 = 1;
    /// Another table may name it.
    pub(crate) const SHARED: u32 = 2;
}

/// Marks an open file shared: another table is about to name it. The caller must confirm the entry
/// ([`marks::confirm`]), or keep others from changing it.
#[inline]
pub(crate) fn share(file: &OpenFile) {
    file.shared.store(sharing::SHARED, Ordering::Release);
}

/// Whether it is marked so.
pub fn is_shared(file: &OpenFile) -> bool {
    file.shared.load(Ordering::Relaxed) == sharing::SHARED // Relaxed: after an acquire of an entry.
}

/// Marks an open file as named by a second descriptor of the same table. A process that fetches a descriptor
/// of this one may mark it as shared meanwhile. The caller must confirm the entry ([`marks::confirm`]) before
/// it lets a second one name the file.
#[inline]
pub(crate) fn duplicate(file: &OpenFile) {
    if file.shared.load(Ordering::Relaxed) == sharing::ALONE {
        let (alone, duplicated) = (sharing::ALONE, sharing::DUPLICATED);
        let _ = file.shared.compare_exchange(alone, duplicated, Ordering::Release, Ordering::Relaxed);
    }
}

/// Marks a duplicated file as named by one descriptor again, unless another process has fetched it.
pub(crate) fn alone_again(file: &OpenFile) {
    let (duplicated, alone) = (sharing::DUPLICATED, sharing::ALONE);
    let _ = file.shared.compare_exchange(duplicated, alone, Ordering::Relaxed, Ordering::Relaxed);
}
