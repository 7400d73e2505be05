//! The copy routines for Miri, which runs no assembly: what [`ucopy`](../ucopy.rs) does with pointers that
//! are good.

use lp_abi::linux::{S_IFDIR, S_IFMT, STATX_BTIME, STATX_MTIME, stat, statx, statx_timestamp};
use lp_abi::{Errno, PAGE_SIZE, Result};

use crate::records::Inode;
pub use crate::statx::Beside;
use crate::sync::Ordering;

/// No wide copies.
pub fn set_wide(_avx2: bool) {}

/// No routine that may fault.
pub fn fault_range() -> (usize, usize, usize) {
    (0, 0, 0)
}

/// Copies `bytes` bytes.
///
/// # Errors
/// None.
///
/// # Safety
/// Both sides are good for `bytes` bytes.
pub unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) -> Result<()> {
    // SAFETY: the caller's sides are good; they may overlap, as the program may ask for that.
    unsafe { to.copy_from(from, bytes) };
    Ok(())
}

/// [`copy`].
///
/// # Errors
/// As [`copy`].
///
/// # Safety
/// As [`copy`].
pub unsafe fn copy_as<const WIDE: bool>(to: *mut u8, from: *const u8, bytes: usize) -> Result<()> {
    // SAFETY: both sides are good for `bytes` bytes, by this function's contract.
    unsafe { copy(to, from, bytes) }
}

/// Fills `bytes` bytes with zeros.
///
/// # Errors
/// None.
///
/// # Safety
/// `to` is good for `bytes` bytes.
pub unsafe fn zero(to: *mut u8, bytes: usize) -> Result<()> {
    // SAFETY: `to` is good for `bytes` bytes, by this function's contract.
    unsafe { to.write_bytes(0, bytes) };
    Ok(())
}

/// Copies a NUL-terminated string into `to` and gives its length.
///
/// # Errors
/// `ENAMETOOLONG` when there is no NUL within `to`.
///
/// # Safety
/// `from` is such a string.
pub unsafe fn string(to: &mut [u8], from: *const u8) -> Result<usize> {
    // SAFETY: `from` is NUL-terminated, by this function's contract.
    unsafe { path(to, from) }.map(|(length, _)| length)
}

/// [`string`], and how many of its bytes stand up to its last slash and with it.
///
/// # Errors
/// As [`string`].
///
/// # Safety
/// As [`string`].
pub unsafe fn path(to: &mut [u8], from: *const u8) -> Result<(usize, usize)> {
    let mut prefix = 0;
    for (at, byte) in to.iter_mut().enumerate() {
        // SAFETY: no NUL was seen before this byte.
        *byte = unsafe { *from.add(at) };
        match *byte {
            0 => return Ok((at, prefix)),
            b'/' => prefix = at + 1,
            _ => {}
        }
    }
    Err(Errno::ENAMETOOLONG)
}

/// Whether a short look shows a path without empty, `.` and `..` components: never.
///
/// # Safety
/// `from` is a string.
pub unsafe fn is_straight(_from: *const u8) -> bool {
    false
}

/// The eight bytes that a string starts with; all ones where they cannot be read.
///
/// # Safety
/// `from` is a string.
pub unsafe fn word(_from: *const u8) -> u64 {
    u64::MAX
}

/// Reads one value.
///
/// # Errors
/// None.
///
/// # Safety
/// `from` is good, but need not be aligned; every bit pattern is a `T`.
pub unsafe fn get<T: Copy>(from: *const T) -> Result<T> {
    // SAFETY: a `T` can be read there, by this function's contract.
    Ok(unsafe { from.read_unaligned() })
}

/// Writes one value.
///
/// # Errors
/// None.
///
/// # Safety
/// `to` is good, but need not be aligned.
pub unsafe fn put<T: Copy>(to: *mut T, value: &T) -> Result<()> {
    // SAFETY: a `T` can be written there, by this function's contract.
    unsafe { to.write_unaligned(*value) };
    Ok(())
}

