//! truncate(2), ftruncate(2), and open with `O_TRUNC`.
//!
//! Outside a `data_seq` section, all bytes behind the end of the content are zeros in every existing page.
//! Growing a file is therefore one store, and shrinking zeroes the rest of its last page.

use lp_abi::linux::{S_IFDIR, S_IFMT, S_IFREG};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::records::{Inode, file_mode, inode_flags};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, InodeRef, MountId};

use crate::caller::below;
use crate::caller::event::Touched;
use crate::caller::task::{Place, Task};
use crate::calls::{landlock, target};
use crate::content::{bare, cut, linking};
use crate::descriptors::busy;
use crate::descriptors::fget::HeldFile;
use crate::inodes::inode::{self, Touch};
use crate::inodes::{reflink, watched};
use crate::lane::writer;
use crate::names::walk::Found;
use crate::rights::{permission, privileges};

/// Changes the size of a regular file. Its times change even if the size does not. The caller must hold its
/// lock and have checked permission.
///
/// # Errors
/// `ENOSPC` for a part of content that other files have too, which must be copied.
pub fn resize(task: &Task, id: InodeId, inode: &Inode, size: u64) -> Result<()> {
    // Relaxed: under the lock. A file that grows keeps what it shares.
    if size < inode.size.load(Relaxed) {
        reflink::before_cut(task, id, inode, size)?;
    }
    privileges::drop_privileges(task, id, inode);
    let old = inode.size.load(Relaxed); // Relaxed: under the lock.
    // Space that was allocated behind the end goes even if the end stays.
    let has_space = inode.flags.load(Relaxed) & inode_flags::SPACE != 0;
    if size == old && !has_space {
        inode::touch(task, inode, Touch::Modify);
        return Ok(());
    }
    // Open the section first: if this lane dies inside it, `mend` cuts off what lies beyond the new end.
    inode.data_seq.begin();
    let gone = if size <= old { cut::behind(task, id, inode, size) } else { 0 };
    let now = task.now();
    inode.seq.begin();
    inode.size.store(size, Relaxed); // Relaxed: inside the section.
    linking::less_in_section(inode, gone);
    inode::touch_in_section(inode, Touch::Modify, now);
    inode.seq.end();
    if size <= old {
        cut::cut(task, id, inode, size);
    }
    inode.data_seq.end();
    reflink::after_cut(task, id, inode);
    bare::grown(task, inode, old, size);
    Ok(())
}

/// Checks a new size against the limits of the file and the process.
///
/// # Errors
/// `EFBIG` beyond `RLIMIT_FSIZE`, for which the door also sends SIGXFSZ; `EPERM` for an append-only or
/// immutable file.
pub(crate) fn may_resize(task: &Task, inode: &Inode, size: u64) -> Result<()> {
    let fixed = inode_flags::APPEND | inode_flags::IMMUTABLE;
    if inode.flags.load(Relaxed) & fixed != 0 {
        return Err(Errno::EPERM);
    }
    within_limit(task, inode, size)
}

/// Fails if the file would grow beyond `RLIMIT_FSIZE`, as in `inode_newsize_ok`.
pub(crate) fn within_limit(task: &Task, inode: &Inode, size: u64) -> Result<()> {
    // Relaxed: the caller holds the lock; the limit changes only in its own process.
    if size > inode.size.load(Relaxed) && size > task.process.fsize_limit.load(Relaxed) {
        return Err(Errno::EFBIG);
    }
    Ok(())
}

