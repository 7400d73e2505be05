//! Whether executing a host file changes ids or capabilities: the dynamic linker would then ignore preloading
//! (ld.so(8)).

use lp_abi::linux::{
    __NR_fgetxattr, __NR_fstatfs, __NR_getegid, __NR_geteuid, __NR_openat, __NR_prctl, O_CLOEXEC, O_RDONLY,
    S_ISGID, S_ISUID, S_IXGRP, stat, statfs,
};
use lp_abi::refusal::Refusal;
use lp_abi::{Fd, OwnedFd};

use crate::low::object::elf::read_file;

const PR_GET_NO_NEW_PRIVS: usize = 39;
/// `ST_NOSUID` of statvfs(3).
const NOSUID: i64 = 2;
/// Bytes read of a namespace's map of ids. Initial maps have one line.
const MAP: usize = 1024;

/// Refuses a file whose execution changes ids or capabilities.
pub(crate) fn check(file: Fd, stat: &stat) -> Result<(), Refusal> {
    let refusal = if stat.st_mode & S_ISUID != 0 && stat.st_uid != id(__NR_geteuid) {
        Refusal::SetUser
    } else if stat.st_mode & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP && stat.st_gid != id(__NR_getegid) {
        Refusal::SetGroup
    } else if id(__NR_geteuid) != 0 && has_capabilities(file) {
        Refusal::Capabilities
    } else {
        return Ok(());
    };
    if is_ignored(file, refusal, stat) { Ok(()) } else { Err(refusal) }
}

/// Whether the file carries capabilities.
pub(crate) fn has_capabilities(file: Fd) -> bool {
    let name = c"security.capability".as_ptr();
    // SAFETY: a length of 0 asks for the size only.
    unsafe { lp_abi::syscall!(__NR_fgetxattr, file, name, 0, 0) }.is_ok_and(|length| length > 0)
}

/// Whether the kernel ignores the privileges of this file (bprm_fill_uid): `no_new_privs` is set, the mount
/// has `nosuid`, or an id of the file's owner does not exist in the process's user namespace.
fn is_ignored(file: Fd, refusal: Refusal, stat: &stat) -> bool {
    // SAFETY: PR_GET_NO_NEW_PRIVS changes nothing.
    let bound = unsafe { lp_abi::syscall!(__NR_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) };
    let sets_ids = refusal != Refusal::Capabilities;
    bound == Ok(1)
        || is_nosuid(file)
        || sets_ids
            && !(exists(c"/proc/self/uid_map", stat.st_uid) && exists(c"/proc/self/gid_map", stat.st_gid))
}

fn is_nosuid(file: Fd) -> bool {
    let mut found = core::mem::MaybeUninit::<statfs>::zeroed();
    // SAFETY: the kernel fills the record in; zeros are a valid record too.
    let found =
        unsafe { lp_abi::syscall!(__NR_fstatfs, file, found.as_mut_ptr()).map(|_| found.assume_init()) };
    found.is_ok_and(|found| found.f_flags & NOSUID != 0)
}

/// Whether a file's id, as stat(2) returns it, is in the map of the process's namespace
/// (user_namespaces(7)). An id outside of it shows as the overflow id. Without a map, it is.
fn exists(map: &core::ffi::CStr, id: u32) -> bool {
    // SAFETY: the path is NUL-terminated; the open changes nothing.
    let Ok(fd) = (unsafe { lp_abi::syscall!(__NR_openat, Fd::CWD, map.as_ptr(), O_RDONLY | O_CLOEXEC) })
    else {
        return true;
    };
    let (file, mut text) = (OwnedFd::new(fd), [0u8; MAP]);
    let length = read_file(file.get(), &mut text, 0);
    length == text.len() || text[..length].split(|byte| *byte == b'\n').any(|line| holds(line, id))
}

/// Whether a line of a map, `INSIDE OUTSIDE COUNT`, holds an id of the inside.
fn holds(line: &[u8], id: u32) -> bool {
    let mut numbers = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).map(|word| {
        word.iter().fold(0u64, |sum, digit| sum * 10 % (1 << 40) + u64::from(digit.wrapping_sub(b'0')))
    });
    let (Some(first), Some(_), Some(count)) = (numbers.next(), numbers.next(), numbers.next()) else {
        return false;
    };
    (first..first + count).contains(&u64::from(id))
}

fn id(call: u32) -> u32 {
    // SAFETY: the id calls change nothing and take no pointers.
    unsafe { lp_abi::syscall!(call) }.unwrap_or(0) as u32
}
