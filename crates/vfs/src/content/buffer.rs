//! The program's memory as calls name it: one buffer or a vector of them.

use core::mem::MaybeUninit;

use lp_abi::linux::{RWF_APPEND, RWF_DSYNC, RWF_HIPRI, RWF_SYNC, UIO_MAXIOV, iovec};
use lp_abi::{Errno, Fd, MAX_RW_COUNT, PAGE_SIZE, Result, UserSlice};
use lp_region::ucopy;

use crate::content::bulk::{self, Direction};

/// `RWF_NOAPPEND`, Linux 6.9, which the headers used here lack.
pub(crate) const RWF_NOAPPEND: u32 = 0x20;
/// `RWF_NOSIGNAL`, Linux 6.18: for pipes and sockets.
const RWF_NOSIGNAL: u32 = 0x100;
/// The `RWF_*` flags that files on tmpfs accept.
pub(crate) const RWF_KNOWN: u32 = RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_APPEND | RWF_NOAPPEND | RWF_NOSIGNAL;

/// A position in the program's memory that a transfer advances. A copy restarts from a clone.
pub(crate) trait Buffer: Copy {
    /// The next contiguous piece, at most `most` bytes; empty at the end.
    ///
    /// # Errors
    /// `EFAULT` if the vector cannot be read.
    fn here(&mut self, most: usize) -> Result<UserSlice>;

    /// Advances by `bytes`, no more than [`Buffer::here`] returned.
    fn advance(&mut self, bytes: usize);

    /// All of it, if it is one piece.
    fn whole(&self) -> Option<UserSlice>;

    /// Advances by `bytes`, across the ends of pieces.
    ///
    /// # Errors
    /// `EFAULT` if the vector cannot be read.
    fn skip(&mut self, bytes: usize) -> Result<()> {
        let mut left = bytes;
        while left > 0 {
            let here = self.here(left)?.len();
            if here == 0 {
                break;
            }
            self.advance(here);
            left -= here;
        }
        Ok(())
    }
}

/// The end of user space on x86-64 with five levels of page tables; with four it is lower.
const USER_END: usize = 1 << 56;

/// One buffer.
#[derive(Clone, Copy)]
pub(crate) struct Single(UserSlice);

impl Single {
    /// The program's buffer, its length clipped to what one call moves.
    ///
    /// # Errors
    /// `EFAULT` if it reaches beyond user space.
    #[inline]
    pub(crate) fn new(given: UserSlice) -> Result<Single> {
        // The kernel's access_ok: neither the address nor the end is beyond user space.
        let at = given.start().addr();
        let end = at.wrapping_add(given.len());
        if end < at || end > USER_END {
            return Err(Errno::EFAULT);
        }
        Ok(Single(given.first(MAX_RW_COUNT)))
    }

    /// Its length.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it is empty.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Buffer for Single {
    #[inline(always)]
    fn whole(&self) -> Option<UserSlice> {
        Some(self.0)
    }

    #[inline(always)]
    fn here(&mut self, most: usize) -> Result<UserSlice> {
        Ok(self.0.first(most))
    }

    #[inline(always)]
    fn advance(&mut self, bytes: usize) {
        // SAFETY: `advance` requires that `bytes` does not exceed what `here` returned.
        self.0 = unsafe { self.0.skip_unchecked(bytes) };
    }
}

/// A vector of buffers.
#[derive(Clone, Copy)]
pub(crate) struct Vector {
    entries: UserSlice<iovec>,
    now: Single,
    left: usize,
}

impl Vector {
    /// The program's vector, checked like `import_iovec`.
    ///
    /// # Errors
    /// `EINVAL` for more than `UIO_MAXIOV` entries or a negative length; `EFAULT`.
    pub(crate) fn new(entries: UserSlice<iovec>) -> Result<Vector> {
        if entries.len() > UIO_MAXIOV as usize {
            return Err(Errno::EINVAL);
        }
        let (mut left, mut bad) = (0usize, false);
        for index in 0..entries.len() {
            // SAFETY: `index` is below the length.
            let mut entry = entry(unsafe { entries.skip_unchecked(index) })?;
            if (entry.len() as isize) < 0 {
                return Err(Errno::EINVAL);
            }
            // import_ubuf clips the length before it looks at the address.
            if entries.len() == 1 {
                entry = entry.first(MAX_RW_COUNT);
            }
            // The lengths are all looked at before the addresses.
            bad |= Single::new(entry).is_err();
            left = (left + entry.len()).min(MAX_RW_COUNT);
        }
        if bad { Err(Errno::EFAULT) } else { Ok(Vector { entries, now: Single(UserSlice::EMPTY), left }) }
    }

    /// Total length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.left
    }

    /// Whether it is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.left == 0
    }
}

/// The buffer that the first entry names.
fn entry(entries: UserSlice<iovec>) -> Result<UserSlice> {
    // SAFETY: the promise of `UserSlice`, which extends to what an iovec names; iovec is plain data.
    unsafe {
        let entry = ucopy::get(entries.start().as_ptr())?;
        Ok(UserSlice::new(entry.iov_base.cast(), entry.iov_len as usize))
    }
}

impl Buffer for Vector {
    fn whole(&self) -> Option<UserSlice> {
        None
    }

    fn here(&mut self, most: usize) -> Result<UserSlice> {
        while self.now.is_empty() && !self.entries.is_empty() && self.left > 0 {
            let next = entry(self.entries)?;
            // SAFETY: `entries` is not empty.
            self.entries = unsafe { self.entries.skip_unchecked(1) };
            self.now = Single(next.first(self.left));
        }
        self.now.here(most)
    }

