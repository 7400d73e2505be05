//! rename(2), renameat(2), renameat2(2).

use lp_abi::linux::{RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT, S_IFCHR};
use lp_abi::{Errno, Result};
use lp_region::records::Inode;
use lp_region::sync::Ordering;
use lp_region::{InodeId, InodeRef};

use crate::change::{self, Change, Directory, Links, Moved, Retarget};
use crate::hash::{self, Hit, Load};
use crate::inode::Locked;
use crate::link::Two;
use crate::name::Place;
use crate::permission::{self, Victim, WRITE};
use crate::task::{self, Task};
use crate::tree::{Paths, Tree};
use crate::walk::{Last, Parent, Which};
use crate::{dir, dirent, inode, tree, unlink, walk, writer};

/// Directories above one another before a damaged region is suspected.
const DEPTH: u32 = 1 << 20;

/// What a rename does with a name that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// Replaces it.
    Replace,
    /// Refuses.
    NoReplace,
    /// Changes places with it.
    Exchange,
}

/// What a rename leaves under the old name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Behind {
    /// Nothing.
    Nothing,
    /// A whiteout.
    Whiteout,
}

/// Gives what a path names another name, in one step for whoever looks at either.
///
/// # Errors
/// Those of path_resolution(7) and rename(2): `EINVAL`, `EXDEV`, `EBUSY`, `EEXIST`, `ENOENT`, `ENOTDIR`, `EISDIR`,
/// `ENOTEMPTY`, `EACCES`, `EPERM`, `EROFS`, `ENOSPC`.
pub fn renameat2(
    task: &Task<'_>,
    old_dirfd: i32,
    old: *const u8,
    new_dirfd: i32,
    new: *const u8,
    flags: u32,
) -> Result<Two> {
    let (mode, behind) = what(flags)?;
    for _ in 0..walk::TRIES {
        let from = match walk::parent(task, old_dirfd, old, Which::Path)? {
            task::Place::Inside(parent) => task::Place::Inside(parent),
            task::Place::Outside(outside) => task::Place::Outside(walk::keep(task, outside, Which::Path)?),
        };
        let to = walk::parent(task, new_dirfd, new, Which::Other)?;
        let (from, to) = match (from, to) {
            (task::Place::Inside(from), task::Place::Inside(to)) => (from, to),
            (task::Place::Outside(old), task::Place::Outside(new)) => {
                return Ok(Two::Outside { old, new: walk::keep(task, new, Which::Other)? });
            }
            _ => return Err(Errno::EXDEV),
        };
        match rename_at(task, &from, &to, mode, behind) {
            Err(Errno::ESTALE) => {}
            done => return done.map(|()| Two::Done),
        }
    }
    Err(Errno::ESTALE)
}

fn what(flags: u32) -> Result<(Mode, Behind)> {
    let behind = if flags & RENAME_WHITEOUT != 0 { Behind::Whiteout } else { Behind::Nothing };
    let mode = match flags & !RENAME_WHITEOUT {
        0 => Mode::Replace,
        RENAME_NOREPLACE => Mode::NoReplace,
        RENAME_EXCHANGE if behind == Behind::Nothing => Mode::Exchange,
        _ => return Err(Errno::EINVAL),
    };
    Ok((mode, behind))
}

