//! The gate's file as the loader that an outline of a program names (`crate::high::run::outline`).
//!
//! The kernel has mapped the outline as it maps any program: the addresses, the heap, the auxiliary vector
//! are the program's, but the pages are holes. They are replaced by the program's pages in the region; then
//! the program's own loader is mapped, as the kernel would, and entered. It loads the gate like in every
//! other program, so nothing of this process is used here but its slot: no thread words, no task.

use core::ffi::CStr;

use lp_abi::linux::{__NR_mmap, __NR_openat, MAP_ANONYMOUS, MAP_FIXED, MAP_PRIVATE, O_CLOEXEC, O_RDONLY};
use lp_abi::{Errno, Fd, OwnedFd, PAGE_SIZE, Result};
use lp_region::{ProcessId, Region};
use lp_vfs::executed;

use super::image::{self, Image};
use super::vector::InitialStack;
use crate::High;
use crate::low::above::Above;
use crate::low::exec::inherited;
use crate::low::exec::variables::WITHIN;
use crate::low::object::objects::{Auxiliary, PT_INTERP, PT_LOAD, Segment};
use crate::low::tools::{names, report};

/// A program that the kernel has mapped from its outline.
struct Outlined {
    /// The address to which its addresses are relative.
    base: usize,
    headers: *const Segment,
    count: usize,
}

/// Completes the program and returns the entry point of its loader.
pub(super) fn start(stack: &mut InitialStack, auxiliary: &Auxiliary) -> usize {
    // SAFETY: the kernel has mapped the program, and the environment is as it made it.
    let (program, gate) = unsafe { (Outlined::of(auxiliary), inherited::gate_value(stack.environment())) };
    let Some((region, process)) = gate.and_then(High::slot_of) else {
        report::refuse(&[b"this file is a part of lightpath run, and no loader"]);
    };
    if program.fill(region, process) != Ok(true) {
        report::refuse(&[b"the program cannot be mapped"]);
    }
    let mut room = [0; names::ROOM];
    // The gate is within the C library only if the program names the system's loader.
    let within = gate.is_some_and(|gate| gate.ends_with(WITHIN));
    let quick = within.then(|| High::linker_of(region, process, &mut room)).flatten();
    let path = quick.and_then(|path| CStr::from_bytes_with_nul(path).ok()).unwrap_or(program.loader());
    // SAFETY: nothing refers to the region: the program's mappings are of its file.
    unsafe { region.unmap() };
    let loader = match load(path) {
        Ok(loader) => loader,
        Err(why) => report::refuse(&[path.to_bytes(), b": ", why]),
    };
    stack.set_loader(loader.base);
    stack.show(image::code_and_data(program.base, program.segments()));
    loader.entry
}

impl Outlined {
    /// The program that the process's vector names, with its headers in its first page.
    ///
    /// # Safety
    /// The kernel must have mapped it.
    unsafe fn of(auxiliary: &Auxiliary) -> Outlined {
        let first_page = auxiliary.headers & !(PAGE_SIZE - 1);
        let headers = auxiliary.headers as *const Segment;
        let mut program = Outlined { base: 0, headers, count: auxiliary.header_count };
        let first = program.segments().find(|segment| segment.kind == PT_LOAD && segment.offset == 0);
        program.base = first_page.wrapping_sub(first.map_or(0, |segment| segment.address as usize));
        program
    }

    /// The program headers: the outline's at first, then the program's, which differ in the loader's path
    /// only.
    fn segments(&self) -> impl Iterator<Item = Segment> + Clone {
        // SAFETY: the vector names `count` headers, mapped as long as the process lives.
        (0..self.count).map(|index| unsafe { self.headers.add(index).read_volatile() })
    }

    /// Maps the program's pages over the outline's. Returns whether the process executes such a program.
    fn fill(&self, region: Region, process: ProcessId) -> Result<bool> {
        for segment in self.segments().filter(|segment| segment.kind == PT_LOAD && segment.file_bytes != 0) {
            let start = self.base.wrapping_add(segment.address as usize);
            let (file_end, before) = (start + segment.file_bytes as usize, start % PAGE_SIZE);
            let first = segment.offset - before as u64;
            let bytes = file_end.next_multiple_of(PAGE_SIZE) - (start - before);
            let protection = segment.protection();
            let mut at = start - before;
            let found = executed::pieces(region, process, (first, bytes as u64), &mut |piece| {
                let (kind, fd, from) = match piece.region {
                    Some(from) => (MAP_PRIVATE, region.fd(), from),
                    None => (MAP_PRIVATE | MAP_ANONYMOUS, Fd::NONE, 0),
                };
                // SAFETY: pages of the outline, which nothing has used but for its headers.
                unsafe {
                    lp_abi::syscall!(__NR_mmap, at, piece.bytes, protection, kind | MAP_FIXED, fd, from)
                }?;
                at += piece.bytes;
                Ok(())
            })?;
            if !found {
                return Ok(false);
            }
            image::clear_tail(&segment, file_end);
        }
        Ok(true)
    }

    /// The path of its loader.
    fn loader(&self) -> &'static CStr {
        let named = self.segments().find(|segment| segment.kind == PT_INTERP);
        let at = named.map_or(0, |segment| self.base.wrapping_add(segment.address as usize));
        if at == 0 {
            return c"";
        }
        // SAFETY: the process that made the outline has checked that the path is mapped and ends with a NUL.
        unsafe { CStr::from_ptr(at as *const _) }
    }
}

/// Maps the loader.
///
/// # Errors
/// One line with the reason.
fn load(path: &CStr) -> core::result::Result<Image, &'static [u8]> {
    // SAFETY: the path is NUL-terminated.
    let fd = unsafe { lp_abi::syscall!(__NR_openat, Fd::CWD, path.as_ptr(), O_RDONLY | O_CLOEXEC) };
    let fd = fd.map(OwnedFd::new).map_err(|errno| match errno {
        Errno::ENOENT => &b"not found"[..],
        _ => b"cannot be opened",
    })?;
    Image::map(fd.get())
}
