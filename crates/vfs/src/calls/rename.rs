//! rename(2), renameat(2), renameat2(2).

use lp_abi::linux::{RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::sync::Ordering;
use lp_region::{InodeId, InodeRef, Spot};

use crate::caller::below::{self, Need};
use crate::caller::task::{Place, Task};
use crate::calls::landlock::{self, Refer};
use crate::calls::link::Two;
use crate::calls::rename_change::{Behind, Mode, Rename, Stop, Tried};
use crate::calls::rename_within::{self, Quick};
use crate::calls::{rename_over, unlink};
use crate::inodes::inode::{self, Locked};
use crate::lane::writer;
use crate::life::reclaim;
use crate::names::dir::{self};
use crate::names::hash::{self, Load};
use crate::names::mounts;
use crate::names::name::{Key, Name};
use crate::names::tree::{self, Marks};
use crate::names::walk::{self, AtKnown, LastType, Named, PathBuffer, PathText};
use crate::watches::watch_names;

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
        Err(Stop::Failed(errno)) if !matches!(errno, below::MISSING | Errno::ENOSPC) => return Err(errno),
        Err(stop) => ask.again_slow(stop)?,
    };
    if done.load == Load::Crowded {
        hash::split(task);
    }
    unlink::removed(task, done.victim);
    Ok(())
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

    /// Tries again for as long as another lane is in the way or something is to be taken from below, and once
    /// without space, after what stopped the last attempt.
    #[cold]
    fn again_slow(&self, mut stop: Stop) -> Result<Done> {
        let mut has_reclaimed = false;
        loop {
            let first = match stop {
                Stop::Failed(Errno::ENOSPC) if !has_reclaimed => {
                    reclaim::all(self.task);
                    has_reclaimed = true;
                    InodeId::NONE
                }
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
