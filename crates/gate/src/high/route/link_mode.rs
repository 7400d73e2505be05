//! The mode of a link in /proc/PID/fd: the kernel's tells how the placeholder is open, not how the file is.

use lp_abi::linux::{__NR_readlinkat, S_IRUSR, S_IWUSR, S_IXUSR};
use lp_region::records::file_mode;
use lp_region::sync::Ordering;
use lp_region::{FileId, ucopy};
use lp_vfs::table::{FdTable, entry};
use lp_vfs::task::Task;

use crate::high::frame::at::{At, Which, buffer};
use crate::high::route::magic::{self, Link};
use crate::high::route::{absolute, elsewhere};

/// [`of`] for a link that was opened with `O_PATH`, by a path through its descriptor.
#[cold]
pub(crate) fn of_opened(task: &Task, at: At) -> Option<u32> {
    let mut text = [0u8; 64];
    // SAFETY: the kernel reads the path and writes within `text`.
    let length =
        unsafe { lp_abi::syscall!(__NR_readlinkat, at.dirfd, at.path, text.as_mut_ptr(), text.len()) }
            .ok()?;
    (length < text.len()).then(|| of(task, At::text(&text)))?
}

/// The permission bits of the link that `at` names, if its file is ours.
#[cold]
pub(crate) fn of(task: &Task, at: At) -> Option<u32> {
    let text = buffer(Which::First);
    // SAFETY: the copy routine handles bad pointers.
    let mut length = unsafe { ucopy::string(text, at.path.as_ptr()) }.ok()?;
    if elsewhere::may_continue(&text[..length]) {
        length = absolute::join(Which::First, at.dirfd, length)?;
    }
    let magic = magic::parse(task, &text[..length]).filter(|magic| magic.end == length)?;
    let Link::Descriptor(fd) = magic.link else { return None };
    // Relaxed, both: one word each. If another process closes the file meanwhile, the mode was right a moment
    // ago.
    let word = FdTable::of(task.region, magic.process).entry(fd)?.load(Ordering::Relaxed);
    if word & entry::DATA == 0 {
        return None;
    }
    let mode = task.region.file(FileId(word as u32)).mode.load(Ordering::Relaxed);
    if mode & file_mode::PATH != 0 {
        return Some(0);
    }
    // The kernel's tid_fd_update_inode.
    let read = if mode & file_mode::READ != 0 { S_IRUSR | S_IXUSR } else { 0 };
    let write = if mode & file_mode::WRITE != 0 { S_IWUSR | S_IXUSR } else { 0 };
    Some(read | write)
}
