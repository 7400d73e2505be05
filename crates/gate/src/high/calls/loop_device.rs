//! Loop devices (loop(4)) of files in mounts. The kernel cannot reach such a file, so the device gets a copy
//! of what it contains now, and is read-only.

use lp_abi::linux::{__NR_fstat, __NR_ioctl, __NR_open, O_CLOEXEC, O_RDONLY, S_IFBLK, S_IFMT, S_IFREG, stat};
use lp_abi::{Errno, Fd, OwnedFd, Result};
use lp_region::sync::Ordering;
use lp_region::ucopy;
use lp_vfs::task::Task;

use crate::high::fd::descriptor;
use crate::high::frame::handler::kernel;
use crate::high::run::image;

/// Requests of loop(4) that give a device a file.
const LOOP_SET_FD: u32 = 0x4c00;
const LOOP_CHANGE_FD: u32 = 0x4c06;
const LOOP_CONFIGURE: u32 = 0x4c0a;
/// Major number of loop devices.
const MAJOR: u64 = 7;
/// Words of a `struct loop_config`. The first has the file's descriptor in its lower half.
const CONFIG: usize = 38;

/// Whether a request gives a loop device a file.
pub(crate) fn is_attach(request: u32) -> bool {
    matches!(request, LOOP_SET_FD | LOOP_CHANGE_FD | LOOP_CONFIGURE)
}

/// Gives `device` the file, if it is a loop device and the file is one of ours.
#[cold]
pub(crate) fn attach(task: &Task, device: Fd, request: u32, argument: usize) -> Option<isize> {
    let mut config = [0u64; CONFIG];
    let file = match request {
        // SAFETY: the copy routine handles bad pointers.
        LOOP_CONFIGURE => match unsafe { ucopy::get(argument as *const [u64; CONFIG]) } {
            Ok(given) => {
                config = given;
                Fd::new(given[0] as i32)
            }
            Err(_) => return None,
        },
        _ => Fd::new(argument as i32),
    };
    if !descriptor::is_file(task, file) || !is_loop_device(device) {
        return None;
    }
    let copy = match copy_of(task, file) {
        Ok(copy) => copy,
        Err(errno) => return Some(errno.to_ret()),
    };
    let number = copy.get().raw() as usize;
    config[0] = config[0] & !u64::from(u32::MAX) | number as u64;
    let given = if request == LOOP_CONFIGURE { config.as_ptr() as usize } else { number };
    Some(kernel!(__NR_ioctl, device, request, given))
}

/// A descriptor, for reading only, of a memfd with the file's content.
fn copy_of(task: &Task, file: Fd) -> Result<OwnedFd> {
    if descriptor::is_path(task, file) {
        return Err(Errno::EBADF);
    }
    let held = task.fget(file)?;
    // Relaxed: an inode's type does not change.
    if held.inode.mode.load(Ordering::Relaxed) & S_IFMT != S_IFREG {
        return Err(Errno::EINVAL);
    }
    let copy = image::copied(task, held.inode_ref(), c"lightpath-loop")?;
    let link = copy.get().link();
    // SAFETY: the path is NUL-terminated.
    let fd = unsafe { lp_abi::syscall!(__NR_open, link.as_ptr(), O_RDONLY | O_CLOEXEC) }?;
    Ok(OwnedFd::new(fd))
}

fn is_loop_device(fd: Fd) -> bool {
    // SAFETY: zeros are a valid `stat`, and the kernel fills it in.
    unsafe {
        let mut found: stat = core::mem::zeroed();
        lp_abi::syscall!(__NR_fstat, fd, &raw mut found).is_ok()
            && found.st_mode & S_IFMT == S_IFBLK
            && found.st_rdev >> 8 == MAJOR
    }
}
