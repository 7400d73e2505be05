//! stat(2), fstat(2), lstat(2), fstatat(2), statx(2): validated copies of one inode record.

use lp_abi::linux::{
    AT_EMPTY_PATH, AT_NO_AUTOMOUNT, AT_STATX_SYNC_TYPE, AT_SYMLINK_NOFOLLOW, STATX__RESERVED,
    STATX_ATTR_APPEND, STATX_ATTR_AUTOMOUNT, STATX_ATTR_DAX, STATX_ATTR_IMMUTABLE, STATX_ATTR_MOUNT_ROOT,
    STATX_ATTR_NODUMP, STATX_BASIC_STATS, STATX_BTIME, STATX_CTIME, STATX_MNT_ID, STATX_MTIME, stat,
    statx as Statx,
};
use lp_abi::{Errno, Fd, PAGE_SIZE, Result, UserPtr};
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::{Acquire, Relaxed};
use lp_region::ucopy::{self, Beside};
use lp_region::{InodeId, InodeRef, MountId, Spot};

use crate::caller::task::{Outside, Place, Task};
use crate::calls::target::{follow, is_absent};
use crate::descriptors::table::{self, entry};
use crate::inodes::inode;
use crate::life::mapping;
use crate::names::mounts;
use crate::names::walk::{self, Follow, Found};

/// `STATX_MNT_ID_UNIQUE`.
const UNIQUE: u32 = 0x4000;
/// The flags of statx(2).
const KNOWN_FLAGS: u32 = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH | AT_STATX_SYNC_TYPE;
/// Bits of `STATX_ATTR_*` that tmpfs supports, and those that the kernel supports for every file.
const KNOWN_ATTRIBUTES: u32 = STATX_ATTR_APPEND
    | STATX_ATTR_IMMUTABLE
    | STATX_ATTR_NODUMP
    | STATX_ATTR_MOUNT_ROOT
    | STATX_ATTR_AUTOMOUNT
    | STATX_ATTR_DAX;

/// Attributes of an open file.
///
/// # Errors
/// `EBADF`, `EFAULT`.
#[inline]
pub fn fstat(task: &Task, fd: Fd, to: UserPtr<stat>) -> Result<()> {
    if fstat_quick(task, task.table.load(fd), to, || false) { Ok(()) } else { fstat_slow(task, fd, to) }
}

/// Fast path of [`fstat`], for an entry just read: not a directory, and nobody changes it. Returns false to
/// fall back to [`fstat`]. `otherwise` answers while threads share the table.
#[inline(always)]
pub fn fstat_quick(task: &Task, entry: u64, to: UserPtr<stat>, otherwise: impl FnOnce() -> bool) -> bool {
    let Some(file) = task.own_any(entry) else { return otherwise() };
    let id = InodeRef::from_word(file.inode.load(Relaxed)).id; // Relaxed: immutable while open.
    put_quick(task, task.region.inode(id), to)
}

/// [`fstat_quick`] beside threads that share the table.
#[inline(always)]
pub fn fstat_quick_beside(task: &Task, fd: Fd, to: UserPtr<stat>) -> bool {
    task.pin_for(fd, entry::OPEN, 0).is_some_and(|held| put_quick(task, task.inode_of(held.file), to))
}

/// Fast path of [`put_stat`]. Returns false to fall back to it.
#[inline(always)]
fn put_quick(task: &Task, inode: &Inode, to: UserPtr<stat>) -> bool {
    let before = inode.seq.read();
    let device = task.device(inode.root.load(Relaxed)); // Relaxed: immutable.
    // SAFETY: the copy routine handles bad pointers.
    !inode.is_dir()
        && !mapping::is_writable(inode)
        && unsafe { ucopy::put_stat_as::<false>(to.as_ptr(), inode, device) }.is_ok()
        && !inode.seq.retry(before)
}

#[inline(never)]
fn fstat_slow(task: &Task, fd: Fd, to: UserPtr<stat>) -> Result<()> {
    if fstat_quick_beside(task, fd, to) {
        return Ok(());
    }
    let held = task.fget_any(fd)?;
    put_stat(task, held.inode_id(), held.inode, to)
}

