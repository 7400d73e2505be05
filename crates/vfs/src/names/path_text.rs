//! Paths of the program's in the task's buffers.

use core::slice;

use lp_abi::{Errno, NAME_MAX, PATH_MAX, Result, UserPtr};
use lp_region::ucopy;

use crate::caller::task::{Outside, SLACK, Task};

/// The task's buffer for a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathBuffer {
    /// `scratch.path`.
    Path,
    /// `scratch.other`, for the second path of a call.
    Other,
}

/// A path in one of the task's buffers.
#[derive(Clone, Copy)]
pub(crate) struct PathText {
    pub(super) which: PathBuffer,
    /// Its bytes, without the NUL.
    pub(super) length: usize,
    /// Length of the part up to and including its last slash.
    pub(super) prefix: usize,
}

/// Copies a path of the program's into one of the task's buffers.
///
/// # Errors
/// `EFAULT`, `ENAMETOOLONG`; `ENOENT` if it is empty.
#[inline]
pub(crate) fn copy_path(task: &Task<'_>, which: PathBuffer, path: UserPtr) -> Result<PathText> {
    // SAFETY: the buffer belongs to the task, and no other reference to it is alive.
    let buffer = unsafe { slice::from_raw_parts_mut(buffer(task, which).cast::<u8>(), PATH_MAX) };
    // SAFETY: the copy routine handles bad pointers.
    match unsafe { ucopy::path(buffer, path.as_ptr()) }? {
        (0, _) => Err(Errno::ENOENT),
        (length, prefix) => Ok(PathText { which, length, prefix }),
    }
}

/// Whether two paths are the same up to and including their last slash, in the task's buffers.
#[inline(always)]
pub(crate) fn have_one_prefix(task: &Task<'_>, one: PathText, other: PathText) -> bool {
    if one.prefix != other.prefix {
        return false;
    }
    let (a, b) = (buffer(task, one.which).cast::<u8>(), buffer(task, other.which).cast::<u8>());
    // SAFETY: both buffers are longer than a prefix by SLACK bytes.
    let differ = |at: usize| unsafe {
        a.add(at).cast::<u64>().read_unaligned() ^ b.add(at).cast::<u64>().read_unaligned()
    };
    let (whole, rest) = (one.prefix & !7, one.prefix as u32 & 7);
    let mut at = 0;
    while at < whole {
        if differ(at) != 0 {
            return false;
        }
        at += 8;
    }
    // Only the lowest bytes of the last word are of the prefix. The shift is in two steps: of none, it is 64.
    differ(whole) << 8 << (56 - 8 * rest) == 0
}

/// Gives a path a short last name if its own is longer than any name can be. Returns whether it did.
#[cold]
pub(super) fn shorten(task: &Task<'_>, text: PathText) -> (PathText, bool) {
    // SAFETY: the buffer belongs to the task, and no other reference to it is alive.
    let bytes = unsafe { slice::from_raw_parts_mut(buffer(task, text.which).cast::<u8>(), PATH_MAX) };
    let end = bytes[..text.length].iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let start = bytes[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    if end - start <= NAME_MAX {
        return (text, false);
    }
    bytes.copy_within(end..=text.length, start + 1);
    let length = text.length - (end - start - 1);
    let prefix = if end == text.length { start } else { length };
    (PathText { length, prefix, ..text }, true)
}

/// The path that [`copy_path`] left in a buffer.
pub(crate) fn copied<'t>(task: &'t Task<'_>, which: PathBuffer) -> &'t [u8] {
    // SAFETY: the buffer belongs to the task, which makes one call at a time; nobody writes it while the call
    // uses the path.
    let bytes = unsafe { slice::from_raw_parts(buffer(task, which).cast::<u8>(), PATH_MAX) };
    &bytes[..bytes.iter().position(|byte| *byte == 0).unwrap_or(PATH_MAX)]
}

/// Moves a path that a walk left in `scratch.outside` to its own buffer, for calls with two paths.
///
/// # Errors
/// `ENAMETOOLONG` if the kernel would not take it either.
pub(crate) fn keep(task: &Task<'_>, outside: Outside, which: PathBuffer) -> Result<Outside> {
    if let Outside::Rewritten(length) = outside {
        if length >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let from = task.scratch.outside.get().cast::<u8>();
        // SAFETY: both are the task's buffers, distinct, and large enough for the path and its NUL.
        unsafe { buffer(task, which).cast::<u8>().copy_from_nonoverlapping(from, length + 1) };
    }
    Ok(outside)
}

/// Whether a path of the program's is empty, for calls with `AT_EMPTY_PATH`.
///
/// # Errors
/// `EFAULT`.
#[inline]
pub(crate) fn is_empty(path: UserPtr) -> Result<bool> {
    // SAFETY: the copy routine handles bad pointers.
    Ok(unsafe { ucopy::get(path.as_ptr()) }? == 0)
}

/// Where a buffer is.
pub(super) fn buffer(task: &Task<'_>, which: PathBuffer) -> *mut [u8; PATH_MAX + SLACK] {
    match which {
        PathBuffer::Path => task.scratch.path.get(),
        PathBuffer::Other => task.scratch.other.get(),
    }
}
