//! Threads that have restricted themselves, landlock(7): each has its domain in its credentials, and the
//! process answers its calls by [`crate::high::table::mapped`].
//!
//! A new thread has its creator's domain ([`heritage`]).
//!
//! [`heritage`]: crate::high::life::heritage

use lp_region::sync::{AtomicU32, AtomicU64, Ordering};
use lp_vfs::landlock;
use lp_vfs::task::Task;

use crate::High;
use crate::high::frame::handler::thread;
use crate::high::life::heritage;
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
    heritage::expect();
    LAST.store(task.credentials.get().domain.load(Ordering::Relaxed), Ordering::Relaxed);
    ANY.store(1, Ordering::Relaxed);
    patch::change_calls(&High::calls(thread()));
}

/// The calling thread, which has credentials of its own, makes its first call: gives it its creator's domain.
/// A thread that does not know its creator gets the one that was made last.
pub(crate) fn inherit(task: &Task, domain: Option<u64>) {
    if ANY.load(Ordering::Relaxed) != 0 {
        let domain = domain.unwrap_or_else(|| LAST.load(Ordering::Relaxed));
        task.credentials.get().domain.store(domain, Ordering::Relaxed);
    }
}
