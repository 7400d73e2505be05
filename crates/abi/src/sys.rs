//! Raw system calls, without libc and errno.

#[cfg(not(miri))]
use core::arch::asm;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::errno::Result;
use crate::{Errno, Fd, UserPtr};

/// Enters the kernel with call `nr` and six arguments; returns the raw `rax`.
///
/// # Safety
/// As for the system call itself: pointer arguments must be valid for what the call does with them, and the
/// caller must be allowed to cause its effect on the process.
#[inline(always)]
pub unsafe fn syscall6(nr: u32, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    #[cfg(miri)]
    // SAFETY: the caller answers for the call.
    return unsafe { crate::miri::syscall6(nr, [a, b, c, d, e, f]) };
    #[cfg(not(miri))]
    {
        let ret: isize;
        // SAFETY: the caller answers for the call; the instruction itself clobbers rcx and r11 only.
        unsafe {
            asm!("syscall", inlateout("rax") nr as isize => ret, in("rdi") a, in("rsi") b, in("rdx") c,
             in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
        }
        ret
    }
}

/// The argument of [`limit`]; 0 while there is no limit.
pub static LIMIT: AtomicUsize = AtomicUsize::new(0);

/// From here on `syscall!` makes only calls for whose numbers `permits` returns true; all others fail with
/// `ENOSYS`. For a process with a filter (seccomp(2)) that kills it for calls that are not the program's own.
pub fn limit(permits: fn(u32) -> bool) {
    LIMIT.store(permits as usize, Ordering::Relaxed); // Relaxed: the address stands for itself.
}

/// Removes the limit.
pub fn unlimit() {
    LIMIT.store(0, Ordering::Relaxed); // Relaxed: as in `limit`.
}

/// Whether a limit is set.
#[inline]
pub fn is_limited() -> bool {
    LIMIT.load(Ordering::Relaxed) != 0 // Relaxed: as in `limit`.
}

#[cold]
fn permits(nr: u32) -> bool {
    let limit = LIMIT.load(Ordering::Relaxed); // Relaxed: as in `limit`.
    // SAFETY: `limit` stored a function of this type, or nothing.
    limit == 0 || unsafe { core::mem::transmute::<usize, fn(u32) -> bool>(limit) }(nr)
}

/// [`syscall6`] for [`syscall!`]: obeys the limit.
///
/// # Safety
/// As [`syscall6`].
#[doc(hidden)]
#[inline(always)]
pub unsafe fn own(nr: u32, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    if is_limited() && !permits(nr) {
        return Errno::ENOSYS.to_ret();
    }
    // SAFETY: the arguments are good for the call and its effect is the caller's to cause, by this function's
    // contract.
    unsafe { syscall6(nr, a, b, c, d, e, f) }
}

/// What a register of a system call holds.
pub trait Argument {
    /// The register.
    fn word(self) -> usize;
}

macro_rules! arguments {
    ($($type:ty)*) => {$(
        impl Argument for $type {
            #[inline(always)]
            fn word(self) -> usize {
                self as usize
            }
        }
    )*};
}
arguments!(i16 u16 i32 u32 i64 u64 isize usize);

impl<T> Argument for *const T {
    #[inline(always)]
    fn word(self) -> usize {
        self as usize
    }
}

impl<T> Argument for *mut T {
    #[inline(always)]
    fn word(self) -> usize {
        self as usize
    }
}

impl<T> Argument for UserPtr<T> {
    #[inline(always)]
    fn word(self) -> usize {
        self.addr()
    }
}

impl Argument for Fd {
    #[inline(always)]
    fn word(self) -> usize {
        Fd::word(self)
    }
}

/// [`Argument::word`], for [`syscall!`].
#[doc(hidden)]
#[inline(always)]
pub fn word(argument: impl Argument) -> usize {
    argument.word()
}

/// [`syscall6`] with its result split; up to six arguments, missing ones are zero.
///
/// Must be used in an `unsafe` block, for the reasons that [`syscall6`] gives.
#[macro_export]
macro_rules! syscall {
    ($nr:expr) => { $crate::syscall!(@ $nr, 0, 0, 0, 0, 0, 0) };
    ($nr:expr, $a:expr) => { $crate::syscall!(@ $nr, $a, 0, 0, 0, 0, 0) };
    ($nr:expr, $a:expr, $b:expr) => { $crate::syscall!(@ $nr, $a, $b, 0, 0, 0, 0) };
    ($nr:expr, $a:expr, $b:expr, $c:expr) => { $crate::syscall!(@ $nr, $a, $b, $c, 0, 0, 0) };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr) => { $crate::syscall!(@ $nr, $a, $b, $c, $d, 0, 0) };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr) => { $crate::syscall!(@ $nr, $a, $b, $c, $d, $e, 0) };
    ($nr:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr) => {
        $crate::syscall!(@ $nr, $a, $b, $c, $d, $e, $f)
    };
    (@ $nr:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr) => {
        $crate::sys::split($crate::sys::own(
            $nr as u32,
            $crate::sys::word($a),
            $crate::sys::word($b),
            $crate::sys::word($c),
            $crate::sys::word($d),
            $crate::sys::word($e),
            $crate::sys::word($f),
        ))
    };
}

#[doc(hidden)]
#[inline(always)]
pub fn split(ret: isize) -> Result<usize> {
    Errno::from_ret(ret)
}
