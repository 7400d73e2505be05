//! Mounts that leave the tree: what was mounted in a shared mount leaves its peers and slaves too (the
//! kernel's propagate_umount).

use lp_abi::Result;
use lp_region::mount_change::Set;
use lp_region::standing::Standing;
use lp_region::sync::Ordering;
use lp_region::{MountId, mount_leave};

use crate::life::mount_peers::Peers;
use crate::life::mount_tree::{Draft, Point, Tree};
use crate::names::mounts;

impl<'r> Tree<'_, 'r> {
    /// Proposes that mounts leave the tree, and with them what propagated to elsewhere with them, unless
    /// something is mounted in it. What is mounted on the root of a mount that goes stands in that one's
    /// place afterwards.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub(crate) fn prune(&self, asked: Set) -> Result<Draft<'r>> {
        let mut peers = Peers::of(self.task);
        let mut leaving = asked;
        for id in asked.iter() {
            self.twins(&peers, id, |twin| leaving.add(twin));
        }
        while let Some(kept) = leaving.iter().find(|id| !asked.has(*id) && self.holds_others(*id, &leaving)) {
            leaving.remove(kept);
        }
        let mut draft = Draft::of_leaving(leaving);
        for id in leaving.iter() {
            for above in self.children(id).filter(|child| !leaving.has(*child)) {
                let at = self.place_left(id, &leaving);
                let spot = lp_region::Spot { inode: at.point, mount: at.parent };
                self.put(&mut draft, above, Point { spot, dirent: at.dirent })?;
            }
            peers.leave(id);
        }
        draft.regroup(self.task, &peers);
        Ok(draft)
    }

    /// Whether an unmount of `id` takes out no mount that is in use, here or elsewhere (the kernel's
    /// propagate_mount_busy). If so, whoever begins to use one of them has this turn fail
    /// ([`lp_region::mount_leave`]).
    pub(crate) fn is_free(&self, id: MountId) -> bool {
        if self.children(id).next().is_some() {
            return false;
        }
        let (peers, mut going) = (Peers::of(self.task), Set::default());
        let alone = Set::default();
        going.add(id);
        self.twins(&peers, id, |twin| {
            if !self.holds_others(twin, &alone) {
                going.add(twin);
            }
        });
        let flags = |id: MountId| &self.record(id).flags;
        going.iter().all(|id| mount_leave::announce(&self.task.region, flags(id), self.turn))
            && !going.iter().any(|id| self.is_used(id))
    }

    /// The mounts that stand where `id` does in the mounts that receive what happens in its parent: above as
    /// many others there, because what propagated there came below the others.
    fn twins(&self, peers: &Peers, id: MountId, mut visit: impl FnMut(MountId)) {
        let at = self.standing(id);
        // Relaxed: immutable while in use.
        let serial = |id: &MountId| self.record(*id).serial.load(Ordering::Relaxed);
        let there = |parent: MountId| {
            self.children(parent).filter(move |child| {
                mounts::is_at(self.task, (*child, self.record(*child).state()), at.point, at.dirent)
            })
        };
        let lower = |than: &MountId, parent: MountId| {
            there(parent).filter(|other| serial(other) > serial(than)).count()
        };
        let below = lower(&id, at.parent);
        for receiver in peers.receivers(at.parent).iter() {
            if let Some(twin) = there(receiver).find(|twin| lower(twin, receiver) == below) {
                visit(twin);
            }
        }
    }

    /// Whether something is mounted in a mount, other than those that leave and than on its root.
    fn holds_others(&self, id: MountId, leaving: &Set) -> bool {
        let root = self.record(id).root();
        self.children(id).any(|child| !leaving.has(child) && self.standing(child).point != root)
    }

    /// The place that is left when mounts leave: of the lowest of those that stand on each other's roots.
    fn place_left(&self, id: MountId, leaving: &Set) -> Standing {
        let mut at = self.standing(id);
        while leaving.has(at.parent) {
            at = self.standing(at.parent);
        }
        at
    }
}

/// The mount that the parent of `id` shows where `id` stands: `id`'s parent, unless others stand in the same
/// place below it.
pub(crate) fn shown_parent(task: &crate::caller::task::Task<'_>, id: MountId) -> MountId {
    let region = task.region;
    let at = region.standing(id, region.mount(id).state());
    // Relaxed: immutable while in use.
    let serial = |id: MountId| region.mount(id).serial.load(Ordering::Relaxed);
    let is_below = |other: &MountId| {
        let state = region.mount(*other).state();
        *other != id
            && at.parent.is_some()
            && serial(*other) > serial(id)
            && region.standing(*other, state).parent == at.parent
            && mounts::is_at(task, (*other, state), at.point, at.dirent)
    };
    let run = region.mount(id).run.load(Ordering::Relaxed);
    mounts::of_run(task, run).filter(is_below).min_by_key(|id| serial(*id)).unwrap_or(at.parent)
}
