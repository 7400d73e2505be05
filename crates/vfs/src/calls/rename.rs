//! rename(2), renameat(2), renameat2(2).

use lp_abi::linux::{RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT, S_IFCHR};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::records::Inode;
use lp_region::sync::Ordering;
use lp_region::{InodeId, InodeRef, Spot};

use crate::caller::below::{self, Need};
use crate::caller::task::{Place, Task};
use crate::calls::landlock::{self, Refer};
use crate::calls::link::Two;
use crate::calls::rename_within::{self, Quick};
use crate::calls::{rename_over, unlink};
use crate::inodes::inode::{self, Locked};
use crate::inodes::make::NewInode;
use crate::lane::writer;
use crate::names::change::{self, Change, Directory, Links, Moved, Plain, Retarget, Seats};
use crate::names::dir::{self, Seat};
use crate::names::hash::{self, Hit, Load};
use crate::names::name::{Key, Name};
use crate::names::tree::{self, Marks, Met};
use crate::names::walk::{self, AtKnown, LastType, Named, PathBuffer, PathText};
use crate::names::{dirent, mounts, removal};
use crate::rights::initial;
use crate::rights::permission::{self, Victim, WRITE};
use crate::watches::watch_names;

/// What a rename does with an existing new name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// Replace it.
    Replace,
    /// Fail.
    NoReplace,
    /// Exchange the two.
    Exchange,
}

/// What a rename leaves at the old name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Behind {
    /// Nothing.
    Nothing,
    /// A whiteout.
    Whiteout,
}

/// What rename(2) does.
const PLAIN: (Mode, Behind) = (Mode::Replace, Behind::Nothing);

/// Renames what a path names, atomically for anyone who looks at either name.
///
/// # Errors
/// Those of path_resolution(7) and rename(2): `EINVAL`, `EXDEV`, `EBUSY`, `EEXIST`, `ENOENT`, `ENOTDIR`,
/// `EISDIR`, `ENOTEMPTY`, `EACCES`, `EPERM`, `EROFS`, `ENOSPC`.
pub fn renameat2(
    task: &Task<'_>,
    old_dirfd: Fd,
    old: UserPtr,
    new_dirfd: Fd,
    new: UserPtr,
    flags: u32,
) -> Result<Two> {
    let how = what(flags)?;
    let text = walk::copy_path(task, PathBuffer::Path, old)?;
    let source = Source { task, from: (old_dirfd, text), to: (new_dirfd, new), how };
    match walk::known(task, old_dirfd, text, source) {
        Some(done) => done.map(|()| Two::Done),
        None => by_walk(task, (old_dirfd, old), (new_dirfd, new), how),
    }
}

/// [`renameat2`] by a thread that may have restricted itself (landlock(7)).
///
/// # Errors
/// Those of [`renameat2`].
pub fn renameat2_checked(
    task: &Task<'_>,
    old_dirfd: Fd,
    old: UserPtr,
    new_dirfd: Fd,
    new: UserPtr,
    flags: u32,
) -> Result<Two> {
    by_walk(task, (old_dirfd, old), (new_dirfd, new), what(flags)?)
}

/// [`renameat2`] from a place that is known.
struct Source<'t, 'r> {
    task: &'t Task<'r>,
    from: (Fd, PathText),
    to: (Fd, UserPtr),
    how: (Mode, Behind),
}

impl<'t> AtKnown<'t> for Source<'t, '_> {
    type End = Result<()>;

    #[inline(always)]
    fn at(self, dir: Spot, name: Name<'t>) -> Option<Result<()>> {
        let Source { task, from, to: (dirfd, path), how } = self;
        // The kernel reports what is wrong with the second path after it has walked the first.
        let text = match walk::copy_path(task, PathBuffer::Other, path) {
            Ok(text) => text,
            Err(errno) => return Some(Err(errno)),
        };
        if how == PLAIN
            && let Some(to) = walk::beside(task, from, (dirfd, text))
        {
            match rename_within::rename(task, dir, &name, &to) {
                Quick::Done => return Some(Ok(())),
                Quick::Missing => return Some(Err(Errno::ENOENT)),
                Quick::Exists if rename_over::rename(task, dir, name, to) => return Some(Ok(())),
                Quick::Exists | Quick::No => {}
            }
        }
        from_known(task, walk::named_in(dir, name), (dirfd, text), how)
    }
}

/// [`renameat2`] from a place that is known to a path that was copied.
#[inline(never)]
fn from_known(
    task: &Task<'_>,
    from: Named<'_>,
    (dirfd, text): (Fd, PathText),
    how: (Mode, Behind),
) -> Option<Result<()>> {
    if !walk::is_current(task, from.dir) {
        return None;
    }
    walk::known(task, dirfd, text, Destination { task, from, how })
}

