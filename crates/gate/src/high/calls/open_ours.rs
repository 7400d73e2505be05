//! Opens in the file system: from what is opened to its number.

use lp_abi::linux::O_CLOEXEC;
use lp_abi::{Errno, Fd, Result};
use lp_region::sync::Ordering;
use lp_region::{FileId, InodeRef};
use lp_vfs::file;
use lp_vfs::open::Opened;
use lp_vfs::table::{self, entry};
use lp_vfs::task::{Outside, Place, Task};
use lp_vfs::watch::{self, Touched};

use crate::high::calls::open_how::How;
use crate::high::fd::placeholder;
use crate::high::frame::handler::interruptible;
use crate::high::special::node;
use crate::high::watch::shadow_fd;

/// Installs what `open` opens in the file system. If the path leads to the host after all, `leave` returns
/// the result.
#[inline(always)]
pub(super) fn open_ours(
    task: &'static Task<'static>,
    how: &How,
    open: impl FnOnce() -> Result<Place<Opened>>,
    leave: impl FnOnce(Outside) -> isize,
) -> isize {
    // As in the kernel, the number comes first: without one nothing is created.
    let number = match placeholder::allocate_lowest(task) {
        Ok(number) => number,
        Err(errno) => return errno.to_ret(),
    };
    match open() {
        Ok(Place::Inside(Opened::File(file))) => install(task, number, file, how.flags),
        Ok(Place::Inside(opened)) => install_other(task, number, opened, how.flags),
        Ok(Place::Outside(outside)) => {
            placeholder::release(task, number);
            leave(outside)
        }
        Err(errno) => not_opened(task, number, errno),
    }
}

#[inline(always)]
pub(super) fn install(task: &'static Task<'static>, number: Fd, opened: FileId, flags: u32) -> isize {
    let cloexec = if flags & O_CLOEXEC != 0 { entry::CLOEXEC } else { 0 };
    match table::install(task, number, opened, cloexec) {
        Ok(()) => number.raw() as isize,
        Err(errno) => {
            file::discard(task, opened);
            not_opened(task, number, errno)
        }
    }
}

#[cold]
fn not_opened(task: &'static Task<'static>, number: Fd, errno: Errno) -> isize {
    placeholder::release(task, number);
    shadow_fd::drop_waited();
    interruptible(errno.to_ret())
}

/// [`install`] of a file whose watchers must be notified, or of a node whose data is the kernel's.
#[cold]
fn install_other(task: &'static Task<'static>, number: Fd, opened: Opened, flags: u32) -> isize {
    let file = match opened {
        Opened::File(file) | Opened::Watched(file) | Opened::WatchedCut(file) => file,
        Opened::HostNode(found) => {
            placeholder::release(task, number);
            return node::open(task, &found);
        }
    };
    // Relaxed: immutable while the file is open.
    let inode = InodeRef::from_word(task.region.file(file).inode.load(Ordering::Relaxed)).id;
    let done = install(task, number, file, flags);
    if done >= 0 {
        shadow_fd::open(task, number, flags);
        if matches!(opened, Opened::WatchedCut(_)) {
            watch::touched_slow(task, inode, Touched::Modified);
        }
    }
    done
}