    fn advance(&mut self, bytes: usize) {
        self.now.advance(bytes);
        self.left = self.left.saturating_sub(bytes);
    }
}

/// Most pieces of a vector that the fast paths take.
const FEW: usize = 8;

/// A vector of few pieces and at most a page of bytes, read once and checked.
pub(crate) struct Few {
    pieces: [MaybeUninit<iovec>; FEW],
    count: usize,
    len: usize,
}

impl Few {
    /// Of no pieces.
    #[inline(always)]
    pub(crate) fn new() -> Few {
        Few { pieces: [const { MaybeUninit::uninit() }; FEW], count: 0, len: 0 }
    }

    /// Reads the program's vector in place. `None` for any that is not few, for the caller to fall back to
    /// [`Vector::new`].
    #[inline(always)]
    pub(crate) fn read(&mut self, entries: UserSlice<iovec>) -> Option<()> {
        let count = entries.len();
        if count.wrapping_sub(1) >= FEW {
            return None;
        }
        let (to, from) = (self.pieces.as_mut_ptr().cast(), entries.start().as_ptr().cast::<u8>());
        // SAFETY: the program's memory, into room for as many entries.
        unsafe { ucopy::copy_as::<false>(to, from, count * size_of::<iovec>()) }.ok()?;
        self.count = count;
        let (mut len, mut high) = (0usize, 0);
        for piece in self.pieces() {
            let (at, bytes) = (piece.iov_base as usize, piece.iov_len as usize);
            // access_ok, and the sum does not wrap: no bit 63 in any of them.
            len = len.wrapping_add(bytes);
            high |= at | bytes | at.wrapping_add(bytes) | len;
        }
        self.len = len;
        (high as isize >= 0 && len.wrapping_sub(1) < PAGE_SIZE).then_some(())
    }

    #[inline(always)]
    fn pieces(&self) -> impl Iterator<Item = &iovec> {
        // SAFETY: `read` filled the first `count`.
        self.pieces.iter().take(self.count).map(|piece| unsafe { piece.assume_init_ref() })
    }

    /// Bytes in all.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Copies all of it to `to`.
    ///
    /// # Errors
    /// `EFAULT`.
    ///
    /// # Safety
    /// `to` is good for [`Few::len`] bytes.
    #[inline(always)]
    pub(crate) unsafe fn gather(&self, to: *mut u8) -> Result<()> {
        let mut to = to;
        for piece in self.pieces() {
            // SAFETY: the pieces' lengths add up to `len`; they are the program's memory.
            unsafe { ucopy::copy_as::<false>(to, piece.iov_base.cast(), piece.iov_len as usize) }?;
            to = to.wrapping_add(piece.iov_len as usize);
        }
        Ok(())
    }

    /// Copies `len` bytes to its first pieces.
    ///
    /// # Errors
    /// `EFAULT`.
    ///
    /// # Safety
    /// `from` is good for `len` bytes.
    #[inline(always)]
    pub(crate) unsafe fn scatter(&self, from: *const u8, len: usize) -> Result<()> {
        let (mut from, mut left) = (from, len);
        for piece in self.pieces() {
            let bytes = left.min(piece.iov_len as usize);
            // SAFETY: `bytes` are no more than are left; the pieces are the program's memory.
            unsafe { ucopy::copy_as::<false>(piece.iov_base.cast(), from, bytes) }?;
            from = from.wrapping_add(bytes);
            left -= bytes;
        }
        Ok(())
    }
}

/// Copies between `pages`, which lie in the region's file at `file` (descriptor, -1 if there is none, and
/// offset), and a buffer. Returns the number of bytes copied, which is smaller if the buffer faults.
///
/// # Safety
/// `pages` must be valid for `bytes` bytes.
pub(crate) unsafe fn copy(
    way: Direction,
    pages: *mut u8,
    buffer: &mut impl Buffer,
    bytes: usize,
    file: (Fd, usize),
) -> usize {
    let mut done = 0;
    while done < bytes {
        let Ok(here) = buffer.here(bytes - done) else { break };
        let (at, here) = (here.start().as_ptr(), here.len());
        if here == 0 {
            break;
        }
        // SAFETY: the caller guarantees `pages` for `bytes` bytes, of which `done` are done; the buffer is
        // the program's.
        let copied = unsafe { bulk::copy(way, pages.add(done), at, here, (file.0, file.1 + done)) };
        buffer.advance(copied);
        done += copied;
        if copied < here {
            break;
        }
    }
    done
}

/// Zeroes `bytes` bytes of a buffer. Returns the number zeroed.
pub(crate) fn zero_out(to: &mut impl Buffer, bytes: usize) -> usize {
    let mut done = 0;
    while done < bytes {
        let Ok(here) = to.here(bytes - done) else { break };
        let (at, here) = (here.start().as_ptr(), here.len());
        // SAFETY: the copy routine handles bad pointers.
        if here == 0 || unsafe { ucopy::zero(at, here) }.is_err() {
            // SAFETY: the copy routine handles bad pointers.
            let more = (0..here)
                .take_while(|byte| unsafe { ucopy::zero(at.wrapping_add(*byte), 1) }.is_ok())
                .count();
            to.advance(more);
            return done + more;
        }
        to.advance(here);
        done += here;
    }
    done
}
