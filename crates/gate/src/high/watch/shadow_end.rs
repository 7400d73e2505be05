//! The end of shadows: when nobody watches any more, and when the run ends.
//!
//! The kernel does not say when a watch goes. But a process that watches says so in its slot, for itself and
//! the children that inherit its descriptors; so once none lives, nobody watches, and after a bounded number
//! of events somebody notices. Then inodes lose their flags, [`inode_flags::WATCHED`] first: whoever watches
//! a directory that still has it finds the shadows of its entries unharmed. Every flag goes under its inode's
//! lock, after one more look for watchers; a watcher says so before it takes the lock to set the flag. So
//! either it is seen or it sets the flag again. The objects on the host, which nobody keeps like the inodes
//! any more, are left alone: whoever watches next, alone, has new ones at another place.

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

/// How many processes watch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watchers {
    /// The calling one, from now on.
    One,
    /// Others, or the calling one before.
    More,
}

/// Events between two looks whether anybody watches.
const EVERY: u32 = 256;

/// Events that this process has told.
static TOLD: AtomicU32 = AtomicU32::new(0);

/// Says that the process watches, and who does.
pub(crate) fn note_watcher(task: &Task<'_>) -> Watchers {
    // SeqCst: of two that come at once at least one sees the other. Also before the flags, under the inode's
    // lock in `forget_all`.
    let before = task.process.spare[WATCHES].swap(1, Ordering::SeqCst);
    let alone = before == 0 && !is_watched_by(task, |id| id != task.process_id);
    if alone { Watchers::One } else { Watchers::More }
}

/// A child inherits the descriptors that watch.
pub(crate) fn copy_to(task: &Task<'_>, child: &Process) {
    child.spare[WATCHES].store(task.process.spare[WATCHES].load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Counts an event, and looks once in a while whether anybody can have had it. The caller holds no lock.
pub(crate) fn told(task: &Task<'_>) {
    let told = TOLD.load(Ordering::Relaxed).wrapping_add(1);
    TOLD.store(told, Ordering::Relaxed); // Relaxed, both: a rough count.
    if told.is_multiple_of(EVERY) && !is_watched(task) {
        forget_all(task);
        // Release: after the flags. PAIRS: the acquire in `shadow::prepare`.
        task.region.header().shadows[2].fetch_or(shadow_path::STALE, Ordering::Release);
    }
}

/// Whether a process lives that watches.
fn is_watched(task: &Task<'_>) -> bool {
    is_watched_by(task, |_| true)
}

fn is_watched_by(task: &Task<'_>, who: impl Fn(ProcessId) -> bool) -> bool {
    task.region.processes().filter(|id| who(*id)).any(|id| {
        task.region.process(id).spare[WATCHES].load(Ordering::Acquire) != 0
            && !task.region.process_is_dead(id, task.process_id)
    })
}

/// Takes all shadows away, as far as nobody watches.
#[cold]
pub(crate) fn forget_all(task: &Task<'_>) {
    for flags in [inode_flags::WATCHED, inode_flags::WATCHED | inode_flags::SHADOW] {
        let used = task.region.header().slabs[Inode::SLAB].last();
        for id in (1..=used).map(InodeId) {
            let record = task.region.inode(id);
            // Relaxed: looked at again under the lock.
            if record.flags.load(Ordering::Relaxed) & flags == 0 {
                continue;
            }
            // Whoever holds it may be stopped; it is another's turn then.
            let Some(_held) = inode::lock_unless_held(task, id) else { continue };
            if is_watched(task) {
                return;
            }
            watch::forget(record, flags);
        }
    }
}

/// Removes all shadows: the last process of the region ends.
pub(crate) fn remove_all(task: &Task<'_>) {
    let mut room = [0; BASE];
    let Ok((length, above)) = shadow_path::base(task, &mut room) else { return };
    room[length] = 0;
    if tree::remove(&room[..=length]).is_ok() {
        forget_all(task);
    }
    // The directory above it may hold those of another region.
    room[above] = 0;
    // SAFETY: a NUL-terminated path.
    let _ = unsafe { lp_abi::syscall!(__NR_rmdir, room.as_ptr()) };
}
