//! The pages that a lane had in hand when it died: those that are linked in stay, the others are freed.

use lp_region::lane::PageMarks;
use lp_region::records::Inode;
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, LaneId, PageId};

use crate::caller::task::Task;
use crate::content::run::PageRun;
use crate::content::{chunk, map};

/// Settles the pages that a dead lane had in hand. The caller must be burying that lane, and hold the lock of
/// the pages' inode or know that nobody else can reach it.
pub(crate) fn repair(task: &Task, lane: LaneId) {
    let region = task.region;
    let record = region.lane(lane);
    let marks: &PageMarks = &record.pages;
    chunk::settle(region, record);
    let inode: &Inode = region.inode(InodeId(marks.inode.load(Relaxed)));
    let index = marks.index.load(Relaxed);
    while let Some(run) = chunk::named(marks) {
        let rest = run.len - 1;
        let last = PageId(run.first.0.saturating_add(rest));
        if map::names(region, inode, index + u64::from(rest), last) {
            chunk::name(marks, PageRun { len: rest, ..run });
        } else {
            chunk::give(region, record, rest);
        }
    }
}
