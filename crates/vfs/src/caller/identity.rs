//! Records of credentials: copies, and one for a part of a call.

use lp_region::process::Process;
use lp_region::sync::{AtomicU32, Ordering};

use crate::caller::task::Task;

/// Copies ids, groups, capabilities and the domain.
pub fn copy_credentials(from: &Process, to: &Process) {
    let ids: [fn(&Process) -> &AtomicU32; 7] = [
        |p| &p.ruid,
        |p| &p.rgid,
        |p| &p.fsuid,
        |p| &p.fsgid,
        |p| &p.caps,
        |p| &p.permitted,
        |p| &p.group_count,
    ];
    // Relaxed throughout: nobody else uses the copy yet.
    for id in ids {
        id(to).store(id(from).load(Ordering::Relaxed), Ordering::Relaxed);
    }
    // Release: a scan for users of an inode sees it here; the slot that it comes from holds it meanwhile.
    to.domain.store(from.domain.load(Ordering::Relaxed), Ordering::Release);
    let groups = from.group_count.load(Ordering::Relaxed) as usize;
    for (to, from) in to.groups.iter().zip(&from.groups).take(groups) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Makes `step` with credentials that `change` makes of the thread's own. `step` must not use
/// `scratch.other`, which holds them.
#[cold]
pub(crate) fn call_with<T>(task: &Task<'_>, change: impl FnOnce(&Process), step: impl FnOnce() -> T) -> T {
    let own = task.credentials.get();
    let room = task.scratch.other.get().cast::<u8>();
    // SAFETY: the buffer has room for an aligned record (below), of which any bytes are a valid one. It
    // belongs to the call, and the task names the record no longer than this function runs, unless `step`
    // panics, which calls do not.
    let other = unsafe { &*room.add(room.align_offset(align_of::<Process>())).cast::<Process>() };
    copy_credentials(own, other);
    change(other);
    task.credentials.set(other);
    let done = step();
    task.credentials.set(own);
    done
}

const _: () = assert!(size_of::<Process>() + align_of::<Process>() <= lp_abi::PATH_MAX);
