//! The program's memory as calls name it: one buffer or a vector of them.

use lp_abi::linux::{UIO_MAXIOV, iovec};
use lp_abi::{Errno, MAX_RW_COUNT, Result};
use lp_region::ucopy;

use crate::content::bulk::{self, Way};

/// `RWF_NOAPPEND`, Linux 6.9, which the headers used here lack.
pub(crate) const RWF_NOAPPEND: u32 = 0x20;

/// A position in the program's memory that a transfer advances. A copy restarts from a clone.
pub trait Buffer: Copy {
    /// Address and length of the next piece, at most `most` bytes; length 0 at the end.
    ///
    /// # Errors
    /// `EFAULT` if the vector cannot be read.
    fn here(&mut self, most: usize) -> Result<(*mut u8, usize)>;

    /// Advances by `bytes`, no more than [`Buffer::here`] returned.
    fn advance(&mut self, bytes: usize);

    /// The address of all of it, if it is one piece.
    fn whole(&self) -> Option<*mut u8>;

    /// Advances by `bytes`, across the ends of pieces.
    ///
    /// # Errors
    /// `EFAULT` if the vector cannot be read.
    fn skip(&mut self, bytes: usize) -> Result<()> {
        let mut left = bytes;
        while left > 0 {
            let (_, here) = self.here(left)?;
            if here == 0 {
                break;
            }
            self.advance(here);
            left -= here;
        }
        Ok(())
    }
}

/// One buffer.
#[derive(Clone, Copy)]
pub struct Single {
    at: *mut u8,
    left: usize,
}

impl Single {
    /// The program's buffer, its length clipped to what one call moves.
    ///
    /// # Errors
    /// `EFAULT` if it reaches beyond user space.
    #[inline]
    pub fn new(at: *mut u8, len: usize) -> Result<Single> {
        // The kernel's access_ok: neither the address nor the end is in the kernel's half.
        let end = (at as usize).wrapping_add(len);
        if (at as isize) < 0 || (end as isize) < 0 || end < at as usize {
            return Err(Errno::EFAULT);
        }
        Ok(Single { at, left: len.min(MAX_RW_COUNT) })
    }

    /// Its address.
    #[inline]
    pub fn start(&self) -> *mut u8 {
        self.at
    }

    /// Its length.
    #[inline]
    pub fn len(&self) -> usize {
        self.left
    }

    /// Whether it is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}

impl Buffer for Single {
    #[inline(always)]
    fn whole(&self) -> Option<*mut u8> {
        Some(self.at)
    }

    #[inline(always)]
    fn here(&mut self, most: usize) -> Result<(*mut u8, usize)> {
        Ok((self.at, self.left.min(most)))
    }

    #[inline(always)]
    fn advance(&mut self, bytes: usize) {
        self.at = self.at.wrapping_add(bytes);
        self.left -= bytes;
    }
}

/// A vector of buffers.
#[derive(Clone, Copy)]
pub struct Vector {
    entries: *const iovec,
    count: usize,
    now: Single,
    left: usize,
}

impl Vector {
    /// The program's vector, checked like `import_iovec`.
    ///
    /// # Errors
    /// `EINVAL` for more than `UIO_MAXIOV` entries or a negative length; `EFAULT`.
    pub fn new(entries: *const iovec, count: usize) -> Result<Vector> {
        if count > UIO_MAXIOV as usize {
            return Err(Errno::EINVAL);
        }
        let mut left = 0usize;
        for index in 0..count {
            let entry = entry(entries.wrapping_add(index))?;
            if (entry.iov_len as isize) < 0 {
                return Err(Errno::EINVAL);
            }
            Single::new(entry.iov_base.cast(), entry.iov_len as usize)?;
            left = (left + entry.iov_len as usize).min(MAX_RW_COUNT);
        }
        let now = Single { at: core::ptr::null_mut(), left: 0 };
        Ok(Vector { entries, count, now, left })
    }

    /// Total length in bytes.
    pub fn len(&self) -> usize {
        self.left
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}

fn entry(at: *const iovec) -> Result<iovec> {
    // SAFETY: the copy routine handles bad pointers; iovec is plain data.
    unsafe { ucopy::get(at) }
}

impl Buffer for Vector {
    fn whole(&self) -> Option<*mut u8> {
        None
    }

    fn here(&mut self, most: usize) -> Result<(*mut u8, usize)> {
        while self.now.left == 0 && self.count > 0 && self.left > 0 {
            let next = entry(self.entries)?;
            self.entries = self.entries.wrapping_add(1);
            self.count -= 1;
            self.now = Single { at: next.iov_base.cast(), left: (next.iov_len as usize).min(self.left) };
        }
        self.now.here(most)
    }

    fn advance(&mut self, bytes: usize) {
        self.now.advance(bytes);
        self.left = self.left.saturating_sub(bytes);
    }
}

/// Copies between `pages`, which lie in the region's file at `file` (descriptor, -1 if there is none, and
/// offset), and a buffer. Returns the number of bytes copied, which is smaller if the buffer faults.
///
/// # Safety
/// `pages` must be valid for `bytes` bytes.
pub(crate) unsafe fn copy(
    way: Way,
    pages: *mut u8,
    buffer: &mut impl Buffer,
    bytes: usize,
    file: (i32, usize),
) -> usize {
    let mut done = 0;
    while done < bytes {
        let Ok((at, here)) = buffer.here(bytes - done) else { break };
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
        let Ok((at, here)) = to.here(bytes - done) else { break };
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
