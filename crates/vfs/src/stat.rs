//! stat(2), fstat(2), lstat(2), fstatat(2), statx(2): validated copies of one inode record.

use core::mem::MaybeUninit;

use lp_abi::linux::{
    AT_EMPTY_PATH, AT_NO_AUTOMOUNT, AT_STATX_SYNC_TYPE, AT_SYMLINK_NOFOLLOW, STATX__RESERVED,
    STATX_ATTR_APPEND, STATX_ATTR_AUTOMOUNT, STATX_ATTR_DAX, STATX_ATTR_IMMUTABLE, STATX_ATTR_MOUNT_ROOT,
    STATX_ATTR_NODUMP, STATX_BASIC_STATS, STATX_BTIME, stat, statx as Statx, statx_timestamp,
};
use lp_abi::{Errno, PAGE_SIZE, Result};
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::{Acquire, Relaxed};
use lp_region::{InodeId, InodeRef, ucopy};

use crate::inode::{self, Attributes};
use crate::table;
use crate::target::{follow, is_empty};
use crate::task::{Outside, Place, Task, Time};
use crate::walk::{self, Follow};

/// Bits of `STATX_ATTR_*` that tmpfs knows, and those that the kernel knows for every file.
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
pub fn fstat(task: &Task, fd: i32, to: *mut stat) -> Result<()> {
    let held = table::fget_any(task, fd)?;
    put_stat(task, held.inode_id(), &inode::attributes(held.inode), to)
}

/// Attributes of what a path names.
///
/// # Errors
/// Those of path_resolution(7); `EINVAL` for unknown flags; `EFAULT`.
#[inline]
pub fn fstatat(task: &Task, dirfd: i32, path: *const u8, to: *mut stat, flags: u32) -> Result<Place<()>> {
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    if flags & AT_EMPTY_PATH != 0 && is_empty(path)? {
        return match of_descriptor(task, dirfd)? {
            Place::Inside((id, seen)) => put_stat(task, id, &seen, to).map(Place::Inside),
            Place::Outside(outside) => Ok(Place::Outside(outside)),
        };
    }
    match of_path(task, dirfd, path, follow(flags))? {
        Place::Inside((id, seen)) => put_stat(task, id, &seen, to).map(Place::Inside),
        Place::Outside(outside) => Ok(Place::Outside(outside)),
    }
}

/// Attributes of what a path names, extended.
///
/// # Errors
/// As [`fstatat`]; `EINVAL` for a reserved bit of `mask`.
pub fn statx(
    task: &Task,
    dirfd: i32,
    path: *const u8,
    flags: u32,
    mask: u32,
    to: *mut Statx,
) -> Result<Place<()>> {
    let known = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH | AT_STATX_SYNC_TYPE;
    let sync = flags & AT_STATX_SYNC_TYPE;
    if mask & STATX__RESERVED != 0 || sync == AT_STATX_SYNC_TYPE || flags & !known != 0 {
        return Err(Errno::EINVAL);
    }
    let place = if flags & AT_EMPTY_PATH != 0 && is_empty(path)? {
        of_descriptor(task, dirfd)?
    } else {
        of_path(task, dirfd, path, follow(flags))?
    };
    match place {
        Place::Inside((id, seen)) => {
            let value = extended(task, id, &seen);
            // SAFETY: the program's memory.
            unsafe { ucopy::put(to, &value) }.map(Place::Inside)
        }
        Place::Outside(outside) => Ok(Place::Outside(outside)),
    }
}

/// Attributes of what a descriptor, or `AT_FDCWD`, names.
#[inline]
fn of_descriptor(task: &Task, fd: i32) -> Result<Place<(InodeId, Attributes)>> {
    if fd == lp_abi::linux::AT_FDCWD {
        let cwd = InodeRef::from_word(task.process.cwd.load(Relaxed)); // Relaxed: changes in its own process only.
        if cwd.id.is_none() {
            return Ok(Place::Outside(Outside::AsGiven));
        }
        return Ok(Place::Inside((cwd.id, inode::attributes(task.region.inode(cwd.id)))));
    }
    if table::kind(task, fd) == table::Kind::NotOurs {
        return Ok(Place::Outside(Outside::AsGiven));
    }
    let held = table::fget_any(task, fd)?;
    Ok(Place::Inside((held.inode_id(), inode::attributes(held.inode))))
}

