//! Who copies much at once: the kernel, or this process.
//!
//! The kernel, by pread(2) and pwrite(2) on the region's file, copies from and to pages that this process has not mapped
//! without a fault for each. Where the pages are mapped the process's own copy is faster by a half. So the first copy from
//! or to a place is the kernel's and the next are the process's: a file that is read or written from end to end once costs
//! what it costs on tmpfs, one that is used again less. Which places were copied lately is kept for the whole process, as
//! its mapping is; a wrong answer costs time only.

use lp_abi::PAGE_SIZE;
use lp_abi::linux::{__NR_pread64, __NR_pwrite64};
use lp_region::sync::{AtomicU32, Ordering};
use lp_region::ucopy;

/// Bytes from which the kernel may copy: below, its call costs more than the faults.
pub const LEAST: usize = 32 * 1024;
/// A copy is cut at multiples of so many bytes: the pieces are what is remembered, by where they start.
const UNIT: usize = 256 * 1024;
/// Pieces that are remembered.
const PIECES: usize = 64;
/// Bytes around a fault that the kernel maps at once if the pages are there (`fault_around_bytes` of mm/memory.c).
const AROUND: usize = 16 * PAGE_SIZE;

/// The numbers of their first pages, cut short.
static LATELY: [AtomicU32; PIECES] = [const { AtomicU32::new(0) }; PIECES];

/// A copy between pages of the region and the program's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Out of the pages.
    Out,
    /// Into them.
    In,
}

/// Copies `bytes` between `pages`, at an offset of the region's file (descriptor, -1 if it has none, and offset), and
/// `memory`, the program's. Gives the bytes copied: fewer when the program's memory faults.
///
/// # Safety
/// `pages` is good for `bytes` bytes.
pub(crate) unsafe fn copy(
    way: Way,
    pages: *mut u8,
    memory: *mut u8,
    bytes: usize,
    file: (i32, usize),
) -> usize {
    if bytes < LEAST || file.0 < 0 || lp_abi::sys::is_limited() {
        // SAFETY: `pages` are good for `bytes` bytes, by this function's contract.
        return match unsafe { by_process(way, pages, memory, bytes) } {
            true => bytes,
            // SAFETY: `pages` are good for `bytes` bytes, by this function's contract.
            false => unsafe { until_fault(way, pages, memory, bytes) },
        };
    }
    let mut done = 0;
    while done < bytes {
        let at = pages.wrapping_add(done);
        let here = (UNIT - at as usize % UNIT).min(bytes - done);
        // SAFETY: the pages from `at` on are good for what is left, and lie in the file that far behind its
        // start.
        let copied = unsafe { piece(way, at, memory.wrapping_add(done), here, (file.0, file.1 + done)) };
        done += copied;
        if copied < here {
            break;
        }
    }
    done
}

/// [`copy`] within a unit.
unsafe fn piece(way: Way, pages: *mut u8, memory: *mut u8, bytes: usize, file: (i32, usize)) -> usize {
    // SAFETY: `pages` are good for `bytes` bytes, which [`copy`] passes on.
    if was_lately(pages) && unsafe { mapped_by_process(way, pages, memory, bytes) } {
        return bytes;
    }
    // SAFETY: the kernel checks the program's memory.
    unsafe { by_kernel(way, memory, bytes, file) }
}

/// Whether the piece that starts there was copied before, and is remembered.
fn was_lately(pages: *mut u8) -> bool {
    let page = (pages as usize / PAGE_SIZE) as u32;
    // Fibonacci hashing (Knuth, The Art of Computer Programming, 6.4).
    let slot = &LATELY[(page.wrapping_mul(0x9e37_79b1) >> (u32::BITS - PIECES.ilog2())) as usize];
    // Relaxed: a guess.
    let was = slot.load(Ordering::Relaxed) == page;
    if !was {
        slot.store(page, Ordering::Relaxed);
    }
    was
}

/// The process's own copy, of pages that it may have to map first: a write alone would fault for each.
unsafe fn mapped_by_process(way: Way, pages: *mut u8, memory: *mut u8, bytes: usize) -> bool {
    if way == Way::In {
        for at in (0..bytes).step_by(AROUND) {
            // SAFETY: within the pages, which are memory that others may change at any time.
            unsafe { pages.add(at).read_volatile() };
        }
    }
    // SAFETY: `pages` are good for `bytes` bytes, which [`copy`] passes on.
    unsafe { by_process(way, pages, memory, bytes) }
}

/// Whether all was copied.
unsafe fn by_process(way: Way, pages: *mut u8, memory: *mut u8, bytes: usize) -> bool {
    let (to, from) = if way == Way::Out { (memory, pages) } else { (pages, memory) };
    // SAFETY: `pages` are good for `bytes` bytes; the memory is the program's.
    unsafe { ucopy::copy(to, from, bytes) }.is_ok()
}

/// Lets the kernel copy.
#[inline(never)]
unsafe fn by_kernel(way: Way, memory: *mut u8, bytes: usize, (fd, offset): (i32, usize)) -> usize {
    let call = if way == Way::Out { __NR_pread64 } else { __NR_pwrite64 };
    let mut done = 0;
    while done < bytes {
        // SAFETY: the kernel checks the program's memory, and the bytes of the file are those of the pages
        // that [`copy`] was given.
        match unsafe { lp_abi::syscall!(call, fd, memory.wrapping_add(done), bytes - done, offset + done) } {
            Ok(0) | Err(_) => break,
            Ok(moved) => done += moved,
        }
    }
    done
}

/// Copies byte by byte up to the fault: how much there is in front of it.
#[cold]
unsafe fn until_fault(way: Way, pages: *mut u8, memory: *mut u8, bytes: usize) -> usize {
    // SAFETY: as for the copy that faulted.
    (0..bytes)
        .take_while(|at| unsafe { by_process(way, pages.wrapping_add(*at), memory.wrapping_add(*at), 1) })
        .count()
}
