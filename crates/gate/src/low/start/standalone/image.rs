//! Maps a program without an interpreter, or an interpreter, as the kernel's `load_elf_binary` does.

use core::mem::MaybeUninit;
use core::ops::Range;

use lp_abi::linux::{
    __NR_fstat, __NR_mmap, __NR_mprotect, __NR_munmap, MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE,
    MAP_NORESERVE, MAP_PRIVATE, PROT_EXEC, PROT_GROWSDOWN, PROT_NONE, PROT_READ, PROT_WRITE, stat,
};
use lp_abi::{Errno, Fd, Result};

use crate::low::object::elf::read_file;
use crate::low::object::objects::{PF_W, PF_X, Segment};

const PAGE: usize = 4096;
/// Maximum number of program headers: one page of them, as in the kernel.
const HEADERS: usize = PAGE / size_of::<Segment>();
/// Upper end of program addresses.
const END: u64 = (1 << 47) - PAGE as u64;
const PT_LOAD: u32 = 1;
const PT_GNU_STACK: u32 = 0x6474_e551;
const ET_EXEC: u16 = 2;
const ET_DYN: u16 = 3;
const X86_64: u16 = 62;

const DAMAGED: &[u8] = b"damaged ELF file";

/// A mapped program.
pub(super) struct Image {
    /// The address to which its addresses are relative.
    pub(super) base: usize,
    /// Its entry point.
    pub(super) entry: usize,
    /// Address of its program headers in memory.
    pub(super) headers_at: usize,
    headers: [MaybeUninit<Segment>; HEADERS],
    count: usize,
}

impl Image {
    /// Maps the file behind `fd`.
    ///
    /// # Errors
    /// One line with the reason.
    pub(super) fn map(fd: Fd) -> core::result::Result<Image, &'static [u8]> {
        let mut head = [0u8; 64];
        if read_file(fd, &mut head, 0) != head.len() || !head.starts_with(b"\x7fELF\x02\x01") {
            return Err(DAMAGED);
        }
        let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let word = |at: usize| head[at..at + 8].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let (kind, count, headers_at) = (half(16), half(56) as usize, word(32));
        let fits = half(18) == X86_64 && (kind == ET_EXEC || kind == ET_DYN);
        if !fits || half(54) as usize != size_of::<Segment>() || !(1..=HEADERS).contains(&count) {
            return Err(DAMAGED);
        }
        let mut image = Image {
            base: 0,
            entry: word(24) as usize,
            headers_at: 0,
            headers: [const { MaybeUninit::uninit() }; HEADERS],
            count: 0,
        };
        image.read_headers(fd, headers_at, count)?;
        image.check(fd)?;
        let mapped = match kind {
            ET_DYN => image.place().and_then(|()| image.map_all(fd, MAP_FIXED)),
            _ => image.map_all(fd, MAP_FIXED_NOREPLACE),
        };
        match mapped {
            Ok(()) => {}
            Err(Errno::ENOMEM) => return Err(b"too large for the address space"),
            Err(Errno::EEXIST) => return Err(b"needs addresses that are taken"),
            Err(Errno::EPERM | Errno::EACCES) => return Err(b"its file system allows no execution"),
            Err(_) => return Err(b"cannot be mapped"),
        }
        image.entry = image.base.wrapping_add(image.entry);
        image.headers_at = image.find_headers(headers_at);
        image.set_stack();
        Ok(image)
    }

    /// The program headers.
    pub(super) fn segments(&self) -> &[Segment] {
        // SAFETY: `read_headers` has initialised `count` headers.
        unsafe { core::slice::from_raw_parts(self.headers.as_ptr().cast(), self.count) }
    }

    fn loads(&self) -> impl Iterator<Item = &Segment> {
        self.segments().iter().filter(|segment| segment.kind == PT_LOAD)
    }

    fn read_headers(&mut self, fd: Fd, at: u64, count: usize) -> core::result::Result<(), &'static [u8]> {
        let bytes = count * size_of::<Segment>();
        // SAFETY: the array has room for `count` headers; a header is a record of integers, for which any
        // bytes are valid.
        let room = unsafe { core::slice::from_raw_parts_mut(self.headers.as_mut_ptr().cast::<u8>(), bytes) };
        if read_file(fd, room, at) != bytes {
            return Err(DAMAGED);
        }
        self.count = count;
        Ok(())
    }

    /// Checks that the file contains what its headers announce.
    fn check(&self, fd: Fd) -> core::result::Result<(), &'static [u8]> {
        let mut found = MaybeUninit::<stat>::zeroed();
        // SAFETY: the kernel fills the record in; zeros are a valid record too.
        let size = unsafe {
            let _ = lp_abi::syscall!(__NR_fstat, fd, found.as_mut_ptr());
            found.assume_init().st_size as u64
        };
        let mut end = 0;
        for segment in self.loads() {
            let Segment { offset, address, file_bytes, bytes, .. } = *segment;
            let is_whole = offset.checked_add(file_bytes).is_some_and(|end| end <= size);
            let fits = address.checked_add(bytes).is_some_and(|end| end < END);
            if !is_whole {
                return Err(b"the file ends before what its headers announce");
            }
            if !fits || file_bytes > bytes || address < end || (offset ^ address) % PAGE as u64 != 0 {
                return Err(DAMAGED);
            }
            end = address + bytes;
        }
        let entry = self.entry as u64;
        let starts =
            |at: &Segment| at.flags & PF_X != 0 && (at.address..at.address + at.bytes).contains(&entry);
        if self.loads().any(starts) { Ok(()) } else { Err(DAMAGED) }
    }

    /// The addresses that its segments occupy, in whole pages.
    fn extent(&self) -> Range<usize> {
        let start = self.loads().map(|segment| segment.address).min().unwrap_or(0) as usize;
        let end = self.loads().map(|segment| segment.address + segment.bytes).max().unwrap_or(0) as usize;
        start & !(PAGE - 1)..end.next_multiple_of(PAGE)
    }

    /// Reserves addresses for a position-independent program.
    fn place(&mut self) -> Result<()> {
        let align = self.loads().map(|segment| segment.align).filter(|align| align.is_power_of_two());
        let align = align.max().unwrap_or(0).clamp(PAGE as u64, 1 << 30) as usize;
        let Range { start, end } = self.extent();
        let bytes = end - start;
        let at = reserve(bytes + align - PAGE)?;
        // The address of the image's byte 0 must be a multiple of the alignment.
        let first = (at - start % align).next_multiple_of(align) + start % align;
        let first = if first < at { first + align } else { first };
        for gap in [at..first, first + bytes..at + bytes + align - PAGE] {
            if !gap.is_empty() {
                // SAFETY: pages that were reserved above and that nothing uses.
                unsafe { lp_abi::syscall!(__NR_munmap, gap.start, gap.len()) }?;
            }
        }
        self.base = first - start;
        Ok(())
    }

    fn map_all(&self, fd: Fd, how: u32) -> Result<()> {
        self.loads().try_for_each(|segment| map_segment(self.base, fd, segment, how))
    }

    /// Address of the program headers, which are at `offset` of the file.
    fn find_headers(&self, offset: u64) -> usize {
        let holds = |at: &&Segment| {
            at.offset <= offset
                && offset + (self.count * size_of::<Segment>()) as u64 <= at.offset + at.file_bytes
        };
        let holder = self.loads().find(holds);
        holder.map_or(0, |at| self.base.wrapping_add((at.address + (offset - at.offset)) as usize))
    }

    /// Makes the stack executable if the program asks for it.
    fn set_stack(&self) {
        let wants = |segment: &Segment| segment.kind == PT_GNU_STACK && segment.flags & PF_X != 0;
        if self.segments().iter().any(wants) {
            let page = (&raw const wants as usize) & !(PAGE - 1);
            let protection = PROT_READ | PROT_WRITE | PROT_EXEC | PROT_GROWSDOWN;
            // SAFETY: the stack stays readable and writable.
            let _ = unsafe { lp_abi::syscall!(__NR_mprotect, page, PAGE, protection) };
        }
    }
}

