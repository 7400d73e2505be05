//! Removes a host directory and its contents, with one buffer of entries at a time.

use lp_abi::linux::{
    __NR_getdents64, __NR_open, __NR_rmdir, __NR_unlinkat, AT_REMOVEDIR, O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW,
    S_IFDIR,
};
use lp_abi::{Errno, Fd, PATH_MAX, Result, dirent64};

use crate::high::frame::at::{Which, buffer};
use crate::low::tools::close::close_number;

/// Bytes of entries that are read at a time.
const RECORDS: usize = 1024;

/// Removes the directory at a NUL-terminated path. Directories below it are emptied deepest first.
///
/// # Errors
/// Those of open(2), unlinkat(2) and rmdir(2); `ENAMETOOLONG`.
pub(crate) fn remove(path: &[u8]) -> Result<()> {
    let text: &mut [u8; PATH_MAX] = buffer(Which::First);
    let top = path.len().checked_sub(1).ok_or(Errno::ENOENT)?;
    text.get_mut(..=top).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(path);
    remove_at(text, top)
}

/// [`remove`] of the directory at the path of `top` bytes and a NUL in `text`, which is overwritten.
///
/// # Errors
/// Those of [`remove`].
pub(crate) fn remove_at(text: &mut [u8; PATH_MAX], top: usize) -> Result<()> {
    let mut length = top;
    loop {
        match empty(text, length)? {
            Some(more) => length = more,
            None => {
                // SAFETY: a NUL-terminated path.
                unsafe { lp_abi::syscall!(__NR_rmdir, text.as_ptr()) }?;
                if length == top {
                    return Ok(());
                }
                length = text[..length].iter().rposition(|byte| *byte == b'/').unwrap_or(top).max(top);
                text[length] = 0;
            }
        }
    }
}

/// Unlinks the entries of a directory up to the first non-empty directory. Appends that one's name to the
/// path and returns the new length.
fn empty(text: &mut [u8; PATH_MAX], length: usize) -> Result<Option<usize>> {
    let flags = O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    // SAFETY: a NUL-terminated path.
    let directory = unsafe { lp_abi::syscall!(__NR_open, text.as_ptr(), flags) }?;
    let directory = Fd::new(directory as i32);
    let mut records = [0; RECORDS];
    let found = loop {
        let room = records.len();
        // SAFETY: the kernel writes within the buffer.
        let got = unsafe { lp_abi::syscall!(__NR_getdents64, directory, records.as_mut_ptr(), room) };
        let Ok(got @ 1..) = got else { break Ok(None) };
        match unlink_records(directory, &records[..got], text, length) {
            Ok(None) => {}
            found => break found,
        }
    };
    close_number(directory);
    found
}

fn unlink_records(
    directory: Fd,
    records: &[u8],
    text: &mut [u8; PATH_MAX],
    length: usize,
) -> Result<Option<usize>> {
    let mut below = None;
    for (kind, name) in dirent64::names(records) {
        let flags = if u32::from(kind) == S_IFDIR >> 12 { AT_REMOVEDIR } else { 0 };
        // SAFETY: the name is NUL-terminated.
        match unsafe { lp_abi::syscall!(__NR_unlinkat, directory, name.as_ptr(), flags) } {
            Err(Errno::ENOTEMPTY) if below.is_none() => {
                let name = name.to_bytes_with_nul();
                let more = length + name.len();
                let room = text.get_mut(length..=more).ok_or(Errno::ENAMETOOLONG)?;
                room[0] = b'/';
                room[1..].copy_from_slice(name);
                below = Some(more);
            }
            Ok(_) | Err(Errno::ENOENT | Errno::ENOTEMPTY) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(below)
}
