//! file_getattr(2), file_setattr(2), and the requests of ioctl(2) for the same flags of an inode.

use lp_abi::linux::{
    AT_EMPTY_PATH, FS_APPEND_FL, FS_IMMUTABLE_FL, FS_NOATIME_FL, FS_NODUMP_FL, FS_XFLAG_APPEND,
    FS_XFLAG_COWEXTSIZE, FS_XFLAG_EXTSIZE, FS_XFLAG_EXTSZINHERIT, FS_XFLAG_HASATTR, FS_XFLAG_IMMUTABLE,
    FS_XFLAG_NOATIME, FS_XFLAG_NODUMP, FS_XFLAG_PREALLOC, S_IFDIR, S_IFMT, S_IFREG, file_attr, fsxattr,
};
use lp_abi::{Errno, Fd, PAGE_SIZE, Result, UserPtr, UserSlice};
use lp_region::process::caps;
use lp_region::records::{Inode, file_mode, inode_flags};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, MountId, extensible, ucopy};

use crate::caller::task::{Place, Task};
use crate::calls::target;
use crate::inodes::inode::{self, Touch};
use crate::lane::writer;
use crate::rights::credentials;

/// An inode flag, as in `FS_IOC_*FLAGS` and in `FS_IOC_FS*XATTR`.
const FLAGS: [(u32, u32, u32); 4] = [
    (inode_flags::IMMUTABLE, FS_IMMUTABLE_FL, FS_XFLAG_IMMUTABLE),
    (inode_flags::APPEND, FS_APPEND_FL, FS_XFLAG_APPEND),
    (inode_flags::NODUMP, FS_NODUMP_FL, FS_XFLAG_NODUMP),
    (inode_flags::NOATIME, FS_NOATIME_FL, FS_XFLAG_NOATIME),
];
/// The kernel's `FS_XFLAGS_MASK`: `FS_XFLAG_REALTIME` to `FS_XFLAG_COWEXTSIZE`, and `FS_XFLAG_HASATTR`.
const XFLAGS: u64 = 0x8001_fffb;
/// Flags that a file system reports and nobody sets: the kernel's `FS_XFLAG_RDONLY_MASK`.
const READ_ONLY: u32 = FS_XFLAG_PREALLOC | FS_XFLAG_HASATTR;

/// The inode of a call, and the mount through which it was reached.
pub(crate) type On<'a> = (InodeId, &'a Inode, MountId);

/// Stores the attributes of what a path names in `to`. The door checks flags (`EINVAL`).
///
/// # Errors
/// `E2BIG` or `EINVAL` for the size of `to`; those of path_resolution(7); `EOPNOTSUPP` for what is neither a
/// regular file nor a directory; `EFAULT`.
pub fn file_getattr(task: &Task, dirfd: Fd, path: UserPtr, to: UserSlice, flags: u32) -> Result<Place<()>> {
    sized(to)?;
    opened(task, dirfd, path, flags)?;
    target::at(task, dirfd, path, flags, |_, inode, _| {
        supported(inode)?;
        let found = file_attr {
            fa_xflags: u64::from(extended(inode).fsx_xflags),
            fa_extsize: 0,
            fa_nextents: 0,
            fa_projid: 0,
            fa_cowextsize: 0,
        };
        // SAFETY: the copy routine handles bad pointers.
        unsafe { ucopy::put(to.start().cast().as_ptr(), &found) }?;
        zero(to.skip(size_of::<file_attr>()))
    })
}

/// Sets the attributes of what a path names from `from`. The door checks flags (`EINVAL`).
///
/// # Errors
/// Those of [`file_getattr`]; `E2BIG` for a longer structure with something in it; `EINVAL` for flags that do
/// not exist or not for this type of file; `EOPNOTSUPP` for what tmpfs does not support; `EPERM`; `EROFS`.
pub fn file_setattr(task: &Task, dirfd: Fd, path: UserPtr, from: UserSlice, flags: u32) -> Result<Place<()>> {
    sized(from)?;
    // SAFETY: the copy routine handles bad pointers; every bit pattern is valid.
    let wanted: file_attr = unsafe { ucopy::get(from.start().cast().as_ptr()) }?;
    extensible::all_zero(from.skip(size_of::<file_attr>()))?;
    if wanted.fa_xflags & !XFLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let wanted = fsxattr {
        fsx_xflags: wanted.fa_xflags as u32,
        fsx_extsize: wanted.fa_extsize,
        fsx_nextents: 0,
        fsx_projid: wanted.fa_projid,
        fsx_cowextsize: wanted.fa_cowextsize,
        fsx_pad: [0; 8],
    };
    opened(task, dirfd, path, flags)?;
    target::at(task, dirfd, path, flags, |id, inode, mount| set_extended(task, (id, inode, mount), &wanted))
}

/// The inode's flags, as `FS_IOC_GETFLAGS` gives them.
pub(crate) fn flags(inode: &Inode) -> u32 {
    named(inode, |(_, flag, _)| flag)
}

