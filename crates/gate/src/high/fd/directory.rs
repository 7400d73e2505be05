//! /proc/self/fd and /proc/self/fdinfo as directories, also of threads and other processes: hides the gate's
//! own descriptors.

use lp_abi::linux::{__NR_getdents64, __NR_readlink};
use lp_abi::{Fd, UserSlice, dirent64};
use lp_region::{ProcessId, ucopy};
use lp_vfs::task::Task;

use crate::high::fd::marked_fds::MarkedFds;
use crate::high::fd::{descriptor, fd_info};
use crate::high::frame::handler::kernel;
use lp_abi::text::parse_decimal;

/// Descriptors that may be open on such a directory. For one that is not, the only cost is a look at the
/// names that its listing returns.
static OPEN: MarkedFds = MarkedFds::new();

/// The kernel has opened as `fd` a path that starts with, or is, `path`.
pub(crate) fn opened(fd: Fd, path: &[u8]) {
    OPEN.opened(fd, || {
        is_path(path) || path.first() != Some(&b'/') && may_end_one(path) && is_open_on_one(fd)
    });
}

/// Whether a relative path from a directory under /proc may name one.
fn may_end_one(path: &[u8]) -> bool {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    path.ends_with(b"fd") || path.ends_with(b"fdinfo")
}

/// Whether the kernel says that `fd` is open on one.
#[cold]
fn is_open_on_one(fd: Fd) -> bool {
    let mut path = [0u8; 64];
    path_of(fd, &mut path).is_some_and(is_path)
}

/// The path of an open file of the kernel's.
fn path_of(fd: Fd, room: &mut [u8; 64]) -> Option<&[u8]> {
    let link = fd.link();
    // SAFETY: `link` is NUL-terminated, and the kernel writes within `room`.
    let got = unsafe { lp_abi::syscall!(__NR_readlink, link.as_ptr(), room.as_mut_ptr(), room.len()) };
    Some(&room[..got.ok()?])
}

/// The process of the run whose descriptors `fd` lists; the caller, if it cannot be told.
fn process_of(task: &Task, fd: Fd) -> ProcessId {
    let mut room = [0u8; 64];
    let mut found = || {
        let (pid, _) = parse_decimal(path_of(fd, &mut room)?.strip_prefix(b"/proc/")?)?;
        fd_info::process_of(task, pid)
    };
    match lp_abi::sys::is_limited() {
        true => task.process_id,
        false => found().unwrap_or(task.process_id),
    }
}

/// The kernel has opened as `fd` a path that names none.
pub(crate) fn other_opened(fd: Fd) {
    OPEN.opened(fd, || false);
}

/// Whether `fd` may be open on such a directory.
#[inline(always)]
pub(crate) fn is_one(fd: Fd) -> bool {
    OPEN.has(fd)
}

/// Whether an absolute path, as programs write it, names one.
pub(crate) fn is_path(path: &[u8]) -> bool {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    if path == b"/dev/fd" {
        return true;
    }
    let Some(rest) = path.strip_prefix(b"/proc/") else { return false };
    let Some(process) = rest.strip_suffix(b"/fd").or_else(|| rest.strip_suffix(b"/fdinfo")) else {
        return false;
    };
    match process.strip_prefix(b"self").or_else(|| Some(parse_decimal(process)?.1)) {
        Some([]) => true,
        Some(rest) => matches!(rest.strip_prefix(b"/task/").and_then(parse_decimal), Some((_, []))),
        None => process == b"thread-self",
    }
}

/// getdents64(2) of such a directory, without the gate's own descriptors.
pub(crate) fn getdents64(task: &Task, fd: Fd, to: UserSlice) -> isize {
    let process = process_of(task, fd);
    loop {
        let got = kernel!(__NR_getdents64, fd, to.start(), to.len());
        if got <= 0 {
            return got;
        }
        let left = without_own(task, process, to.first(got as usize));
        if left != 0 {
            return left as isize;
        }
    }
}

/// Removes the gate's own descriptors in `process` from the records. Returns the number of bytes left.
fn without_own(task: &Task, process: ProcessId, records: UserSlice) -> usize {
    let (to, bytes) = (records.start().as_ptr(), records.len());
    let (mut from, mut left) = (0, 0);
    while from + dirent64::NAME < bytes {
        let record = to.wrapping_add(from);
        let mut name = [0u8; 16];
        // SAFETY: the copy routine handles bad pointers.
        let Ok(length) = (unsafe { ucopy::get(record.wrapping_add(dirent64::LENGTH).cast::<u16>()) }) else {
            break;
        };
        if length == 0 {
            break;
        }
        // SAFETY: the copy routine handles bad pointers.
        let text = unsafe { ucopy::string(&mut name, record.wrapping_add(dirent64::NAME)) }.unwrap_or(0);
        let own = match parse_decimal(&name[..text]) {
            Some((number, [])) => descriptor::is_hidden_in(task, process, Fd::new(number as i32)),
            _ => false,
        };
        if !own {
            // SAFETY: the copy routine handles bad pointers. Records move to lower addresses, and the copy
            // ascends.
            let _ = unsafe { ucopy::copy(to.wrapping_add(left), record, length as usize) };
            left += length as usize;
        }
        from += length as usize;
    }
    left
}
