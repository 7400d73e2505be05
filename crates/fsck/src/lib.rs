//! The region checker: the invariants that hold between calls, stated once. `lightpath fsck`, the launcher
//! (before it admits a program to a region file) and tests use it.
//!
//! [`check`] reads and changes nothing. It trusts no value: it compares every index with its slab and follows
//! no chain beyond its maximum length, so it terminates on any input. [`repair`] repairs a region that nobody
//! uses.
//!
//! Passes, in order: the header and the lanes (`header`), the slabs' free slots (`slabs`), page maps and
//! the chunks' bitmaps (`pages`, and `shared` for content of several files), directories, entries and the
//! hash table (`names`), tables, open files, locks and mappings (`held`), what waits to be freed (`chains`).
//! Each leaves in `Check` what the later ones need.
#![deny(unsafe_code)]
#![warn(unreachable_pub)]

mod bits;
mod chains;
#[allow(unsafe_code, reason = "system calls")]
mod extents;
mod header;
mod held;
mod inode;
#[allow(unsafe_code, reason = "looks into locks")]
mod locks;
mod mounts;
mod names;
mod pages;
mod rebuild;
mod repair;
mod report;
mod shared;
mod slabs;

use lp_region::life::SlotState;
use lp_region::{LaneId, ProcessId, Region};

pub use locks::lock_at;
pub use names::tree;
pub use rebuild::Rebuilt;
pub use repair::{Repaired, rebuild, repair};
pub use report::{Finding, Report, Severity, Usage};

use std::collections::BTreeSet;

use bits::Bits;
use extents::Extents;
use shared::Shared;
use slabs::Slabs;

// Relaxed throughout the crate: nobody changes what is checked.

/// Checks a region that nobody is changing: processes may live in it, but none is inside a call. `me` is the
/// caller's own process in the region, which is alive; none if it has none.
pub fn check(region: Region<'_>, me: ProcessId) -> Report {
    let mut check = Check::new(region, me);
    check.header();
    check.lanes();
    check.slabs();
    check.pages();
    check.names();
    check.held();
    check.attributes();
    check.usage();
    check.report
}

/// Whether a live process or run uses the region.
pub fn is_in_use(region: Region<'_>) -> bool {
    let lives = |id: &ProcessId| {
        // A slot that awaits its child, or its claimant, does not prove that anyone lives; its run does.
        let state = region.process(*id).life.get().state();
        state == SlotState::Live && !region.process_is_dead(*id, ProcessId::NONE)
    };
    region.has_file() && (region.any_run_is_held() || region.processes().any(|id| lives(&id)))
}

/// A check in progress: the results of the passes so far.
struct Check<'r> {
    region: Region<'r>,
    me: ProcessId,
    extents: Extents,
    report: Report,
    /// Number of lanes and processes that were ever claimed.
    lanes: u32,
    processes: u32,
    /// Locks that lanes wait for, by offset.
    awaited: BTreeSet<u64>,
    slabs: Slabs,
    /// Content that files share.
    shared: Shared,
    /// Pages that maps name.
    claimed: Bits,
    /// Pages in transit in a lane's hands.
    moving: Bits,
    /// Overflow buckets in chains that hold no entry.
    idle: u64,
    /// Inodes that something names, by slot.
    named: Bits,
    /// Those among them that a path or a descriptor leads to. Others may have been left partly initialised.
    reached: Bits,
}

impl<'r> Check<'r> {
    fn new(region: Region<'r>, me: ProcessId) -> Self {
        Check {
            region,
            me,
            extents: Extents::of(region),
            report: Report::default(),
            lanes: 0,
            processes: 0,
            awaited: BTreeSet::new(),
            slabs: Slabs::default(),
            shared: Shared::default(),
            claimed: Bits::default(),
            moving: Bits::default(),
            idle: 0,
            named: Bits::default(),
            reached: Bits::default(),
        }
    }

    fn structure(&mut self, what: impl FnOnce() -> String) {
        self.report.add(Severity::Structure, what);
    }

    fn inconsistent(&mut self, what: impl FnOnce() -> String) {
        self.report.add(Severity::Inconsistent, what);
    }

    fn leak(&mut self, what: impl FnOnce() -> String) {
        self.report.add(Severity::Leak, what);
    }

    fn leftover(&mut self, what: impl FnOnce() -> String) {
        self.report.add(Severity::Leftover, what);
    }

    /// Whether the owner of a lane is dead.
    fn is_dead(&self, lane: LaneId) -> bool {
        self.region.lane_is_dead(lane, self.me)
    }

    /// Records that a path or a descriptor leads to an inode.
    fn reach(&mut self, inode: u32) {
        self.named.insert(inode);
        self.reached.insert(inode);
    }

    fn usage(&mut self) {
        let slabs = &self.slabs;
        self.report.usage = Usage {
            inodes: slabs.inodes.in_use(),
            entries: slabs.entries.in_use(),
            names: slabs.names.in_use(),
            overflows: slabs.overflows.in_use().saturating_sub(self.idle),
            files: slabs.files.in_use(),
            locks: slabs.locks.in_use(),
            mappings: slabs.mappings.in_use(),
            pages: self.claimed.len(),
        };
    }
}
