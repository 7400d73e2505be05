//! Copies from and to memory that the program named: the only code that touches it.
//!
//! A fault between `lp_ucopy_start` and `lp_ucopy_end` means that the program's pointer was bad. The gate's
//! SIGSEGV and SIGBUS handler then sets the instruction pointer to `lp_ucopy_fault`, which makes the routine
//! return 1 instead of 0; the routines keep nothing on the stack. In the library, pointers come from slices
//! and never fault.

use core::mem::offset_of;

use lp_abi::linux::{STATX_BTIME, STATX_MTIME, stat, statx};
use lp_abi::{Errno, PAGE_SIZE, PATH_MAX, Result};

use crate::records::Inode;
pub use crate::statx::Beside;
use crate::sync::{AtomicU8, Ordering};

core::arch::global_asm!(
    include_str!("ucopy.s"),
    number = const offset_of!(Inode, number),
    nlink = const offset_of!(Inode, nlink),
    mode = const offset_of!(Inode, mode),
    rdev = const offset_of!(Inode, rdev),
    size = const offset_of!(Inode, size),
    pages = const offset_of!(Inode, pages),
    entries = const offset_of!(Inode, entries),
    atime = const offset_of!(Inode, atime),
    btime = const offset_of!(Inode, btime),
    mtime_asked = const STATX_MTIME,
    btime_asked = const STATX_BTIME,
    page = const PAGE_SIZE,
    longest = const PATH_MAX,
    wide = sym WIDE,
);

/// 1 if a wide [`copy_as`] may use ymm registers.
static WIDE: AtomicU8 = AtomicU8::new(0);

/// Sets whether the processor has AVX2 ([`crate::cpu::has_avx2`]). Until then a wide [`copy_as`] is [`copy`].
pub fn set_wide(avx2: bool) {
    // Relaxed: the copy routine's choice, either of which is right.
    WIDE.store(u8::from(avx2), Ordering::Relaxed);
}

const _: () = {
    // The layout that lp_ustat writes.
    assert!(offset_of!(Inode, zero) == offset_of!(Inode, mode) + 12 && offset_of!(stat, __unused) == 120);
    assert!(offset_of!(Inode, nlink) == offset_of!(Inode, atime) + 44);
    assert!(size_of::<stat>() == 144 && offset_of!(stat, st_mode) == 24 && offset_of!(stat, st_rdev) == 40);
    assert!(offset_of!(stat, st_size) == 48 && offset_of!(stat, st_atime) == 72);
    // The layout that lp_ustatx writes.
    assert!(
        size_of::<statx>() == 256 && offset_of!(statx, stx_ino) == 32 && offset_of!(statx, stx_atime) == 64
    );
    assert!(offset_of!(statx, stx_ctime) == 96 && offset_of!(statx, stx_mnt_id) == 144);
    assert!(size_of::<Beside>() == 48 && offset_of!(Inode, btime_nsec) == offset_of!(Inode, btime) + 8);
};

unsafe extern "sysv64" {
    fn lp_ucopy(to: *mut u8, from: *const u8, bytes: usize) -> isize;
    fn lp_ucopy_wide(to: *mut u8, from: *const u8, bytes: usize) -> isize;
    fn lp_uzero(to: *mut u8, bytes: usize) -> isize;
    fn lp_ustr(to: *mut u8, from: *const u8, room: usize) -> isize;
    fn lp_ustraight(from: *const u8) -> isize;
    fn lp_ustat(to: *mut stat, from: *const Inode, device: u64) -> isize;
    fn lp_ustat_file(to: *mut stat, from: *const Inode, device: u64) -> isize;
    fn lp_ustatx(to: *mut statx, from: *const Inode, beside: *const Beside) -> isize;
    /// The byte at `from`, or -1 for a fault; changes no register but `rax`.
    fn lp_ubyte(from: *const u8) -> isize;
    fn lp_uword(from: *const u8) -> u64;
    static lp_ucopy_start: u8;
    static lp_ucopy_end: u8;
    static lp_ucopy_fault: u8;
}

/// First address of the copy routines, the address after the last, and the address where a fault between them
/// resumes.
pub fn fault_range() -> (usize, usize, usize) {
    (&raw const lp_ucopy_start as usize, &raw const lp_ucopy_end as usize, &raw const lp_ucopy_fault as usize)
}

