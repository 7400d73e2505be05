//! Absolute paths of the host as text: whether one is straight, and what a relative path is as one.

use lp_abi::linux::{__NR_getcwd, __NR_readlink};
use lp_abi::{Fd, PATH_MAX};

use crate::high::frame::at::{Which, buffer, spare_buffer};
use crate::high::route::elsewhere;

/// Makes a relative path, `length` bytes in the buffer of `which`, absolute, and returns its length.
#[cold]
pub(crate) fn join(which: Which, dirfd: Fd, length: usize) -> Option<usize> {
    let text = buffer(which);
    let base = spare_buffer();
    let base_length = directory(dirfd, base)?;
    let base_length = elsewhere::under_proc(dirfd, base, base_length, &text[..length]).unwrap_or(base_length);
    if base_length + 1 + length >= PATH_MAX {
        return None;
    }
    text.copy_within(..=length, base_length + 1);
    text[..base_length].copy_from_slice(&base[..base_length]);
    text[base_length] = b'/';
    Some(base_length + 1 + length)
}

/// The path of a host directory.
pub(super) fn directory(dirfd: Fd, to: &mut [u8; PATH_MAX]) -> Option<usize> {
    if dirfd == Fd::CWD {
        // SAFETY: the kernel writes within `to`; the length that it returns includes the NUL.
        let length = unsafe { lp_abi::syscall!(__NR_getcwd, to.as_mut_ptr(), to.len()) }.ok()?;
        return (to[0] == b'/').then_some(length - 1);
    }
    let length = readlink(&dirfd.link(), to)?;
    (to[0] == b'/').then_some(length)
}

fn readlink(path: &[u8], to: &mut [u8]) -> Option<usize> {
    // SAFETY: `path` is NUL-terminated, and the kernel writes within `to`.
    let length = unsafe { lp_abi::syscall!(__NR_readlink, path.as_ptr(), to.as_mut_ptr(), to.len()) }.ok()?;
    (length < to.len()).then_some(length)
}

/// Whether an absolute path has empty, `.` or `..` components and so may lead elsewhere than it seems.
pub(super) fn is_crooked(path: &[u8]) -> bool {
    path.windows(2).enumerate().any(|(at, pair)| match pair {
        b"//" => true,
        b"/." => {
            matches!(path.get(at + 2..).unwrap_or_default(), [] | [b'/', ..] | [b'.'] | [b'.', b'/', ..])
        }
        _ => false,
    })
}