/// [`renameat2`] between places that are known.
struct Destination<'t, 'r> {
    task: &'t Task<'r>,
    from: Named<'t>,
    how: (Mode, Behind),
}

impl<'t> AtKnown<'t> for Destination<'t, '_> {
    type End = Result<()>;
    const FALLS_BACK: bool = false;

    #[inline(always)]
    fn at(self, dir: Spot, name: Name<'t>) -> Option<Result<()>> {
        match rename_at::<false>(self.task, &self.from, &walk::named_in(dir, name), self.how) {
            Err(Errno::ESTALE) => None,
            done => Some(done),
        }
    }
}

/// [`renameat2`] of any paths.
#[inline(never)]
fn by_walk(
    task: &Task<'_>,
    (old_dirfd, old): (Fd, UserPtr),
    (new_dirfd, new): (Fd, UserPtr),
    how: (Mode, Behind),
) -> Result<Two> {
    for _ in 0..walk::TRIES {
        let turn = mounts::turn(task);
        // Matched by reference: neither is copied.
        let from = match walk::named(task, old_dirfd, old, PathBuffer::Path) {
            Err(Errno::ENAMETOOLONG) => {
                return Err(too_long(task, (old_dirfd, old), (new_dirfd, new), how.0));
            }
            from => from?,
        };
        let kept = match from {
            Place::Inside(_) => None,
            Place::Outside(outside) => Some(walk::keep(task, outside, PathBuffer::Path)?),
        };
        let to = match walk::named(task, new_dirfd, new, PathBuffer::Other) {
            Err(Errno::ENAMETOOLONG) => {
                return Err(too_long(task, (old_dirfd, old), (new_dirfd, new), how.0));
            }
            // The kernel may find an error in the first path.
            Err(_) if kept.is_some() => return Err(Errno::EXDEV),
            to => to?,
        };
        match (&from, &to) {
            (Place::Inside(from), Place::Inside(to)) => match rename_at::<true>(task, from, to, how) {
                Err(Errno::ESTALE) => {}
                // The first path led into a mount that was gone before the second was walked.
                Err(Errno::EXDEV) if turn != mounts::turn(task) => {}
                done => return done.map(|()| Two::Done),
            },
            (Place::Outside(old), Place::Outside(new)) => {
                let old = kept.unwrap_or(*old);
                return Ok(Two::Outside { old, new: walk::keep(task, *new, PathBuffer::Other)? });
            }
            _ => return Err(Errno::EXDEV),
        }
    }
    Err(Errno::ESTALE)
}

/// Whether renameat2(2) accepts the flags.
///
/// # Errors
/// `EINVAL`.
pub fn check_flags(flags: u32) -> Result<()> {
    what(flags).map(drop)
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

/// The first error of a rename in which a path, or its last name, is too long: names are looked up last.
#[cold]
fn too_long(
    task: &Task<'_>,
    (old_dirfd, old): (Fd, UserPtr),
    (new_dirfd, new): (Fd, UserPtr),
    mode: Mode,
) -> Errno {
    let look = || -> Result<()> {
        let (from, is_longer) = walk::named_or_longer(task, old_dirfd, old, PathBuffer::Path)?;
        let is_outside = matches!(from, Place::Outside(_));
        let to = match walk::named_or_longer(task, new_dirfd, new, PathBuffer::Other) {
            // The kernel may find an error in the first path.
            Err(_) if is_outside => return Err(Errno::EXDEV),
            to => to?.0,
        };
        let (from, to) = match (from, to) {
            (Place::Inside(from), Place::Inside(to)) => (from, to),
            (Place::Outside(_), Place::Outside(_)) => return Ok(()),
            _ => return Err(Errno::EXDEV),
        };
        check_places(&from, &to, mode)?;
        drop(writer::begin(task, from.mount)?);
        match is_longer || hash::lookup(task.region, from.dir.id, &from.name).is_some() {
            true => Ok(()),
            false => Err(Errno::ENOENT),
        }
    };
    look().err().unwrap_or(Errno::ENAMETOOLONG)
}

/// What is checked of two places before names are looked up in them.
#[inline(always)]
fn check_places(from: &Named<'_>, to: &Named<'_>, mode: Mode) -> Result<()> {
    if from.mount != to.mount {
        return Err(Errno::EXDEV);
    }
    if from.last != LastType::Name {
        return Err(Errno::EBUSY);
    }
    if to.last != LastType::Name {
        return Err(if mode == Mode::NoReplace { Errno::EEXIST } else { Errno::EBUSY });
    }
    Ok(())
}

/// Renames. Whether the thread may is looked at if it may have restricted itself (`CHECKED`).
#[inline(always)]
fn rename_at<const CHECKED: bool>(
    task: &Task<'_>,
    from: &Named<'_>,
    to: &Named<'_>,
    (mode, behind): (Mode, Behind),
) -> Result<()> {
    check_places(from, to, mode)?;
    let place = Key::new(to.dir.id, &to.name);
    let ask = Ask::<CHECKED> { task, from, to, place: &place, mode, behind };
    let done = match ask.once(InodeId::NONE) {
        Ok(done) => done,
        Err(Stop::Failed(errno)) if errno != below::MISSING => return Err(errno),
        Err(stop) => ask.again_slow(stop)?,
    };
    if done.load == Load::Crowded {
        hash::split(task);
    }
    unlink::removed(task, done.victim);
    Ok(())
}

/// Why an attempt stopped.
enum Stop {
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
type Tried<T> = core::result::Result<T, Stop>;

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

/// Locks another inode for a rename that holds the locks of `held`; `None` if that includes this one. `lock`
/// waits for it if it is the first. A rename waits for a lock only while it holds none, so it needs no order
/// among them, and it is never part of a ring of waiters.
#[inline(always)]
#[cfg_attr(any(debug_assertions, feature = "order"), track_caller)]
fn lock_beside<'r, const N: usize>(
    task: &Task<'r>,
    held: [InodeId; N],
    id: InodeId,
    lock: impl FnOnce() -> Locked<'r>,
) -> Tried<Option<Locked<'r>>> {
    if held.contains(&id) {
        return Ok(None);
    }
    if held.iter().all(|held| held.is_none()) {
        return Ok(Some(lock()));
    }
    inode::lock_soon(task, id).map(Some).ok_or(Stop::Locked(id))
}