fn rename_at(task: &Task<'_>, from: &Parent, to: &Parent, mode: Mode, behind: Behind) -> Result<()> {
    let (old_dir, new_dir) = (task.region.inode(from.dir.id), task.region.inode(to.dir.id));
    // Relaxed: immutable.
    if old_dir.root.load(Ordering::Relaxed) != new_dir.root.load(Ordering::Relaxed) {
        return Err(Errno::EXDEV);
    }
    if from.last != Last::Name {
        return Err(Errno::EBUSY);
    }
    if to.last != Last::Name {
        return Err(if mode == Mode::NoReplace { Errno::EEXIST } else { Errno::EBUSY });
    }
    let names = (from.name(task), to.name(task));
    let _writing = writer::begin(task, old_dir)?;
    let place = Place::new(to.dir.id, &names.1);
    let find = || -> Result<_> {
        let source = hash::lookup(task.region, from.dir.id, &names.0).ok_or(Errno::ENOENT)?;
        Ok((source, hash::lookup_at(task.region, &place)))
    };
    let mut held = Held::lock(task, from.dir, to.dir, Paths::Stay)?;
    let (mut source, mut target) = find()?;
    let is_dir = |hit: Hit| dir::is(task.region.inode(hit.target().id));
    let moves_dir = is_dir(source) || mode == Mode::Exchange && target.is_some_and(is_dir);
    if moves_dir {
        drop(held);
        held = Held::lock(task, from.dir, to.dir, Paths::Change)?;
        (source, target) = find()?;
    }
    let rename = Rename { task, old: from.dir.id, new: to.dir.id, source, target, mode, behind };
    rename.check_names(from.trailing_slash, to.trailing_slash)?;
    held.check_ancestors(&rename)?;
    if target.is_some_and(|target| target.target() == source.target()) {
        return Ok(());
    }
    rename.check_permissions()?;
    let inodes = lock_inodes(task, source.target().id, target.map(|hit| hit.target().id));
    let load = rename.perform(&place)?;
    drop(inodes);
    drop(held);
    if load == Load::Crowded {
        hash::split(task);
    }
    if mode != Mode::Exchange {
        unlink::removed(task, target.map_or(InodeId::NONE, |hit| hit.target().id));
    }
    Ok(())
}

/// Locks what a rename changes besides the directories: directories first, then the lower index. None of them is one of
/// the directories that are locked already, nor above one.
fn lock_inodes<'r>(task: &Task<'r>, one: InodeId, other: Option<InodeId>) -> [Option<Locked<'r>>; 2] {
    let order = |id: InodeId| (!dir::is(task.region.inode(id)), id);
    let other = other.filter(|other| *other != one);
    let first = other.filter(|other| order(*other) < order(one)).unwrap_or(one);
    let second = if first == one { other } else { Some(one) };
    let first = inode::lock(task, first);
    [second.map(|id| inode::lock(task, id)), Some(first)]
}

/// The locks of the directories of a rename.
struct Held<'t, 'r> {
    task: &'t Task<'r>,
    // Given back in this order.
    _locks: [Option<Locked<'r>>; 2],
    _tree: Option<Tree<'t, 'r>>,
}

impl<'t, 'r> Held<'t, 'r> {
    /// Locks both directories, like `lock_rename`, and the tree if there are two or a directory moves: it may be one of two
    /// that are locked besides.
    fn lock(task: &'t Task<'r>, old: InodeRef, new: InodeRef, paths: Paths) -> Result<Self> {
        if old == new {
            let tree = (paths == Paths::Change).then(|| tree::lock(task, paths));
            return Ok(Held { task, _locks: [Some(dir::enter(task, old)?), None], _tree: tree });
        }
        let tree = tree::lock(task, paths);
        let (first, second) = if is_ancestor(task, old.id, new.id) {
            (old, new)
        } else if is_ancestor(task, new.id, old.id) || new.id < old.id {
            (new, old)
        } else {
            (old, new)
        };
        let first = dir::lock(task, first)?;
        Ok(Held { task, _locks: [Some(dir::lock(task, second)?), Some(first)], _tree: Some(tree) })
    }

