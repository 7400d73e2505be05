//! The headers of a program as its first page holds them, and how they change for an outline of it.

use core::ops::Range;

use lp_abi::PAGE_SIZE;
use lp_abi::linux::{MAP_ANONYMOUS, MAP_FIXED, MAP_PRIVATE};
use lp_abi::outline::{PIECES, Piece, Plan};

use crate::low::object::objects::{PF_W, PT_INTERP, PT_LOAD, Segment};

/// End of the addresses that a program may have.
const ADDRESSES: u64 = 1 << 47;

/// Consecutive pages of a program.
pub(crate) struct Part {
    pub(crate) bytes: u64,
    /// Where they are in the file that the plan names; none for pages of zeros.
    pub(crate) at: Option<u64>,
}

/// Calls a visitor with the parts of a program: of so many bytes from an offset, both in whole pages.
/// Returns `None` once the visitor does, or if the program has no such pages.
pub(crate) type Parts<'p> = dyn FnMut(u64, u64, &mut dyn FnMut(Part) -> Option<()>) -> Option<()> + 'p;

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
        let headers_end = self.end() as u64;
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

    /// The end of the headers.
    pub(crate) fn end(&self) -> usize {
        self.headers_at + self.count * size_of::<Segment>()
    }

    /// Writes to the page what is to be mapped over an outline of the program, from the files that `plan`
    /// names. `parts` tells where the pages are. `None` if that is more than a plan has room for, or not as
    /// usual.
    pub(crate) fn plan(&mut self, mut plan: Plan, parts: &mut Parts<'_>) -> Option<()> {
        const PAGE: u64 = PAGE_SIZE as u64;
        let (mut first, mut mapped) = (None, 0);
        for index in 0..self.count {
            let load = self.at(index);
            if load.kind != PT_LOAD {
                continue;
            }
            let before = load.address % PAGE;
            let end = load.address.checked_add(load.bytes).filter(|end| *end < ADDRESSES)?;
            // The kernel maps one after the other: of pages that two have, those of the second.
            if load.address - before < mapped {
                return None;
            }
            mapped = end.next_multiple_of(PAGE);
            if load.file_bytes == 0 {
                continue;
            }
            if load.bytes > load.file_bytes && load.flags & PF_W != 0 {
                if plan.clear != 0 {
                    return None;
                }
                let end = load.address + load.file_bytes;
                (plan.clear, plan.clear_bytes) = (end, end.next_multiple_of(PAGE) - end);
            }
            let (start, bytes) =
                (load.offset.checked_sub(before)?, (before + load.file_bytes).next_multiple_of(PAGE));
            let mut offset = start;
            parts(start, bytes, &mut |part| {
                let kind = if part.at.is_some() { MAP_PRIVATE } else { MAP_PRIVATE | MAP_ANONYMOUS };
                let piece = Piece {
                    address: load.address - before + (offset - start),
                    bytes: part.bytes,
                    protection: load.protection(),
                    flags: kind | MAP_FIXED,
                    offset: part.at.unwrap_or(0),
                };
                let has_headers = offset == 0 && first.is_none();
                offset += part.bytes;
                if has_headers {
                    first = Some(piece);
                    return Some(());
                }
                self.add(&mut plan, piece)
            })?;
        }
        let first = first?;
        plan.first = first.address;
        self.add(&mut plan, first)?;
        // SAFETY: the plan lies within the page, which is exclusively borrowed.
        unsafe { self.page.as_mut_ptr().add(Plan::AT).cast::<Plan>().write_unaligned(plan) };
        Some(())
    }

    /// Writes a piece of the plan.
    fn add(&mut self, plan: &mut Plan, piece: Piece) -> Option<()> {
        let index = usize::try_from(plan.count).ok().filter(|index| *index < PIECES)?;
        let at = Plan::PIECES_AT + index * size_of::<Piece>();
        // SAFETY: the pieces lie within the page, which is exclusively borrowed.
        unsafe { self.page.as_mut_ptr().add(at).cast::<Piece>().write_unaligned(piece) };
        plan.count += 1;
        Some(())
    }

    /// Makes the kernel map zeros for data that memory follows: to clear the rest of the data's last page, it
    /// would need that page in the outline.
    pub(crate) fn leave_data(&mut self) {
        for index in 0..self.count {
            let mut segment = self.at(index);
            if segment.kind == PT_LOAD && segment.bytes > segment.file_bytes && segment.flags & PF_W != 0 {
                let before = segment.address % PAGE_SIZE as u64;
                segment.offset -= before;
                segment.address -= before;
                (segment.file_bytes, segment.bytes) = (0, segment.bytes + before);
                self.set(index, segment);
            }
        }
    }

    fn set(&mut self, index: usize, segment: Segment) {
        let at = self.headers_at + index * size_of::<Segment>();
        // SAFETY: as in `at`; the page is exclusively borrowed.
        unsafe { self.page.as_mut_ptr().add(at).cast::<Segment>().write_unaligned(segment) };
    }

    /// Makes the headers name the `bytes` from `offset` as the loader's path.
    pub(crate) fn set_interpreter(&mut self, offset: u64, bytes: u64) {
        let Some(index) = self.interpreter_index() else { return };
        let mut segment = self.at(index);
        (segment.offset, segment.file_bytes, segment.bytes) = (offset, bytes, bytes);
        self.set(index, segment);
    }
}
