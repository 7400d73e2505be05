//! Threads that have restricted themselves, landlock(7): each has its domain in its credentials, and the
//! process answers its calls by [`crate::high::table::mapped`].
//!
//! A new thread has its creator's domain. Where the threads of a process have different ones, the creator
//! says which one its child gets: by the top of the child's stack, from which the child knows itself again.

use lp_region::sync::{AtomicU32, AtomicU64, Ordering};
use lp_vfs::landlock;
use lp_vfs::task::Task;

use crate::High;
use crate::high::frame::handler::thread;
use crate::low::above::Above;
use crate::low::cover::patch;

/// Nonzero once a thread of the process has restricted itself, or the process began with a domain.
static ANY: AtomicU32 = AtomicU32::new(0);

/// The domain that a thread of the process got last.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Whether some thread of the process may have restricted itself.
pub(crate) fn any(task: &Task) -> bool {
    ANY.load(Ordering::Relaxed) != 0 || landlock::is_held(task) // Relaxed: only ever set.
}

/// The calling thread has restricted itself.
pub(crate) fn begin(task: &Task) {
    // Relaxed, both: other threads are not concerned, and new ones come after this.
    LAST.store(task.credentials.get().domain.load(Ordering::Relaxed), Ordering::Relaxed);
    ANY.store(1, Ordering::Relaxed);
    patch::change_calls(&High::calls(thread()));
}

/// What a thread that is being made gets.
struct Heir {
    /// The top of its stack; 0 for none.
    top: AtomicU64,
    domain: AtomicU64,
}

/// Threads that are being made and have made no call yet.
static HEIRS: [Heir; 64] = [const { Heir { top: AtomicU64::new(0), domain: AtomicU64::new(0) } }; 64];
/// How far below the top of its stack a thread makes its first call at most.
const FAR: u64 = 1 << 20;
/// The entry that is used next.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The calling thread creates one whose stack ends at `top`.
pub(crate) fn announce(task: &Task, top: usize) {
    if ANY.load(Ordering::Relaxed) == 0 {
        return;
    }
    let domain = task.credentials.get().domain.load(Ordering::Relaxed); // Relaxed: the thread's own.
    let same = HEIRS.iter().find(|heir| heir.top.load(Ordering::Relaxed) == top as u64);
    // Relaxed, all: the kernel's clone orders them for the new thread.
    let turn = NEXT.fetch_add(1, Ordering::Relaxed) as usize;
    let heir = same.unwrap_or(&HEIRS[turn % HEIRS.len()]);
    heir.domain.store(domain, Ordering::Relaxed);
    heir.top.store(top as u64, Ordering::Relaxed);
}

/// The calling thread, which has credentials of its own, makes its first call, on this stack: gives it its
/// creator's domain. A thread whose stack is not known gets the one that was made last.
pub(crate) fn inherit(task: &Task, stack: usize) {
    if ANY.load(Ordering::Relaxed) == 0 {
        return;
    }
    let here = stack as u64;
    let above = HEIRS.iter().filter(|heir| heir.top.load(Ordering::Relaxed) > here);
    let heir = above.min_by_key(|heir| heir.top.load(Ordering::Relaxed));
    let domain = match heir.filter(|heir| heir.top.load(Ordering::Relaxed) - here < FAR) {
        Some(heir) => {
            heir.top.store(0, Ordering::Relaxed);
            heir.domain.load(Ordering::Relaxed)
        }
        None => LAST.load(Ordering::Relaxed),
    };
    task.credentials.get().domain.store(domain, Ordering::Relaxed);
}
