//! Paths of shadows.

use lp_abi::{Errno, Result};
use lp_region::InodeId;
use lp_region::sync::Ordering;
use lp_vfs::task::Task;
use lp_vfs::watch::{self, NameAt};

use lp_abi::text::Writer;

/// Bytes for the path of the directory of shadows.
pub(crate) const BASE: usize = 512;
/// The directory for files in memory, and the prefix of a user's directory there.
pub(crate) const MEMORY: &[u8] = b"/dev/shm/lightpath-";
/// Value of the last of `Header::shadows`: the shadows lie in the run's cache directory.
pub(crate) const IN_CACHE: u64 = 1 << 32;
/// Bit of the last of `Header::shadows`: nobody has watched for a while, so shadows may differ from the
/// inodes.
pub(crate) const STALE: u64 = 1 << 33;

/// Writes the path of the directory of shadows to `room`, without a NUL. Returns its length and that of its
/// parent's path.
///
/// # Errors
/// `ENAMETOOLONG`; `ENOENT` if there is none yet.
pub(crate) fn base(task: &Task<'_>, room: &mut [u8; BASE]) -> Result<(usize, usize)> {
    // Relaxed: each word is set once.
    let [first, second, place] = secret(task);
    let mut path = Writer::new(room);
    match place {
        0 => return Err(Errno::ENOENT),
        IN_CACHE => {
            path.push(task.run.cache.get());
            path.push(b"/watch");
        }
        user => {
            path.push(MEMORY);
            path.push_decimal(user - 1);
        }
    }
    let above = path.length();
    path.push(b"/");
    path.push_hex(first, 16);
    path.push_hex(second, 16);
    Ok((path.finish().ok_or(Errno::ENAMETOOLONG)?, above))
}

/// Identifies the directory of shadows: it changes when the directory does.
pub(crate) fn secret(task: &Task<'_>) -> [u64; 3] {
    let [first, second, place] = &task.region.header().shadows;
    // Relaxed: set once, except for the first.
    [first, second, place].map(|word| word.load(Ordering::Relaxed) & !STALE)
}

/// The NUL-terminated path of an inode's shadow, in a buffer.
///
/// # Errors
/// `ENOENT` if the inode has no name; `ENAMETOOLONG`.
pub(crate) fn path_of<'b>(task: &Task<'_>, id: InodeId, to: &'b mut [u8]) -> Result<&'b mut [u8]> {
    let start = watch::path(task, id, to)?;
    let start = put_base(task, to, start)?;
    Ok(&mut to[start..])
}

fn put_base(task: &Task<'_>, to: &mut [u8], start: usize) -> Result<usize> {
    let mut room = [0; BASE];
    let (length, _) = base(task, &mut room)?;
    let start = start.checked_sub(length).ok_or(Errno::ENAMETOOLONG)?;
    to[start..start + length].copy_from_slice(&room[..length]);
    Ok(start)
}

/// The path of the shadow of a name.
///
/// # Errors
/// Those of [`path_of`].
pub(crate) fn path_at<'b>(task: &Task<'_>, at: NameAt<'_>, to: &'b mut [u8]) -> Result<&'b mut [u8]> {
    let end = to.len();
    let rest = end.checked_sub(at.name.len() + 1).ok_or(Errno::ENAMETOOLONG)?;
    let start = watch::path(task, at.dir, &mut to[..rest])?;
    to[rest - 1] = b'/';
    to[rest..end - 1].copy_from_slice(at.name);
    to[end - 1] = 0;
    let start = put_base(task, to, start)?;
    Ok(&mut to[start..])
}
