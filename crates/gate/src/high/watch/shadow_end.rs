//! The end of shadows: when nobody watches, and when the run ends.
//!
//! The kernel does not report when a watch ends. A process that watches therefore marks its slot, on behalf
//! of itself and of children that inherit its descriptors. Once none of these lives, nobody watches, and
//! after a bounded number of events some process notices. It then clears the inodes' flags,
//! [`inode_flags::WATCHED`] first, so that a new watcher of a directory that still has the flag finds the
//! shadows of its entries intact. Each flag is cleared under its inode's lock, after another check for
//! watchers; a watcher marks its slot before it takes the lock to set the flag. Either the mark is seen, or
//! the watcher sets the flag again. The host objects are left alone, although nobody updates them: the next
//! watcher, if it is the only one, gets a new directory.

use lp_abi::linux::__NR_rmdir;
use lp_region::process::Process;
use lp_region::records::{Inode, inode_flags};
use lp_region::slab::Slot;
use lp_region::sync::{AtomicU32, Ordering};
use lp_region::{InodeId, ProcessId};
use lp_vfs::task::Task;
use lp_vfs::{inode, watch};

use crate::high::run::words::WATCHES;
use crate::high::watch::shadow_path::BASE;
use crate::high::watch::{shadow_path, tree};

/// Who watches.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watchers {
    /// The calling process alone, since this call.
    One,
    /// Others, or the calling process earlier.
    More,
}

/// Events between two checks whether anybody watches.
const EVERY: u32 = 256;

/// Number of events that this process has reported.
static TOLD: AtomicU32 = AtomicU32::new(0);

/// Marks the process as a watcher, and returns who watches.
pub(crate) fn note_watcher(task: &Task<'_>) -> Watchers {
    // SeqCst: of two processes that mark themselves at the same time, at least one sees the other. The mark
    // also precedes the flags, which `forget_all` clears under the inode's lock.
    let before = task.process.gate_words[WATCHES].swap(1, Ordering::SeqCst);
    let alone = before == 0 && !is_watched_by(task, |id| id != task.process_id);
    if alone { Watchers::One } else { Watchers::More }
}

/// A child inherits the inotify descriptors, so it inherits the mark.
pub(crate) fn copy_to(task: &Task<'_>, child: &Process) {
    child.gate_words[WATCHES]
        .store(task.process.gate_words[WATCHES].load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Counts an event, and periodically checks whether anybody watches. The caller must hold no lock.
pub(crate) fn told(task: &Task<'_>) {
    let told = TOLD.load(Ordering::Relaxed).wrapping_add(1);
    TOLD.store(told, Ordering::Relaxed); // Relaxed, both: a rough count.
    if told.is_multiple_of(EVERY) && !is_watched(task) {
        forget_all(task);
        // Release: after the flags are cleared. PAIRS: the acquire in `shadow::prepare`.
        task.region.header().shadows[2].fetch_or(shadow_path::STALE, Ordering::Release);
    }
}

/// Whether a live process watches.
fn is_watched(task: &Task<'_>) -> bool {
    is_watched_by(task, |_| true)
}

fn is_watched_by(task: &Task<'_>, who: impl Fn(ProcessId) -> bool) -> bool {
    task.region.processes().filter(|id| who(*id)).any(|id| {
        task.region.process(id).gate_words[WATCHES].load(Ordering::Acquire) != 0
            && !task.region.process_is_dead(id, task.process_id)
    })
}

/// Clears the shadow flags of all inodes; stops if somebody watches.
#[cold]
pub(crate) fn forget_all(task: &Task<'_>) {
    let marks = inode_flags::WATCHED | inode_flags::LEASED;
    for flags in [marks, marks | inode_flags::SHADOW] {
        let used = task.region.header().slabs[Inode::SLAB].last();
        for id in (1..=used).map(InodeId) {
            let record = task.region.inode(id);
            // Relaxed: checked again under the lock.
            if record.flags.load(Ordering::Relaxed) & flags == 0 {
                continue;
            }
            // The holder may be stopped; skip the inode this time.
            let Some(_held) = inode::lock_unless_held(task, id) else { continue };
            if is_watched(task) {
                return;
            }
            watch::forget(record, flags);
        }
    }
}

/// Removes all shadows. The last process of the region calls it at its end.
pub(crate) fn remove_all(task: &Task<'_>) {
    let mut room = [0; BASE];
    let Ok((length, above)) = shadow_path::base(task, &mut room) else { return };
    room[length] = 0;
    if tree::remove(&room[..=length]).is_ok() {
        forget_all(task);
    }
    // The directory above may also hold another region's.
    room[above] = 0;
    // SAFETY: a NUL-terminated path.
    let _ = unsafe { lp_abi::syscall!(__NR_rmdir, room.as_ptr()) };
}
