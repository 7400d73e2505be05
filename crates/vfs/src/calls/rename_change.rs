//! A rename whose names have been looked up: its checks, and the change.

use lp_abi::linux::S_IFCHR;
use lp_abi::{Errno, Result};
use lp_region::InodeId;
use lp_region::records::Inode;
use lp_region::sync::Ordering;

use crate::caller::below;
use crate::caller::task::Task;
use crate::inodes::make::NewInode;
use crate::names::change::{self, Change, Directory, Links, Moved, Plain, Retarget, Seats};
use crate::names::dir::{self, Seat};
use crate::names::hash::{Hit, Load};
use crate::names::name::Key;
use crate::names::tree::{self, Marks, Met};
use crate::names::{dirent, mounts, removal};
use crate::rights::initial;
use crate::rights::permission::{self, Victim, WRITE};

/// What a rename does with an existing new name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// Replace it.
    Replace,
    /// Fail.
    NoReplace,
    /// Exchange the two.
    Exchange,
}

/// What a rename leaves at the old name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Behind {
    /// Nothing.
    Nothing,
    /// A whiteout.
    Whiteout,
}

/// Why an attempt stopped.
pub(super) enum Stop {
    /// The rename fails.
    Failed(Errno),
    /// Another lane holds an inode's lock: wait for it with nothing held, then look everything up again.
    Locked(InodeId),
    /// Another lane's move is under way: wait for it likewise.
    Moving(Met),
    /// Names of a directory are still to be taken from the layer below, which must be done with nothing held.
    Pending(InodeId),
}

/// The result of an attempt.
pub(super) type Tried<T> = core::result::Result<T, Stop>;

impl From<Met> for Stop {
    fn from(met: Met) -> Self {
        Stop::Moving(met)
    }
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Stop::Failed(errno)
    }
}

/// A rename whose names have been looked up. Both directories are locked.
pub(super) struct Rename<'t, 'r> {
    pub(super) task: &'t Task<'r>,
    pub(super) old: InodeId,
    pub(super) new: InodeId,
    pub(super) source: Hit,
    pub(super) target: Option<Hit>,
    pub(super) mode: Mode,
    pub(super) behind: Behind,
}

