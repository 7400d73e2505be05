//! ioctl(2) on files and directories: the requests that tmpfs answers. The door handles `FIOCLEX` and
//! `FIONCLEX`.

use lp_abi::ioctl::{
    FIBMAP, FICLONE, FICLONERANGE, FIDEDUPERANGE, FIFREEZE, FIGETBSZ, FIOASYNC, FIONBIO, FIONREAD, FIOQSIZE,
    FITHAW, FS_IOC_FIEMAP, FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR, FS_IOC_GETFLAGS, FS_IOC_SETFLAGS,
};
use lp_abi::linux::{
    FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE, FASYNC, O_APPEND, O_NONBLOCK, SEEK_CUR,
    SEEK_END, SEEK_SET,
};
use lp_abi::{Errno, Fd, PAGE_SIZE, Result, UserPtr};
use lp_region::process::caps;
use lp_region::records::{Inode, file_mode};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, MountId, ucopy};

use crate::caller::task::Task;
use crate::calls::{fallocate, file_attr};
use crate::descriptors::fget::HeldFile;
use crate::inodes::inode;
use crate::rights::credentials;

/// `_IOR(0x15, 0, struct fsuuid2)`.
const FS_IOC_GETUUID: u32 = 0x8011_1500;
/// Requests of linux/falloc.h and the modes of fallocate(2) that they stand for.
const RESERVE: [(u32, u32); 5] = [
    (0x4030_5828, 0),                    // FS_IOC_RESVSP
    (0x4030_5829, FALLOC_FL_PUNCH_HOLE), // FS_IOC_UNRESVSP
    (0x4030_582a, 0),                    // FS_IOC_RESVSP64
    (0x4030_582b, FALLOC_FL_PUNCH_HOLE), // FS_IOC_UNRESVSP64
    (0x4030_5839, FALLOC_FL_ZERO_RANGE), // FS_IOC_ZERO_RANGE
];

/// `struct space_resv` of linux/falloc.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct Space {
    kind: i16,
    whence: i16,
    start: i64,
    length: i64,
    rest: [u32; 6],
}

/// Answers a request.
///
/// # Errors
/// `EBADF`; `ENOTTY` for a request that no file answers, `EOPNOTSUPP` for one that tmpfs does not; `EFAULT`;
/// `EPERM`.
pub fn ioctl(task: &Task, fd: Fd, request: u32, argument: UserPtr) -> Result<()> {
    let held = task.fget_no_path(fd)?;
    let mode = held.file.mode.load(Relaxed); // Relaxed: immutable.
    let regular = mode & file_mode::REGULAR != 0;
    match request {
        FIONBIO => set_nonblocking(&held, argument),
        // Files on tmpfs have no fasync operation: nothing may change.
        FIOASYNC => {
            let is_set = held.file.flags.load(Relaxed) & FASYNC != 0; // Relaxed: one word.
            if (get::<i32>(argument)? != 0) == is_set { Ok(()) } else { Err(Errno::ENOTTY) }
        }
        FIOQSIZE => {
            put(argument, &(inode::attributes(task, held.inode_id(), held.inode).blocks as i64 * 512))
        }
        FIGETBSZ => put(argument, &(PAGE_SIZE as i32)),
        FIONREAD if regular => {
            let left = held.inode.size.load(Relaxed).wrapping_sub(held.file.position.load(Relaxed));
            put(argument, &(left as i32))
        }
        FIBMAP if regular => Err(no_blocks(task, argument)?),
        FIFREEZE => Err(privileged(task, Errno::EOPNOTSUPP)),
        // No file system here is ever frozen.
        FITHAW => Err(privileged(task, Errno::EINVAL)),
        FS_IOC_FIEMAP => Err(Errno::EOPNOTSUPP),
        FICLONE => Err(clone_error(task, &held, Fd::new(argument.addr() as i32))),
        FICLONERANGE => Err(clone_error(task, &held, Fd::new(get::<i64>(argument)? as i32))),
        FIDEDUPERANGE => Err(dedupe_error(&held, get(argument)?)),
        FS_IOC_GETFLAGS => put(argument, &file_attr::flags(held.inode)),
        FS_IOC_SETFLAGS => file_attr::set_flags(task, on(&held), get(argument)?),
        FS_IOC_FSGETXATTR => put(argument, &file_attr::extended(held.inode)),
        FS_IOC_FSSETXATTR => file_attr::set_extended(task, on(&held), &get(argument)?),
        FS_IOC_GETUUID => put(argument, &uuid(task, &held)),
        _ => match RESERVE.iter().find(|(reserve, _)| *reserve == request) {
            Some((_, mode)) if regular => reserve(task, fd, held, *mode, get(argument)?),
            _ => Err(Errno::ENOTTY),
        },
    }
}

