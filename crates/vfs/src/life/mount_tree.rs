//! The tree of mounts of a run: records claimed, linked in and taken out.
//!
//! No lock guards it. A change is proposed from what a [`Tree`] shows of one turn, and is made if nothing has
//! changed since ([`lp_region::mount_change`]); else it is proposed again. So nobody waits for a mount(2) or
//! umount2(2) that is stopped, but who mounts on the very inode whose lock that one holds. Mount and unmount
//! count as changes of where paths lead.

use lp_abi::{Errno, Result};
use lp_region::layout::MOUNTS;
use lp_region::mount::{Groups, Mount, SOURCE, mount_flags, mount_state};
use lp_region::mount_change::{self, Becomes, Plan, Set, Turn};
use lp_region::records::COVERED;
use lp_region::standing::Standing;
use lp_region::sync::{AtomicU32, Ordering};
use lp_region::{DirentId, InodeRef, LaneId, MountId, Spot, order};

use crate::caller::task::Task;
use crate::inodes::inode::{self, Locked};
use crate::life::mount_list::List;
use crate::life::mount_peers::Peers;
use crate::life::{mount_owner, superblock};
use crate::names::mounts::{self, all};
use crate::names::{dirent, tree};

/// The mounts, as they were in a turn in which no change was under way.
pub struct Tree<'t, 'r> {
    pub(super) task: &'t Task<'r>,
    pub(super) turn: Turn,
}

/// What a new record is made of.
pub struct Making<'a> {
    /// The inode that it shows.
    pub root: InodeRef,
    /// Its file system.
    pub superblock: u32,
    /// [`mount_flags::OWN`].
    pub flags: u32,
    /// Its source, as given to mount(2).
    pub source: &'a [u8],
}

/// A place to mount on.
#[derive(Clone, Copy)]
pub(crate) struct Point {
    /// What is covered, and the mount through which it was reached.
    pub spot: Spot,
    /// The entry that names it; none for the root of a mount.
    pub dirent: DirentId,
}

/// A proposed change.
#[must_use = "nothing has changed yet"]
#[derive(Default)]
pub struct Draft<'r> {
    plan: Plan,
    /// The lock of what is to be covered: it is not removed meanwhile.
    locked: Option<Locked<'r>>,
    /// What is to be covered, and the entry that names it.
    point: Option<(InodeRef, DirentId)>,
}

impl Draft<'_> {
    /// Records that were made join the tree; the first of the first list is above all others.
    pub(super) fn join(&mut self, list: &List) {
        list.iter().for_each(|id| self.plan.joining.add(id));
        if self.plan.top.is_none() {
            self.plan.top = list.at(0);
        }
    }

    /// The groups of mounts become others. What joins has been named.
    pub(crate) fn regroup(&mut self, task: &Task<'_>, peers: &Peers) {
        peers.plan(task, &mut self.plan);
    }

    /// Nothing changes, but what others have proposed is proposed again.
    pub fn nothing() -> Self {
        Draft::default()
    }

    /// Mounts leave the tree.
    pub fn of_leaving(leaving: Set) -> Self {
        let mut draft = Draft::default();
        leaving.iter().for_each(|id| draft.plan.change(id).becomes = Becomes::Leaves);
        draft
    }

    /// A list of mounts that were made becomes a tree that no path leads to.
    pub(crate) fn of_drifting(task: &Task<'_>, peers: &Peers, list: &List) -> Self {
        let mut draft = Draft::default();
        for id in list.iter() {
            draft.plan.change(id).becomes = Becomes::Drifts;
            peers.begin(task, id);
        }
        draft
    }

    /// Those of a list that no path leads to become part of the run's tree.
    pub(super) fn raise(&mut self, task: &Task<'_>, list: &List) {
        let is_adrift = |id: &MountId| mounts::top_adrift(task, *id).is_some();
        list.iter().filter(is_adrift).for_each(|id| self.plan.change(id).becomes = Becomes::Rises);
    }

    /// A mount of the command line joins: nothing of the region's is above it.
    pub fn with_base(mut self, id: MountId) -> Self {
        self.plan.joining.add(id);
        self.plan.top = id;
        self
    }
}