impl<'t, 'r> Rename<'t, 'r> {
    fn inode(&self, id: InodeId) -> &'r Inode {
        self.task.region.inode(id)
    }

    #[inline(always)]
    fn is_dir(&self, hit: Hit) -> bool {
        self.inode(hit.target().id).is_dir()
    }

    fn is_exchange_of_directory(&self) -> bool {
        self.mode == Mode::Exchange && self.target.is_some_and(|hit| self.is_dir(hit))
    }

    #[inline(always)]
    pub(super) fn moves_a_directory(&self) -> bool {
        self.is_dir(self.source) || self.is_exchange_of_directory()
    }

    /// Refuses to put a directory below itself, for a rename to another directory. What moves is marked, so
    /// the answer stays valid.
    pub(super) fn check_ancestors(&self, marks: &mut Marks<'_, '_>) -> Tried<()> {
        if self.is_dir(self.source) {
            marks.add(self.source.target().id);
        }
        if self.is_exchange_of_directory() {
            marks.add(self.target.map_or(InodeId::NONE, |hit| hit.target().id));
        }
        if self.is_dir(self.source) && marks.are_above(self.new)? {
            return Err(Stop::Failed(Errno::EINVAL));
        }
        if self.is_exchange_of_directory() {
            return if marks.are_above(self.old)? { Err(Stop::Failed(Errno::EINVAL)) } else { Ok(()) };
        }
        let target = self.target.filter(|hit| self.is_dir(*hit)).map(|hit| hit.target().id);
        let is_above = |id| id == self.old || tree::is_above(self.task, id, self.old);
        // Linux's `vfs_rename` checks this for whatever is moved there.
        if target.is_some_and(is_above) { Err(Stop::Failed(Errno::ENOTEMPTY)) } else { Ok(()) }
    }

    pub(super) fn check_names(&self, old_slash: bool, new_slash: bool) -> Result<()> {
        let is_dir = self.is_dir(self.source);
        match (self.mode, self.target) {
            (Mode::NoReplace, Some(_)) => return Err(Errno::EEXIST),
            (Mode::Exchange, None) => return Err(Errno::ENOENT),
            (Mode::Exchange, Some(target)) if new_slash && !self.is_dir(target) => {
                return Err(Errno::ENOTDIR);
            }
            _ => {}
        }
        if !is_dir && (old_slash || self.mode != Mode::Exchange && new_slash) {
            return Err(Errno::ENOTDIR);
        }
        Ok(())
    }

    /// Refuses to move or replace something that is a mount point. Both inodes are locked.
    #[inline(always)]
    pub(super) fn check_points(&self) -> Result<()> {
        let is_point = |hit: Hit| mounts::is_point(self.task, hit.target(), hit.dirent());
        match is_point(self.source) || self.target.is_some_and(is_point) {
            true => Err(Errno::EBUSY),
            false => Ok(()),
        }
    }

    /// Checks permissions like the kernel's vfs_rename.
    #[inline(always)]
    pub(super) fn check_permissions(&self) -> Result<()> {
        let task = self.task;
        let (old_dir, new_dir) = (self.inode(self.old), self.inode(self.new));
        let victim = |is_dir: bool| if is_dir { Victim::Directory } else { Victim::File };
        let is_dir = self.is_dir(self.source);
        permission::may_delete(task, old_dir, self.inode(self.source.target().id), victim(is_dir))?;
        let new_is_dir = self.target.is_some_and(|target| self.is_dir(target));
        match self.target {
            // The checks on the old directory were the same.
            None if self.old == self.new => {}
            None => permission::may_create(task, new_dir)?,
            Some(target) => {
                let expected = if self.mode == Mode::Exchange { new_is_dir } else { is_dir };
                permission::may_delete(task, new_dir, self.inode(target.target().id), victim(expected))?;
            }
        }
        if self.old != self.new {
            // `..` of a directory that moves is written.
            if is_dir {
                permission::check(task, self.inode(self.source.target().id), WRITE)?;
            }
            if let Some(target) = self.target
                && self.mode == Mode::Exchange
                && new_is_dir
            {
                permission::check(task, self.inode(target.target().id), WRITE)?;
            }
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) fn perform(&self, place: &Key<'_, '_>) -> Tried<Load> {
        match self.target {
            Some(target) if self.mode == Mode::Exchange => Ok(self.exchange(target)),
            Some(target) => self.replace(target),
            None if self.is_within_a_directory() => Ok(self.move_within(place)?),
            None => Ok(self.move_to(place)?),
        }
    }

    /// The directories before the change; the second is none if they are the same.
    fn dirs(&self) -> [Directory; 2] {
        let old = dir::now(self.task.region, self.old);
        let new = if self.old == self.new { InodeId::NONE } else { self.new };
        [old, Directory { id: new, ..dir::now(self.task.region, self.new) }]
    }

    fn same_links(&self, hit: Hit) -> Links {
        // Relaxed: under the inode's lock.
        Links { id: hit.target().id, nlink: self.inode(hit.target().id).nlink.load(Ordering::Relaxed) }
    }

    /// Swaps the targets of both entries.
    #[inline(never)]
    fn exchange(&self, target: Hit) -> Load {
        let mut change = Change::at(self.task.now());
        change.dirs = self.dirs();
        change.retargeted = [
            Retarget { dirent: target.dirent(), target: self.source.target() },
            Retarget { dirent: self.source.dirent(), target: target.target() },
        ];
        change.inodes = [self.same_links(self.source), self.same_links(target)];
        for (moved, (hit, to)) in change.moved.iter_mut().zip([(self.source, self.new), (target, self.old)]) {
            if self.is_dir(hit) {
                *moved = Moved { id: hit.target().id, parent: to };
            }
        }
        let (source_dir, target_dir) = (self.is_dir(self.source), self.is_dir(target));
        if self.old != self.new && source_dir != target_dir {
            let [old, new] = &mut change.dirs;
            let (gains, loses) = if source_dir { (new, old) } else { (old, new) };
            gains.nlink += 1;
            loses.nlink = loses.nlink.saturating_sub(1);
        }
        change::perform(self.task, &change)
    }

    /// The new name's entry gets the source as target; its old target loses a link.
    #[inline(never)]
    fn replace(&self, target: Hit) -> Tried<Load> {
        let victim = self.inode(target.target().id);
        let is_dir = self.is_dir(self.source);
        if is_dir && below::is_pending(victim) {
            return Err(Stop::Pending(target.target().id));
        }
        // Relaxed: under its lock.
        if is_dir && victim.entries.load(Ordering::Relaxed) != 0 {
            return Err(Errno::ENOTEMPTY.into());
        }
        let mut change = Change::at(self.task.now());
        change.dirs = self.dirs();
        change.retargeted[0] = Retarget { dirent: target.dirent(), target: self.source.target() };
        let nlink = if is_dir { 0 } else { removal::fewer_links(victim) };
        change.inodes = [self.same_links(self.source), Links { id: target.target().id, nlink }];
        if is_dir {
            change.moved[0] = Moved { id: self.source.target().id, parent: self.new };
            // The replaced directory was counted where the moved one is afterwards.
            change.dirs[0].nlink = change.dirs[0].nlink.saturating_sub(1);
        }
        let whiteout = self.leave(&mut change)?;
        Ok(self.carry_out(&change, whiteout))
    }

    /// Whether one directory loses a name of something that is not a directory and gets another.
    fn is_within_a_directory(&self) -> bool {
        self.old == self.new && self.behind == Behind::Nothing && !self.is_dir(self.source)
    }

    /// [`move_to`](Self::move_to) [within a directory](Self::is_within_a_directory).
    #[inline(always)]
    fn move_within(&self, place: &Key<'_, '_>) -> Result<Load> {
        let task = self.task;
        let seat = dir::reserve(task, self.new)?;
        let entry = dirent::take(task.region, task.lane, place, self.source.target())?;
        let mut dir = dir::with_entry(task.region, self.new, entry);
        dir.entries = dir.entries.saturating_sub(1);
        let (removed, links) = (self.source.dirent(), self.same_links(self.source));
        let left = Seat::of(task.region, self.inode(self.old), removed);
        let seats = Seats { added: Some(seat), removed: left };
        Ok(change::perform_plain(task, &Plain { dir, added: entry, removed, links, time: task.now() }, seats))
    }

    /// A new entry gets the source as target.
    #[inline(never)]
    fn move_to(&self, place: &Key<'_, '_>) -> Result<Load> {
        let task = self.task;
        dir::reserve(task, self.new)?;
        let entry = dirent::take(task.region, task.lane, place, self.source.target())?;
        let mut change = Change::at(task.now());
        change.dirs = self.dirs();
        let at = usize::from(self.old != self.new);
        change.dirs[at] = dir::with_entry(task.region, self.new, entry);
        change.added = entry;
        change.inodes[0] = self.same_links(self.source);
        if self.is_dir(self.source) {
            change.moved[0] = Moved { id: self.source.target().id, parent: self.new };
            change.dirs[at].nlink += 1;
            change.dirs[0].nlink = change.dirs[0].nlink.saturating_sub(1);
        }
        match self.leave(&mut change) {
            Ok(whiteout) => Ok(self.carry_out(&change, whiteout)),
            Err(errno) => {
                dirent::discard(task.region, task.lane, entry);
                Err(errno)
            }
        }
    }

    fn carry_out(&self, change: &Change, whiteout: Option<NewInode>) -> Load {
        let load = change::perform(self.task, change);
        if let Some(whiteout) = whiteout {
            whiteout.linked_in();
        }
        load
    }

    /// Adds to a change what happens to the old name. Returns the whiteout that it then names.
    fn leave(&self, change: &mut Change) -> Result<Option<NewInode<'t, 'r>>> {
        if self.behind == Behind::Nothing {
            change.removed = self.source.dirent();
            change.dirs[0].entries = change.dirs[0].entries.saturating_sub(1);
            if change.added.is_none() || self.old != self.new {
                change.dirs[0].tail = dir::tail_without(self.task.region, self.source.dirent());
            }
            return Ok(None);
        }
        let whiteout = initial::create(self.task, self.inode(self.old), S_IFCHR, 0)?;
        let at = usize::from(change.retargeted[0].dirent.is_some());
        change.retargeted[at] = Retarget { dirent: self.source.dirent(), target: whiteout.inode() };
        Ok(Some(whiteout))
    }
}