/// The file that a descriptor names, for calls that also take a path.
fn on<'h>(held: &'h HeldFile) -> (InodeId, &'h Inode, MountId) {
    (held.inode_id(), held.inode, held.mount())
}

/// fallocate(2) by the kernel's ioctl_preallocate.
fn reserve(task: &Task, fd: Fd, held: HeldFile, mode: u32, space: Space) -> Result<()> {
    let from = match space.whence as u32 {
        SEEK_SET => 0,
        SEEK_CUR => held.file.position.load(Relaxed) as i64,
        SEEK_END => held.inode.size.load(Relaxed) as i64, // Relaxed: one word each.
        _ => return Err(Errno::EINVAL),
    };
    let start = from.wrapping_add(space.start);
    drop(held); // A task looks one file up at a time.
    fallocate::fallocate(task, fd, mode | FALLOC_FL_KEEP_SIZE, start, space.length)
}

fn get<T: Copy>(argument: UserPtr) -> Result<T> {
    // SAFETY: the copy routine handles bad pointers; the types used are plain data.
    unsafe { ucopy::get(argument.cast::<T>().as_ptr()) }
}

fn put<T: Copy>(argument: UserPtr, value: &T) -> Result<()> {
    // SAFETY: the copy routine handles bad pointers.
    unsafe { ucopy::put(argument.cast().as_ptr(), value) }
}

/// `struct fsuuid2`: 16, and the UUID of the file system, made of the region's random number and the root's.
fn uuid(task: &Task, held: &HeldFile) -> [u8; 17] {
    // Relaxed, both: immutable.
    let region = task.region.header().identity.load(Relaxed).to_be_bytes();
    let root = held.inode.root.load(Relaxed).to_be_bytes();
    let mut uuid = [0; 17];
    uuid[0] = 16;
    uuid[1..9].copy_from_slice(&region);
    uuid[13..].copy_from_slice(&root);
    // A random UUID, RFC 9562 version 4.
    uuid[7] = uuid[7] & 0xf | 0x40;
    uuid[9] = 0x80;
    uuid
}

fn privileged(task: &Task, errno: Errno) -> Errno {
    if credentials::capable(task, caps::SYS_ADMIN) { errno } else { Errno::EPERM }
}

/// The kernel's ioctl_fibmap: a file without blocks has block 0 everywhere, and is refused.
fn no_blocks(task: &Task, argument: UserPtr) -> Result<Errno> {
    if !credentials::capable(task, caps::SYS_ADMIN) {
        return Ok(Errno::EPERM);
    }
    if get::<i32>(argument)? >= 0 {
        put(argument, &0i32)?;
    }
    Ok(Errno::EINVAL)
}

fn set_nonblocking(held: &HeldFile, argument: UserPtr) -> Result<()> {
    let on: i32 = get(argument)?;
    let file = held.file;
    // Relaxed: one word. Concurrent calls on one file may overtake each other, as in Linux without f_lock.
    let flags = file.flags.load(Relaxed);
    file.flags.store(if on != 0 { flags | O_NONBLOCK } else { flags & !O_NONBLOCK }, Relaxed);
    Ok(())
}

/// The error for sharing equal content with others: the head of `struct file_dedupe_range` is offset, length,
/// then a count and what must be zero.
fn dedupe_error(held: &HeldFile, head: [u64; 3]) -> Errno {
    let mode = held.file.mode.load(Relaxed); // Relaxed: immutable.
    if mode & file_mode::READ == 0 || head[2] >> 16 != 0 {
        return Errno::EINVAL;
    }
    if mode & file_mode::REGULAR != 0 { Errno::EOPNOTSUPP } else { Errno::EISDIR }
}

/// The error for cloning the content of `from` into the file: tmpfs cannot share blocks.
fn clone_error(task: &Task, held: &HeldFile, from: Fd) -> Errno {
    let Ok(source) = task.fget_second(from) else { return Errno::EXDEV };
    let (mode, into) = (source.file.mode.load(Relaxed), held.file.mode.load(Relaxed));
    if mode & file_mode::PATH != 0 {
        return Errno::EBADF;
    }
    if (mode | into) & file_mode::DIR != 0 {
        return Errno::EISDIR;
    }
    let appends = held.file.flags.load(Relaxed) & O_APPEND != 0;
    let opened = mode & file_mode::READ != 0 && into & file_mode::WRITE != 0 && !appends;
    if opened { Errno::EOPNOTSUPP } else { Errno::EBADF }
}
