//! Mounts that join the tree: where a mount is shared, its peers and slaves get copies (the kernel's
//! propagate_mnt). A copy goes below what stands in its place already.

use lp_abi::Result;
use lp_region::layout::MOUNTS;
use lp_region::mount::Groups;
use lp_region::mount_change::Set;
use lp_region::sync::Ordering;
use lp_region::{DirentId, InodeId, InodeRef, MountId};

use crate::life::mount_list::List;
use crate::life::mount_peers::{Peers, Propagation};
use crate::life::mount_tree::{Draft, Point, Tree};
use crate::names::{mounts, tree};

/// Copies made for the mounts that receive.
struct Copies<'a> {
    /// The tree that is copied.
    of: &'a List,
    made: List,
    /// Position in `made` of the copies in each mount.
    starts: [u8; MOUNTS],
    /// The first mount with copies in each group.
    first: [u8; MOUNTS],
    /// The mount in which the tree itself will be.
    origin: MountId,
}

impl Copies<'_> {
    /// The copy, in a mount, of what is at a position in the tree.
    fn at(&self, mount: MountId, index: usize) -> MountId {
        match mount == self.origin {
            true => self.of.at(index),
            false => self.made.at(usize::from(self.starts[mount.index() % MOUNTS]) + index),
        }
    }

    /// The first mount with copies in a group; none without.
    fn in_group(&self, group: u8) -> MountId {
        MountId(self.first[usize::from(group)].into())
    }
}

