//! Where shadows lie.

use lp_abi::{Errno, Result};
use lp_region::InodeId;
use lp_region::sync::Ordering;
use lp_vfs::task::Task;
use lp_vfs::watch::{self, At};

use lp_abi::text::Writer;

/// Bytes for the path of the directory of shadows.
pub(crate) const BASE: usize = 512;
/// Where memory is kept as files, and the start of the name of a user's directory there.
pub(crate) const MEMORY: &[u8] = b"/dev/shm/lightpath-";
/// The last of `Header::shadows`: in the run's cache directory.
pub(crate) const IN_CACHE: u64 = 1 << 32;
/// Bit of the same: nobody has watched for a while, and shadows are not like inodes any more.
pub(crate) const STALE: u64 = 1 << 33;

/// The directory of shadows, without a NUL, in `room`; its length, and that of the directory which holds it.
///
/// # Errors
/// `ENAMETOOLONG`; `ENOENT` when there is none yet.
pub(crate) fn base(task: &Task<'_>, room: &mut [u8; BASE]) -> Result<(usize, usize)> {
    // Relaxed: set once, each.
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

/// What the path of the directory of shadows is made of; another one once it is another.
pub(crate) fn secret(task: &Task<'_>) -> [u64; 3] {
    let [first, second, place] = &task.region.header().shadows;
    // Relaxed: set once, but for the first.
    [first, second, place].map(|word| word.load(Ordering::Relaxed) & !STALE)
}

/// The path of the shadow of an inode, with its NUL, in a buffer.
///
/// # Errors
/// `ENOENT` when the inode has no name; `ENAMETOOLONG`.
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
/// As [`path_of`].
pub(crate) fn path_at<'b>(task: &Task<'_>, at: At<'_>, to: &'b mut [u8]) -> Result<&'b mut [u8]> {
    let end = to.len();
    let rest = end.checked_sub(at.name.len() + 1).ok_or(Errno::ENAMETOOLONG)?;
    let start = watch::path(task, at.dir, &mut to[..rest])?;
    to[rest - 1] = b'/';
    to[rest..end - 1].copy_from_slice(at.name);
    to[end - 1] = 0;
    let start = put_base(task, to, start)?;
    Ok(&mut to[start..])
}
