//! Decides whether the kernel or this process makes a large copy.
//!
//! The kernel, by pread(2) and pwrite(2) on the region's file, copies from and to pages that this process has
//! not mapped without a fault for each. If the pages are mapped, the process's own copy is faster by a half.
//! So the kernel makes the first copy from or to a place, and the process the next ones. A file that is read
//! or written once from end to end costs what it costs on tmpfs; one that is used again costs less. Recently
//! copied places are recorded for the whole process, like its mapping; a wrong guess only costs time.

use lp_abi::linux::{__NR_pread64, __NR_pwrite64};
use lp_abi::{Fd, PAGE_SIZE};
use lp_region::sync::{AtomicU32, Ordering};
use lp_region::ucopy;

/// Minimum bytes for a copy by the kernel: below this its call costs more than the faults.
pub const LEAST: usize = 32 * 1024;
/// Copies are cut at multiples of this many bytes. The pieces are remembered by where they start.
const UNIT: usize = 256 * 1024;
/// Number of pieces remembered.
const PIECES: usize = 64;
/// Bytes around a fault that the kernel maps together if the pages are present (`fault_around_bytes` of
/// mm/memory.c).
const AROUND: usize = 16 * PAGE_SIZE;

/// The truncated numbers of their first pages.
static LATELY: [AtomicU32; PIECES] = [const { AtomicU32::new(0) }; PIECES];

/// A copy between pages of the region and the program's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the pages.
    Out,
    /// To the pages.
    In,
}

/// Copies `bytes` between `pages`, which lie in the region's file at `file` (descriptor, -1 if there is none,
/// and offset), and `memory`, the program's. Returns the number of bytes copied, which is smaller if the
/// program's memory faults.
///
/// # Safety
/// `pages` must be valid for `bytes` bytes.
pub(crate) unsafe fn copy(
    way: Direction,
    pages: *mut u8,
    memory: *mut u8,
    bytes: usize,
    file: (Fd, usize),
) -> usize {
    if bytes < LEAST || file.0.raw() < 0 || lp_abi::sys::is_limited() {
        // SAFETY: the caller guarantees `pages` for `bytes` bytes.
        return match unsafe { mapped_by_process(way, pages, memory, bytes) } {
            true => bytes,
            // SAFETY: the caller guarantees `pages` for `bytes` bytes.
            false => unsafe { until_fault(way, pages, memory, bytes) },
        };
    }
    let mut done = 0;
    while done < bytes {
        let at = pages.wrapping_add(done);
        let here = (UNIT - at as usize % UNIT).min(bytes - done);
        // SAFETY: the pages from `at` are valid for the rest, and lie in the file at the same distance from
        // its start.
        let copied = unsafe { piece(way, at, memory.wrapping_add(done), here, (file.0, file.1 + done)) };
        done += copied;
        if copied < here {
            break;
        }
    }
    done
}

/// [`copy`] within a unit; `pages` must be valid for `bytes` bytes.
unsafe fn piece(way: Direction, pages: *mut u8, memory: *mut u8, bytes: usize, file: (Fd, usize)) -> usize {
    // SAFETY: the caller guarantees `pages` for `bytes` bytes.
    if was_lately(pages) && unsafe { mapped_by_process(way, pages, memory, bytes) } {
        return bytes;
    }
    // SAFETY: the kernel checks the program's memory.
    unsafe { by_kernel(way, memory, bytes, file) }
}

/// Whether the piece that starts there was copied before and is remembered.
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

/// The process's own copy.
unsafe fn mapped_by_process(way: Direction, pages: *mut u8, memory: *mut u8, bytes: usize) -> bool {
    if way == Direction::In && bytes != 0 {
        for at in (0..bytes).step_by(AROUND).chain([bytes - 1]) {
            // SAFETY: the caller guarantees `pages` for `bytes` bytes.
            unsafe { map_around(pages.add(at)) };
        }
    }
    // SAFETY: the caller guarantees `pages` for `bytes` bytes.
    unsafe { by_process(way, pages, memory, bytes) }
}

/// Has the kernel map a page that is about to be written, and its neighbours, if they are present. A write
/// maps the page alone, so that each costs a fault.
///
/// # Safety
/// `page` must be in the region.
#[inline(always)]
pub(crate) unsafe fn map_around(page: *const u8) {
    // SAFETY: the caller guarantees the byte, which others may change at any time.
    unsafe { page.read_volatile() };
}

/// Copies in this process. Returns whether everything was copied.
unsafe fn by_process(way: Direction, pages: *mut u8, memory: *mut u8, bytes: usize) -> bool {
    let (to, from) = if way == Direction::Out { (memory, pages) } else { (pages, memory) };
    // SAFETY: the caller guarantees `pages` for `bytes` bytes; the copy routine handles faults in the
    // program's memory.
    unsafe { ucopy::copy(to, from, bytes) }.is_ok()
}

/// Lets the kernel copy.
#[inline(never)]
unsafe fn by_kernel(way: Direction, memory: *mut u8, bytes: usize, (fd, offset): (Fd, usize)) -> usize {
    let call = if way == Direction::Out { __NR_pread64 } else { __NR_pwrite64 };
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

/// Copies byte by byte up to the fault. Returns the number of bytes before it.
#[cold]
unsafe fn until_fault(way: Direction, pages: *mut u8, memory: *mut u8, bytes: usize) -> usize {
    // SAFETY: `at` is below `bytes`, for which the caller guarantees `pages`.
    (0..bytes)
        .take_while(|at| unsafe { by_process(way, pages.wrapping_add(*at), memory.wrapping_add(*at), 1) })
        .count()
}
