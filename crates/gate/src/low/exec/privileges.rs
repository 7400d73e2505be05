//! Whether executing a file changes ids or capabilities: the dynamic linker would then ignore preloading
//! (ld.so(8)). What is executed for a file in a mount is a copy, which would not have its privileges.
//!
//! A process that may set its groups takes the group of a set-group-ID program before the exec, which then
//! changes none. So PAM can ask its helper unix_chkpwd(8) whether root may become another user.

use lp_abi::linux::{
    __NR_fgetxattr, __NR_fstatfs, __NR_getegid, __NR_geteuid, __NR_getresgid, __NR_openat, __NR_prctl,
    __NR_setresgid, O_CLOEXEC, O_RDONLY, S_ISGID, S_ISUID, S_IXGRP, statfs,
};
use lp_abi::refusal::Refusal;
use lp_abi::{Errno, Fd, OwnedFd};

use crate::low::object::elf::read_file;

const PR_GET_NO_NEW_PRIVS: usize = 39;
/// `ST_NOSUID` of statvfs(3).
const NOSUID: i64 = 2;
/// Bytes read of a namespace's map of ids. Initial maps have one line.
const MAP: usize = 1024;

/// A file to be executed.
pub(crate) trait Executable {
    fn has_capabilities(&self) -> bool;

    /// Whether its mount has `nosuid`.
    fn is_nosuid(&self) -> bool;
}

impl Executable for Fd {
    fn has_capabilities(&self) -> bool {
        has_capabilities(*self)
    }

    fn is_nosuid(&self) -> bool {
        let mut found = core::mem::MaybeUninit::<statfs>::zeroed();
        // SAFETY: the kernel fills the record in; zeros are a valid record too.
        let found =
            unsafe { lp_abi::syscall!(__NR_fstatfs, *self, found.as_mut_ptr()).map(|_| found.assume_init()) };
        found.is_ok_and(|found| found.f_flags & NOSUID != 0)
    }
}

/// Mode and ids of a file, as stat(2) shows them to the process.
#[derive(Clone, Copy)]
pub(crate) struct Owned {
    pub(crate) mode: u32,
    pub(crate) user: u32,
    pub(crate) group: u32,
}

/// Refuses a file whose execution changes ids or capabilities. If only the group changes, it is for [`Group`].
pub(crate) fn check(file: &impl Executable, owned: Owned) -> Result<Option<u32>, Refusal> {
    let refusal = if owned.mode & S_ISUID != 0 && owned.user != id(__NR_geteuid) {
        Refusal::SetUser
    } else if owned.mode & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP && owned.group != id(__NR_getegid) {
        Refusal::SetGroup
    } else if id(__NR_geteuid) != 0 && file.has_capabilities() {
        Refusal::Capabilities
    } else {
        return Ok(None);
    };
    match refusal {
        _ if is_ignored(file, refusal, owned) => Ok(None),
        Refusal::SetGroup => Ok(Some(owned.group)),
        _ => Err(refusal),
    }
}

/// A group that the thread has taken for an exec, as its real, effective and saved one. Dropping it gives it
/// back.
pub(crate) struct Group {
    before: [u32; 3],
}

impl Group {
    /// # Errors
    /// `EPERM` for a thread that may not (setresgid(2)); what its seccomp filters say.
    pub(crate) fn take(group: u32) -> Result<Group, Errno> {
        let mut before = [0u32; 3];
        let [real, effective, saved] = before.each_mut().map(|id| &raw mut *id);
        // SAFETY: the kernel writes three words; the second call changes ids of this thread only.
        unsafe {
            lp_abi::syscall!(__NR_getresgid, real, effective, saved)?;
            lp_abi::syscall!(__NR_setresgid, group, group, group)?;
        }
        Ok(Group { before })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let [real, effective, saved] = self.before;
        // SAFETY: changes ids of this thread only. Who took the group may give it back.
        let _ = unsafe { lp_abi::syscall!(__NR_setresgid, real, effective, saved) };
    }
}

/// Whether the file carries capabilities.
pub(crate) fn has_capabilities(file: Fd) -> bool {
    let name = c"security.capability".as_ptr();
    // SAFETY: a length of 0 asks for the size only.
    unsafe { lp_abi::syscall!(__NR_fgetxattr, file, name, 0, 0) }.is_ok_and(|length| length > 0)
}

/// Whether the kernel ignores the privileges of this file (bprm_fill_uid): `no_new_privs` is set, the mount
/// has `nosuid`, or an id of the file's owner does not exist in the process's user namespace.
fn is_ignored(file: &impl Executable, refusal: Refusal, owned: Owned) -> bool {
    // SAFETY: PR_GET_NO_NEW_PRIVS changes nothing.
    let bound = unsafe { lp_abi::syscall!(__NR_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) };
    let sets_ids = refusal != Refusal::Capabilities;
    bound == Ok(1)
        || file.is_nosuid()
        || sets_ids
            && !(exists(c"/proc/self/uid_map", owned.user) && exists(c"/proc/self/gid_map", owned.group))
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
