//! The headers of a program as its first page holds them, and how they change for an outline of it.

use core::ops::Range;

use lp_abi::PAGE_SIZE;

use crate::low::object::objects::{PT_INTERP, PT_LOAD, Segment};

/// The first page of a program.
pub(crate) struct Layout<'p> {
    page: &'p mut [u8; PAGE_SIZE],
    headers_at: usize,
    count: usize,
}

impl<'p> Layout<'p> {
    /// The headers in `page`; `None` if they do not fit it.
    pub(crate) fn of(page: &'p mut [u8; PAGE_SIZE]) -> Option<Self> {
        let word = u64::from_le_bytes(page.get(32..40)?.try_into().ok()?);
        let count = usize::from(u16::from_le_bytes(page.get(56..58)?.try_into().ok()?));
        let headers_at = usize::try_from(word).ok()?;
        let end = headers_at.checked_add(count * size_of::<Segment>())?;
        (end <= PAGE_SIZE).then_some(Layout { page, headers_at, count })
    }

    fn at(&self, index: usize) -> Segment {
        let at = self.headers_at + index * size_of::<Segment>();
        // SAFETY: `of` has checked that the page holds all headers; every bit pattern is a valid one.
        unsafe { self.page.as_ptr().add(at).cast::<Segment>().read_unaligned() }
    }

    fn all(&self) -> impl Iterator<Item = Segment> {
        (0..self.count).map(|index| self.at(index))
    }

    fn interpreter_index(&self) -> Option<usize> {
        self.all().position(|segment| segment.kind == PT_INTERP)
    }

    /// Where the loader's path is in the file of `size` bytes. `None` unless the file has all that its
    /// headers announce, its first page is mapped with the headers, and the path is mapped, too.
    pub(crate) fn interpreter(&self, size: u64) -> Option<Range<u64>> {
        let path = self.at(self.interpreter_index()?);
        let end = path.offset.checked_add(path.file_bytes)?;
        let headers_end = (self.headers_at + self.count * size_of::<Segment>()) as u64;
        let (mut is_whole, mut has_headers, mut has_path) = (true, false, false);
        for load in self.all().filter(|segment| segment.kind == PT_LOAD) {
            let load_end = load.offset.checked_add(load.file_bytes)?;
            is_whole &= load_end <= size && (load.offset ^ load.address) % PAGE_SIZE as u64 == 0;
            has_headers |= load.offset == 0 && headers_end <= load.file_bytes;
            has_path |= load.offset <= path.offset
                && end <= load_end
                && path.address.wrapping_sub(load.address) == path.offset - load.offset;
        }
        (is_whole && has_headers && has_path).then_some(path.offset..end)
    }

    /// Makes the headers name the `bytes` from `offset` as the loader's path.
    pub(crate) fn set_interpreter(&mut self, offset: u64, bytes: u64) {
        let Some(index) = self.interpreter_index() else { return };
        let mut segment = self.at(index);
        (segment.offset, segment.file_bytes, segment.bytes) = (offset, bytes, bytes);
        let at = self.headers_at + index * size_of::<Segment>();
        // SAFETY: as in `at`; the page is exclusively borrowed.
        unsafe { self.page.as_mut_ptr().add(at).cast::<Segment>().write_unaligned(segment) };
    }
}