/// Whether a directory that a walk found, and whose lock is held, is still that directory.
///
/// # Errors
/// `ESTALE` if it was freed meanwhile.
#[inline(always)]
fn check_still(task: &Task<'_>, dir: InodeRef) -> Result<()> {
    // Acquire: the generation is incremented before the slot is reused.
    let generation = task.region.inode(dir.id).generation.load(Ordering::Acquire);
    if generation == dir.generation { Ok(()) } else { Err(Errno::ESTALE) }
}

/// The result of a rename.
struct Done {
    load: Load,
    /// The inode that may have lost its last link.
    victim: InodeId,
}

/// The arguments of a rename.
struct Ask<'a, 'r, const CHECKED: bool> {
    task: &'a Task<'r>,
    from: &'a Named<'a>,
    to: &'a Named<'a>,
    place: &'a Key<'a, 'a>,
    mode: Mode,
    behind: Behind,
}

impl<'a, 'r, const CHECKED: bool> Ask<'a, 'r, CHECKED> {
    /// [`Ask::attempt`] as a writer of the mount.
    #[inline(always)]
    fn once(&self, first: InodeId) -> Tried<Done> {
        let _writing = writer::begin_walked(self.task, self.from.mount)?;
        self.attempt(first)
    }

    /// Tries again for as long as another lane is in the way or something is to be taken from below, after
    /// what stopped the last attempt.
    #[cold]
    fn again_slow(&self, mut stop: Stop) -> Result<Done> {
        loop {
            let first = match stop {
                Stop::Failed(below::MISSING) => {
                    self.take_maps()?;
                    InodeId::NONE
                }
                Stop::Failed(errno) => return Err(errno),
                Stop::Locked(id) => id,
                Stop::Pending(id) => {
                    below::complete(self.task, self.task.region.inode(id))?;
                    InodeId::NONE
                }
                Stop::Moving(met) => {
                    tree::wait(self.task, met);
                    InodeId::NONE
                }
            };
            match self.once(first) {
                Ok(done) => return Ok(done),
                Err(another) => stop = another,
            }
        }
    }

    /// Takes in the page maps of what both names stand for.
    fn take_maps(&self) -> Result<()> {
        for named in [self.from, self.to] {
            if let Some(hit) = hash::lookup(self.task.region, named.dir.id, &named.name)
                && below::lacks_map(self.task.region.inode(hit.target().id))
            {
                below::take(self.task, hit.target().id, Need::Map)?;
            }
        }
        Ok(())
    }

    /// Renames, unless another lane is in the way. Locks `first` before anything else.
    #[inline(always)]
    fn attempt(&self, first: InodeId) -> Tried<Done> {
        if first.is_none() && self.from.dir.id == self.to.dir.id {
            self.attempt_within()
        } else {
            self.attempt_any(first)
        }
    }

    /// [`Ask::attempt`] in one directory. No other lock is waited for, so it may be entered by its bias.
    #[inline(always)]
    fn attempt_within(&self) -> Tried<Done> {
        let _dir = dir::enter(self.task, self.from.dir)?;
        check_still(self.task, self.to.dir)?;
        let rename = self.look_up()?;
        self.complete(&rename, [self.from.dir.id])
    }

