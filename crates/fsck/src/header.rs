//! The header, lanes and process slots: counts, limits, and the locks of the region as a whole.

use lp_region::bucket::UNDER_WAY;
use lp_region::lane::{CACHE_SLOTS, UNLINKED};
use lp_region::layout as at;
use lp_region::life::SlotState;
use lp_region::records::{ABOVE_LAYER, Inode};
use lp_region::slab::Slot;
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, LaneId, ProcessId};
use lp_vfs::hash::{BASE_LEVEL, MAX_LEVEL};
use lp_vfs::{chunk, intent};

use crate::{Check, locks};

/// Names of the slabs that lanes cache, by number; empty where there is none.
const SLABS: [&str; 12] = [
    "open files",
    "inodes",
    "entries",
    "overflow buckets",
    "locks",
    "mappings",
    "long names",
    "",
    "",
    "",
    "",
    "",
];

impl Check<'_> {
    /// The header's own words.
    pub(crate) fn header(&mut self) {
        let (region, header) = (self.region, self.region.header());
        let pages = (region.length() - at::DATA_AT) / lp_abi::PAGE_SIZE;
        if header.length.load(Relaxed) != region.length() as u64
            || header.data_pages.load(Relaxed) >= pages as u64
            || header.inode_limit.load(Relaxed) >= at::INODES as u64
        {
            self.structure(|| "the header's sizes do not fit the file".to_owned());
        }
        if !matches!(header.numbers.load(Relaxed), 0 | ABOVE_LAYER) {
            self.inconsistent(|| "the header numbers inodes from where no region does".to_owned());
        }
        if !is_hash_state(header.hash_state.load(Relaxed)) {
            self.structure(|| "the hash table's size is none that it can have".to_owned());
        }
        let limits = [
            ("lanes", header.lane_limit.load(Relaxed), at::LANES),
            ("processes", header.process_limit.load(Relaxed), at::PROCESSES),
            ("mounts", header.mount_limit.load(Relaxed), at::MOUNTS - 1),
            ("chunks", header.chunk_limit.load(Relaxed), region.chunk_count()),
        ];
        for (what, limit, most) in limits {
            if limit as usize > most {
                self.structure(|| format!("the header counts {limit} {what} of at most {most}"));
            }
        }
        self.lanes = header.lane_limit.load(Relaxed).min(at::LANES as u32);
        self.processes = header.process_limit.load(Relaxed).min(at::PROCESSES as u32);
        self.awaited = self.region.lanes().map(|id| region.lane(id).waits_for.load(Relaxed)).collect();
        let last = self.extents.last::<Inode>();
        for (root, place) in header.roots.iter().enumerate() {
            let id = place.load(Relaxed);
            if id != 0 && (id > last || !region.inode(InodeId(id)).is_dir()) {
                self.structure(|| format!("root {root} is inode {id}, which is no directory"));
            }
        }
        self.lock(&header.split_lock, || "the split lock".to_owned());
        self.mounts();
        let is_shifting = |id: LaneId| region.lane(id).shifting.load(Relaxed) != 0;
        if header.tree.read() & 1 != 0 && !region.lanes().any(is_shifting) {
            // Walks cache no prefixes until the next move of a directory.
            self.inconsistent(|| {
                "a change of the tree's shape is under way, and no lane is at one".to_owned()
            });
        }
    }

    /// Lanes, and the process in the same slot.
    pub(crate) fn lanes(&mut self) {
        for index in self.extents.records(at::LANE_SLAB).collect::<Vec<_>>() {
            self.lane(index);
            if (index as usize) < at::PROCESSES {
                self.process(index);
            }
        }
    }

    fn lane(&mut self, index: u32) {
        let region = self.region;
        let lane = region.lane(LaneId(index));
        for (slab, cache) in lane.caches.iter().enumerate() {
            let count = cache.count.load(Relaxed);
            if count as usize > CACHE_SLOTS {
                self.structure(|| {
                    format!("lane {index} counts {count} {} in a cache of {CACHE_SLOTS}", SLABS[slab])
                });
            }
        }
        let unlinked = lane.unlinked.count.load(Relaxed);
        if unlinked as usize > UNLINKED {
            self.structure(|| {
                format!("lane {index} counts {unlinked} unlinked inodes in a list of {UNLINKED}")
            });
        }
        let chunk = lane.pages.chunk.load(Relaxed);
        if chunk as usize > region.chunk_count() {
            self.structure(|| format!("lane {index} allocates from chunk {chunk}, which is not there"));
        }
        let owner = lane.process.load(Relaxed);
        let op = lane.intent.op.load(Relaxed);
        let generation = lane.generation.load(Relaxed);
        if owner as usize >= at::PROCESSES
            || op > intent::op::LAST
            || generation >= at::LANE_GENERATIONS
            || !is_own_id(lane.id.load(Relaxed), index)
        {
            self.structure(|| format!("lane {index} has an owner, an id or an intent that cannot be"));
            return;
        }
        let awaited = lane.waits_for.load(Relaxed);
        if awaited != 0 && locks::lock_at(awaited).is_none() {
            // The burial of the lane would write to it.
            self.structure(|| format!("lane {index} waits for a lock at {awaited:#x}, where none is"));
        }
        for page in chunk::in_hand(lane).filter(|page| region.page_offset(*page).is_some()) {
            self.moving.insert(page.0);
        }
        self.lock(&lane.burial, || format!("the burial of lane {index}"));
        if owner == 0 {
            if op != 0 {
                self.inconsistent(|| format!("lane {index} is free and has an unfinished change"));
            }
            return;
        }
        let id = LaneId(lane.id.load(Relaxed));
        let is_dead = self.is_dead(id);
        if !is_dead && lane.waits_for.load(Relaxed) != 0 {
            self.inconsistent(|| format!("lane {index} waits for a lock and is in no call"));
        }
        let moves = lane.moves.iter().any(|dir| dir.load(Relaxed) != 0);
        if !is_dead && (moves || lane.shifting.load(Relaxed) != 0) {
            self.inconsistent(|| format!("lane {index} moves a directory and is in no call"));
        }
        if is_dead {
            let unfinished = if op != 0 { ", with an unfinished change" } else { "" };
            self.leftover(|| format!("lane {index} is a dead thread's{unfinished}"));
        } else if op != 0 {
            self.inconsistent(|| format!("lane {index} has an unfinished change and is in no call"));
        }
    }

    fn process(&mut self, index: u32) {
        let process = self.region.process(ProcessId(index));
        if process.fd_limit.load(Relaxed) as usize > at::FDS
            || process.run.load(Relaxed) as usize >= at::RUNS
            || process.group_count.load(Relaxed) as usize > process.groups.len()
        {
            self.structure(|| format!("process slot {index} has a count that cannot be"));
        }
        if process.life.get().state() != SlotState::Free
            && self.region.process_is_dead(ProcessId(index), self.me)
        {
            self.leftover(|| format!("process slot {index} is a dead process's"));
        }
        self.lock(&process.table_lock, || format!("the descriptor table of process slot {index}"));
    }
}

/// Whether an id can be that of a lane: it has the lane's index, with any generation.
fn is_own_id(id: u32, index: u32) -> bool {
    id == 0 || id >> at::LANE_BITS < at::LANE_GENERATIONS && id % at::LANES as u32 == index
}

/// Whether the hash table can have this size.
pub(crate) fn is_hash_state(hash_state: u64) -> bool {
    let state = hash_state & !UNDER_WAY;
    let (level, next) = (state as u32, (state >> 32) as u32);
    let most = MAX_LEVEL - BASE_LEVEL;
    level <= most && next < 1 << (BASE_LEVEL + level) && (level < most || next == 0)
}

/// Slots of a slab that lanes name as taken and not linked in.
pub(crate) fn in_hand<T: Slot>(check: &Check) -> impl Iterator<Item = u32> {
    let region = check.region;
    (1..check.lanes).flat_map(move |index| {
        let lane = region.lane(LaneId(index));
        Some(lane.taken[T::SLAB].load(Relaxed)).filter(|slot| *slot != 0 && (*slot as usize) < T::SLOTS)
    })
}
