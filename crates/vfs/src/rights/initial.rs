//! The initial mode, owner, group and ACL of a new inode.

use lp_abi::Result;
use lp_abi::linux::{S_IFDIR, S_IFLNK, S_IFMT, S_ISGID, S_IXGRP};
use lp_region::records::{Inode, inode_flags};
use lp_region::slab::Slot;
use lp_region::sync::Ordering::{Relaxed, Release};

use crate::caller::task::Task;
use crate::inodes::make::NewInode;
use crate::rights::{acl, credentials};

/// Creates an inode in the directory `parent`. `mode` is its type and the requested permissions; the umask,
/// the directory's set-group-ID bit and its default ACL are applied here. Whether the file may have that bit
/// depends on the mode before the umask (the kernel's vfs_prepare_mode). The inode has one link, a directory
/// two, and no name yet. The lane names it until the caller has linked it in.
///
/// # Errors
/// `ENOSPC` if there are no inodes left.
#[inline(always)]
pub fn create<'t, 'r>(task: &'t Task<'r>, parent: &Inode, mode: u32, rdev: u32) -> Result<NewInode<'t, 'r>> {
    // Relaxed throughout: one word each, with momentary values.
    let kind = mode & S_IFMT;
    let (asked, mut mode) = (mode, mode);
    let has_default = kind != S_IFLNK && parent.default_acl.load(Relaxed) != 0;
    if kind != S_IFLNK && !has_default {
        mode &= !(task.directories.get().umask.load(Relaxed) & 0o777);
    }
    let credentials = task.credentials.get();
    let mut gid = credentials.fsgid.load(Relaxed);
    if parent.mode.load(Relaxed) & S_ISGID != 0 {
        gid = parent.gid.load(Relaxed);
        if kind == S_IFDIR {
            mode |= S_ISGID;
        } else if asked & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP
            && !credentials::may_keep_setgid(task, parent)
        {
            mode &= !S_ISGID;
        }
    }
    let root = parent.root.load(Relaxed);
    let made = NewInode::new(task, root, mode, rdev, (credentials.fsuid.load(Relaxed), gid))?;
    // The kernel's SHMEM_FL_INHERITED.
    let inherited = parent.flags.load(Relaxed) & (inode_flags::NODUMP | inode_flags::NOATIME);
    if inherited != 0 {
        let flags = &task.region.inode(made.inode().id).flags;
        flags.store(flags.load(Relaxed) | inherited, Relaxed); // Relaxed: nobody can reach it yet.
    }
    if has_default {
        let inherited = acl::inherit(task, parent, task.region.inode(made.inode().id));
        // The blobs created meanwhile took its place there.
        task.lane.taken[Inode::SLAB].store(made.inode().id.0, Release);
        inherited?;
    }
    Ok(made)
}
