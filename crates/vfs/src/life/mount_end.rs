//! The end of mounts: who uses one, and giving back what nobody does.

use lp_region::layout::{COMMAND_ROOTS, SUPERBLOCKS};
use lp_region::mount::{mount_state, superblock_flags};
use lp_region::mount_change::Set;
use lp_region::records::OpenFile;
use lp_region::sync::{Ordering, heavy_barrier};
use lp_region::{LaneId, MountId, ProcessId, RunId, Spot, marks};

use crate::caller::task::Task;
use crate::descriptors::flight;
use crate::descriptors::table::FdTable;
use crate::lane::pin;
use crate::life::mount_tree::Tree;
use crate::life::{home, reclaim, superblock};
use crate::names::mounts::{all, top_adrift};

/// Looks before references that move are taken for users.
const LOOKS: usize = 8;

/// Gives back the mounts that are out of the tree and that nobody is in any more, and file systems without
/// mounts. The caller holds no lock.
pub(crate) fn collect(task: &Task<'_>) {
    let tree = Tree::look(task);
    tree.collect_mounts();
    tree.collect_places();
    tree.collect_superblocks();
}

impl Tree<'_, '_> {
    /// Whether a process is in a mount: by its working directory or program, an open file, or a mapping.
    /// Returns true when in doubt.
    pub fn is_used(&self, id: MountId) -> bool {
        (0..LOOKS).find_map(|_| self.look_for_users(id)).unwrap_or(true)
    }

    /// Looks once for who is in a mount; `None` if nobody was seen, but references moved meanwhile.
    fn look_for_users(&self, id: MountId) -> Option<bool> {
        let (task, region) = (self.task, self.task.region);
        let moves = &region.header().moves;
        let before = moves.load(Ordering::Acquire);
        // PAIRS: the light barriers of those who pin a file, mark themselves as writers, or enter.
        let is_certain = heavy_barrier();
        let mut calm = true;
        let is_in = |file: &OpenFile| file.mount() == id;
        let mut by_process = || {
            region.processes().any(|process| {
                let record = region.process(process);
                let stands = record.places().into_iter().any(|word| {
                    let word = word.load(Ordering::Acquire);
                    word != 0 && Spot::from_word(word).mount == id
                });
                let mut hit = stands;
                let mut look =
                    || FdTable::of(region, process).look_through(|file| hit |= is_in(region.file(file)));
                calm &= (0..LOOKS).any(|_| look());
                hit && home::counts(task, process)
            })
        };
        let by_lane = || {
            region.lanes().any(|lane| {
                let record = region.lane(lane);
                let writes = record.writing.load(Ordering::Acquire) == id.mark();
                let pins = record.pins.iter().map(marks::pinned).any(|pin| {
                    pin != 0 && pin & pin::INODE == 0 && is_in(region.file(lp_region::FileId(pin as u32)))
                });
                (writes || pins) && lane != task.lane_id && !region.lane_is_dead(lane, task.process_id)
            })
        };
        let in_flight =
            || flight::sent(region).any(|file| is_in(region.file(file)) && flight::is_in_flight(task, file));
        // What is being opened goes from a pin to a table, what is being closed the other way.
        let is_used =
            !is_certain || by_lane() || by_process() || self.is_mapped(id) || by_lane() || in_flight();
        // PAIRS: the increments after a reference was copied to another table.
        (is_used || calm && moves.load(Ordering::Acquire) == before).then_some(is_used)
    }

    /// Whether the last walk of another living lane went through a mount. Its records are not used again
    /// then.
    pub(super) fn is_walked(&self, id: MountId) -> bool {
        // PAIRS: the light barrier in `mounts::keep`.
        let is_certain = heavy_barrier();
        let (task, region) = (self.task, self.task.region);
        !is_certain
            || region.lanes().any(|lane| {
                let walked = &region.lane(lane).walked;
                walked.iter().any(|walked| walked.load(Ordering::Acquire) == id.0)
                    && lane != task.lane_id
                    && !region.lane_is_dead(lane, task.process_id)
            })
    }

