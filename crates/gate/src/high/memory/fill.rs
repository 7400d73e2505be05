//! Filling mappings: the pages of the file, and what raises SIGBUS where there are none.

use lp_abi::linux::{
    __NR_close, __NR_madvise, __NR_memfd_create, __NR_mmap, __NR_munmap, MADV_DONTFORK, MAP_ANONYMOUS,
    MAP_FIXED, MAP_LOCKED, MAP_NORESERVE, MAP_POPULATE, MAP_PRIVATE, MAP_SHARED, MFD_CLOEXEC, PROT_EXEC,
};
use lp_abi::{Errno, PAGE_SIZE, Result};
use lp_region::sync::{AtomicU32, Ordering};
use lp_vfs::mapping;
use lp_vfs::task::Task;

use crate::high::memory::areas::{self, Area, LockedAreas};
use crate::high::memory::written::{self, After};
use crate::high::memory::{bus, missing};

/// Pages of the shortest hole that is mapped without pages.
const SHORTEST: u64 = 256;
/// Bytes of the longest mapping whose pages are mapped in before they are protected: a protected page that is
/// not mapped in takes two faults.
const MAPPED_IN: usize = 64 * PAGE_SIZE;
/// Bytes of the longest part of a hole that is mapped in when the program writes to it.
const MAPPED_IN_OF_HOLE: usize = 512 * PAGE_SIZE;
/// The process locks all memory that it will map.
static LOCKS_ALL: AtomicU32 = AtomicU32::new(0);

/// Which pages of a mapping are allocated when it is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// All.
    Whole,
    /// All but those of large holes.
    Present,
}

impl Content {
    /// What mmap(2) asks for.
    pub(crate) fn of(protection: u32, flags: u32) -> Content {
        let is_whole = flags & (MAP_LOCKED | MAP_POPULATE) != 0
            || protection & PROT_EXEC != 0
            || LOCKS_ALL.load(Ordering::Relaxed) != 0; // Relaxed: mlockall(2) beside mmap(2).
        if is_whole { Content::Whole } else { Content::Present }
    }

    /// Pages of the shortest hole that stays.
    pub(crate) fn shortest_hole(self) -> u64 {
        if self == Content::Whole { u64::MAX } else { SHORTEST }
    }
}

/// mlockall(2) or munlockall(2): whether memory that is mapped from here on is locked. A child of fork(2)
/// begins without.
pub(crate) fn set_locks_all(locks: bool) {
    // Relaxed, both: see `Content::of`. A page that does not change is not copied after a fork.
    if LOCKS_ALL.load(Ordering::Relaxed) != u32::from(locks) {
        LOCKS_ALL.store(u32::from(locks), Ordering::Relaxed);
    }
}

/// Maps `area`, given as if at address 0, at `hint` according to `flags`, and adds it to the list. With
/// `MAP_FIXED` it replaces what is there, which stays mapped and listed as long as the call can still fail
/// for lack of pages or addresses.
///
/// # Errors
/// `ENOMEM`; those of mmap(2).
pub(crate) fn place(
    task: &Task,
    list: &mut LockedAreas,
    area: Area,
    hint: usize,
    flags: u32,
    content: Content,
) -> Result<usize> {
    list.reserve()?;
    let bytes = area.bytes();
    if flags & MAP_FIXED != 0 {
        populate(task, &area, content)?;
        written::within(task, list, hint, hint + bytes, After::Goes);
    } else if let Some(within) = only_piece(task, &area, content) {
        let (region, flags) = (task.region.fd(), flags | area.sharing.flag() | mapping_in(task, &area));
        // SAFETY: the mapping is where the program asked for it, or where nothing is mapped.
        let start =
            unsafe { lp_abi::syscall!(__NR_mmap, hint, bytes, area.protection, flags, region, within) }?;
        list.cut_holes(start, start + bytes);
        list.drop_stale(start, start + bytes);
        let mut placed = Area { start, end: start + bytes, beyond: start + bytes, ..area };
        if let Err(errno) = complete(task, list, &mut placed) {
            let _ = unmap(start, bytes);
            return Err(errno);
        }
        list.insert(placed);
        return Ok(start);
    }
    let start = reserve(hint, bytes, flags)?;
    match flags & MAP_FIXED {
        0 => list.drop_stale(start, start + bytes),
        _ => list.forget(task, start, start + bytes),
    }
    let mut placed = Area { start, end: start + bytes, beyond: start + bytes, ..area };
    if let Err(errno) = fill(task, list, &mut placed, content) {
        let _ = unmap(start, bytes);
        list.cut_holes(start, start + bytes);
        return Err(errno);
    }
    list.insert(placed);
    Ok(start)
}

/// Where the pages of `area` are in the region's file, if they are all there and lie together: they need no
/// addresses reserved before.
fn only_piece(task: &Task, area: &Area, content: Content) -> Option<usize> {
    let mut first = None;
    let (bytes, shortest) = (area.bytes(), content.shortest_hole());
    let _ = mapping::pieces(task, area.of, area.offset, bytes, shortest, &mut |piece| {
        first = piece.region.filter(|_| piece.bytes == bytes);
        Err(Errno::EAGAIN)
    });
    first
}

