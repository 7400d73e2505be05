//! The namespaces of the calling process, which the kernel names by inode numbers: namespaces(7).

use core::ffi::CStr;
use core::mem::MaybeUninit;

use lp_abi::linux::{
    __NR_fstat, __NR_ioctl, __NR_open, __NR_read, __NR_stat, CLONE_NEWUSER, O_CLOEXEC, O_RDONLY, stat,
};
use lp_abi::text::Writer;
use lp_abi::{Errno, Fd, OwnedFd, Result};

/// The initial user namespace (`PROC_USER_INIT_INO` of linux/proc_ns.h).
pub(crate) const FIRST_USER: u32 = 0xefff_fffd;

/// The caller's pid namespace; 0 without /proc.
pub(crate) fn own_pid() -> u32 {
    number_of(c"/proc/self/ns/pid")
}

/// The caller's user namespace; 0 without /proc.
pub(crate) fn own_user() -> u32 {
    number_of(c"/proc/self/ns/user")
}

/// `NS_GET_PARENT` of linux/nsfs.h.
const GET_PARENT: u32 = 0xb702;
/// `PIDFD_GET_USER_NAMESPACE` of linux/pidfd.h.
const GET_USER: u32 = 0xff09;

/// `NS_GET_NSTYPE` of linux/nsfs.h.
const GET_KIND: u32 = 0xb703;

/// The `CLONE_NEW*` of a namespace's descriptor.
///
/// # Errors
/// `EBADF` if it is none; `ENOTTY`.
pub(crate) fn kind(fd: Fd) -> Result<u32> {
    // SAFETY: the request takes no argument and changes nothing.
    unsafe { lp_abi::syscall!(__NR_ioctl, fd, GET_KIND, 0) }.map(|kind| kind as u32)
}

/// The number of the user namespace that a descriptor stands for.
///
/// # Errors
/// Those of [`kind`]; `EINVAL` if it is not one of users.
pub(crate) fn user_at(fd: Fd) -> Result<u32> {
    let is_user = kind(fd)? == CLONE_NEWUSER;
    number_at(fd).filter(|_| is_user).ok_or(Errno::EINVAL)
}

/// The user namespace that a descriptor stands for, or that of the process that it stands for: its number,
/// and whether it was made in the caller's. `None` for any other descriptor.
pub(crate) fn user_of(fd: Fd) -> Option<(u32, bool)> {
    // SAFETY: these requests take no argument and change nothing.
    let asked =
        |fd: Fd, request: u32| unsafe { lp_abi::syscall!(__NR_ioctl, fd, request, 0) }.map(OwnedFd::new);
    let of_process = asked(fd, GET_USER).ok();
    let space = of_process.as_ref().map_or(fd, OwnedFd::get);
    if kind(space) != Ok(CLONE_NEWUSER) {
        return None;
    }
    let parent = asked(space, GET_PARENT).ok().and_then(|parent| number_at(parent.get()));
    Some((number_at(space)?, parent == Some(own_user())))
}

/// The number of a namespace's descriptor.
fn number_at(fd: Fd) -> Option<u32> {
    let mut found = MaybeUninit::<stat>::zeroed();
    // SAFETY: the kernel writes within `found`; zeros are a valid record too.
    unsafe {
        lp_abi::syscall!(__NR_fstat, fd, found.as_mut_ptr()).ok()?;
        Some(found.assume_init().st_ino as u32)
    }
}

/// The user namespace of a process; 0 if that is not to be seen.
pub(crate) fn user_of_process(pid: u32) -> u32 {
    let mut room = [0; PATH];
    of_process(pid, b"/ns/user\0", &mut room).map_or(0, number_of)
}

/// [`each_line`] of a process's map of users or of groups.
pub(crate) fn each_line_of(pid: u32, is_user: bool, each: impl FnMut([u32; 3])) {
    let mut room = [0; PATH];
    let name = if is_user { &b"/uid_map\0"[..] } else { b"/gid_map\0" };
    if let Some(path) = of_process(pid, name, &mut room) {
        each_line(path, each);
    }
}

/// Bytes for the path of a process's file.
const PATH: usize = 32;

/// The path of a process's file.
fn of_process<'a>(pid: u32, name: &[u8], room: &'a mut [u8; PATH]) -> Option<&'a CStr> {
    let mut path = Writer::new(room);
    path.push(b"/proc/");
    path.push_decimal(u64::from(pid));
    path.push(name);
    let length = path.finish()?;
    CStr::from_bytes_with_nul(&room[..length]).ok()
}

/// Whether the caller is in the initial user namespace. Without /proc, it is.
pub(crate) fn is_first_user() -> bool {
    matches!(own_user(), 0 | FIRST_USER)
}

/// The number of a namespace; 0 without /proc.
fn number_of(path: &CStr) -> u32 {
    let mut found = MaybeUninit::<stat>::zeroed();
    // SAFETY: the path is NUL-terminated, and the kernel writes within `found`.
    unsafe {
        match lp_abi::syscall!(__NR_stat, path.as_ptr(), found.as_mut_ptr()) {
            Ok(_) => found.assume_init().st_ino as u32,
            Err(_) => 0,
        }
    }
}

/// Calls `each` with the numbers of each line of a map of ids. The file is empty until the map is written.
pub(crate) fn each_line(path: &CStr, mut each: impl FnMut([u32; 3])) {
    let (mut line, mut at, mut number) = ([0; 3], 0, None::<u32>);
    each_byte(path, |byte| {
        match (byte, number) {
            (b'0'..=b'9', _) => {
                let digit = u32::from(byte - b'0');
                number = Some(number.unwrap_or(0).wrapping_mul(10).wrapping_add(digit));
            }
            (_, Some(value)) if at < line.len() => {
                line[at] = value;
                at += 1;
                number = None;
            }
            _ => number = None,
        }
        if byte == b'\n' {
            if at == line.len() {
                each(line);
            }
            at = 0;
        }
    });
}

/// The id of a user or of a group that the kernel shows where there is none.
pub(crate) fn overflow_id(is_user: bool) -> u32 {
    /// `DEFAULT_OVERFLOWUID` of linux/highuid.h.
    const DEFAULT: u32 = 65534;
    let path = if is_user { c"/proc/sys/kernel/overflowuid" } else { c"/proc/sys/kernel/overflowgid" };
    let mut found = None::<u32>;
    each_byte(path, |byte| {
        if byte.is_ascii_digit() {
            found = Some(found.unwrap_or(0).wrapping_mul(10).wrapping_add(u32::from(byte - b'0')));
        }
    });
    found.unwrap_or(DEFAULT)
}

/// Calls `each` with the bytes of a file. A limited process makes no calls of its own and reads nothing.
fn each_byte(path: &CStr, mut each: impl FnMut(u8)) {
    if lp_abi::sys::is_limited() {
        return;
    }
    // SAFETY: the path is NUL-terminated; the open changes nothing.
    let opened = unsafe { lp_abi::syscall!(__NR_open, path.as_ptr(), O_RDONLY | O_CLOEXEC, 0) };
    let Ok(file) = opened.map(OwnedFd::new) else { return };
    let mut room = [0u8; 256];
    loop {
        // SAFETY: the kernel writes within the buffer.
        let got = unsafe { lp_abi::syscall!(__NR_read, file.get(), room.as_mut_ptr(), room.len()) };
        match got {
            Ok(got @ 1..) => room.iter().take(got).for_each(|byte| each(*byte)),
            _ => return,
        }
    }
}