/// The address ranges of the code and of the data of a program.
pub(super) fn code_and_data(
    base: usize,
    segments: impl Iterator<Item = Segment> + Clone,
) -> [Range<usize>; 2] {
    [PF_X, PF_W].map(|flag| {
        let all = || segments.clone().filter(|at| at.kind == PT_LOAD && at.flags & flag != 0);
        let start = all().map(|segment| segment.address).min().unwrap_or(0);
        let end = all().map(|segment| segment.address + segment.file_bytes).max().unwrap_or(start);
        base.wrapping_add(start as usize)..base.wrapping_add(end as usize)
    })
}

/// Clears what follows the end of a segment's file part, at `file_end`, in its last page, if the segment goes
/// on there with zeros. The page must be mapped.
pub(super) fn clear_tail(segment: &Segment, file_end: usize) {
    let rest = file_end.next_multiple_of(PAGE) - file_end;
    if segment.bytes > segment.file_bytes && segment.flags & PF_W != 0 {
        // SAFETY: the end of the segment's last page from the file, mapped writable.
        unsafe { core::ptr::write_bytes(file_end as *mut u8, 0, rest) };
    }
}

/// Reserves addresses.
fn reserve(bytes: usize) -> Result<usize> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: a new mapping.
    unsafe { lp_abi::syscall!(__NR_mmap, 0, bytes, PROT_NONE, flags, usize::MAX, 0) }
}

/// Maps one segment: what comes from the file, then zeros.
fn map_segment(base: usize, fd: Fd, segment: &Segment, how: u32) -> Result<()> {
    let protection = segment.protection();
    let start = base.wrapping_add(segment.address as usize);
    let file_end = start + segment.file_bytes as usize;
    let pages = start & !(PAGE - 1);
    let file_pages = if segment.file_bytes == 0 { pages } else { file_end.next_multiple_of(PAGE) };
    let end = (start + segment.bytes as usize).next_multiple_of(PAGE);
    if file_pages > pages {
        let (bytes, offset) = (file_pages - pages, segment.offset & !(PAGE as u64 - 1));
        map_at(pages, bytes, protection, MAP_PRIVATE | how, fd, offset)?;
    }
    if file_pages > file_end {
        clear_tail(segment, file_end);
    }
    if end > file_pages {
        map_at(file_pages, end - file_pages, protection, MAP_PRIVATE | MAP_ANONYMOUS | how, Fd::NONE, 0)?;
    }
    Ok(())
}

fn map_at(at: usize, bytes: usize, protection: u32, flags: u32, fd: Fd, offset: u64) -> Result<()> {
    // SAFETY: the pages are reserved for the program, or nothing is mapped there.
    let got = unsafe { lp_abi::syscall!(__NR_mmap, at, bytes, protection, flags, fd, offset) }?;
    // A kernel without MAP_FIXED_NOREPLACE treats the address as a hint.
    if got == at { Ok(()) } else { Err(Errno::EEXIST) }
}
