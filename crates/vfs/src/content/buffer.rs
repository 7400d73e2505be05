//! The program's memory as calls name it: one buffer or a vector of them.

use lp_abi::linux::{UIO_MAXIOV, iovec};
use lp_abi::{Errno, MAX_RW_COUNT, Result, UserSlice};
use lp_region::ucopy;

use crate::content::bulk::{self, Way};

/// `RWF_NOAPPEND`, Linux 6.9, which the headers in use do not have.
pub(crate) const RWF_NOAPPEND: u32 = 0x20;

/// A place in the program's memory that a transfer moves through. Copies start again from a clone.
pub(crate) trait Buffer: Copy {
    /// The next bytes that lie in one piece, at most `most`: none at the end.
    ///
    /// # Errors
    /// `EFAULT` when the vector cannot be read.
    fn here(&mut self, most: usize) -> Result<UserSlice>;

    /// Moves on by `bytes`, no more than [`Buffer::here`] gave.
    fn advance(&mut self, bytes: usize);

    /// All of it, if it is one piece.
    fn whole(&self) -> Option<UserSlice>;

    /// Moves on by `bytes`, over the ends of pieces.
    ///
    /// # Errors
    /// `EFAULT` when the vector cannot be read.
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

/// One buffer.
#[derive(Clone, Copy)]
pub(crate) struct Single(UserSlice);

impl Single {
    /// The program's buffer: length clipped to what one call moves.
    ///
    /// # Errors
    /// `EFAULT` when it reaches beyond user space.
    #[inline]
    pub(crate) fn new(given: UserSlice) -> Result<Single> {
        // access_ok: neither the address nor the end is in the kernel's half.
        let at = given.start().addr();
        let end = at.wrapping_add(given.len());
        if (at as isize) < 0 || (end as isize) < 0 || end < at {
            return Err(Errno::EFAULT);
        }
        Ok(Single(given.first(MAX_RW_COUNT)))
    }

    /// Its length.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no bytes.
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
        // SAFETY: no more than `here` gave, by the contract of `advance`.
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
    /// The program's vector, checked as `import_iovec` does.
    ///
    /// # Errors
    /// `EINVAL` for more than `UIO_MAXIOV` entries or a length below zero; `EFAULT`.
    pub(crate) fn new(entries: UserSlice<iovec>) -> Result<Vector> {
        if entries.len() > UIO_MAXIOV as usize {
            return Err(Errno::EINVAL);
        }
        let mut left = 0usize;
        for index in 0..entries.len() {
            // SAFETY: below the length.
            let entry = entry(unsafe { entries.skip_unchecked(index) })?;
            if (entry.len() as isize) < 0 {
                return Err(Errno::EINVAL);
            }
            Single::new(entry)?;
            left = (left + entry.len()).min(MAX_RW_COUNT);
        }
        Ok(Vector { entries, now: Single(UserSlice::EMPTY), left })
    }

    /// Bytes in all.
    pub(crate) fn len(&self) -> usize {
        self.left
    }

    /// Whether it has no bytes.
    pub(crate) fn is_empty(&self) -> bool {
        self.left == 0
    }
}

/// The buffer that the first of some entries names.
fn entry(entries: UserSlice<iovec>) -> Result<UserSlice> {
    // SAFETY: the program's memory, as `UserSlice` promises, also of what an iovec names; it is plain data.
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
            // SAFETY: there is one.
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

/// Copies between `pages`, at an offset of the region's file (descriptor, -1 if it has none, and offset), and a buffer.
/// Gives the bytes copied: fewer when the buffer faults.
///
/// # Safety
/// `pages` is good for `bytes` bytes.
pub(crate) unsafe fn copy(
    way: Way,
    pages: *mut u8,
    buffer: &mut impl Buffer,
    bytes: usize,
    file: (i32, usize),
) -> usize {
    let mut done = 0;
    while done < bytes {
        let Ok(here) = buffer.here(bytes - done) else { break };
        let (at, here) = (here.start().as_ptr(), here.len());
        if here == 0 {
            break;
        }
        // SAFETY: `pages` are good for `bytes` bytes, of which `done` are done; the buffer is the program's.
        let copied = unsafe { bulk::copy(way, pages.add(done), at, here, (file.0, file.1 + done)) };
        buffer.advance(copied);
        done += copied;
        if copied < here {
            break;
        }
    }
    done
}

/// Fills `bytes` bytes of a buffer with zeros; gives how many it did.
pub(crate) fn zero_out(to: &mut impl Buffer, bytes: usize) -> usize {
    let mut done = 0;
    while done < bytes {
        let Ok(here) = to.here(bytes - done) else { break };
        let (at, here) = (here.start().as_ptr(), here.len());
        // SAFETY: the program's memory.
        if here == 0 || unsafe { ucopy::zero(at, here) }.is_err() {
            // SAFETY: the program's memory.
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
