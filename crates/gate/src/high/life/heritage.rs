//! What a new thread gets from its creator, where the threads of a process differ: its domain (landlock(7))
//! and the slot of its directories (`lp_vfs::parted`).
//!
//! The creator says what its child gets by the top of the child's stack, from which the child knows itself
//! again.

use lp_region::ProcessId;
use lp_region::sync::{AtomicU32, AtomicU64, Ordering};
use lp_vfs::parted;
use lp_vfs::task::Task;

/// Nonzero once threads of the process may differ.
static ANY: AtomicU32 = AtomicU32::new(0);

/// What a thread that is being made gets.
struct Heir {
    /// The top of its stack; 0 for none.
    top: AtomicU64,
    domain: AtomicU64,
    slot: AtomicU32,
}

impl Heir {
    const fn nobody() -> Heir {
        Heir { top: AtomicU64::new(0), domain: AtomicU64::new(0), slot: AtomicU32::new(0) }
    }
}

/// Threads that are being made and have made no call yet.
static HEIRS: [Heir; 64] = [const { Heir::nobody() }; 64];
/// How far below the top of its stack a thread makes its first call at most.
const FAR: u64 = 1 << 20;
/// The entry that is used next.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The calling thread begins to differ from others.
pub(crate) fn expect() {
    ANY.store(1, Ordering::Relaxed); // Relaxed: new threads come after this.
}

/// The calling thread creates one whose stack ends at `top`.
pub(crate) fn announce(task: &Task, top: usize) {
    if ANY.load(Ordering::Relaxed) == 0 {
        return;
    }
    let domain = task.credentials.get().domain.load(Ordering::Relaxed); // Relaxed: the thread's own.
    let slot = parted::before_thread(task);
    let same = HEIRS.iter().find(|heir| heir.top.load(Ordering::Relaxed) == top as u64);
    // Relaxed, all: the kernel's clone orders them for the new thread.
    let turn = NEXT.fetch_add(1, Ordering::Relaxed) as usize;
    let heir = same.unwrap_or(&HEIRS[turn % HEIRS.len()]);
    heir.domain.store(domain, Ordering::Relaxed);
    heir.slot.store(slot.map_or(0, |slot| slot.0), Ordering::Relaxed);
    heir.top.store(top as u64, Ordering::Relaxed);
}

/// The calling thread makes its first call, on this stack. Returns its domain and gives it its directories,
/// if it knows its creator.
pub(crate) fn begin(task: &Task, stack: usize) -> Option<u64> {
    if ANY.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let here = stack as u64;
    let above = HEIRS.iter().filter(|heir| heir.top.load(Ordering::Relaxed) > here);
    let heir = above.min_by_key(|heir| heir.top.load(Ordering::Relaxed))?;
    if heir.top.load(Ordering::Relaxed) - here >= FAR {
        return None;
    }
    let slot = ProcessId(heir.slot.load(Ordering::Relaxed));
    if slot.is_some() {
        parted::begin(task, slot);
    }
    let domain = heir.domain.load(Ordering::Relaxed);
    heir.top.store(0, Ordering::Relaxed);
    Some(domain)
}
