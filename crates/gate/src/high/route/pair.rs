//! Calls that take two paths, which may lead to the file system, to the kernel, or one to each.

use lp_abi::linux::AT_SYMLINK_NOFOLLOW;
use lp_abi::{Errno, MAX_SYMLINKS, Result};
use lp_vfs::link::Two;
use lp_vfs::target;
use lp_vfs::task::{Outside, Place, Task};

use crate::high::frame::at::{At, Last, Route, Which};
use crate::high::route::path::{in_scratch, leave, may_be_link, route, route_outside};
use crate::high::route::{hostlink, kernels};

/// A call with two paths.
#[derive(Clone, Copy)]
pub(crate) struct Pair<'c> {
    /// The paths.
    pub(crate) paths: [At; 2],
    /// Whether it follows the first; never the second, which it may make.
    pub(crate) last: Last,
    /// The call in the file system.
    pub(crate) ours: &'c dyn Fn(At, At) -> Result<Two>,
    /// The call in the kernel.
    pub(crate) host: &'c dyn Fn(At, At) -> isize,
    /// What the kernel finds wrong with the first path before it walks the second: 0 or the error.
    pub(crate) first: &'c dyn Fn(At) -> isize,
}

impl Pair<'_> {
    fn lasts(&self) -> [Last; 2] {
        [self.last, Last::Name]
    }
}

const WHICHES: [Which; 2] = [Which::First, Which::Second];

/// Makes a call with two paths. The file system reports if both are the host's; one of each fails with
/// `EXDEV`, and the caller finds what precedes that.
pub(crate) fn two(task: &Task, mut pair: Pair<'_>) -> isize {
    let lasts = pair.lasts();
    let mut asked = pair.paths;
    let mut is_host = [false; 2];
    for index in 0..2 {
        match route(task, WHICHES[index], pair.paths[index], lasts[index]).by_name() {
            Route::Ours(inside) => asked[index] = inside,
            // Its name is one in our root directory.
            Route::Host if kernels::names_one(pair.paths[index]) => {}
            Route::Host => is_host[index] = true,
            Route::Elsewhere(at) => {
                pair.paths[index] = at;
                asked[index] = at;
                is_host[index] = true;
            }
            Route::Itself(..) => return Errno::ENOENT.to_ret(),
            Route::Bad(errno) => return errno.to_ret(),
        }
    }
    let into_mount = |index: usize| hostlink::into_mount(WHICHES[index], pair.paths[index], lasts[index]);
    match is_host {
        [true, true] => {
            let done = (pair.host)(pair.paths[0], pair.paths[1]);
            if !may_be_link(done) {
                return done;
            }
            let found = [0, 1].map(into_mount);
            if found == [None; 2] {
                return done;
            }
            asked = [0, 1].map(|index| found[index].unwrap_or(pair.paths[index]));
            is_host = found.map(|inside| inside.is_none());
        }
        [true, false] => match into_mount(0) {
            Some(inside) => (asked[0], is_host[0]) = (inside, false),
            None => match (pair.first)(pair.paths[0]) {
                0 => {}
                failed => return failed,
            },
        },
        [false, true] => {
            if let Some(inside) = into_mount(1) {
                (asked[1], is_host[1]) = (inside, false);
            }
        }
        [false, false] => {}
    }
    two_inside(task, &pair, asked, is_host)
}

/// [`two`] where a path starts in the file system.
fn two_inside(task: &Task, pair: &Pair<'_>, mut asked: [At; 2], is_host: [bool; 2]) -> isize {
    let call = |[old, new]: [At; 2]| (pair.ours)(old, new);
    let mut done = call(asked);
    if matches!(done, Ok(Two::Outside { .. }) | Err(Errno::EXDEV)) {
        for index in (0..2).filter(|index| !is_host[*index]) {
            match back_inside(task, WHICHES[index], pair.paths[index], pair.lasts()[index]) {
                Some(inside) => asked[index] = inside,
                None if index == 0 => return Errno::ELOOP.to_ret(),
                // The kernel may find an error in the first path.
                None => return Errno::EXDEV.to_ret(),
            }
        }
        // Again in any case: the look has used the buffers of the paths.
        done = call(asked);
    }
    match done {
        Ok(Two::Done) => 0,
        Ok(Two::Outside { old, new }) => {
            let outside = |index: usize, outside, buffer: *const u8| match outside {
                Outside::AsGiven => pair.paths[index],
                Outside::Rewritten(_) => in_scratch(buffer),
            };
            let old = outside(0, old, task.scratch.path.get().cast());
            (pair.host)(old, outside(1, new, task.scratch.other.get().cast()))
        }
        Err(errno) if errno != Errno::EINVAL && is_host != [false; 2] => Errno::EXDEV.to_ret(),
        Err(errno) => errno.to_ret(),
    }
}

/// The path in a mount to which the program's path `at`, which is ours, leads by symbolic links through the
/// kernel's magic links; `None` if they do not end.
#[cold]
fn back_inside(task: &Task, which: Which, at: At, last: Last) -> Option<At> {
    let start = || match route(task, which, at, last) {
        Route::Ours(inside) => inside,
        Route::Host => hostlink::into_mount(which, at, last).unwrap_or(at),
        _ => at,
    };
    let (_, links) = through_links(task, which, start(), last, MAX_SYMLINKS);
    // Again, because the look at what follows the last of them has used the buffer.
    (links < MAX_SYMLINKS).then(|| through_links(task, which, start(), last, links).0)
}

/// Where a path leads after at most `most` links that lead out and in again, and their number.
fn through_links(task: &Task, which: Which, mut at: At, last: Last, most: u32) -> (At, u32) {
    let flags = if last.follows() { 0 } else { AT_SYMLINK_NOFOLLOW };
    for links in 0..most {
        let Ok(Place::Outside(outside)) = target::at(task, at.dirfd, at.path, flags, |_, _, _| Ok(())) else {
            return (at, links);
        };
        let inside = match route_outside(task, which, at, last, outside) {
            Route::Ours(inside) => Some(inside),
            Route::Host => hostlink::into_mount(which, leave(task, at, outside), last),
            _ => None,
        };
        let Some(inside) = inside else { return (at, links) };
        at = inside;
    }
    (at, most)
}