    /// Refuses to put a directory below itself.
    fn check_ancestors(&self, rename: &Rename<'_, '_>) -> Result<()> {
        if rename.old == rename.new {
            return Ok(());
        }
        let is_above = |hit: InodeRef, dir: InodeId| hit.id == dir || is_ancestor(self.task, hit.id, dir);
        if is_above(rename.source.target(), rename.new) {
            return Err(Errno::EINVAL);
        }
        match rename.target {
            Some(hit) if is_above(hit.target(), rename.old) => {
                Err(if rename.mode == Mode::Exchange { Errno::EINVAL } else { Errno::ENOTEMPTY })
            }
            _ => Ok(()),
        }
    }
}

/// Whether directory `above` is above `below`. The caller holds `rename_lock`.
fn is_ancestor(task: &Task<'_>, above: InodeId, below: InodeId) -> bool {
    let mut at = below;
    for _ in 0..DEPTH {
        let up = InodeId(task.region.inode(at).parent.load(Ordering::Relaxed)); // Relaxed: under rename_lock.
        if up == above {
            return at != above;
        }
        if up == at || up.is_none() {
            return false;
        }
        at = up;
    }
    false
}

/// A rename whose names have been looked up. Both directories are locked.
struct Rename<'t, 'r> {
    task: &'t Task<'r>,
    old: InodeId,
    new: InodeId,
    source: Hit,
    target: Option<Hit>,
    mode: Mode,
    behind: Behind,
}

impl<'r> Rename<'_, 'r> {
    fn inode(&self, id: InodeId) -> &'r Inode {
        self.task.region.inode(id)
    }

    fn is_dir(&self, hit: Hit) -> bool {
        dir::is(self.inode(hit.target().id))
    }

    fn check_names(&self, old_slash: bool, new_slash: bool) -> Result<()> {
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

    /// As vfs_rename checks them.
    fn check_permissions(&self) -> Result<()> {
        let task = self.task;
        let (old_dir, new_dir) = (self.inode(self.old), self.inode(self.new));
        let victim = |is_dir: bool| if is_dir { Victim::Directory } else { Victim::File };
        let is_dir = self.is_dir(self.source);
        permission::may_delete(task, old_dir, self.inode(self.source.target().id), victim(is_dir))?;
        let new_is_dir = self.target.is_some_and(|target| self.is_dir(target));
        match self.target {
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

    fn perform(&self, place: &Place<'_, '_>) -> Result<Load> {
        match self.target {
            Some(target) if self.mode == Mode::Exchange => Ok(self.exchange(target)),
            Some(target) => self.replace(target),
            None => self.move_to(place),
        }
    }

    /// The directories before the change; the second is none if they are one.
    fn dirs(&self) -> [Directory; 2] {
        let old = dir::now(self.task.region, self.old);
        let new = if self.old == self.new { InodeId::NONE } else { self.new };
        [old, Directory { id: new, ..dir::now(self.task.region, self.new) }]
    }

    fn same_links(&self, hit: Hit) -> Links {
        // Relaxed: under the inode's lock.
        Links { id: hit.target().id, nlink: self.inode(hit.target().id).nlink.load(Ordering::Relaxed) }
    }

    /// Both entries swap what they name.
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

    /// The entry of the new name names the source; what it named loses a link.
    fn replace(&self, target: Hit) -> Result<Load> {
        let victim = self.inode(target.target().id);
        let is_dir = self.is_dir(self.source);
        // Relaxed: under its lock.
        if is_dir && victim.entries.load(Ordering::Relaxed) != 0 {
            return Err(Errno::ENOTEMPTY);
        }
        let mut change = Change::at(self.task.now());
        change.dirs = self.dirs();
        change.retargeted[0] = Retarget { dirent: target.dirent(), target: self.source.target() };
        let nlink = if is_dir { 0 } else { unlink::fewer_links(victim) };
        change.inodes = [self.same_links(self.source), Links { id: target.target().id, nlink }];
        if is_dir {
            change.moved[0] = Moved { id: self.source.target().id, parent: self.new };
            // The directory that goes was counted where the one that comes is.
            change.dirs[0].nlink = change.dirs[0].nlink.saturating_sub(1);
        }
        self.leave(&mut change)?;
        Ok(change::perform(self.task, &change))
    }

    /// A new entry names the source.
    fn move_to(&self, place: &Place<'_, '_>) -> Result<Load> {
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
        if let Err(errno) = self.leave(&mut change) {
            dirent::discard(task.region, task.lane, entry);
            return Err(errno);
        }
        Ok(change::perform(task, &change))
    }

    /// Adds to a change what happens to the old name.
    fn leave(&self, change: &mut Change) -> Result<()> {
        if self.behind == Behind::Nothing {
            change.removed = self.source.dirent();
            change.dirs[0].entries = change.dirs[0].entries.saturating_sub(1);
            if change.added.is_none() || self.old != self.new {
                change.dirs[0].tail = dir::tail_without(self.task.region, self.source.dirent());
            }
            return Ok(());
        }
        let whiteout = inode::create(self.task, self.inode(self.old), S_IFCHR, 0)?;
        let at = usize::from(change.retargeted[0].dirent.is_some());
        change.retargeted[at] = Retarget { dirent: self.source.dirent(), target: whiteout };
        Ok(())
    }
}
