//! Peer groups of mounts (mount_namespaces(7)), like the kernel's `pnode.c`: who receives a mount or an
//! unmount, and what the groups become. All of it is worked out on a copy, which a
//! [`Draft`](super::mount_tree::Draft) makes part of its change.

use lp_abi::{Errno, Result};
use lp_region::MountId;
use lp_region::layout::MOUNTS;
use lp_region::mount::Groups;
use lp_region::mount_change::{Plan, Set};

use crate::caller::task::Task;
use crate::life::mount_list::List;
use crate::names::mounts::{all, is_in_a_tree, top_adrift};

/// How mounts and unmounts in a mount propagate: a type of mount(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Propagation {
    /// `MS_SHARED`.
    Shared,
    /// `MS_SLAVE`.
    Slave,
    /// `MS_PRIVATE`.
    Private,
    /// `MS_UNBINDABLE`.
    Unbindable,
}

/// The groups of all mounts in trees, as they are to become.
pub(crate) struct Peers {
    now: [Groups; MOUNTS],
    /// The mounts that were in trees.
    known: Set,
    /// Those of them to which no path leads. They keep their groups, and receive nothing.
    adrift: Set,
}

impl Peers {
    /// As they are.
    pub(crate) fn of(task: &Task<'_>) -> Peers {
        let none = Set::default();
        let mut peers = Peers { now: [Groups::default(); MOUNTS], known: none, adrift: none };
        for id in all(task) {
            let record = task.region.mount(id);
            if is_in_a_tree(task, id, record.state()) {
                peers.known.add(id);
                peers.set(id, record.groups());
            }
            if top_adrift(task, id).is_some() {
                peers.adrift.add(id);
            }
        }
        peers
    }

    /// The groups of a mount.
    pub(crate) fn get(&self, id: MountId) -> Groups {
        self.now[id.index() % MOUNTS]
    }

    /// Says what the groups of a mount become.
    pub(crate) fn set(&mut self, id: MountId, groups: Groups) {
        self.now[id.index() % MOUNTS] = groups;
    }

    /// Whether a mount sends to others.
    pub(crate) fn is_shared(&self, id: MountId) -> bool {
        self.get(id).is_shared()
    }

    /// Whether a group has a member.
    fn has(&self, group: u8) -> bool {
        self.now.iter().any(|groups| groups.is_shared() && groups.peers == group)
    }

    /// The lowest number that names no group.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub(crate) fn fresh(&self) -> Result<u8> {
        (1..u8::MAX).find(|group| !self.has(*group)).ok_or(Errno::ENOSPC)
    }

    /// Changes the type of a mount (the kernel's change_mnt_propagation).
    ///
    /// # Errors
    /// `ENOSPC` if there is no number for a new group.
    pub(crate) fn change(&mut self, id: MountId, to: Propagation) -> Result<()> {
        let was = self.get(id);
        if to == Propagation::Shared {
            if !was.is_shared() {
                let master = if was == Groups::UNBINDABLE { 0 } else { was.master };
                let peers = self.fresh()?;
                self.set(id, Groups { peers, master });
            }
            return Ok(());
        }
        // As there, what must not be bound stays so.
        if was == Groups::UNBINDABLE && to == Propagation::Slave {
            return Ok(());
        }
        let master = self.leave(id);
        match to {
            Propagation::Slave => self.set(id, Groups { peers: 0, master }),
            Propagation::Unbindable => self.set(id, Groups::UNBINDABLE),
            Propagation::Private | Propagation::Shared => {}
        }
        Ok(())
    }

    /// Takes a mount out of its groups. Returns the group that is next to its own, if anything is still to be
    /// received from there. Slaves of a group without members become those of its master.
    pub(crate) fn leave(&mut self, id: MountId) -> u8 {
        let was = self.get(id);
        self.set(id, Groups::default());
        if !was.is_shared() {
            return if was == Groups::UNBINDABLE { 0 } else { was.master };
        }
        if self.has(was.peers) {
            return was.peers;
        }
        for groups in &mut self.now {
            if *groups != Groups::UNBINDABLE && groups.master == was.peers {
                groups.master = was.master;
            }
        }
        was.master
    }

    /// What a copy of a mount starts from: it joins the mount's groups.
    pub(crate) fn copy(&mut self, of: MountId, copy: MountId) {
        let groups = self.get(of);
        self.set(copy, if groups == Groups::UNBINDABLE { Groups::default() } else { groups });
    }

    /// The mounts that receive what happens in a mount, groups before their slaves.
    pub(crate) fn receivers(&self, of: MountId) -> List {
        let mut found = List::default();
        if !self.is_shared(of) {
            return found;
        }
        let mut seen = Set::default();
        seen.add(of);
        let mut next = Some(self.get(of).peers);
        let mut done = 0;
        while let Some(group) = next {
            for id in self.known.iter().filter(|id| self.is_shared(*id) && self.get(*id).peers == group) {
                if !seen.has(id) && !self.adrift.has(id) {
                    seen.add(id);
                    found.push(id);
                }
            }
            for id in self.known.iter() {
                let groups = self.get(id);
                let receives = groups != Groups::UNBINDABLE && groups.master == group;
                if receives && !seen.has(id) && !self.adrift.has(id) {
                    seen.add(id);
                    found.push(id);
                }
            }
            // The groups of those that were found and that have not had their turn.
            next = None;
            while next.is_none() && done < found.len() {
                let groups = self.get(found.at(done));
                done += 1;
                next = (groups.is_shared() && groups.peers != group).then_some(groups.peers);
            }
        }
        found
    }

    /// The master of a group.
    pub(crate) fn master_of(&self, group: u8) -> u8 {
        let member = self.now.iter().find(|groups| groups.is_shared() && groups.peers == group);
        member.map_or(0, |groups| groups.master)
    }

    /// Makes what has become of the groups part of a plan: of mounts that stay by the plan, of records that
    /// join at once.
    pub(crate) fn plan(&self, task: &Task<'_>, plan: &mut Plan) {
        for id in self.known.iter() {
            if task.region.mount(id).groups() != self.get(id) {
                plan.change(id).groups = Some(self.get(id).to_word());
            }
        }
        plan.joining.iter().for_each(|id| self.begin(task, id));
    }

    /// Says in a record that was claimed which groups the mount begins with.
    pub(crate) fn begin(&self, task: &Task<'_>, id: MountId) {
        let word = u64::from(self.get(id).to_word());
        // Relaxed: published by the change.
        task.region.mount(id).groups.store(word, lp_region::sync::Ordering::Relaxed);
    }
}
