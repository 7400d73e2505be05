//! The copy routines for Miri, which runs no assembly: what [`ucopy`](../ucopy.rs) does with pointers that
//! are good.

use lp_abi::linux::{S_IFDIR, S_IFMT, stat};
use lp_abi::{Errno, PAGE_SIZE, Result};

use crate::records::Inode;
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

/// [`put`].
///
/// # Errors
/// As [`put`].
///
/// # Safety
/// As [`put`].
pub unsafe fn put_words<T: Copy>(to: *mut T, value: &T) -> Result<()> {
    // SAFETY: a `T` can be written there, by this function's contract.
    unsafe { put(to, value) }
}

/// Writes an inode's record as a `struct stat` of device `device` and number `number`.
///
/// # Errors
/// None.
///
/// # Safety
/// As [`put`].
pub unsafe fn put_stat(to: *mut stat, from: &Inode, device: u64, number: u32) -> Result<()> {
    let word = |word: &crate::sync::AtomicU32| word.load(Ordering::Relaxed); // Relaxed: the caller validates.
    // SAFETY: integers, for which zeros are a value.
    let mut stat: stat = unsafe { core::mem::zeroed() };
    stat.st_dev = device;
    stat.st_ino = number.into();
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
    stat.st_blocks = if is_dir { 0 } else { from.pages.load(Ordering::Relaxed) as i64 * 8 };
    (stat.st_atime, stat.st_atime_nsec) = stamp(&from.atime);
    (stat.st_mtime, stat.st_mtime_nsec) = stamp(&from.mtime);
    (stat.st_ctime, stat.st_ctime_nsec) = stamp(&from.ctime);
    // SAFETY: `to` is good, by this function's contract.
    unsafe { put(to, &stat) }
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