/// Attributes of what a path names.
///
/// # Errors
/// Those of path_resolution(7); `EINVAL` for unknown flags; `EFAULT`.
#[inline(always)]
pub fn fstatat(task: &Task, dirfd: Fd, path: UserPtr, to: UserPtr<stat>, flags: u32) -> Result<Place<()>> {
    if flags & !KNOWN_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & AT_EMPTY_PATH != 0 && is_absent(path)? {
        return of_descriptor(task, dirfd, |id, inode, _| put_stat(task, id, inode, to));
    }
    let text = walk::copy_path(task, walk::PathBuffer::Path, path)?;
    if let Some(found) = walk::in_known(task, dirfd, text, follow(flags))
        && stat_found(task, &found?, to)?
    {
        return Ok(Place::Inside(()));
    }
    fstatat_slow(task, dirfd, text, flags, to)
}

/// Whether [`fstatat_quick`] takes these flags.
#[inline(always)]
pub fn are_plain(flags: u32) -> bool {
    flags & (!KNOWN_FLAGS | AT_EMPTY_PATH) == 0
}

/// [`fstatat`] with flags that [are plain](are_plain), in registers. `None` to fall back to it: also where
/// the path leads out.
#[inline(always)]
pub fn fstatat_quick(
    task: &Task,
    dirfd: Fd,
    path: UserPtr,
    to: UserPtr<stat>,
    flags: u32,
) -> Option<Result<()>> {
    let text = walk::copy_path(task, walk::PathBuffer::Path, path).ok()?;
    match walk::in_known(task, dirfd, text, follow(flags)) {
        Some(Ok(found)) => match stat_found(task, &found, to) {
            Ok(true) => Some(Ok(())),
            Ok(false) => fstatat_walked(task, dirfd, text, flags, to),
            Err(errno) => Some(Err(errno)),
        },
        Some(Err(errno)) => Some(Err(errno)),
        None => fstatat_walked(task, dirfd, text, flags, to),
    }
}

#[inline(never)]
fn fstatat_walked(
    task: &Task,
    dirfd: Fd,
    text: walk::PathText,
    flags: u32,
    to: UserPtr<stat>,
) -> Option<Result<()>> {
    match fstatat_slow(task, dirfd, text, flags, to) {
        Ok(Place::Inside(())) => Some(Ok(())),
        Ok(Place::Outside(_)) => None,
        Err(errno) => Some(Err(errno)),
    }
}

#[inline(never)]
fn fstatat_slow(
    task: &Task,
    dirfd: Fd,
    text: walk::PathText,
    flags: u32,
    to: UserPtr<stat>,
) -> Result<Place<()>> {
    of_path_slow(task, dirfd, text, follow(flags), &|id, inode, _| put_stat(task, id, inode, to))
}

/// [`of_found`] for stat(2).
#[inline(always)]
fn stat_found(task: &Task, found: &Found, to: UserPtr<stat>) -> Result<bool> {
    let inode = task.region.inode(found.inode.id);
    // PAIRS: as in `of_found`.
    let is_done = put_quick(task, inode, to) && inode.generation.load(Acquire) == found.inode.generation;
    if is_done { Ok(true) } else { stat_found_slow(task, found.inode, to) }
}

#[inline(never)]
fn stat_found_slow(task: &Task, found: InodeRef, to: UserPtr<stat>) -> Result<bool> {
    let inode = task.region.inode(found.id);
    put_stat(task, found.id, inode, to)?;
    // PAIRS: as in `of_found`.
    Ok(inode.generation.load(Acquire) == found.generation)
}

