//! stat(2), fstat(2), lstat(2), fstatat(2), statx(2): validated copies of one inode record.

use core::mem::MaybeUninit;

use lp_abi::linux::{
    AT_EMPTY_PATH, AT_NO_AUTOMOUNT, AT_STATX_SYNC_TYPE, AT_SYMLINK_NOFOLLOW, STATX__RESERVED,
    STATX_ATTR_APPEND, STATX_ATTR_AUTOMOUNT, STATX_ATTR_DAX, STATX_ATTR_IMMUTABLE, STATX_ATTR_MOUNT_ROOT,
    STATX_ATTR_NODUMP, STATX_BASIC_STATS, STATX_BTIME, STATX_CTIME, STATX_MNT_ID, STATX_MTIME, stat,
    statx as Statx, statx_timestamp,
};
use lp_abi::{Errno, Fd, PAGE_SIZE, Result, UserPtr};
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::{Acquire, Relaxed};
use lp_region::{InodeId, InodeRef, MountId, Spot, ucopy};

use crate::caller::task::{Outside, Place, Task, Time};
use crate::calls::target::{follow, is_empty};
use crate::descriptors::table;
use crate::inodes::inode::{self, Attributes};
use crate::names::mounts;
use crate::names::walk::{self, Follow};

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
    if fstat_quick(task, table::load(task, fd), to) { Ok(()) } else { fstat_slow(task, fd, to) }
}

/// Fast path of [`fstat`], for an entry just read: not a directory, and nobody changes it. Returns false to
/// fall back to [`fstat`].
#[inline(always)]
pub fn fstat_quick(task: &Task, entry: u64, to: UserPtr<stat>) -> bool {
    let Some(file) = table::own_any(task, entry) else { return false };
    let id = InodeRef::from_word(file.inode.load(Relaxed)).id; // Relaxed: immutable while open.
    let inode = task.region.inode(id);
    let before = inode.seq.read();
    let device = task.device(inode.root.load(Relaxed)); // Relaxed: immutable.
    // SAFETY: the copy routine handles bad pointers.
    !inode::is_dir(inode)
        && unsafe { ucopy::put_stat(to.as_ptr(), inode, device, id.0) }.is_ok()
        && !inode.seq.retry(before)
}

#[inline(never)]
fn fstat_slow(task: &Task, fd: Fd, to: UserPtr<stat>) -> Result<()> {
    let held = table::fget_any(task, fd)?;
    put_stat(task, held.inode_id(), held.inode, to)
}

