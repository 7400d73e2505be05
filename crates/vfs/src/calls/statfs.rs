//! statfs(2), fstatfs(2).

use core::mem::MaybeUninit;

use lp_abi::linux::{MS_MANDLOCK, MS_SYNCHRONOUS, statfs as Statfs};
use lp_abi::{Fd, NAME_MAX, PAGE_SIZE, Result, UserPtr};
use lp_region::MountId;
use lp_region::mount::mount_flags;
use lp_region::records::Inode;
use lp_region::sync::Ordering::Relaxed;
use lp_region::ucopy;

use crate::caller::task::{Place, Task};
use crate::calls::target;
use crate::content::page;
use crate::life::fs_options::FsKind;
use crate::life::{reclaim, superblock};

/// The number by which programs know a file system: `TMPFS_MAGIC`, `RAMFS_MAGIC`.
pub(crate) fn magic(kind: FsKind) -> i64 {
    match kind {
        FsKind::Tmpfs => 0x0102_1994,
        FsKind::Ramfs => 0x8584_58f6,
    }
}

/// `ST_VALID` of `f_flags`.
const ST_VALID: i64 = 0x20;
/// Bits of `f_flags` and the mount flags that they show (the kernel's flags_by_mnt).
const FLAGS: [(i64, u32); 8] = [
    (1, mount_flags::READ_ONLY | mount_flags::SB_READ_ONLY),
    (2, mount_flags::NOSUID),
    (4, mount_flags::NODEV),
    (8, mount_flags::NOEXEC),
    (0x400, mount_flags::NOATIME),
    (0x800, mount_flags::NODIRATIME),
    (0x1000, mount_flags::RELATIME),
    (0x2000, mount_flags::NOSYMFOLLOW),
];

/// Usage of the file system that a path is in.
///
/// # Errors
/// Those of path_resolution(7); `EFAULT`.
pub fn statfs(task: &Task, dirfd: Fd, path: UserPtr, to: UserPtr<Statfs>) -> Result<Place<()>> {
    target::at(task, dirfd, path, 0, |_, inode, mount| put(task, inode, mount, to))
}

/// Usage of the file system of an open file.
///
/// # Errors
/// `EBADF`, `EFAULT`.
pub fn fstatfs(task: &Task, fd: Fd, to: UserPtr<Statfs>) -> Result<()> {
    let held = task.fget_any(fd)?;
    put(task, held.inode, held.mount(), to)
}

fn put(task: &Task, inode: &Inode, mount: MountId, to: UserPtr<Statfs>) -> Result<()> {
    // What the dead hold, and what nobody has open, counts as free.
    reclaim::all(task);
    let header = task.region.header();
    // Relaxed throughout: immutable, or a momentary count.
    let (blocks, free) = (header.data_pages.load(Relaxed), page::free_count(task.region));
    let inodes = header.inode_limit.load(Relaxed);
    let free_inodes = inodes.saturating_sub(task.region.in_use::<Inode>());
    let ((blocks, free), (inodes, free_inodes)) =
        superblock::limited(task, inode.root.load(Relaxed), (blocks, free), (inodes, free_inodes));
    let identity = header.identity.load(Relaxed);
    // SAFETY: zeros are a valid statfs.
    let mut value: Statfs = unsafe { MaybeUninit::zeroed().assume_init() };
    value.f_type = magic(superblock::kind(task, inode.root.load(Relaxed)));
    value.f_bsize = PAGE_SIZE as i64;
    value.f_frsize = PAGE_SIZE as i64;
    value.f_blocks = blocks as i64;
    value.f_bfree = free as i64;
    value.f_bavail = free as i64;
    value.f_files = inodes as i64;
    value.f_ffree = free_inodes as i64;
    value.f_fsid.val = [identity as i32, (identity >> 32) as i32 ^ inode.root.load(Relaxed) as i32];
    value.f_namelen = NAME_MAX as i64;
    let mounted = task.region.mount(mount);
    let flags = mounted.flags.load(Relaxed);
    let shown = FLAGS.iter().filter(|(_, of)| flags & of != 0);
    // Of these two, `ST_*` and `MS_*` are the same bits.
    let whole = superblock::shown(task, mounted.superblock.load(Relaxed)) & (MS_SYNCHRONOUS | MS_MANDLOCK);
    value.f_flags = shown.fold(ST_VALID | i64::from(whole), |all, (bit, _)| all | bit);
    // SAFETY: the copy routine handles bad pointers.
    unsafe { ucopy::put(to.as_ptr(), &value) }
}
