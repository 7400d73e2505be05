//! statfs(2), fstatfs(2).

use core::mem::MaybeUninit;

use lp_abi::linux::statfs as Statfs;
use lp_abi::{NAME_MAX, PAGE_SIZE, Result};
use lp_region::records::Inode;
use lp_region::sync::Ordering::Relaxed;
use lp_region::ucopy;

use crate::caller::task::{Place, Task};
use crate::calls::target;
use crate::content::page;
use crate::descriptors::table;
use crate::lane::writer;
use crate::life::reclaim;

/// `TMPFS_MAGIC`: programs that know file systems by type take us for what we behave like.
const MAGIC: i64 = 0x0102_1994;
/// `ST_VALID`, `ST_RELATIME`, `ST_RDONLY` of `f_flags`.
const ST_VALID: i64 = 0x20;
const ST_RELATIME: i64 = 0x1000;
const ST_RDONLY: i64 = 1;

/// Usage of the file system that a path is in.
///
/// # Errors
/// Those of path_resolution(7); `EFAULT`.
pub fn statfs(task: &Task, dirfd: i32, path: *const u8, to: *mut Statfs) -> Result<Place<()>> {
    target::at(task, dirfd, path, 0, |_, inode| put(task, inode, to))
}

/// Usage of the file system of an open file.
///
/// # Errors
/// `EBADF`, `EFAULT`.
pub fn fstatfs(task: &Task, fd: i32, to: *mut Statfs) -> Result<()> {
    let held = table::fget_any(task, fd)?;
    put(task, held.inode, to)
}

fn put(task: &Task, inode: &Inode, to: *mut Statfs) -> Result<()> {
    // What the dead hold and what nobody has open any more is free.
    reclaim::all(task);
    let header = task.region.header();
    // Relaxed throughout: immutable, or a count of a moment.
    let (blocks, free) = (header.data_pages.load(Relaxed), page::free_count(task.region));
    let inodes = header.inode_limit.load(Relaxed);
    let identity = header.identity.load(Relaxed);
    // SAFETY: all zeros is a statfs.
    let mut value: Statfs = unsafe { MaybeUninit::zeroed().assume_init() };
    value.f_type = MAGIC;
    value.f_bsize = PAGE_SIZE as i64;
    value.f_frsize = PAGE_SIZE as i64;
    value.f_blocks = blocks as i64;
    value.f_bfree = free as i64;
    value.f_bavail = free as i64;
    value.f_files = inodes as i64;
    value.f_ffree = inodes.saturating_sub(task.region.in_use::<Inode>()) as i64;
    value.f_fsid.val = [identity as i32, (identity >> 32) as i32 ^ inode.root.load(Relaxed) as i32];
    value.f_namelen = NAME_MAX as i64;
    value.f_flags = ST_VALID | ST_RELATIME | if writer::is_read_only(task, inode) { ST_RDONLY } else { 0 };
    // SAFETY: the program's memory.
    unsafe { ucopy::put(to, &value) }
}