/// Attributes of what a path names.
///
/// # Errors
/// Those of path_resolution(7); `EINVAL` for unknown flags; `EFAULT`.
#[inline]
pub fn fstatat(task: &Task, dirfd: Fd, path: UserPtr, to: UserPtr<stat>, flags: u32) -> Result<Place<()>> {
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & AT_EMPTY_PATH != 0 && is_empty(path)? {
        return of_descriptor(task, dirfd, |id, inode, _| put_stat(task, id, inode, to));
    }
    of_path(task, dirfd, path, follow(flags), |id, inode, _| put_stat(task, id, inode, to))
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
    let known = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH | AT_STATX_SYNC_TYPE;
    let sync = flags & AT_STATX_SYNC_TYPE;
    if mask & STATX__RESERVED != 0 || sync == AT_STATX_SYNC_TYPE || flags & !known != 0 {
        return Err(Errno::EINVAL);
    }
    let put = |id: InodeId, inode: &Inode, mount: MountId| {
        let value = extended(task, (id, mount), &inode::attributes(task, id, inode), mask);
        // SAFETY: the copy routine handles bad pointers.
        unsafe { ucopy::put_words(to.as_ptr(), &value) }
    };
    if flags & AT_EMPTY_PATH != 0 && is_empty(path)? {
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
    if table::whose(task, fd) != table::Whose::NotOurs {
        let held = table::fget_any(task, fd)?;
        return put(held.inode_id(), held.inode, held.mount()).map(Place::Inside);
    }
    // Relaxed: changes only in its own process.
    let Spot { inode: cwd, mount } = Spot::from_word(task.process.cwd.load(Relaxed));
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
    for _ in 0..walk::TRIES {
        let found = match walk::inode(task, dirfd, path, follow)? {
            Place::Inside(found) => found,
            Place::Outside(outside) => return Ok(Place::Outside(outside)),
        };
        let inode = task.region.inode(found.inode.id);
        put(found.inode.id, inode, found.mount)?;
        // PAIRS: the release store in `make::free`: the generation is incremented before anything in the slot
        // changes.
        if inode.generation.load(Acquire) == found.inode.generation {
            return Ok(Place::Inside(()));
        }
    }
    Err(Errno::ESTALE)
}

#[inline(always)]
fn put_stat(task: &Task, id: InodeId, inode: &Inode, to: UserPtr<stat>) -> Result<()> {
    let before = inode.seq.read();
    let device = task.device(inode.root.load(Relaxed)); // Relaxed: immutable.
    if inode::is_dir(inode) {
        return put_directory(task, id, inode, to, device);
    }
    // SAFETY: the copy routine handles bad pointers.
    unsafe { ucopy::put_stat(to.as_ptr(), inode, device, id.0) }?;
    if inode.seq.retry(before) {
        inode::mend_if_left(task, id, &inode.seq);
        return put_stat_slow(id, inode, to, device);
    }
    Ok(())
}

/// [`put_stat`] for a directory, whose entries have a sequence count of their own.
#[inline(never)]
fn put_directory(task: &Task, id: InodeId, inode: &Inode, to: UserPtr<stat>, device: u64) -> Result<()> {
    inode::mend_if_left(task, id, &inode.seq);
    inode::mend_if_left(task, id, &inode.data_seq);
    // SAFETY: the copy routine handles bad pointers.
    inode.data_seq.snapshot_both(&inode.seq, || unsafe { ucopy::put_stat(to.as_ptr(), inode, device, id.0) })
}

/// Repeats the copy until it is consistent.
#[inline(never)]
fn put_stat_slow(id: InodeId, inode: &Inode, to: UserPtr<stat>, device: u64) -> Result<()> {
    // SAFETY: the copy routine handles bad pointers.
    inode.seq.snapshot(|| unsafe { ucopy::put_stat(to.as_ptr(), inode, device, id.0) })
}

/// What tmpfs says it has filled in (the kernel's vfs_statx, shmem_getattr, fill_mg_cmtime): more than
/// requested, but change and birth times only on request.
fn filled(mask: u32) -> u32 {
    let changes = STATX_MTIME | STATX_CTIME;
    let unasked = if mask & changes == 0 { changes } else { 0 };
    STATX_BASIC_STATS & !unasked | STATX_MNT_ID | mask & STATX_BTIME
}

fn extended(task: &Task, (id, mount): (InodeId, MountId), seen: &Attributes, mask: u32) -> Statx {
    let record: &Inode = task.region.inode(id);
    // SAFETY: zeros are a valid statx.
    let mut value: Statx = unsafe { MaybeUninit::zeroed().assume_init() };
    value.stx_mask = filled(mask);
    value.stx_mnt_id = u64::from(mounts::shown_id(mount));
    value.stx_blksize = PAGE_SIZE as u32;
    value.stx_attributes = u64::from(attribute_bits(task, id, record, mount));
    value.stx_attributes_mask = u64::from(KNOWN_ATTRIBUTES);
    value.stx_nlink = seen.nlink;
    value.stx_uid = seen.uid;
    value.stx_gid = seen.gid;
    value.stx_mode = seen.mode as u16;
    value.stx_ino = u64::from(id.0);
    value.stx_size = seen.size;
    value.stx_blocks = seen.blocks;
    value.stx_atime = timestamp(seen.atime);
    if value.stx_mask & STATX_BTIME != 0 {
        value.stx_btime = timestamp(seen.btime);
    }
    if value.stx_mask & STATX_MTIME != 0 {
        value.stx_ctime = timestamp(seen.ctime);
        value.stx_mtime = timestamp(seen.mtime);
    }
    (value.stx_rdev_major, value.stx_rdev_minor) = split_device(u64::from(seen.rdev));
    (value.stx_dev_major, value.stx_dev_minor) = split_device(task.device(seen.root));
    value
}

fn attribute_bits(task: &Task, id: InodeId, record: &Inode, mount: MountId) -> u32 {
    let flags = record.flags.load(Relaxed); // Relaxed: one word.
    let bit = |flag: u32, attribute: u32| if flags & flag != 0 { attribute } else { 0 };
    let is_root = task.region.mount(mount).root().id == id;
    bit(inode_flags::APPEND, STATX_ATTR_APPEND)
        | bit(inode_flags::IMMUTABLE, STATX_ATTR_IMMUTABLE)
        | bit(inode_flags::NODUMP, STATX_ATTR_NODUMP)
        | if is_root { STATX_ATTR_MOUNT_ROOT } else { 0 }
}

fn timestamp(time: Time) -> statx_timestamp {
    statx_timestamp { tv_sec: time.sec, tv_nsec: time.nsec, __reserved: 0 }
}

/// Major and minor of a device number in the kernel's encoding.
pub(crate) fn split_device(device: u64) -> (u32, u32) {
    let minor = device & 0xff | device >> 12 & !0xff;
    ((device >> 8 & 0xfff) as u32, minor as u32)
}