/// Attributes of what a path names. The inode may be freed while it is looked at: then the path is resolved again.
#[inline]
fn of_path(task: &Task, dirfd: i32, path: *const u8, follow: Follow) -> Result<Place<(InodeId, Attributes)>> {
    loop {
        let found = match walk::inode(task, dirfd, path, follow)? {
            Place::Inside(found) => found.inode,
            Place::Outside(outside) => return Ok(Place::Outside(outside)),
        };
        match inode::attributes_of(task.region, found) {
            Ok(seen) => return Ok(Place::Inside((found.id, seen))),
            Err(_) => continue,
        }
    }
}

#[inline(always)]
fn put_stat(task: &Task, id: InodeId, seen: &Attributes, to: *mut stat) -> Result<()> {
    // SAFETY: all zeros is a stat.
    let mut value: stat = unsafe { MaybeUninit::zeroed().assume_init() };
    value.st_dev = inode::device(task.region, seen.root);
    value.st_ino = u64::from(id.0);
    value.st_nlink = u64::from(seen.nlink);
    value.st_mode = seen.mode;
    value.st_uid = seen.uid;
    value.st_gid = seen.gid;
    value.st_rdev = u64::from(seen.rdev);
    value.st_size = seen.size as i64;
    value.st_blksize = PAGE_SIZE as i64;
    value.st_blocks = seen.blocks as i64;
    value.st_atime = seen.atime.sec as u64;
    value.st_atime_nsec = u64::from(seen.atime.nsec);
    value.st_mtime = seen.mtime.sec as u64;
    value.st_mtime_nsec = u64::from(seen.mtime.nsec);
    value.st_ctime = seen.ctime.sec as u64;
    value.st_ctime_nsec = u64::from(seen.ctime.nsec);
    // SAFETY: the program's memory.
    unsafe { ucopy::put(to, &value) }
}

fn extended(task: &Task, id: InodeId, seen: &Attributes) -> Statx {
    let record: &Inode = task.region.inode(id);
    // SAFETY: all zeros is a statx.
    let mut value: Statx = unsafe { MaybeUninit::zeroed().assume_init() };
    value.stx_mask = STATX_BASIC_STATS | STATX_BTIME;
    value.stx_blksize = PAGE_SIZE as u32;
    value.stx_attributes = u64::from(attribute_bits(task, id, record, seen.root));
    value.stx_attributes_mask = u64::from(KNOWN_ATTRIBUTES);
    value.stx_nlink = seen.nlink;
    value.stx_uid = seen.uid;
    value.stx_gid = seen.gid;
    value.stx_mode = seen.mode as u16;
    value.stx_ino = u64::from(id.0);
    value.stx_size = seen.size;
    value.stx_blocks = seen.blocks;
    value.stx_atime = timestamp(seen.atime);
    value.stx_btime = timestamp(seen.btime);
    value.stx_ctime = timestamp(seen.ctime);
    value.stx_mtime = timestamp(seen.mtime);
    (value.stx_rdev_major, value.stx_rdev_minor) = split_device(u64::from(seen.rdev));
    (value.stx_dev_major, value.stx_dev_minor) = split_device(inode::device(task.region, seen.root));
    value
}

fn attribute_bits(task: &Task, id: InodeId, record: &Inode, root: u32) -> u32 {
    let flags = record.flags.load(Relaxed); // Relaxed: one word.
    let bit = |flag: u32, attribute: u32| if flags & flag != 0 { attribute } else { 0 };
    // PAIRS: the release store that makes a root.
    let is_root = task.region.header().roots[root as usize & 15].load(Acquire) == id.0;
    bit(inode_flags::APPEND, STATX_ATTR_APPEND)
        | bit(inode_flags::IMMUTABLE, STATX_ATTR_IMMUTABLE)
        | bit(inode_flags::NODUMP, STATX_ATTR_NODUMP)
        | if is_root { STATX_ATTR_MOUNT_ROOT } else { 0 }
}

fn timestamp(time: Time) -> statx_timestamp {
    statx_timestamp { tv_sec: time.sec, tv_nsec: time.nsec, __reserved: 0 }
}

/// Major and minor of a device number in the kernel's encoding.
fn split_device(device: u64) -> (u32, u32) {
    let minor = device & 0xff | device >> 12 & !0xff;
    ((device >> 8 & 0xfff) as u32, minor as u32)
}
