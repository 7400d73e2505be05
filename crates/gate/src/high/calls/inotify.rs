//! inotify_add_watch(2) on an inode of ours: the program's own inotify descriptor watches the inode's shadow.
//!
//! Watch descriptors, masks, queues and events are the kernel's. The gate does not see inotify_rm_watch(2)
//! and read(2).

use lp_abi::linux::{__NR_inotify_add_watch, AT_SYMLINK_NOFOLLOW, IN_DONT_FOLLOW, IN_ONLYDIR};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_vfs::task::{Place, Task};
use lp_vfs::walk::{Follow, Found};
use lp_vfs::watch::{self, ShadowKind};
use lp_vfs::{permission, pin, walk};

use crate::high::calls::chmod::last_of;
use crate::high::fd::stand_in::stand_in_returns;
use crate::high::frame::at::{At, spare_buffer};
use crate::high::frame::handler::{handlers, kernel};
use crate::high::route::path::one;
use crate::high::watch::{shadow_fd, shadow_make, shadow_path};

/// Maximum number of retries when something on the path is moved meanwhile.
const TRIES: u32 = 100;

handlers! {
    /// inotify_add_watch(2).
    fn inotify_add_watch(task, fd: Fd, path: UserPtr, mask: u32) {
        stand_in_returns!(task, fd, __NR_inotify_add_watch, path, mask);
        let flags = if mask & IN_DONT_FOLLOW != 0 { AT_SYMLINK_NOFOLLOW } else { 0 };
        let ours = |at: At| add_watch(task, fd, at, mask);
        let host = |at: At| kernel!(__NR_inotify_add_watch, fd, at.path, mask);
        one(task, At::cwd(path), last_of(flags), ours, host)
    }
}

fn add_watch(task: &'static Task<'static>, fd: Fd, at: At, mask: u32) -> Result<Place<isize>> {
    let follow = if mask & IN_DONT_FOLLOW != 0 { Follow::No } else { Follow::Link };
    for _ in 0..TRIES {
        // The kernel checks the mask and the descriptor before the path.
        let probe = kernel!(__NR_inotify_add_watch, fd, c"".as_ptr(), mask);
        if probe != Errno::ENOENT.to_ret() {
            return Ok(Place::Inside(probe));
        }
        let found = match walk::inode(task, at.dirfd, at.path, follow)? {
            Place::Inside(found) => found,
            Place::Outside(outside) => return Ok(Place::Outside(outside)),
        };
        let Ok(_pin) = pin::hold(task, pin::slot::WALK, found.inode) else { continue };
        match watch_found(task, fd, &found, mask) {
            Err(Errno::ESTALE) => {}
            done => return done.map(Place::Inside),
        }
    }
    Err(Errno::ENOENT)
}

/// Watches the pinned result of a walk.
///
/// # Errors
/// `ESTALE` if it has moved: walk again.
fn watch_found(task: &'static Task<'static>, fd: Fd, found: &Found, mask: u32) -> Result<isize> {
    let id = found.inode.id;
    let record = task.region.inode(id);
    let kind = watch::kind(record);
    if mask & IN_ONLYDIR != 0 && kind != ShadowKind::Directory {
        return Err(Errno::ENOTDIR);
    }
    permission::check(task, record, permission::READ)?;
    let is_first = !watch::is_watched(record);
    let secret = shadow_make::give(task, found, 0)?;
    if is_first {
        shadow_fd::open_all(task);
    }
    let path = shadow_path::path_of(task, id, spare_buffer()).map_err(shadow_make::unmade)?;
    let done = kernel!(__NR_inotify_add_watch, fd, path.as_ptr(), mask | IN_DONT_FOLLOW);
    // Another watcher may have created a new directory of shadows.
    let is_stale = done == Errno::ENOENT.to_ret() || shadow_path::secret(task) != secret;
    if is_stale { Err(Errno::ESTALE) } else { Ok(done) }
}
