//! The checker for tests: any finding fails the test.

use std::collections::BTreeMap;

use lp_fsck::Severity;
use lp_region::layout::CHUNK_PAGES;
use lp_region::records::{Bucket, Dirent, Inode, LongName};
use lp_region::slab::Slot;
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, PageId, ProcessId};
use lp_vfs::{Task, owner};

/// The contents of a file system.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// Path, type and link count of everything.
    pub tree: BTreeMap<String, (u32, u32)>,
}

/// Checks the whole region, in which only `task` may be live, and returns what is below a root.
#[track_caller]
pub fn check(task: &Task, root: InodeId) -> Found {
    lp_fsck::check(task.region, task.process_id).expect_sound("between calls");
    Found { tree: lp_fsck::tree(task.region, root) }
}

/// Checks that a region after a death may be opened: no structure is damaged, whatever is half done.
#[track_caller]
pub fn usable(task: &Task) {
    let report = lp_fsck::check(task.region, task.process_id);
    assert!(report.worst() != Some(Severity::Structure), "right after a death: {report}");
}

/// Slots in use of all kinds that names consist of.
pub fn slots(task: &Task) -> [u64; 4] {
    let usage = lp_fsck::check(task.region, ProcessId::NONE).usage;
    [usage.entries, usage.inodes, usage.names, usage.overflows]
}

/// Fills the lane's caches, because a death while they are filled is not part of a call.
pub fn warm(task: &Task) {
    fn one<T: Slot>(task: &Task) {
        let id = task.region.take::<T>(task.lane).expect("a slot");
        task.region.give::<T>(task.lane, id);
        task.region.settle::<T>(task.lane);
    }
    one::<Dirent>(task);
    one::<Inode>(task);
    one::<LongName>(task);
    one::<Bucket>(task);
}

/// Each page in use, the place for which it was taken and the state of that inode, one per line.
pub fn pages(task: &Task) -> String {
    let region = task.region;
    let taken = (0..region.chunk_count()).flat_map(|index| {
        let chunk = region.chunk(index).expect("a chunk");
        (0..CHUNK_PAGES)
            .filter(|at| chunk.used(at / 64) & 1 << (at % 64) != 0)
            .map(move |at| index * CHUNK_PAGES + at)
    });
    let line = |page: usize| {
        let Some(word) = region.page_owner(PageId(page as u32)) else { return String::new() };
        let word = word.load(Relaxed);
        let inode = region.inode(InodeId(word as u32));
        let (height, index) = (word >> 32 & 7, word >> (64 - owner::INDEX_BITS));
        let [mode, nlink] = [&inode.mode, &inode.nlink].map(|field| field.load(Relaxed));
        let [map, tail] = [&inode.map, &inode.tail].map(|field| field.load(Relaxed));
        let pages = inode.pages.load(Relaxed);
        format!(
            "page {page}: place {index}, height {height} of inode {}: mode {mode:o}, links {nlink}, map {map:#x}, \
             pages {pages}, tail {tail}\n",
            word as u32
        )
    };
    taken.map(line).collect()
}