    #[inline(never)]
    fn attempt_any(&self, first: InodeId) -> Tried<Done> {
        let (task, old, new) = (self.task, self.from.dir, self.to.dir);
        let _first = first.is_some().then(|| inode::lock(task, first));
        let _old = lock_beside(task, [first], old.id, || inode::lock(task, old.id))?;
        check_still(task, old)?;
        let _new = lock_beside(task, [first, old.id], new.id, || inode::lock(task, new.id))?;
        check_still(task, new)?;
        let rename = self.look_up()?;
        let mut marks = (old.id != new.id).then(|| Marks::new(task));
        if let Some(marks) = &mut marks {
            rename.check_ancestors(marks)?;
        }
        self.complete(&rename, [first, old.id, new.id])
    }

    /// Looks both names up. Both directories must be locked.
    #[inline(always)]
    fn look_up(&self) -> Result<Rename<'a, 'r>> {
        let (task, old, new) = (self.task, self.from.dir.id, self.to.dir.id);
        let source = hash::lookup(task.region, old, &self.from.name).ok_or(Errno::ENOENT)?;
        let target = hash::lookup_at(task.region, self.place);
        let (mode, behind) = (self.mode, self.behind);
        let rename = Rename { task, old, new, source, target, mode, behind };
        rename.check_names(self.from.trailing_slash, self.to.trailing_slash)?;
        Ok(rename)
    }

    /// Checks that a thread that has restricted itself may rename.
    #[cold]
    fn may_refer(&self, rename: &Rename<'_, '_>) -> Result<()> {
        let refer = Refer {
            old: (rename.source.target(), self.from.dir.id),
            new_dir: self.to.dir,
            new: rename.target.map(|hit| hit.target()),
            mount: self.from.mount,
            removes: true,
            exchanges: self.mode == Mode::Exchange,
        };
        landlock::may_refer(self.task, &refer)
    }

    /// The rest of an attempt, which holds the locks of `held`: both directories are among them.
    #[inline(always)]
    fn complete<const N: usize>(&self, rename: &Rename<'_, '_>, held: [InodeId; N]) -> Tried<Done> {
        let (task, source, target) = (self.task, rename.source, rename.target);
        if CHECKED && landlock::is_held(task) {
            self.may_refer(rename)?;
        }
        if target.is_some_and(|target| target.target() == source.target()) {
            return Ok(Done { load: Load::Fits, victim: InodeId::NONE });
        }
        rename.check_permissions()?;
        let source_id = source.target().id;
        let _source = lock_beside(task, held, source_id, || inode::lock(task, source_id))?;
        let _target = match target.map(|target| target.target().id) {
            Some(id) if id != source_id => lock_beside(task, held, id, || inode::lock(task, id))?,
            _ => None,
        };
        rename.check_points()?;
        let replaces = self.mode == Mode::Replace;
        let victim = target.filter(|_| replaces).map_or(InodeId::NONE, |hit| hit.target().id);
        let told = watch_names::Rename::new(task, (rename.old, source), (rename.new, target));
        let shift = rename.moves_a_directory().then(|| tree::shift(task));
        let load = rename.perform(self.place)?;
        drop(shift);
        if let Some(told) = told {
            told.tell_slow(task, (&self.from.name, self.place), self.mode == Mode::Exchange);
        }
        Ok(Done { load, victim })
    }
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

impl<'t, 'r> Rename<'t, 'r> {
    fn inode(&self, id: InodeId) -> &'r Inode {
        self.task.region.inode(id)
    }

    #[inline(always)]
    fn is_dir(&self, hit: Hit) -> bool {
        dir::is(self.inode(hit.target().id))
    }

    fn is_exchange_of_directory(&self) -> bool {
        self.mode == Mode::Exchange && self.target.is_some_and(|hit| self.is_dir(hit))
    }

    #[inline(always)]
    fn moves_a_directory(&self) -> bool {
        self.is_dir(self.source) || self.is_exchange_of_directory()
    }

    /// Refuses to put a directory below itself, for a rename to another directory. What moves is marked, so
    /// the answer stays valid.
    fn check_ancestors(&self, marks: &mut Marks<'_, '_>) -> Tried<()> {
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

    /// Refuses to move or replace something that is a mount point. Both inodes are locked.
    #[inline(always)]
    fn check_points(&self) -> Result<()> {
        let is_point = |hit: Hit| mounts::is_point(self.task, hit.target(), hit.dirent());
        match is_point(self.source) || self.target.is_some_and(is_point) {
            true => Err(Errno::EBUSY),
            false => Ok(()),
        }
    }

    /// Checks permissions like the kernel's vfs_rename.
    #[inline(always)]
    fn check_permissions(&self) -> Result<()> {
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
    fn perform(&self, place: &Key<'_, '_>) -> Tried<Load> {
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
