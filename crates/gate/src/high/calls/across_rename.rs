//! rename(2) with one path in a mount and one on the host, or with the name of a mount: `EXDEV`, and the
//! errors that the kernel finds first.
//!
//! The name of a mount of the command line is one in a directory of the host, as that of a mount point is
//! (`do_renameat2` and `vfs_rename` in fs/namei.c).

use lp_abi::linux::{RENAME_EXCHANGE, RENAME_NOREPLACE};
use lp_abi::{Errno, Result};
use lp_region::InodeId;
use lp_vfs::task::Task;

use crate::high::calls::across::{Seen, SeenIn, directory, find, without_slashes};
use crate::high::frame::at::{At, Last, Which, copy_last_component};
use crate::high::frame::handler::ret;

/// The errors of a rename by which it may be one for [`rename`].
pub(crate) const REFUSALS: [Errno; 3] = [Errno::EXDEV, Errno::EBUSY, Errno::EEXIST];

/// The old name or the new one.
struct Moved {
    /// The device of its directory, if that is one of the host's.
    device: Option<u64>,
    /// What it names.
    seen: Result<Seen>,
    /// Whether it is `.` or `..`.
    is_dots: bool,
    /// Whether slashes follow.
    has_slash: bool,
}

/// The result of rename(2) of `old` to `new`, which has been `refused` with one of [`REFUSALS`]: a missing
/// parent directory comes first, and the name of a mount of the command line is one of a host directory.
#[cold]
pub(crate) fn rename(task: &Task, old: At, new: At, flags: u32, refused: Errno) -> isize {
    ret(moved(task, old).and_then(|from| {
        let to = moved(task, new)?;
        if [&from, &to].iter().all(|name| name.mount().is_none() && !name.is_dots) {
            return Err(refused);
        }
        if from.device != to.device {
            return Err(Errno::EXDEV);
        }
        if from.mount().is_some() && from.mount() == to.mount() && flags & RENAME_NOREPLACE == 0 {
            return Ok(0);
        }
        Err(busy(&from, &to, flags))
    }))
}

impl Moved {
    /// The root directory of the mount of the command line whose name it is: what is ours and has its name in
    /// a host directory.
    fn mount(&self) -> Option<InodeId> {
        match (self.device, self.seen) {
            (Some(_), Ok(Seen { place: SeenIn::Mount(root), .. })) => Some(root),
            _ => None,
        }
    }
}

/// # Errors
/// Those of path_resolution(7) for the directory.
fn moved(task: &Task, at: At) -> Result<Moved> {
    let is_dots = matches!(copy_last_component(Which::Second, at), b"." | b"..");
    // The root directory is its own.
    let parent = directory(at)?.unwrap_or(at);
    let device = match find(task, parent, 0, Last::Follow)?.place {
        SeenIn::Host(device) => Some(device),
        SeenIn::Mount(_) => None,
    };
    let (name, has_slash) = without_slashes(at)?;
    Ok(Moved { device, seen: find(task, name, 0, Last::Link), is_dots, has_slash })
}

/// Why a name cannot be moved to another, of which one is that of a mount, or consists of dots.
fn busy(from: &Moved, to: &Moved, flags: u32) -> Errno {
    let mode = flags & (RENAME_NOREPLACE | RENAME_EXCHANGE);
    match (from.is_dots, to.is_dots) {
        (true, _) => return Errno::EBUSY,
        (false, true) if mode == RENAME_NOREPLACE => return Errno::EEXIST,
        (false, true) => return Errno::EBUSY,
        (false, false) => {}
    }
    let [old, new] = [from, to].map(|name| name.seen.map(Seen::is_directory));
    match (mode, old, new) {
        (_, Err(errno), _) => errno,
        (RENAME_NOREPLACE, _, Ok(_)) => Errno::EEXIST,
        (RENAME_EXCHANGE, _, Err(errno)) => errno,
        (_, _, Err(errno)) if errno != Errno::ENOENT => errno,
        (RENAME_EXCHANGE, _, Ok(false)) if to.has_slash => Errno::ENOTDIR,
        (_, Ok(false), _) if from.has_slash => Errno::ENOTDIR,
        (0, Ok(false), Ok(_)) if to.has_slash => Errno::ENOTDIR,
        (0, Ok(true), Ok(false)) => Errno::ENOTDIR,
        (0, Ok(false), Ok(true)) => Errno::EISDIR,
        _ => Errno::EBUSY,
    }
}
