//! fspick(2) and fsconfig(2) with `FSCONFIG_CMD_RECONFIGURE`: a file system that is in use, changed in all
//! its mounts.

use lp_abi::linux::{
    AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, FSPICK_CLOEXEC, FSPICK_EMPTY_PATH, FSPICK_NO_AUTOMOUNT,
    FSPICK_SYMLINK_NOFOLLOW,
};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::InodeId;
use lp_region::sync::Ordering;

use crate::caller::task::{Place, Task};
use crate::calls::landlock;
use crate::calls::mount_at::{in_one_shape, is_mount, may_mount};
use crate::calls::{mount, target};
use crate::life::fs_options::Options;
use crate::life::superblock;
use crate::names::mounts;
use crate::names::walk::PathBuffer;

/// A file system that a program has picked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Picked {
    /// Its number.
    pub number: u32,
    /// Its root, and the generation of that: another file system may have the number later.
    pub root: u64,
}

/// The flags of the call.
const KNOWN: u32 = FSPICK_CLOEXEC | FSPICK_EMPTY_PATH | FSPICK_NO_AUTOMOUNT | FSPICK_SYMLINK_NOFOLLOW;

/// The file system whose mount a path names.
///
/// # Errors
/// Those of path_resolution(7) and fspick(2).
pub fn pick(task: &Task<'_>, at: (Fd, UserPtr), flags: u32) -> Result<Place<Picked>> {
    may_mount(task)?;
    if flags & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    if at.1.is_null() {
        return Err(Errno::EFAULT);
    }
    let empty = if flags & FSPICK_EMPTY_PATH != 0 { AT_EMPTY_PATH } else { 0 };
    let nofollow = if flags & FSPICK_SYMLINK_NOFOLLOW != 0 { AT_SYMLINK_NOFOLLOW } else { 0 };
    in_one_shape(task, || {
        let found = match target::found(task, at, empty | nofollow, PathBuffer::Path)? {
            Place::Inside(found) => found,
            Place::Outside(outside) => return Ok(Place::Outside(outside)),
        };
        if !is_mount(task, &found) {
            return Err(Errno::EINVAL);
        }
        // Relaxed: immutable while the inode is in use.
        let number = task.region.inode(found.inode.id).root.load(Ordering::Relaxed);
        Ok(Place::Inside(Picked { number, root: root(task, number) }))
    })
}

/// The root of a file system and its generation; 0 if there is no such file system.
fn root(task: &Task<'_>, number: u32) -> u64 {
    let id = mounts::superblock_root(task, number);
    match id {
        InodeId::NONE => 0,
        id => {
            let generation = task.region.inode(id).generation.load(Ordering::Acquire);
            lp_region::InodeRef { id, generation }.to_word()
        }
    }
}

/// Changes a file system as an option string says.
///
/// # Errors
/// `EINVAL` for options that do not fit it; `EBUSY` if it cannot become read-only; `ESTALE` if it is gone.
pub fn reconfigure(task: &Task<'_>, picked: Picked, text: &[u8]) -> Result<()> {
    may_mount(task)?;
    landlock::may_mount(task)?;
    if picked.root == 0 || root(task, picked.number) != picked.root {
        return Err(Errno::ESTALE);
    }
    let options = Options::parse(task, superblock::kind(task, picked.number), text)?;
    mount::reconfigure(task, picked.number, &options, (options.flags, options.mask))
}