/// The inode's flags, as `FS_IOC_FSGETXATTR` gives them.
pub(crate) fn extended(inode: &Inode) -> fsxattr {
    fsxattr {
        fsx_xflags: named(inode, |(_, _, flag)| flag),
        fsx_extsize: 0,
        fsx_nextents: 0,
        fsx_projid: 0,
        fsx_cowextsize: 0,
        fsx_pad: [0; 8],
    }
}

/// `FS_IOC_SETFLAGS`.
pub(crate) fn set_flags(task: &Task, on: On, wanted: u32) -> Result<()> {
    change(task, on, wanted, |(_, flag, _)| flag, || Ok(wanted))
}

/// `FS_IOC_FSSETXATTR`: the kernel's fileattr_set_prepare and shmem_fileattr_set.
pub(crate) fn set_extended(task: &Task, on: On, wanted: &fsxattr) -> Result<()> {
    let kind = on.1.mode.load(Relaxed) & S_IFMT; // Relaxed: the type does not change.
    let mut flags = wanted.fsx_xflags & !READ_ONLY;
    change(
        task,
        on,
        flags,
        |(_, _, flag)| flag,
        || {
            if flags & FS_XFLAG_EXTSIZE != 0 && kind != S_IFREG
                || flags & FS_XFLAG_EXTSZINHERIT != 0 && kind != S_IFDIR
            {
                return Err(Errno::EINVAL);
            }
            // A hint of zero turns its flag off.
            if wanted.fsx_extsize == 0 {
                flags &= !(FS_XFLAG_EXTSIZE | FS_XFLAG_EXTSZINHERIT);
            }
            if wanted.fsx_cowextsize == 0 {
                flags &= !FS_XFLAG_COWEXTSIZE;
            }
            let more = wanted.fsx_extsize | wanted.fsx_projid | wanted.fsx_cowextsize;
            if more != 0 { Err(Errno::EOPNOTSUPP) } else { Ok(flags) }
        },
    )
}

/// Sets the flags that `name` chooses. `checked` is called once the caller is known to be allowed to.
fn change(
    task: &Task,
    (id, inode, mount): On,
    wanted: u32,
    name: impl Fn((u32, u32, u32)) -> u32,
    checked: impl FnOnce() -> Result<u32>,
) -> Result<()> {
    let _writing = writer::begin(task, mount)?;
    supported(inode)?;
    if !credentials::owns(task, inode) {
        return Err(Errno::EPERM);
    }
    let _locked = inode::lock(task, id);
    let old = inode.flags.load(Relaxed); // Relaxed: under the lock.
    let new = FLAGS
        .iter()
        .fold(old, |all, flag| if wanted & name(*flag) != 0 { all | flag.0 } else { all & !flag.0 });
    let guarded = inode_flags::IMMUTABLE | inode_flags::APPEND;
    if (old ^ new) & guarded != 0 && !credentials::capable_initially(task, caps::LINUX_IMMUTABLE) {
        return Err(Errno::EPERM);
    }
    let known = FLAGS.iter().fold(0, |all, flag| all | name(*flag));
    if checked()? & !known != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    inode.flags.store(new, Relaxed);
    inode::touch(task, inode, Touch::Change);
    Ok(())
}

fn named(inode: &Inode, name: impl Fn((u32, u32, u32)) -> u32) -> u32 {
    let set = inode.flags.load(Relaxed); // Relaxed: one word.
    FLAGS.iter().filter(|flag| set & flag.0 != 0).fold(0, |all, flag| all | name(*flag))
}

/// tmpfs has flags for these only.
fn supported(inode: &Inode) -> Result<()> {
    // Relaxed: the type does not change.
    match inode.mode.load(Relaxed) & S_IFMT {
        S_IFREG | S_IFDIR => Ok(()),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// The descriptor itself must have been opened without `O_PATH`.
fn opened(task: &Task, dirfd: Fd, path: UserPtr, flags: u32) -> Result<()> {
    if flags & AT_EMPTY_PATH != 0 && dirfd != Fd::CWD && task.table.is_ours(dirfd) && target::is_absent(path)?
    {
        let held = task.fget_any(dirfd)?;
        // Relaxed: immutable.
        if held.file.mode.load(Relaxed) & file_mode::PATH != 0 {
            return Err(Errno::EBADF);
        }
    }
    Ok(())
}

fn sized(given: UserSlice) -> Result<()> {
    match given.len() {
        size if size > PAGE_SIZE => Err(Errno::E2BIG),
        size if size < size_of::<file_attr>() => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}

fn zero(rest: UserSlice) -> Result<()> {
    for at in 0..rest.len() {
        // SAFETY: the copy routine handles bad pointers.
        unsafe { ucopy::put(rest.skip(at).start().as_ptr(), &0u8) }?;
    }
    Ok(())
}