/// Writes an inode's record as a `struct stat` of device `device`.
///
/// # Errors
/// None.
///
/// # Safety
/// As [`put`].
pub unsafe fn put_stat(to: *mut stat, from: &Inode, device: u64) -> Result<()> {
    let word = |word: &crate::sync::AtomicU32| word.load(Ordering::Relaxed); // Relaxed: the caller validates.
    // SAFETY: integers, for which zeros are a value.
    let mut stat: stat = unsafe { core::mem::zeroed() };
    stat.st_dev = device;
    stat.st_ino = from.number.load(Ordering::Relaxed); // Relaxed: immutable.
    stat.st_nlink = word(&from.nlink).into();
    stat.st_mode = word(&from.mode);
    stat.st_uid = word(&from.uid);
    stat.st_gid = word(&from.gid);
    stat.st_rdev = word(&from.rdev).into();
    stat.st_blksize = PAGE_SIZE as i64;
    let is_dir = stat.st_mode & S_IFMT == S_IFDIR;
    stat.st_size = match is_dir {
        true => i64::from(word(&from.entries)) * 20 + 40,
        false => from.size.load(Ordering::Relaxed) as i64,
    };
    stat.st_blocks = if is_dir { 0 } else { i64::from(word(&from.pages)) * 8 };
    (stat.st_atime, stat.st_atime_nsec) = stamp(&from.atime);
    (stat.st_mtime, stat.st_mtime_nsec) = stamp(&from.mtime);
    // Relaxed: as above.
    let changed = from.ctime.load(Ordering::Relaxed);
    (stat.st_ctime, stat.st_ctime_nsec) = (changed, word(&from.ctime_nsec).into());
    // SAFETY: `to` is good, by this function's contract.
    unsafe { put(to, &stat) }
}

/// [`put_stat`].
///
/// # Errors
/// None.
///
/// # Safety
/// As [`put`].
pub unsafe fn put_stat_as<const ANY: bool>(to: *mut stat, from: &Inode, device: u64) -> Result<()> {
    // SAFETY: by this function's contract.
    unsafe { put_stat(to, from, device) }
}

/// [`put_stat`], as a `struct statx`.
///
/// # Errors
/// None.
///
/// # Safety
/// As [`put`].
pub unsafe fn put_statx(to: *mut statx, from: &Inode, beside: &Beside) -> Result<()> {
    let mut seen = core::mem::MaybeUninit::uninit();
    // SAFETY: `seen` is room for one.
    unsafe { put_stat(seen.as_mut_ptr(), from, 0) }?;
    // SAFETY: integers, for which zeros are a value; `put_stat` wrote all of `seen`.
    let (mut value, seen): (statx, stat) = unsafe { (core::mem::zeroed(), seen.assume_init()) };
    let time =
        |sec: u64, nsec: u64| statx_timestamp { tv_sec: sec as i64, tv_nsec: nsec as u32, __reserved: 0 };
    (value.stx_mask, value.stx_blksize) = (beside.mask, beside.block_size);
    (value.stx_attributes, value.stx_attributes_mask) = (beside.attributes, beside.attributes_mask);
    (value.stx_ino, value.stx_mnt_id) = (seen.st_ino, beside.mount);
    [value.stx_rdev_major, value.stx_rdev_minor] = beside.rdev;
    [value.stx_dev_major, value.stx_dev_minor] = beside.device;
    (value.stx_nlink, value.stx_mode) = (seen.st_nlink as u32, seen.st_mode as u16);
    (value.stx_uid, value.stx_gid) = (seen.st_uid, seen.st_gid);
    (value.stx_size, value.stx_blocks) = (seen.st_size as u64, seen.st_blocks as u64);
    value.stx_atime = time(seen.st_atime, seen.st_atime_nsec);
    if beside.mask & STATX_MTIME != 0 {
        value.stx_mtime = time(seen.st_mtime, seen.st_mtime_nsec);
        value.stx_ctime = time(seen.st_ctime, seen.st_ctime_nsec);
    }
    if beside.mask & STATX_BTIME != 0 {
        // Relaxed: immutable.
        let nsec = from.btime_nsec.load(Ordering::Relaxed);
        value.stx_btime = time(from.btime.load(Ordering::Relaxed), nsec.into());
    }
    // SAFETY: `to` is good, by this function's contract.
    unsafe { put(to, &value) }
}

fn stamp(at: &crate::records::Stamp) -> (u64, u64) {
    (at.sec.load(Ordering::Relaxed), at.nsec.load(Ordering::Relaxed).into())
}

/// Whether the string is empty.
///
/// # Safety
/// `string` is one.
pub unsafe fn is_empty(string: *const u8) -> bool {
    // SAFETY: a string has a first byte, its NUL if no other.
    unsafe { *string == 0 }
}