/// Extended attributes of what a path names: statx(2).
///
/// # Errors
/// Those of [`fstatat`]; `EINVAL` for a reserved bit of `mask`.
pub fn statx(
    task: &Task,
    dirfd: Fd,
    path: UserPtr,
    flags: u32,
    mask: u32,
    to: UserPtr<Statx>,
) -> Result<Place<()>> {
    let sync = flags & AT_STATX_SYNC_TYPE;
    if mask & (STATX__RESERVED | UNIQUE) != 0 || sync == AT_STATX_SYNC_TYPE || flags & !KNOWN_FLAGS != 0 {
        return statx_unique(task, dirfd, path, (flags, mask), to);
    }
    let put = |id: InodeId, inode: &Inode, mount: MountId| {
        let beside = beside(task, (id, mount), inode, mask);
        // SAFETY: the copy routine handles bad pointers.
        write(task, id, inode, || unsafe { ucopy::put_statx(to.as_ptr(), inode, &beside) })
    };
    if flags & AT_EMPTY_PATH != 0 && is_absent(path)? {
        return of_descriptor(task, dirfd, put);
    }
    of_path(task, dirfd, path, follow(flags), put)
}

/// [`statx`] with an id of 64 bits for the mount, or with wrong arguments.
#[cold]
#[inline(never)]
fn statx_unique(
    task: &Task,
    dirfd: Fd,
    path: UserPtr,
    (flags, mask): (u32, u32),
    to: UserPtr<Statx>,
) -> Result<Place<()>> {
    let is_both = flags & AT_STATX_SYNC_TYPE == AT_STATX_SYNC_TYPE;
    if mask & STATX__RESERVED != 0 || is_both || flags & !KNOWN_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let put = |id: InodeId, inode: &Inode, mount: MountId| {
        let mut beside = beside(task, (id, mount), inode, mask);
        beside.mask ^= STATX_MNT_ID | UNIQUE;
        beside.mount = mounts::unique_id(task, mount);
        // SAFETY: the copy routine handles bad pointers.
        write(task, id, inode, || unsafe { ucopy::put_statx(to.as_ptr(), inode, &beside) })
    };
    if flags & AT_EMPTY_PATH != 0 && is_absent(path)? {
        return of_descriptor(task, dirfd, put);
    }
    of_path(task, dirfd, path, follow(flags), put)
}

/// Calls `put` on the inode of a descriptor or of `Fd::CWD`.
#[inline(always)]
fn of_descriptor(
    task: &Task,
    fd: Fd,
    put: impl Fn(InodeId, &Inode, MountId) -> Result<()>,
) -> Result<Place<()>> {
    if task.table.whose(fd) != table::Whose::NotOurs {
        let held = task.fget_any(fd)?;
        return put(held.inode_id(), held.inode, held.mount()).map(Place::Inside);
    }
    // Relaxed: one word, as seen.
    let Spot { inode: cwd, mount } = Spot::from_word(task.directories.get().cwd.load(Relaxed));
    if fd != Fd::CWD || cwd.id.is_none() {
        return Ok(Place::Outside(Outside::AsGiven));
    }
    put(cwd.id, task.region.inode(cwd.id), mount).map(Place::Inside)
}

/// Calls `put` on what a path names. If the inode is freed meanwhile, the path is resolved again.
#[inline(always)]
fn of_path(
    task: &Task,
    dirfd: Fd,
    path: UserPtr,
    follow: Follow,
    put: impl Fn(InodeId, &Inode, MountId) -> Result<()>,
) -> Result<Place<()>> {
    let text = walk::copy_path(task, walk::PathBuffer::Path, path)?;
    if let Some(found) = walk::in_known(task, dirfd, text, follow)
        && of_found(task, &found?, &put)?
    {
        return Ok(Place::Inside(()));
    }
    of_path_slow(task, dirfd, text, follow, &put)
}

#[inline(never)]
fn of_path_slow(
    task: &Task,
    dirfd: Fd,
    text: walk::PathText,
    follow: Follow,
    put: &dyn Fn(InodeId, &Inode, MountId) -> Result<()>,
) -> Result<Place<()>> {
    for _ in 0..walk::TRIES {
        let found = match walk::inode_of(task, dirfd, text, follow)? {
            Place::Inside(found) => found,
            Place::Outside(outside) => return Ok(Place::Outside(outside)),
        };
        if of_found(task, &found, put)? {
            return Ok(Place::Inside(()));
        }
    }
    Err(Errno::ESTALE)
}