/// Maps the file's pages into `area`, whose addresses are the program's or reserved, and an empty memfd past
/// the file's end and in holes that stay. An area that is not listed must have no holes listed.
///
/// # Errors
/// `ENOMEM`; those of mmap(2).
pub(crate) fn fill(task: &Task, list: &mut LockedAreas, area: &mut Area, content: Content) -> Result<()> {
    match map_pieces(task, list, area, content) {
        Err(Errno::EAGAIN) if content != Content::Whole => map_pieces(task, list, area, Content::Whole)?,
        done => done?,
    }
    complete(task, list, area)
}

/// Watches the pages of `area`, which are mapped, and maps what is past the file's end.
///
/// # Errors
/// Those of [`past_the_end`].
fn complete(task: &Task, list: &mut LockedAreas, area: &mut Area) -> Result<()> {
    missing::watch(task, area);
    // A truncation by another process stores the size before it takes memory, which mapping in has given back
    // if it came later.
    area.beyond = area.beyond.min(area.end_of_file(task)).max(area.start);
    if area.beyond < area.end {
        list.cut_holes(area.beyond, area.end);
        past_the_end(area.beyond, area.end, area.protection)?;
    }
    if area.is_left_out {
        // SAFETY: changes no byte.
        let _ = unsafe { lp_abi::syscall!(__NR_madvise, area.start, area.bytes(), MADV_DONTFORK) };
    }
    Ok(())
}

/// The flag of mmap(2) that has the kernel map in all pages of `area` at once: those that will be protected,
/// if they are few, and those of a hole that the program is about to write to.
fn mapping_in(task: &Task, area: &Area) -> u32 {
    let is_worth = match area.is_written {
        true => area.bytes() <= MAPPED_IN_OF_HOLE,
        false => area.bytes() <= MAPPED_IN && missing::will_protect(task, area),
    };
    if is_worth { MAP_POPULATE } else { 0 }
}

/// Maps the pieces of the file, and sets where the file ends in `area`.
///
/// # Errors
/// `EAGAIN` if a hole would stay and the process may have none; those of [`fill`].
fn map_pieces(task: &Task, list: &mut LockedAreas, area: &mut Area, content: Content) -> Result<()> {
    let flags = area.sharing.flag() | MAP_FIXED | mapping_in(task, area);
    let region = task.region.fd();
    let (start, offset, protection, limit) = (area.start, area.offset, area.protection, area.bytes());
    let shortest = content.shortest_hole();
    let stopped = mapping::pieces(task, area.of, offset, limit, shortest, &mut |piece| {
        let at = start + (piece.offset - offset) as usize;
        let bytes = piece.bytes.min(start + limit - at);
        let Some(within) = piece.region else {
            if !bus::may_exist(task) {
                return Err(Errno::EAGAIN);
            }
            list.holes().reserve(1)?;
            past_the_end(at, at + bytes, protection)?;
            return list.add_hole(at, at + bytes);
        };
        // SAFETY: the addresses belong to the mapping.
        unsafe { lp_abi::syscall!(__NR_mmap, at, bytes, protection, flags, region, within) }?;
        list.cut_holes(at, at + bytes);
        Ok(())
    })?;
    area.beyond = (start + stopped.saturating_sub(offset) as usize).min(area.end);
    Ok(())
}

/// Allocates all pages of `area` that [`fill`] will map, so that `fill` does not fail for lack of them.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn populate(task: &Task, area: &Area, content: Content) -> Result<()> {
    let (offset, bytes, shortest) = (area.offset, area.bytes(), content.shortest_hole());
    mapping::pieces(task, area.of, offset, bytes, shortest, &mut |_| Ok(())).map(drop)
}

/// Maps an empty memfd, which raises SIGBUS when touched.
///
/// # Errors
/// Those of memfd_create(2) and mmap(2).
pub(crate) fn past_the_end(start: usize, end: usize, protection: u32) -> Result<()> {
    areas::reaches_beyond();
    // SAFETY: creates a descriptor, closed below.
    let fd = unsafe { lp_abi::syscall!(__NR_memfd_create, c"lightpath-end".as_ptr(), MFD_CLOEXEC) }?;
    // SAFETY: the addresses belong to the mapping.
    let mapped =
        unsafe { lp_abi::syscall!(__NR_mmap, start, end - start, protection, MAP_SHARED | MAP_FIXED, fd, 0) };
    // SAFETY: the descriptor was created above.
    let _ = unsafe { lp_abi::syscall!(__NR_close, fd) };
    mapped.map(drop)
}

/// Reserves `bytes` of addresses, at `hint` if `flags` say so.
///
/// # Errors
/// Those of mmap(2).
pub(crate) fn reserve(hint: usize, bytes: usize, flags: u32) -> Result<usize> {
    let flags = flags | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    // SAFETY: the mapping is where the program asked for it, or where nothing is mapped.
    unsafe { lp_abi::syscall!(__NR_mmap, hint, bytes, 0, flags, -1i32, 0) }
}

/// Releases addresses.
///
/// # Errors
/// `ENOMEM` if it would leave the kernel with too many mappings.
pub(crate) fn unmap(start: usize, bytes: usize) -> Result<()> {
    // SAFETY: the addresses belong to the mapping.
    unsafe { lp_abi::syscall!(__NR_munmap, start, bytes) }.map(drop)
}