/// Makes a change: proposes it until nothing came in between.
///
/// # Errors
/// Those of `propose`.
pub fn change<'t, 'r>(
    task: &'t Task<'r>,
    mut propose: impl FnMut(&Tree<'t, 'r>) -> Result<Draft<'r>>,
) -> Result<()> {
    task.region.back_plan(task.lane_id)?;
    loop {
        let tree = Tree::look(task);
        let made = propose(&tree).map(|draft| tree.make_so(draft));
        tree.release();
        match made {
            Ok(true) => return Ok(()),
            // What an outdated look says is not the answer.
            Err(errno) if tree.stands() => return Err(errno),
            _ => {}
        }
    }
}

impl<'t, 'r> Tree<'t, 'r> {
    /// Looks at the mounts, and first finishes the change that is under way. The caller holds no lock.
    pub fn look(task: &'t Task<'r>) -> Self {
        order::idle(order::of(&task.lane.holding));
        Tree { task, turn: mount_change::settle(&task.region) }
    }

    /// Whether nothing has changed since.
    pub(crate) fn stands(&self) -> bool {
        mount_change::stands(&self.task.region, self.turn)
    }

    pub(super) fn record(&self, id: MountId) -> &'r Mount {
        self.task.region.mount(id)
    }

    pub(super) fn run(&self) -> u32 {
        self.task.process.run.load(Ordering::Relaxed) // Relaxed: immutable.
    }

    /// Where a mount stands.
    pub fn standing(&self, id: MountId) -> Standing {
        self.task.region.standing(id, self.record(id).state())
    }

    /// The record that has the place of a mount.
    fn place_of(&self, id: MountId) -> MountId {
        let at = self.record(id).state().at();
        if at.is_some() { at } else { id }
    }

    /// The next unused number for a mount.
    pub fn serial(&self) -> u32 {
        self.task.region.header().mount_serial.fetch_add(1, Ordering::Relaxed) + 1 // Relaxed: a count.
    }

    /// Whether a record is of the caller's run.
    pub(super) fn is_own(&self, id: MountId) -> bool {
        self.record(id).run.load(Ordering::Relaxed) == self.run() // Relaxed: immutable while in use.
    }

    /// Whether a mount is in the tree of the caller's run (the kernel's check_mnt).
    pub fn holds(&self, id: MountId) -> bool {
        self.record(id).state().kind() == mount_state::ATTACHED && self.is_own(id)
    }

    /// Whether a mount is the top of a tree of the caller's run that no path leads to (the kernel's
    /// anon_ns_root).
    pub(crate) fn is_adrift(&self, id: MountId) -> bool {
        mounts::top_adrift(self.task, id) == Some(id) && self.is_own(id)
    }

    /// Whether a mount may be copied: it is in a tree of the caller's run (the kernel's may_copy_tree).
    pub(crate) fn may_copy(&self, id: MountId) -> bool {
        mounts::is_in_a_tree(self.task, id, self.record(id).state()) && self.is_own(id)
    }

    /// The mounts whose mount point is in `parent`.
    pub fn children(&self, parent: MountId) -> impl Iterator<Item = MountId> + use<'t, 'r> {
        let region = self.task.region;
        mounts::of_run(self.task, self.run())
            .filter(move |id| region.standing(*id, region.mount(*id).state()).parent == parent)
    }

    /// Claims a free record; [`Tree::release`] gives it back unless it is linked in.
    ///
    /// # Errors
    /// `ENOSPC`, as beyond `fs.mount-max`.
    fn claim(&self) -> Result<MountId> {
        let header = self.task.region.header();
        let limit = header.mount_limit.load(Ordering::Relaxed); // Relaxed: a hint.
        let (span, most, serial) = (limit.max(31), MOUNTS as u32 - 1, self.serial());
        // The record that was freed last is not the next to be used.
        let wanted = (0..most).map(|step| MountId(1 + serial.wrapping_add(step) % span)).take(span as usize);
        let beyond = (span + 1..=most).map(MountId);
        let id = wanted.chain(beyond).find(|id| self.try_claim(*id)).ok_or(Errno::ENOSPC)?;
        // Relaxed, below too: published by the change.
        self.record(id).serial.store(serial, Ordering::Relaxed);
        header.mount_limit.fetch_max(id.0, Ordering::AcqRel);
        Ok(id)
    }

    fn try_claim(&self, id: MountId) -> bool {
        let record = self.record(id);
        let is_free = || record.state().kind() == mount_state::FREE;
        let maker = record.maker.load(Ordering::Acquire);
        let is_left = maker != self.task.lane_id.0 && (maker == 0 || self.task.is_dead(LaneId(maker)));
        if !is_free() || !is_left {
            return false;
        }
        let to = self.task.lane_id.0;
        if record.maker.compare_exchange(maker, to, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        // What a maker did before it gave the record back, or died, is seen by now. A walk on its way through
        // the mount that the record was, and a file opened there since, keep it.
        let is_ours = self.stands() && is_free() && !self.is_walked(id) && !self.is_used(id);
        if !is_ours {
            record.maker.store(0, Ordering::Release);
        }
        is_ours
    }

    /// Gives back what the caller has claimed.
    fn release(&self) {
        for id in all(self.task) {
            let maker = &self.record(id).maker;
            // Relaxed: the caller's own, or somebody else's.
            if maker.load(Ordering::Relaxed) == self.task.lane_id.0 {
                maker.store(0, Ordering::Release);
            }
        }
    }

    /// Claims a record and fills it in.
    ///
    /// # Errors
    /// `ENOSPC`, as past `fs.mount-max`.
    pub fn make(&self, making: &Making<'_>) -> Result<MountId> {
        let id = self.claim()?;
        let record = self.record(id);
        // Relaxed throughout: published by the change.
        let closed = superblock::is_read_only(self.task, making.superblock);
        let flags = making.flags | if closed { mount_flags::SB_READ_ONLY } else { 0 };
        record.flags.store(flags, Ordering::Relaxed);
        record.run.store(self.run(), Ordering::Relaxed);
        record.root.store(making.root.to_word(), Ordering::Relaxed);
        record.superblock.store(making.superblock, Ordering::Relaxed);
        record.groups.store(Groups::default().to_word().into(), Ordering::Relaxed);
        self.place(id, MountId::NONE, InodeRef::NONE, DirentId::NONE);
        let source = making.source.iter().take(SOURCE - 1).chain(core::iter::repeat(&0));
        for (to, from) in record.source.iter().zip(source) {
            to.store(*from, Ordering::Relaxed);
        }
        mount_owner::begin(self.task, record);
        Ok(id)
    }

    /// Says where a claimed record stands.
    pub(super) fn place(&self, id: MountId, parent: MountId, point: InodeRef, dirent: DirentId) {
        let record = self.record(id);
        // Relaxed throughout: published by the change.
        record.parent.store(parent.0, Ordering::Relaxed);
        record.point.store(point.to_word(), Ordering::Relaxed);
        record.point_dirent.store(dirent.0, Ordering::Relaxed);
    }

    /// A copy of a record, for a bind mount of `root`; `is_top`: of the mount that was asked for.
    ///
    /// # Errors
    /// Those of [`Tree::make`].
    pub(super) fn copy(&self, of: MountId, root: InodeRef, is_top: bool) -> Result<MountId> {
        let record = self.record(of);
        let mut source = [0; SOURCE];
        for (to, from) in source.iter_mut().zip(&record.source) {
            *to = from.load(Ordering::Relaxed); // Relaxed: immutable while in use.
        }
        let end = source.iter().position(|byte| *byte == 0).unwrap_or(SOURCE);
        let made = self.make(&Making {
            root,
            superblock: record.superblock.load(Ordering::Relaxed),
            flags: record.flags.load(Ordering::Relaxed) & mount_flags::OWN,
            source: &source[..end],
        })?;
        mount_owner::inherit(record, self.record(made), is_top);
        Ok(made)
    }

    /// A proposal that will mount something on top of what is at a place.
    ///
    /// # Errors
    /// `ENOENT` when what is there has been removed.
    pub(super) fn on(&self, point: Point) -> Result<Draft<'r>> {
        let locked = self.cover(point.spot.inode, point.dirent)?;
        let point = Some((point.spot.inode, point.dirent));
        Ok(Draft { locked: Some(locked), point, ..Draft::default() })
    }

    /// Adds to a proposal that a mount moves to a place.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub(super) fn put(&self, draft: &mut Draft<'r>, id: MountId, to: Point) -> Result<()> {
        let place = self.claim()?;
        self.place(place, to.spot.mount, to.spot.inode, to.dirent);
        draft.plan.change(id).place = place;
        Ok(())
    }

    /// Says of an inode, and of the entry that names it, that something may be mounted there; locks it.
    fn cover(&self, point: InodeRef, dirent: DirentId) -> Result<Locked<'r>> {
        let task = self.task;
        let inode = task.region.inode(point.id);
        let locked = inode::lock(task, point.id);
        let is_gone = inode.generation.load(Ordering::Acquire) != point.generation || inode.is_dead();
        if is_gone {
            return Err(Errno::ENOENT);
        }
        // Before the change: whoever sees the mount finds the inode covered.
        inode.acl.fetch_or(COVERED, Ordering::Release);
        if dirent.is_some() {
            dirent::cover(task.region.dirent(dirent));
        }
        Ok(locked)
    }

    /// Makes a proposed change, unless another came before.
    fn make_so(&self, draft: Draft<'r>) -> bool {
        let (task, plan) = (self.task, draft.plan);
        let mut left = List::default();
        plan.moves().for_each(|(id, _)| left.push(self.place_of(id)));
        let shift = tree::shift(task);
        let made = mount_change::make(&task.region, task.lane_id, self.turn, &plan);
        drop(shift);
        drop(draft.locked);
        if made {
            // A place that was left and is somebody else's by now is looked at in vain.
            // Mounts of runs that have ended leave too; the caller has not mounted there.
            let leaving = plan.leaving().filter(|id| self.is_own(*id)).map(|id| self.place_of(id));
            for at in leaving.chain(left.iter()) {
                let at = self.record(at);
                let point = InodeRef::from_word(at.point.load(Ordering::Relaxed));
                self.uncover(point, DirentId(at.point_dirent.load(Ordering::Relaxed)));
            }
        } else if let Some((point, dirent)) = draft.point {
            self.uncover(point, dirent);
        }
        made
    }

    /// `id` and all mounts below it.
    pub(crate) fn subtree(&self, id: MountId) -> Set {
        let mut set = Set::default();
        set.add(id);
        let mut grows = true;
        while grows {
            grows = false;
            for mount in mounts::of_run(self.task, self.run()) {
                if !set.has(mount) && set.has(self.standing(mount).parent) {
                    set.add(mount);
                    grows = true;
                }
            }
        }
        set
    }

    /// Says of an inode, and of an entry that names it, that nothing is mounted there, if that is so and no
    /// living thread has the inode's lock. Nobody is waited for, and only who has mounted or unmounted there
    /// does it: others would keep the inode from its users if they were stopped here. Where it is not done
    /// walks look at the mounts in vain.
    fn uncover(&self, point: InodeRef, dirent: DirentId) {
        let region = self.task.region;
        if point == InodeRef::NONE {
            return;
        }
        let Some(_locked) = inode::lock_unless_held(self.task, point.id) else { return };
        let inode = region.inode(point.id);
        // It may have been removed since, by a run that did not know of one that had ended.
        if inode.generation.load(Ordering::Acquire) != point.generation {
            return;
        }
        // Nobody makes a mount here meanwhile: that takes the inode's lock until the change is carried out.
        let here = |id: MountId| {
            let state = self.record(id).state();
            let at = region.standing(id, state);
            (at.point == point && mounts::is_in_a_tree(self.task, id, state)).then_some(at.dirent)
        };
        let entry = region.dirent(dirent);
        let is_entry = dirent.is_some() && dirent::lives(entry) && dirent::target(entry) == point;
        if is_entry && !all(self.task).filter_map(here).any(|other| other == dirent) {
            dirent::uncover(entry);
        }
        if all(self.task).filter_map(here).next().is_none() {
            inode.acl.fetch_and(!COVERED, Ordering::Release);
        }
    }

    /// The mounts of runs that have ended.
    pub fn of_dead_runs(&self) -> Set {
        let mut dead = Set::default();
        for id in all(self.task) {
            let record = self.record(id);
            let run = lp_region::RunId(record.run.load(Ordering::Relaxed));
            let is_dead = record.state().kind() == mount_state::ATTACHED
                && run.0 != self.run()
                && !self.task.region.run_is_held(run);
            if is_dead {
                dead.add(id);
            }
        }
        dead
    }

    /// The mount of the command line that shows root number `root`, if it is there.
    pub fn base_of(&self, root: u32) -> Option<MountId> {
        mounts::of_run(self.task, self.run()).find(|id| {
            // Relaxed: immutable.
            self.standing(*id).parent.is_none() && self.record(*id).superblock.load(Ordering::Relaxed) == root
        })
    }

    /// The run's word for its mount number `index`.
    pub fn base(&self, index: u32) -> &'r AtomicU32 {
        &self.task.run.bases[index as usize & 15]
    }
}
