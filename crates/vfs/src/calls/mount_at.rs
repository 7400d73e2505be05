//! What calls on mounts share: who may make them, and what their paths mean.

use lp_abi::linux::{__NR_umount2, MS_PRIVATE, MS_SHARED, MS_SLAVE, MS_UNBINDABLE};
use lp_abi::{Errno, Result};
use lp_region::process::caps;
use lp_region::sync::Ordering;

use crate::caller::task::Task;
use crate::life::mount_peers::Propagation;
use crate::life::mount_tree::{Point, Tree};
use crate::names::mounts;
use crate::names::walk::{self, Found};
use crate::rights::credentials;

/// Repeats a call whose paths were walked before others changed the mounts, if it fails.
pub(crate) fn in_one_shape<T>(task: &Task<'_>, mut call: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..walk::TRIES {
        let tree = Tree::look(task);
        match call() {
            Err(Errno::EINVAL | Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) if !tree.stands() => {}
            done => return done,
        }
    }
    call()
}

/// Checks that the caller may mount by the kernel's own rules, namespaces included. Unmounting something that
/// is not a mount changes nothing, and the kernel checks the right first.
///
/// # Errors
/// `EPERM`.
pub(crate) fn may_mount(task: &Task<'_>) -> Result<()> {
    let capable = credentials::capable(task, caps::SYS_ADMIN);
    // Relaxed: changes only in its own process.
    if capable && task.process.limited.load(Ordering::Relaxed) == 0 {
        // SAFETY: the path is NUL-terminated and never a mount.
        let asked = unsafe { lp_abi::syscall!(__NR_umount2, c"/proc/self/status".as_ptr(), 0) };
        return if asked == Err(Errno::EPERM) { Err(Errno::EPERM) } else { Ok(()) };
    }
    if capable { Ok(()) } else { Err(Errno::EPERM) }
}

/// Whether a path named a mount itself, rather than something in it.
pub(crate) fn is_mount(task: &Task<'_>, found: &Found) -> bool {
    task.region.mount(found.mount).root() == found.inode
}

/// What is uppermost where `found` is by now.
pub(crate) fn uppermost(task: &Task<'_>, found: &Found) -> Found {
    let top = mounts::cover(task, found.spot(), found.dirent, mounts::ASIDE);
    if top == found.spot() { *found } else { Found { inode: top.inode, mount: top.mount, ..*found } }
}

/// Where something is to be mounted. The entry distinguishes what is covered from the file's other names; the
/// root of a mount has none.
pub(crate) fn point(task: &Task<'_>, at: &Found) -> Point {
    let dirent = if is_mount(task, at) { lp_region::DirentId::NONE } else { at.dirent };
    Point { spot: at.spot(), dirent }
}

/// The type that one of `MS_SHARED`, `MS_SLAVE`, `MS_PRIVATE` and `MS_UNBINDABLE` selects.
pub(crate) fn propagation(flag: u32) -> Option<Propagation> {
    match flag {
        MS_SHARED => Some(Propagation::Shared),
        MS_SLAVE => Some(Propagation::Slave),
        MS_PRIVATE => Some(Propagation::Private),
        MS_UNBINDABLE => Some(Propagation::Unbindable),
        _ => None,
    }
}
