//! The end of shadows: when nobody watches any more, and when the run ends.
//!
//! The kernel does not say when a watch goes. But a process that watches says so in its slot, for itself and the children that
//! inherit its descriptors; so once none lives, nobody watches, and after a bounded number of events somebody notices. Then
//! inodes lose their flags, [`inode_flags::WATCHED`] first: whoever watches a directory that still has it finds the shadows of
//! its entries unharmed. Every flag goes under its inode's lock, after one more look for watchers; a watcher says so before it
//! takes the lock to set the flag. So either it is seen or it sets the flag again. The objects on the host stay until the run
//! ends, or until a directory is watched anew and they are compared with its names.

use lp_abi::linux::{__NR_getdents64, __NR_open, __NR_rmdir, O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW};
use lp_abi::{PATH_MAX, Result};
use lp_region::InodeId;
use lp_region::process::Process;
use lp_region::records::{Inode, inode_flags};
use lp_region::slab::Slot;
use lp_region::sync::{AtomicU32, Ordering};
use lp_vfs::name::Name;
use lp_vfs::task::Task;
use lp_vfs::watch::{self, At};
use lp_vfs::{hash, inode};

use crate::path::spare_buffer;
use crate::placeholder::close_number;
use crate::shadow::{self, BASE};
use crate::tree;

/// Word of `Process::spare`: nonzero once the process, or one that it is a child of, has watched.
const WATCHES: usize = 4;
/// Events between two looks whether anybody watches.
const EVERY: u32 = 256;

/// Events that this process has told.
static TOLD: AtomicU32 = AtomicU32::new(0);

/// Says that the process watches.
pub(crate) fn note_watcher(task: &Task<'_>) {
    // PAIRS: the look under an inode's lock in `forget`, by that lock.
    task.process.spare[WATCHES].store(1, Ordering::Release);
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
    }
}

/// Whether a process lives that watches.
fn is_watched(task: &Task<'_>) -> bool {
    task.region.processes().any(|id| {
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

/// Removes from the shadow of a directory what stands for no entry of it, or for one without a shadow. The caller holds the
/// directory's lock.
///
/// # Errors
/// Those of open(2), unlink(2) and rmdir(2).
pub(crate) fn drop_stale(task: &Task<'_>, dir: InodeId) -> Result<()> {
    let path = shadow::path_of(task, dir, spare_buffer())?;
    let flags = O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    // SAFETY: a NUL-terminated path.
    let directory = unsafe { lp_abi::syscall!(__NR_open, path.as_ptr(), flags) }? as i32;
    // The thread's other buffers are for what is removed.
    // SAFETY: the walk is over, and the task makes one call at a time.
    let records = unsafe { &mut (&mut *task.scratch.walk.get())[..PATH_MAX] };
    let done = loop {
        let room = records.len();
        // SAFETY: the kernel writes within the buffer.
        let got = unsafe { lp_abi::syscall!(__NR_getdents64, directory, records.as_mut_ptr(), room) };
        let Ok(got @ 1..) = got else { break Ok(()) };
        let dropped = tree::each(&records[..got], |name, kind| {
            let entry = Name::new(name).ok().and_then(|name| hash::lookup(task.region, dir, &name));
            let target = entry.map(|hit| task.region.inode(hit.target().id));
            match target.is_some_and(|inode| watch::has_shadow(inode) && watch::kind(inode) == kind) {
                true => Ok(()),
                false => shadow::take_away(shadow::path_at(task, At { dir, name }, spare_buffer())?, kind),
            }
        });
        if dropped.is_err() {
            break dropped;
        }
    };
    close_number(directory);
    done
}

/// Removes all shadows: the last process of the region ends.
pub(crate) fn remove_all(task: &Task<'_>) {
    let mut room = [0; BASE];
    let Ok((length, above)) = shadow::base(task, &mut room) else { return };
    room[length] = 0;
    if tree::remove(&room[..=length]).is_ok() {
        forget_all(task);
    }
    // The directory above it may hold those of another region.
    room[above] = 0;
    // SAFETY: a NUL-terminated path.
    let _ = unsafe { lp_abi::syscall!(__NR_rmdir, room.as_ptr()) };
}