/// Copies `bytes` bytes; either side may belong to the program.
///
/// # Errors
/// `EFAULT` when one side cannot be read or written; part may have been copied.
///
/// # Safety
/// A side that does not belong to the program is valid for `bytes` bytes, and the gate's fault handler is
/// installed if the other may be bad.
#[inline]
pub unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) -> Result<()> {
    // SAFETY: the side that is not the program's is good for `bytes` bytes, and a fault of the other is
    // handled, by this contract.
    unsafe { copy_as::<false>(to, from, bytes) }
}

/// [`copy`]; `WIDE` is for callers that have all vector registers free, in full width: takes half the time
/// from 128 bytes on.
///
/// # Errors
/// As [`copy`].
///
/// # Safety
/// As [`copy`].
#[inline(always)]
pub unsafe fn copy_as<const WIDE: bool>(to: *mut u8, from: *const u8, bytes: usize) -> Result<()> {
    let fault: usize;
    // A call from here tells the compiler how few registers the routine uses, so that callers keep theirs: of
    // ymm0-3 by the names of their halves.
    macro_rules! call {
        ($routine:path) => {
            core::arch::asm!(
                "call {routine}",
                routine = sym $routine,
                inout("rdi") to => _,
                inout("rsi") from => _,
                inout("rdx") bytes => _,
                out("rax") fault,
                out("rcx") _,
                out("r8") _,
                out("xmm0") _,
                out("xmm1") _,
                out("xmm2") _,
                out("xmm3") _,
            )
        };
    }
    // SAFETY: our side is good for `bytes` bytes and faults of the program's are handled; these are the
    // registers that the routines use.
    unsafe { if WIDE { call!(lp_ucopy_wide) } else { call!(lp_ucopy) } }
    if fault == 0 { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Fills `bytes` bytes of the program's memory with zeros.
///
/// # Errors
/// `EFAULT`.
///
/// # Safety
/// As [`copy`].
#[inline]
pub unsafe fn zero(to: *mut u8, bytes: usize) -> Result<()> {
    // SAFETY: the memory is the program's, and its faults are handled, by this function's contract.
    if unsafe { lp_uzero(to, bytes) } == 0 { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Copies a NUL-terminated string of the program into `to` and returns its length.
///
/// # Errors
/// `EFAULT`; `ENAMETOOLONG` when there is no NUL within `to`.
///
/// # Safety
/// The gate's fault handler is installed if `from` may be bad.
#[inline]
pub unsafe fn string(to: &mut [u8], from: *const u8) -> Result<usize> {
    // SAFETY: a fault of `from` is handled, by this function's contract.
    unsafe { path(to, from) }.map(|(length, _)| length)
}

/// [`string`], and the length of its prefix up to and including the last slash.
///
/// # Errors
/// As [`string`].
///
/// # Safety
/// As [`string`].
#[inline(always)]
pub unsafe fn path(to: &mut [u8], from: *const u8) -> Result<(usize, usize)> {
    let (length, slash): (isize, usize);
    // SAFETY: `to` is good for its length and a fault of `from` is handled; these are the registers that the
    // routine uses.
    unsafe {
        core::arch::asm!(
            "call {routine}",
            routine = sym lp_ustr,
            in("rdi") to.as_mut_ptr(),
            in("rsi") from,
            inout("rdx") to.len() => slash,
            out("rax") length,
            out("rcx") _,
            out("r8") _,
            out("r9") _,
            out("r10") _,
            out("xmm0") _,
            out("xmm1") _,
            out("xmm2") _,
            out("xmm3") _,
        );
    }
    match length {
        -1 => Err(Errno::EFAULT),
        length if length as usize == to.len() => Err(Errno::ENAMETOOLONG),
        length => Ok((length as usize, slash)),
    }
}

/// Whether a string of the program is a path of which no component is empty, `.` or `..`. False also where a
/// short look cannot tell.
///
/// # Safety
/// As [`string`].
#[inline(always)]
pub unsafe fn is_straight(from: *const u8) -> bool {
    let crooked: isize;
    // SAFETY: a fault of `from` is handled, by this function's contract; these are the registers that the
    // routine uses.
    unsafe {
        core::arch::asm!(
            "call {routine}",
            routine = sym lp_ustraight,
            inout("rdi") from => _,
            out("rax") crooked,
            out("rcx") _,
            out("rdx") _,
            out("r8") _,
            out("r9") _,
            out("r10") _,
            out("r11") _,
            out("xmm0") _,
            out("xmm1") _,
            out("xmm2") _,
            out("xmm3") _,
            out("xmm4") _,
        );
    }
    crooked == 0
}

/// The first eight bytes of a string of the program; all ones where they cannot be read.
///
/// # Safety
/// As [`string`].
#[inline(always)]
pub unsafe fn word(from: *const u8) -> u64 {
    let word: u64;
    // SAFETY: a fault of `from` is handled, by this function's contract; this is the register that the
    // routine uses.
    unsafe {
        core::arch::asm!("call {routine}", routine = sym lp_uword, in("rdi") from, out("rax") word);
    }
    word
}

/// Reads one value from the program's memory.
///
/// # Errors
/// `EFAULT`.
///
/// # Safety
/// As [`copy`]; every bit pattern is a valid `T`.
#[inline]
pub unsafe fn get<T: Copy>(from: *const T) -> Result<T> {
    let mut value = core::mem::MaybeUninit::<T>::uninit();
    // SAFETY: `value` has room for a `T`, a fault of `from` is handled, and once copied the value is
    // initialised.
    unsafe {
        copy(value.as_mut_ptr().cast(), from.cast(), size_of::<T>())?;
        Ok(value.assume_init())
    }
}

/// Writes one value into the program's memory.
///
/// # Errors
/// `EFAULT`.
///
/// # Safety
/// As [`copy`].
#[inline]
pub unsafe fn put<T: Copy>(to: *mut T, value: &T) -> Result<()> {
    // SAFETY: `value` is good for its size, and a fault of `to` is handled, by this function's contract.
    unsafe { copy(to.cast(), (value as *const T).cast(), size_of::<T>()) }
}

/// Writes an inode's record into the program's memory as a `struct stat` with device `device`. The caller
/// validates the result with the inode's `seq`, and writes it again if it may be mixed.
///
/// # Errors
/// `EFAULT`.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
pub unsafe fn put_stat(to: *mut stat, from: &Inode, device: u64) -> Result<()> {
    // SAFETY: by this function's contract.
    unsafe { put_stat_as::<true>(to, from, device) }
}

/// [`put_stat`]; `ANY` is false if the inode is not a directory.
///
/// # Errors
/// As [`put_stat`].
///
/// # Safety
/// As [`copy`].
#[inline(always)]
pub unsafe fn put_stat_as<const ANY: bool>(to: *mut stat, from: &Inode, device: u64) -> Result<()> {
    let fault: usize;
    macro_rules! call {
        ($routine:path) => {
            core::arch::asm!(
                "call {routine}",
                routine = sym $routine,
                in("rdi") to,
                in("rsi") from,
                inout("rdx") device => _,
                out("rcx") _,
                out("rax") fault,
                out("r8") _,
                out("xmm0") _,
                out("xmm1") _,
                out("xmm2") _,
                out("xmm3") _,
            )
        };
    }
    // SAFETY: the record is ours, and a fault of `to` is handled; these are the registers that the routines
    // use.
    unsafe { if ANY { call!(lp_ustat) } else { call!(lp_ustat_file) } }
    if fault == 0 { Ok(()) } else { Err(Errno::EFAULT) }
}

/// [`put_stat`], as a `struct statx`.
///
/// # Errors
/// `EFAULT`.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
pub unsafe fn put_statx(to: *mut statx, from: &Inode, beside: &Beside) -> Result<()> {
    let fault: usize;
    // SAFETY: the records are ours, and a fault of `to` is handled; these are the registers that the routine
    // uses.
    unsafe {
        core::arch::asm!(
            "call {routine}",
            routine = sym lp_ustatx,
            in("rdi") to,
            in("rsi") from,
            in("rdx") beside,
            out("rax") fault,
            out("rcx") _,
            out("r8") _,
            out("xmm0") _,
            out("xmm1") _,
            out("xmm2") _,
            out("xmm3") _,
        );
    }
    if fault == 0 { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Whether the program's string is empty. False for a bad pointer: the call that reads on detects it.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
pub unsafe fn is_empty(string: *const u8) -> bool {
    let first: isize;
    // SAFETY: a fault of `string` is handled, by this function's contract; this is the register that the
    // routine uses.
    unsafe {
        core::arch::asm!("call {routine}", routine = sym lp_ubyte, in("rdi") string, out("rax") first);
    }
    first == 0
}
