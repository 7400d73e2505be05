//! Memory that a program names in a call, like the kernel's `__user` pointers.
//!
//! The address is a value like any other; only the copy routines of `lp-region` look behind it. Whoever makes one
//! promises, once and `unsafe`, what lets every function that takes one be safe.

use core::fmt;

/// Where a `T` lies, or the first of some, or a string that ends with a NUL.
///
/// May be null, dangling or unaligned: a copy from or to bad memory fails with `EFAULT`.
#[repr(transparent)]
pub struct UserPtr<T = u8>(*mut T);

impl<T> UserPtr<T> {
    /// The null pointer.
    pub const NULL: Self = Self(core::ptr::null_mut());

    /// The program's `at`. [`UserPtr::NULL`] needs no promise.
    ///
    /// # Safety
    /// Until the call that takes it, or a copy of it, has returned, one of these holds:
    /// - it is an argument of the running program's, and faults of the copy routines are handled (the gate);
    /// - the memory, and whatever memory that names in turn (the buffers of an `iovec`), is good for what the system
    ///   call of that name does with it: reads of what the call takes, and writes, with no reference of Rust's to it,
    ///   of what the call gives.
    #[inline(always)]
    pub const unsafe fn new(at: *const T) -> Self {
        Self(at.cast_mut())
    }

    /// The address, for a copy routine.
    #[inline(always)]
    pub const fn as_ptr(self) -> *mut T {
        self.0
    }

    /// The address as a number.
    #[inline(always)]
    pub fn addr(self) -> usize {
        self.0 as usize
    }

    /// Whether it is the null pointer.
    #[inline(always)]
    pub const fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The same address, of another type.
    #[inline(always)]
    pub const fn cast<U>(self) -> UserPtr<U> {
        UserPtr(self.0.cast())
    }
}

impl<T> Clone for UserPtr<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for UserPtr<T> {}

impl<T> PartialEq for UserPtr<T> {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Eq for UserPtr<T> {}

impl<T> fmt::Debug for UserPtr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Several `T`s in a row: an address and a count, two words that system calls take side by side.
#[derive(Debug)]
pub struct UserSlice<T = u8> {
    start: UserPtr<T>,
    len: usize,
}

impl<T> UserSlice<T> {
    /// No memory.
    pub const EMPTY: Self = Self { start: UserPtr::NULL, len: 0 };

    /// The program's `len` elements from `start` on. Neither need be sane: see [`UserPtr`].
    ///
    /// # Safety
    /// As [`UserPtr::new`], for all of them.
    #[inline(always)]
    pub const unsafe fn new(start: *const T, len: usize) -> Self {
        // SAFETY: the caller promises it of these elements.
        Self { start: unsafe { UserPtr::new(start) }, len }
    }

    /// Where the first lies.
    #[inline(always)]
    pub const fn start(self) -> UserPtr<T> {
        self.start
    }

    /// How many there are.
    #[inline(always)]
    pub const fn len(self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The first `count`, or all if there are fewer.
    #[inline(always)]
    pub fn first(self, count: usize) -> Self {
        Self { start: self.start, len: if count < self.len { count } else { self.len } }
    }

    /// [`UserSlice::skip`] of no more than there are.
    ///
    /// # Safety
    /// `count` is not above the length.
    #[inline(always)]
    pub unsafe fn skip_unchecked(self, count: usize) -> Self {
        debug_assert!(count <= self.len);
        Self { start: UserPtr(self.start.0.wrapping_add(count)), len: self.len.wrapping_sub(count) }
    }

    /// Those behind the first `count`; none if there are no more.
    #[inline(always)]
    pub fn skip(self, count: usize) -> Self {
        let count = if count < self.len { count } else { self.len };
        Self { start: UserPtr(self.start.0.wrapping_add(count)), len: self.len - count }
    }
}

impl<T> Clone for UserSlice<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for UserSlice<T> {}
