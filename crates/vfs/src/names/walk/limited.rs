//! Walks that openat2(2) limits.

use lp_abi::linux::{RESOLVE_IN_ROOT, RESOLVE_NO_XDEV};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::Spot;

use super::{ODD, TRIES, Walk};
use crate::caller::task::{Outside, Place, Task};
use crate::names::goal::{Ended, Existing, Follow, Found, Goal, Making};
use crate::names::known::base;
use crate::names::limits::{Limited, Limits, Top};
use crate::names::mounts::{self, Crossing};
use crate::names::path_text::{PathBuffer, PathText, buffer, copy_path};
use crate::names::root;

/// [`super::inode`] within limits.
///
/// # Errors
/// Those of [`super::inode`] and of openat2(2).
pub(crate) fn inode(
    task: &Task<'_>,
    dirfd: Fd,
    path: UserPtr,
    follow: Follow,
    limits: Limited<'_>,
) -> Result<Place<Found>> {
    let text = copy_path(task, PathBuffer::Path, path)?;
    again(task, dirfd, text, Existing(follow), limits)
}

/// [`super::end`] within limits.
///
/// # Errors
/// Those of [`super::end`] and of openat2(2).
pub(crate) fn end<'t>(
    task: &'t Task<'_>,
    dirfd: Fd,
    path: UserPtr,
    follow: Follow,
    limits: Limited<'_>,
) -> Result<Place<Ended<'t>>> {
    let text = copy_path(task, PathBuffer::Path, path)?;
    Ok(again(task, dirfd, text, Making(follow), limits)?.map(|end| end.named(task)))
}

fn again<G: Goal>(
    task: &Task<'_>,
    dirfd: Fd,
    text: PathText,
    goal: G,
    limits: Limited<'_>,
) -> Result<Place<G::End>> {
    for _ in 0..TRIES {
        match walk_limited(task, dirfd, text, goal, limits.begin(task)) {
            Err(Errno::ESTALE) => {}
            done => return done,
        }
    }
    Err(Errno::ESTALE)
}

/// A walk that openat2(2) limits. An absolute path is one of a mount, which a door has found on the host; or
/// it starts from the base ([`RESOLVE_IN_ROOT`]).
fn walk_limited<G: Goal>(
    task: &Task<'_>,
    dirfd: Fd,
    given: PathText,
    goal: G,
    mut limits: Limited<'_>,
) -> Result<Place<G::End>> {
    let text = buffer(task, given.which).cast::<u8>().cast_const();
    // SAFETY: the buffer holds `length` bytes and a NUL.
    let (end, slash) = unsafe { (text.add(given.length), *text == b'/') };
    let absolute = slash && !(limits.has(RESOLVE_IN_ROOT) && limits.top == Top::Base);
    let mut from = Spot::NONE;
    if !absolute {
        let Some(base) = base(task, dirfd) else { return Ok(Place::Outside(Outside::AsGiven)) };
        if !task.region.inode(base.inode.id).is_dir() {
            return Err(Errno::ENOTDIR);
        }
        if limits.top == Top::Base {
            limits.top = Top::Spot(base);
        }
        from = base;
    }
    let (here, mount, which, base) = (from.inode, from.mount, given.which, from.to_word());
    let mut walk =
        Walk { task, limits, which, text, end, here, mount, settled: true, links: 0, base, tree: ODD };
    if absolute {
        match walk.enter() {
            Crossing::Inside { .. }
                if limits.has(RESOLVE_NO_XDEV) && root::of(task).is_none() && !mounts::are_whole(task) =>
            {
                return Err(Errno::EXDEV);
            }
            Crossing::Inside { root, walked } => walk.start(root, walked),
            Crossing::Outside => return Ok(Place::Outside(Outside::AsGiven)),
        }
    }
    let done = walk.run(goal)?;
    if let Place::Inside(end) = &done {
        let (end, within) = G::reached(end);
        limits.check(task, end, within)?;
    }
    Ok(done)
}