impl<'r> Tree<'_, 'r> {
    /// A mount and those below it that `wanted` selects, parents first, else older ones first.
    pub(crate) fn branch(&self, top: MountId, wanted: impl Fn(MountId) -> bool) -> List {
        let (mut list, mut seen) = (List::default(), Set::default());
        list.push(top);
        seen.add(top);
        // Relaxed: immutable while in use.
        let serial = |id: &MountId| self.record(*id).serial.load(Ordering::Relaxed);
        let kind = self.record(top).state().kind();
        let is_next = |seen: &Set, id: &MountId| {
            let is_in_tree = self.record(*id).state().kind() == kind && self.is_own(*id);
            is_in_tree && !seen.has(*id) && seen.has(self.standing(*id).parent) && wanted(*id)
        };
        while let Some(next) = mounts::all(self.task).filter(|id| is_next(&seen, id)).min_by_key(serial) {
            list.push(next);
            seen.add(next);
        }
        list
    }

    /// Copies a list that [`Tree::branch`] gave; its first mount is to show `root`.
    ///
    /// # Errors
    /// Those of [`Tree::make`].
    pub(crate) fn copy_all(&self, peers: &mut Peers, of: &List, root: InodeRef) -> Result<List> {
        let mut list = List::default();
        for (index, id) in of.iter().enumerate() {
            let shown = if index == 0 { root } else { self.record(id).root() };
            let copy = self.copy(id, shown, index == 0)?;
            self.place_as(of, &list, 0, (index, copy));
            peers.copy(id, copy);
            list.push(copy);
        }
        Ok(list)
    }

    /// Says that `copy`, of what is at a position in `of`, stands below the copy of its parent. The copies
    /// begin at `start` in `copies`.
    fn place_as(&self, of: &List, copies: &List, start: usize, (index, copy): (usize, MountId)) {
        let from = self.standing(of.at(index));
        if let Some(parent) = of.position(from.parent).filter(|_| index != 0) {
            self.place(copy, copies.at(start + parent), from.point, from.dirent);
        }
    }

    /// Proposes to link a tree of mounts that was made in on top of what is at `point`, and copies of it
    /// wherever that propagates to.
    ///
    /// # Errors
    /// `ENOENT` when what is there has been removed; `ENOSPC`.
    pub(crate) fn graft(&self, peers: &mut Peers, list: &List, point: Point) -> Result<Draft<'r>> {
        let mut draft = self.on(point)?;
        let top = list.at(0);
        self.place(top, point.spot.mount, point.spot.inode, point.dirent);
        draft.join(list);
        self.propagate(peers, list, point, &mut draft)?;
        draft.regroup(self.task, peers);
        Ok(draft)
    }

    /// Proposes that a list of mounts that was made becomes a tree that no path leads to: its top stands in
    /// itself.
    pub(crate) fn set_adrift(&self, peers: &Peers, list: &List) -> Draft<'r> {
        self.place(list.at(0), list.at(0), InodeRef::NONE, DirentId::NONE);
        Draft::of_drifting(self.task, peers, list)
    }

    /// Proposes to move a mount, with those of `list` below it, on top of what is at `point`, and to link
    /// copies in wherever that propagates to. They may be a tree that no path leads to.
    ///
    /// # Errors
    /// As [`Tree::graft`].
    pub(crate) fn transplant(&self, peers: &mut Peers, list: &List, point: Point) -> Result<Draft<'r>> {
        let mut draft = self.on(point)?;
        self.propagate(peers, list, point, &mut draft)?;
        self.put(&mut draft, list.at(0), point)?;
        draft.raise(self.task, list);
        draft.regroup(self.task, peers);
        Ok(draft)
    }

    fn propagate(&self, peers: &mut Peers, list: &List, point: Point, draft: &mut Draft<'r>) -> Result<()> {
        let origin = point.spot.mount;
        if !peers.is_shared(origin) {
            return Ok(());
        }
        for id in list.iter() {
            peers.change(id, Propagation::Shared)?;
        }
        let (made, starts, first) = (List::default(), [0; MOUNTS], [0; MOUNTS]);
        let mut copies = Copies { of: list, made, starts, first, origin };
        copies.first[usize::from(peers.get(origin).peers)] = origin.0 as u8;
        for receiver in peers.receivers(origin).iter().filter(|id| self.shows(*id, point)) {
            let start = copies.made.len();
            self.copy_into(peers, &mut copies, receiver)?;
            self.place(copies.made.at(start), receiver, point.spot.inode, point.dirent);
        }
        draft.join(&copies.made);
        Ok(())
    }

    /// Makes the copies for one mount that receives. They are peers of those in the mount's peers, and else
    /// slaves of those in the nearest group above that has some.
    fn copy_into(&self, peers: &mut Peers, copies: &mut Copies<'_>, receiver: MountId) -> Result<()> {
        let groups = peers.get(receiver);
        let start = copies.made.len();
        let peer = if groups.is_shared() { copies.in_group(groups.peers) } else { MountId::NONE };
        let mut group = groups.master;
        while copies.in_group(group).is_none() && group != 0 {
            group = peers.master_of(group);
        }
        let master = copies.in_group(group);
        for index in 0..copies.of.len() {
            let of = copies.of.at(index);
            let copy = self.copy(of, self.record(of).root(), false)?;
            self.place_as(copies.of, &copies.made, start, (index, copy));
            let of_copy = match peer.is_some() {
                true => peers.get(copies.at(peer, index)),
                false => Groups {
                    peers: if groups.is_shared() { peers.fresh()? } else { 0 },
                    master: peers.get(copies.at(master, index)).peers,
                },
            };
            peers.set(copy, of_copy);
            copies.made.push(copy);
        }
        copies.starts[receiver.index() % MOUNTS] = start as u8;
        if groups.is_shared() && peer.is_none() {
            copies.first[usize::from(groups.peers)] = receiver.0 as u8;
        }
        Ok(())
    }

    /// Whether a mount shows what is to be covered.
    fn shows(&self, mount: MountId, point: Point) -> bool {
        let (top, inode) = (self.record(mount).root(), point.spot.inode);
        let dir = match self.task.region.inode(inode.id).is_dir() {
            true => inode.id,
            // Relaxed: the entry does not change while the lock of what it names is held.
            false => InodeId(self.task.region.dirent(point.dirent).parent.load(Ordering::Relaxed)),
        };
        top == inode || top.id == dir || tree::is_above(self.task, top.id, dir)
    }
}
