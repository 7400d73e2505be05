//! mount(2) with `MS_REMOUNT`: making a root read-only, or writable again.

use lp_abi::linux::MS_RDONLY;
use lp_abi::{Errno, Result};
use lp_region::records::file_mode;
use lp_region::sync::{Ordering, futex_wait};
use lp_region::{FileId, InodeRef, marks, order};

use crate::caller::task::Task;
use crate::descriptors::table::entry;

/// Looks at the lanes of writers before a remount gives up; 1 ms apart.
const REMOUNT_TRIES: u32 = 5000;

/// Makes a root read-only or writable again, as `mount -o remount`; of `flags` only `MS_RDONLY` counts.
///
/// # Errors
/// `EBUSY` when a file of it is open for writing; `EAGAIN` when a writer does not finish, or in a process
/// without barriers.
pub fn remount(task: &Task, root: u32, flags: u32) -> Result<()> {
    let header = task.region.header();
    let bit = 1 << (root & 15);
    if flags & MS_RDONLY == 0 {
        header.read_only.fetch_and(!bit, Ordering::Release);
        return Ok(());
    }
    let shut = if marks::shut(&header.read_only, bit) { Ok(()) } else { Err(Errno::EAGAIN) };
    let done =
        shut.and_then(|()| wait_for_writers(task, root)).and_then(|()| match has_writable_file(task, root) {
            true => Err(Errno::EBUSY),
            false => Ok(()),
        });
    if done.is_err() {
        header.read_only.fetch_and(!bit, Ordering::Release);
    }
    done
}

fn wait_for_writers(task: &Task, root: u32) -> Result<()> {
    order::idle(order::of(&task.lane.holding));
    for id in task.region.lanes() {
        let lane = task.region.lane(id);
        let mut tries = 0;
        // PAIRS: the release store when the mark is dropped: what the writer changed is changed.
        while lane.writing.load(Ordering::Acquire) == root + 1
            && !task.region.lane_is_dead(id, task.process_id)
        {
            tries += 1;
            if tries > REMOUNT_TRIES {
                return Err(Errno::EAGAIN);
            }
            let _ = futex_wait(&lane.writing, root + 1, 1_000_000);
        }
    }
    Ok(())
}

fn has_writable_file(task: &Task, root: u32) -> bool {
    let region = task.region;
    region.processes().any(|process| {
        let limit = region.process(process).fd_limit.load(Ordering::Acquire) as usize;
        region.fd_table(process).iter().take(limit).any(|word| {
            let word = word.load(Ordering::Acquire);
            let file = region.file(FileId(word as u32));
            let inode = InodeRef::from_word(file.inode.load(Ordering::Relaxed));
            word & entry::OPEN != 0
                && file.mode.load(Ordering::Relaxed) & file_mode::WRITE != 0
                && region.inode(inode.id).root.load(Ordering::Relaxed) == root
        })
    })
}
