//! Memory that a program names in a call, like the kernel's `__user` pointers.
//!
//! An address is an ordinary value; only the copy routines of `lp-region` dereference it. The `unsafe`
//! constructors make the promise once, at the doors, so the functions that take these types are safe.

use core::fmt;

/// The address of a `T`, or of a NUL-terminated string.
///
/// It may be null, dangling or unaligned: a copy from or to bad memory fails with `EFAULT`.
#[repr(transparent)]
pub struct UserPtr<T = u8>(*mut T);

impl<T> UserPtr<T> {
    /// The null pointer.
    pub const NULL: Self = Self(core::ptr::null_mut());

    /// Wraps an address. [`UserPtr::NULL`] needs no promise.
    ///
    /// # Safety
    /// One of these must hold until every call that takes the pointer or a copy of it has returned:
    /// - The running program passed the address, and the handler for faults of the copy routines is installed
    ///   (the gate).
    /// - The memory, and all memory that it names in turn (the buffers of an `iovec`), is valid for what the
    ///   system call does with it: for reads of what the call takes, and for writes of what it returns. No
    ///   Rust reference may conflict with those accesses.
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

/// An array of `T`: an address and a count of elements, which system calls take as two adjacent arguments.
#[derive(Debug)]
pub struct UserSlice<T = u8> {
    start: UserPtr<T>,
    len: usize,
}

impl<T> UserSlice<T> {
    /// No memory.
    pub const EMPTY: Self = Self { start: UserPtr::NULL, len: 0 };

    /// Wraps an address and a count. Either may be bad, as for [`UserPtr`].
    ///
    /// # Safety
    /// As for [`UserPtr::new`], for all elements.
    #[inline(always)]
    pub const unsafe fn new(start: *const T, len: usize) -> Self {
        // SAFETY: the caller keeps the contract of `UserPtr::new` for these elements.
        Self { start: unsafe { UserPtr::new(start) }, len }
    }

    /// The address of the first element.
    #[inline(always)]
    pub const fn start(self) -> UserPtr<T> {
        self.start
    }

    /// The number of elements.
    #[inline(always)]
    pub const fn len(self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The first `count` elements, or all if there are fewer.
    #[inline(always)]
    pub fn first(self, count: usize) -> Self {
        Self { start: self.start, len: if count < self.len { count } else { self.len } }
    }

    /// [`UserSlice::skip`] without the check.
    ///
    /// # Safety
    /// `count` must not exceed the length.
    #[inline(always)]
    pub unsafe fn skip_unchecked(self, count: usize) -> Self {
        debug_assert!(count <= self.len);
        Self { start: UserPtr(self.start.0.wrapping_add(count)), len: self.len.wrapping_sub(count) }
    }

    /// The elements after the first `count`; empty if there are no more.
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
