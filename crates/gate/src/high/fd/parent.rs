//! Host directories in which a mount appears: their listings get its name.
//!
//! The first records that the kernel returns from the start of such a directory are followed by those of the
//! mounts. Each has the position of the kernel's last record: a program that seeks there goes on behind it.

use lp_abi::linux::{__NR_getdents64, __NR_lseek, __NR_newfstatat, __NR_stat, AT_SYMLINK_NOFOLLOW, SEEK_CUR};
use lp_abi::{Fd, PATH_MAX, UserSlice, dirent64};
use lp_region::ucopy;
use lp_vfs::mounts::listed;
use lp_vfs::task::Task;

use crate::high::fd::marked_fds::MarkedFds;
use crate::high::frame::at::{At, Which, buffer, last_component};
use crate::high::frame::handler::kernel;
use crate::high::run::mounts::mounts;
use crate::low::tools::identity;

/// Descriptors that may be open on such a directory.
static OPEN: MarkedFds = MarkedFds::new();

/// `DT_DIR`.
const DIRECTORY: u8 = 4;
/// Bytes of the records of mounts in one directory.
const ROOM: usize = 1024;
/// Bytes that the kernel must have for a record of any length.
const LEAST: usize = 280;

/// The kernel has opened the path `at` as `fd`.
pub(crate) fn opened(fd: Fd, at: At) {
    OPEN.opened(fd, || may_be_parent(at) && is_parent(fd));
}

/// Whether the last component of a path is the name of a directory in which a mount appears.
fn may_be_parent(at: At) -> bool {
    let text = buffer(Which::First);
    // SAFETY: the copy routine handles bad pointers.
    let Ok((length, slash)) = (unsafe { ucopy::path(text, at.path.as_ptr()) }) else { return false };
    let name = if slash == length { last_component(&text[..length]) } else { &text[slash..length] };
    length != 0 && (matches!(name, b"" | b"." | b"..") || mounts().appear_in(name))
}

/// The mounts that appear in a directory, with their paths.
fn appearing() -> impl Iterator<Item = (usize, &'static [u8])> {
    let all = mounts().paths().iter().copied().enumerate();
    all.filter(|(_, path)| !path.is_empty())
}

/// Whether `fd` may be open on such a directory.
#[inline(always)]
pub(crate) fn is_one(fd: Fd) -> bool {
    OPEN.has(fd)
}

/// The directory of a mount's path, without a trailing slash, and its name.
fn parent(path: &[u8]) -> (&[u8], &[u8]) {
    let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    (&path[..slash], path.get(slash + 1..).unwrap_or_default())
}

/// Device and inode number of the directory in which a mount appears.
fn place(path: &[u8]) -> Option<(u64, u64)> {
    let mut text = [0u8; PATH_MAX];
    let above = parent(path).0;
    let above = if above.is_empty() { b"/" } else { above };
    text.get_mut(..above.len())?.copy_from_slice(above);
    // SAFETY: the path is NUL-terminated, and the kernel writes within `found`.
    identity::by(|found| unsafe { lp_abi::syscall!(__NR_stat, text.as_ptr(), found) })
}

fn is_parent(fd: Fd) -> bool {
    let own = identity::of(fd);
    own.is_some() && appearing().any(|(_, path)| place(path) == own)
}

/// Whether the host has this name in a directory.
fn has(fd: Fd, name: &[u8]) -> bool {
    let mut text = [0u8; 256];
    let Some(to) = text.get_mut(..name.len()).filter(|to| to.len() < 256) else { return true };
    to.copy_from_slice(name);
    // SAFETY: the name is NUL-terminated, and the kernel writes within `found`.
    identity::by(|found| unsafe {
        lp_abi::syscall!(__NR_newfstatat, fd, text.as_ptr(), found, AT_SYMLINK_NOFOLLOW)
    })
    .is_some()
}

/// The records of the mounts that appear in a directory and that the host does not list.
fn records(task: &Task, fd: Fd, to: &mut [u8; ROOM]) -> usize {
    let own = identity::of(fd);
    let mut length = 0;
    for (index, path) in appearing() {
        let name = parent(path).1;
        let size = (dirent64::NAME + name.len() + 1).next_multiple_of(8);
        let Some(number) = listed(task, index) else { continue };
        if place(path) != own || has(fd, name) || length + size > ROOM {
            continue;
        }
        let record = &mut to[length..length + size];
        record[..8].copy_from_slice(&number.to_ne_bytes());
        record[dirent64::LENGTH..dirent64::TYPE].copy_from_slice(&(size as u16).to_ne_bytes());
        record[dirent64::TYPE] = DIRECTORY;
        record[dirent64::NAME..dirent64::NAME + name.len()].copy_from_slice(name);
        length += size;
    }
    length
}

/// getdents64(2) of such a directory.
#[inline(never)]
pub(crate) fn getdents64(task: &Task, fd: Fd, to: UserSlice) -> isize {
    let mut own = [0u8; ROOM];
    let is_start = kernel!(__NR_lseek, fd, 0, SEEK_CUR) == 0;
    let length = if is_start { records(task, fd, &mut own) } else { 0 };
    if length == 0 || to.len() < length + LEAST {
        return kernel!(__NR_getdents64, fd, to.start(), to.len());
    }
    let got = kernel!(__NR_getdents64, fd, to.start(), to.len() - length);
    if got <= 0 {
        return got;
    }
    let Some(position) = position_after(to.first(got as usize)) else { return got };
    let mut at = 0;
    while at < length {
        own[at + dirent64::POSITION..at + dirent64::LENGTH].copy_from_slice(&position);
        at += usize::from(u16::from_ne_bytes([own[at + dirent64::LENGTH], own[at + dirent64::LENGTH + 1]]));
    }
    // SAFETY: the copy routine handles bad pointers.
    match unsafe { ucopy::copy(to.skip(got as usize).start().as_ptr(), own.as_ptr(), length) } {
        Ok(()) => got + length as isize,
        Err(_) => got,
    }
}

/// The position after the last of some records.
fn position_after(records: UserSlice) -> Option<[u8; 8]> {
    let (start, mut at, mut position) = (records.start().as_ptr(), 0, None);
    while at + dirent64::NAME < records.len() {
        let record = start.wrapping_add(at);
        // SAFETY: the copy routine handles bad pointers.
        let length = unsafe { ucopy::get(record.wrapping_add(dirent64::LENGTH).cast::<u16>()) }.ok()?;
        // SAFETY: the copy routine handles bad pointers.
        position =
            Some(unsafe { ucopy::get(record.wrapping_add(dirent64::POSITION).cast::<[u8; 8]>()) }.ok()?);
        at += usize::from(length).max(1);
    }
    position
}