    /// Whether a living process has mapped a file through a mount.
    fn is_mapped(&self, id: MountId) -> bool {
        let (task, region) = (self.task, self.task.region);
        region.mappings().any(|record| {
            let process = ProcessId(record.process.load(Ordering::Relaxed)); // Relaxed: stored before the inode.
            record.mount.load(Ordering::Relaxed) == id.0 && !region.process_is_dead(process, task.process_id)
        })
    }

    fn collect_mounts(&self) {
        let task = self.task;
        let is_detached = |id: &MountId| self.record(*id).state().kind() == mount_state::DETACHED;
        // Who uses a part of a tree that no path leads to keeps all of it.
        let mut kept = Set::default();
        for id in all(task).filter(is_detached) {
            if let Some(top) = top_adrift(task, id).filter(|top| !kept.has(*top))
                && self.is_used(id)
            {
                kept.add(top);
            }
        }
        // Those below come before the top, by which they are known as a tree.
        for is_top in [false, true] {
            for id in all(task).filter(is_detached) {
                let top = top_adrift(task, id);
                if (top == Some(id)) == is_top && !top.is_some_and(|top| kept.has(top)) {
                    self.collect_mount(id);
                }
            }
        }
    }

    /// Gives back a mount that is out of the tree, unless somebody is in it.
    fn collect_mount(&self, id: MountId) {
        let (record, state) = (self.record(id), self.record(id).state());
        if state.kind() != mount_state::DETACHED || self.is_base(id) || self.is_used(id) {
            return;
        }
        let root = record.root();
        if !record.pass(state, mount_state::FREE, MountId::NONE) {
            return;
        }
        // Relaxed: whoever unlinks it from now on looks for users itself.
        if self.task.region.inode(root.id).nlink.load(Ordering::Relaxed) == 0 {
            reclaim::let_go_slow(self.task, root);
        }
    }

    /// Whether a mount is one of the command line of a run that lives: the run's record names it, in the tree
    /// or not.
    fn is_base(&self, id: MountId) -> bool {
        let record = self.record(id);
        let run = RunId(record.run.load(Ordering::Relaxed)); // Relaxed: immutable while in use.
        // The mount's own place, whether or not it has moved since.
        record.parent.load(Ordering::Relaxed) == 0
            && (run.0 == self.run() || self.task.region.run_is_held(run))
    }

    /// Gives back the places that mounts have left.
    fn collect_places(&self) {
        let task = self.task;
        for id in all(task) {
            let (record, state) = (self.record(id), self.record(id).state());
            if state.kind() != mount_state::PLACE || self.is_made(record.maker.load(Ordering::Acquire)) {
                continue;
            }
            let is_place = |other: MountId| {
                let other = self.record(other).state();
                other.is_mount() && other.at() == id
            };
            // Only its maker's change names a place, and that is over.
            if !all(task).any(is_place) && self.stands() {
                record.pass(state, mount_state::FREE, MountId::NONE);
            }
        }
    }

    /// Whether a living lane has claimed something.
    fn is_made(&self, maker: u32) -> bool {
        maker != 0 && !self.task.is_dead(LaneId(maker))
    }

    fn collect_superblocks(&self) {
        let task = self.task;
        for root in COMMAND_ROOTS as u32..SUPERBLOCKS as u32 {
            let record = task.region.superblock(root);
            let is_left = || record.root.load(Ordering::Acquire) != 0 && !self.is_mounted(root);
            if !is_left() || !superblock::claim(task, root) {
                continue;
            }
            // Whoever was making a mount of it in this turn has to look again.
            if is_left() && self.stands() {
                record.flags.fetch_or(superblock_flags::DYING, Ordering::Relaxed);
                superblock::destroy(task, root);
            }
            record.maker.store(0, Ordering::Release);
        }
    }

    /// Whether a file system has a mount, in the tree of any run or out of it.
    fn is_mounted(&self, root: u32) -> bool {
        all(self.task).any(|id| {
            let record = self.record(id);
            let state = record.state();
            let is_being_made =
                || state.kind() == mount_state::FREE && self.is_made(record.maker.load(Ordering::Acquire));
            (state.is_mount() || is_being_made()) && record.superblock.load(Ordering::Relaxed) == root
        })
    }
}