/// Calls `put` on what a walk found; whether it was there all the while.
#[inline(always)]
fn of_found<P>(task: &Task, found: &Found, put: P) -> Result<bool>
where
    P: Fn(InodeId, &Inode, MountId) -> Result<()>,
{
    let inode = task.region.inode(found.inode.id);
    put(found.inode.id, inode, found.mount)?;
    // PAIRS: the release store in `inode::free`: the generation grows before anything in the slot changes.
    Ok(inode.generation.load(Acquire) == found.inode.generation)
}

#[inline(always)]
fn put_stat(task: &Task, id: InodeId, inode: &Inode, to: UserPtr<stat>) -> Result<()> {
    let device = task.device(inode.root.load(Relaxed)); // Relaxed: immutable.
    // SAFETY: the copy routine handles bad pointers.
    write(task, id, inode, || unsafe { ucopy::put_stat(to.as_ptr(), inode, device) })
}

/// Has `put` write what it sees of an inode until that is of one moment.
#[inline(always)]
fn write(task: &Task, id: InodeId, inode: &Inode, put: impl Fn() -> Result<()>) -> Result<()> {
    mapping::settle_times(task, id, inode);
    let before = inode.seq.read();
    if inode.is_dir() {
        return write_directory(task, id, inode, &put);
    }
    put()?;
    if inode.seq.retry(before) { write_slow(task, id, inode, &put) } else { Ok(()) }
}

/// [`write`] of a directory, whose entries have a count of their own.
#[inline(never)]
fn write_directory(task: &Task, id: InodeId, inode: &Inode, put: &dyn Fn() -> Result<()>) -> Result<()> {
    inode::mend_if_left(task, id, &inode.seq);
    inode::mend_if_left(task, id, &inode.data_seq);
    inode.data_seq.snapshot_both(&inode.seq, put)
}

#[inline(never)]
fn write_slow(task: &Task, id: InodeId, inode: &Inode, put: &dyn Fn() -> Result<()>) -> Result<()> {
    inode::mend_if_left(task, id, &inode.seq);
    inode.seq.snapshot(put)
}

/// What tmpfs says it has filled in (the kernel's vfs_statx, shmem_getattr, fill_mg_cmtime): more than
/// requested, but change and birth times only on request.
fn filled(mask: u32) -> u32 {
    let changes = STATX_MTIME | STATX_CTIME;
    let unasked = if mask & changes == 0 { changes } else { 0 };
    STATX_BASIC_STATS & !unasked | STATX_MNT_ID | mask & STATX_BTIME
}

#[inline(always)]
fn beside(task: &Task, (id, mount): (InodeId, MountId), inode: &Inode, mask: u32) -> Beside {
    // Relaxed: immutable.
    let (root, rdev) = (inode.root.load(Relaxed), inode.rdev.load(Relaxed));
    Beside {
        mask: filled(mask),
        block_size: PAGE_SIZE as u32,
        attributes: u64::from(attribute_bits(task, id, inode, mount)),
        attributes_mask: u64::from(KNOWN_ATTRIBUTES),
        rdev: split_device(u64::from(rdev)).into(),
        device: split_device(task.device(root)).into(),
        mount: u64::from(mounts::shown_id(mount)),
    }
}

#[inline(always)]
fn attribute_bits(task: &Task, id: InodeId, record: &Inode, mount: MountId) -> u32 {
    const SHOWN: u32 = inode_flags::APPEND | inode_flags::IMMUTABLE | inode_flags::NODUMP;
    let is_root = task.region.mount(mount).root().id == id;
    // Relaxed: one word.
    (record.flags.load(Relaxed) & SHOWN) >> 1 | if is_root { STATX_ATTR_MOUNT_ROOT } else { 0 }
}

// The inode's flags are those of statx(2), one bit higher.
const _: () = {
    assert!(inode_flags::APPEND == STATX_ATTR_APPEND << 1 && inode_flags::NODUMP == STATX_ATTR_NODUMP << 1);
    assert!(inode_flags::IMMUTABLE == STATX_ATTR_IMMUTABLE << 1);
};

/// Major and minor of a device number in the kernel's encoding.
pub fn split_device(device: u64) -> (u32, u32) {
    let minor = device & 0xff | device >> 12 & !0xff;
    ((device >> 8 & 0xfff) as u32, minor as u32)
}