/// Sets the size of the file that a path names. With a `dirfd` of `Fd::CWD` it is truncate(2).
///
/// # Errors
/// Those of path_resolution(7); `EINVAL` for a negative size or anything but a regular file; `EISDIR`;
/// `EACCES`; `EROFS`; `ETXTBSY`; `EINTR`; those of `may_resize`.
pub fn truncate(task: &Task, dirfd: Fd, path: UserPtr, length: i64) -> Result<Place<()>> {
    if length < 0 {
        return Err(Errno::EINVAL);
    }
    target::found_at(task, dirfd, path, 0, |found, inode| {
        let (id, mount) = (found.inode.id, found.mount);
        match inode.mode.load(Relaxed) & S_IFMT {
            S_IFREG => {}
            S_IFDIR => return Err(Errno::EISDIR),
            _ => return Err(Errno::EINVAL),
        }
        below::try_attributes(task, inode);
        if below::is_pending(inode) {
            permission::check_known(task, inode, permission::WRITE)?;
            below::complete(task, inode)?;
        }
        if inode.flags.load(Relaxed) & (inode_flags::LEASED | inode_flags::EXECUTED) != 0 {
            may_truncate_slow(task, id, inode, mount, length as u64)?;
        }
        let writing = writer::begin(task, mount)?;
        permission::check_known(task, inode, permission::WRITE)?;
        if landlock::is_held(task) {
            may_truncate_held(task, found, inode)?;
        }
        let held = inode::lock(task, id);
        may_resize(task, inode, length as u64)?;
        // Unlike ftruncate(2), truncate(2) sets no times itself, and tmpfs only where the size changes or
        // pages may go.
        let pages = inode.pages.load(Relaxed); // Relaxed, below too: under the lock.
        match inode.size.load(Relaxed) == length as u64 && pages == 0 {
            true => privileges::drop_privileges(task, id, inode),
            false => resize(task, id, inode, length as u64)?,
        }
        drop((held, writing));
        watched::touched(task, id, inode, Touched::Modified);
        Ok(())
    })
}

/// The order of checks as in `vfs_truncate`: a file that is executed, and leases, which this waits for.
#[cold]
fn may_truncate_slow(task: &Task, id: InodeId, inode: &Inode, mount: MountId, length: u64) -> Result<()> {
    drop(writer::begin(task, mount)?);
    permission::check_known(task, inode, permission::WRITE)?;
    may_resize(task, inode, length)?;
    busy::may_write_slow(task, InodeRef { id, generation: inode.generation.load(Relaxed) })?;
    if watched::is_leased(inode) { watched::break_leases_slow(task, id, None) } else { Ok(()) }
}

/// The order of checks as in `vfs_truncate`, for a thread that has restricted itself.
#[cold]
fn may_truncate_held(task: &Task, found: &Found, inode: &Inode) -> Result<()> {
    if inode.flags.load(Relaxed) & (inode_flags::APPEND | inode_flags::IMMUTABLE) != 0 {
        return Err(Errno::EPERM);
    }
    landlock::may_truncate(task, found)
}

/// Sets the size of an open file.
///
/// # Errors
/// `EBADF`; `EINVAL` if it is not a regular file open for writing; those of `may_resize`.
pub fn ftruncate(task: &Task, fd: Fd, length: i64) -> Result<()> {
    if length < 0 {
        return Err(Errno::EINVAL);
    }
    let held = task.fget_no_path(fd)?;
    let wanted = file_mode::WRITE | file_mode::REGULAR;
    let mode = held.file.mode.load(Relaxed);
    let inode = held.inode;
    if mode & (wanted | file_mode::UNCUT) != wanted {
        return Err(not_cut(task, &held, mode));
    }
    let writing = writer::begin(task, held.mount())?;
    let locked = inode::lock(task, held.inode_id());
    // An append-only file is refused; an immutable one that was opened before is not.
    if inode.flags.load(Relaxed) & inode_flags::APPEND != 0 {
        return Err(Errno::EPERM);
    }
    within_limit(task, inode, length as u64)?;
    resize(task, held.inode_id(), inode, length as u64)?;
    drop((locked, writing));
    watched::touched(task, held.inode_id(), inode, Touched::Modified);
    Ok(())
}

/// Why an open file is not truncated: it is not open for writing, or was opened by a thread that may not
/// truncate it.
#[cold]
fn not_cut(task: &Task, held: &HeldFile<'_>, mode: u32) -> Errno {
    let wanted = file_mode::WRITE | file_mode::REGULAR;
    match mode & wanted == wanted {
        false => Errno::EINVAL,
        true if writer::is_read_only(task, held.mount()) => Errno::EROFS,
        true if held.inode.flags.load(Relaxed) & inode_flags::APPEND != 0 => Errno::EPERM,
        true => Errno::EACCES,
    }
}
