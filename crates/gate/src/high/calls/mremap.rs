//! mremap(2) on files of ours.

use lp_abi::linux::*;
use lp_abi::{Errno, PAGE_SIZE, Result};
use lp_vfs::mapping;
use lp_vfs::task::Task;

use crate::high::calls::mmap::is_error;
use crate::high::frame::handler::{handlers, kernel, ret};
use crate::high::memory::areas::{self, Area, LockedAreas, Sharing};
use crate::high::memory::fill::{self, Content};
use crate::high::memory::written::{self, After};
use crate::high::memory::{missing, resize};
use crate::high::run::own;
use crate::high::run::own::end_of;
use crate::low::dispatch::NOT_OURS;

handlers! {
    /// mremap(2).
    fn mremap(task, old: usize, old_length: usize, new_length: usize, flags: usize, new: usize) {
        let Ok(flags) = u32::try_from(flags) else { return Errno::EINVAL.to_ret() };
        let moves_to = (flags & MREMAP_FIXED != 0).then_some((new, new_length));
        let ranges = core::iter::once((old, old_length.max(1))).chain(moves_to);
        if let Some(refused) = ranges.into_iter().find_map(|(start, length)| own::refused(start, length)) {
            return refused;
        }
        if areas::is_empty() || !old.is_multiple_of(PAGE_SIZE) {
            return NOT_OURS;
        }
        let Some(old_end) = end_of(old, old_length.max(1)) else { return NOT_OURS };
        remap(task, &Move { old, old_end, old_length, new_length, flags, new })
    }
}

#[cold]
fn remap(task: &Task, to: &Move) -> isize {
    let mut list = areas::list();
    match list.find(to.old, to.old + 1).map(|area| *area) {
        Some(area) if to.old_end > area.end && to.keeps_size() => move_several(task, &mut list, to),
        Some(area) => ret(remap_area(task, &mut list, &area, to)),
        None if to.keeps_size() && list.find(to.old, to.old_end).is_some() => {
            move_several(task, &mut list, to)
        }
        None => remap_other(task, &mut list, to),
    }
}

/// Moves several mappings to a given place, one after the other, where the kernel does that (Linux 6.17). If
/// one cannot be moved, those before it have been.
fn move_several(task: &Task, list: &mut LockedAreas, to: &Move) -> isize {
    let lands = end_of(to.new, to.old_end - to.old).filter(|_| to.new.is_multiple_of(PAGE_SIZE));
    if lands.is_none_or(|end| to.new < to.old_end && to.old < end) {
        return Errno::EINVAL.to_ret();
    }
    if !kernel_moves_several() {
        return Errno::EFAULT.to_ret();
    }
    let mut at = to.old;
    while at < to.old_end {
        let area = list.find(at, to.old_end).map(|area| *area);
        let is_ours = area.is_some_and(|area| area.start <= at);
        let start =
            if is_ours { Some(at) } else { first_mapped(at, area.map_or(to.old_end, |area| area.start)) };
        if at == to.old && start != Some(at) {
            return Errno::EFAULT.to_ret();
        }
        let end = match area {
            Some(area) if is_ours => area.end.min(to.old_end),
            Some(area) => area.start,
            None => to.old_end,
        };
        if let Some(start) = start {
            let bytes = end - start;
            let new = to.new + (start - to.old);
            let piece = Move { old: start, old_end: end, old_length: bytes, new_length: bytes, new, ..*to };
            let done = match area.filter(|_| is_ours) {
                Some(area) => ret(remap_area(task, list, &area, &piece)),
                None => match remap_other(task, list, &piece) {
                    NOT_OURS => kernel!(__NR_mremap, start, bytes, bytes, to.flags, new),
                    done => done,
                },
            };
            if is_error(done) {
                return done;
            }
        }
        at = end;
    }
    to.new as isize
}

/// Whether the kernel moves several mappings by one call: asked with two pages that nobody else uses.
#[cold]
fn kernel_moves_several() -> bool {
    let bytes = 2 * PAGE_SIZE;
    let Ok(at) = fill::reserve(0, 2 * bytes, 0) else { return false };
    let flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    // SAFETY: pages that were reserved above; the protection of one makes them two mappings.
    let moved = unsafe {
        lp_abi::syscall!(__NR_mprotect, at, PAGE_SIZE, PROT_READ)
            .and_then(|_| lp_abi::syscall!(__NR_mremap, at, bytes, bytes, flags, at + bytes))
    };
    // What was moved has left a gap, which another thread may have mapped meanwhile.
    let _ = match moved {
        Ok(_) => fill::unmap(at + bytes, bytes),
        Err(_) => fill::unmap(at, 2 * bytes),
    };
    moved.is_ok()
}

/// The first page of `start..end` at which something is mapped.
fn first_mapped(start: usize, end: usize) -> Option<usize> {
    let mut present = 0u8;
    // SAFETY: the kernel writes one byte for one page.
    let mut is_mapped =
        |page: usize| unsafe { lp_abi::syscall!(__NR_mincore, page, PAGE_SIZE, &raw mut present) }.is_ok();
    (start..end).step_by(PAGE_SIZE).find(|page| is_mapped(*page))
}

/// mremap(2) of a range that starts with a mapping of the kernel's. It may move onto files of ours, or cut
/// some off behind it.
fn remap_other(task: &Task, list: &mut LockedAreas, to: &Move) -> isize {
    let lands = (to.flags & MREMAP_FIXED != 0).then(|| end_of(to.new, to.new_length)).flatten();
    let lands = lands.map(|end| (to.new, end)).filter(|(start, end)| list.find(*start, *end).is_some());
    let goes_on = list.find(to.old, to.old_end).is_some();
    if lands.is_none() && !goes_on {
        return NOT_OURS;
    }
    let cut = end_of(to.old, to.new_length).filter(|cut| *cut <= to.old_end && to.flags & MREMAP_FIXED == 0);
    if goes_on && cut.is_none() {
        return Errno::EFAULT.to_ret(); // The range to move or grow must be one mapping.
    }
    if let Err(errno) = list.reserve() {
        return errno.to_ret();
    }
    let gone = lands.into_iter().chain(cut.map(|cut| (cut, to.old_end)));
    for (start, end) in gone.clone() {
        written::within(task, list, start, end, After::Goes);
    }
    let done = kernel!(__NR_mremap, to.old, to.old_length, to.new_length, to.flags, to.new);
    if !is_error(done) {
        for (start, end) in gone {
            list.forget(task, start, end);
        }
    }
    done
}

/// mremap's arguments.
#[derive(Clone, Copy)]
struct Move {
    old: usize,
    /// End of the pages to move; of the one page if `old_length` is 0.
    old_end: usize,
    old_length: usize,
    new_length: usize,
    flags: u32,
    new: usize,
}

impl Move {
    /// Whether it moves to a given place what keeps its size.
    fn keeps_size(&self) -> bool {
        let known = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
        let placed = MREMAP_MAYMOVE | MREMAP_FIXED;
        self.flags & !known == 0
            && self.flags & placed == placed
            && self.old_length != 0
            && self.new_length.checked_next_multiple_of(PAGE_SIZE) == Some(self.old_end - self.old)
    }

    /// Whether the old mapping stays, with what the file has.
    fn keeps_old(&self) -> bool {
        self.flags & MREMAP_DONTUNMAP != 0
    }
}

fn remap_area(task: &Task, list: &mut LockedAreas, area: &Area, to: &Move) -> Result<usize> {
    let known = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    let fixed = to.flags & MREMAP_FIXED != 0;
    let keeps = to.keeps_old();
    let may_move = to.flags & MREMAP_MAYMOVE != 0;
    if to.flags & !known != 0 || (fixed || keeps) && !may_move || to.new_length == 0 {
        return Err(Errno::EINVAL);
    }
    let bytes = to.new_length.checked_next_multiple_of(PAGE_SIZE).ok_or(Errno::EINVAL)?;
    let old_bytes = to.old_end - to.old;
    if keeps && (bytes != old_bytes || to.old_length == 0) {
        return Err(Errno::EINVAL);
    }
    if fixed || keeps {
        let end = end_of(to.new, bytes).filter(|_| to.new.is_multiple_of(PAGE_SIZE)).ok_or(Errno::EINVAL)?;
        if to.new < to.old_end && to.old < end {
            return Err(Errno::EINVAL);
        }
    }
    if to.old_length == 0 && area.sharing == Sharing::Private {
        return Err(Errno::EINVAL);
    }
    let stays = !fixed && !keeps && to.old_length != 0;
    // Other mappings may follow this one where it only loses something.
    if to.old_end > area.end && !(stays && bytes <= old_bytes) {
        return Err(Errno::EFAULT);
    }
    if to.old_length == 0 && !may_move {
        return Err(Errno::ENOMEM);
    }
    list.reserve()?;
    // What the file has grown by comes along.
    if let Some(index) = list.areas().iter().position(|one| one.start == area.start) {
        resize::settle(task, list, index)?;
    }
    written::within(task, list, to.old, to.old_end, After::Stays);
    let area = &list.find(to.old, to.old_end).map_or(*area, |area| *area);
    if stays {
        if bytes <= old_bytes {
            if bytes < old_bytes {
                fill::unmap(to.old + bytes, old_bytes - bytes)?;
                list.forget(task, to.old + bytes, to.old_end);
            }
            return Ok(to.old);
        }
        if to.old_end == area.end && extend(task, list, area, bytes - old_bytes)? {
            return Ok(to.old);
        }
        if !may_move {
            return Err(Errno::ENOMEM);
        }
    }
    mapping::grow(task, area.of, bytes)?;
    let moved = move_to(task, list, area, to, bytes);
    if moved.is_err() {
        mapping::end(task, area.of, bytes);
    }
    moved
}

/// Grows an area in place. Returns whether the addresses were free.
fn extend(task: &Task, list: &mut LockedAreas, area: &Area, more: usize) -> Result<bool> {
    match fill::reserve(area.end, more, MAP_FIXED_NOREPLACE) {
        Ok(at) if at == area.end => {}
        Ok(at) => {
            let _ = fill::unmap(at, more);
            return Ok(false);
        }
        Err(_) => return Ok(false),
    }
    let mut tail = Area {
        start: area.end,
        end: area.end + more,
        offset: area.offset + area.bytes() as u64,
        beyond: area.end + more,
        ..*area
    };
    let noted = mapping::grow(task, area.of, more);
    let content = Content::of(area.protection, 0);
    if let Err(errno) = noted.and_then(|()| fill::fill(task, list, &mut tail, content)) {
        let _ = fill::unmap(tail.start, more);
        list.cut_holes(tail.start, tail.end);
        if noted.is_ok() {
            mapping::end(task, area.of, more);
        }
        return Err(errno);
    }
    if let Some(found) = list.find(area.start, area.end) {
        found.end = tail.end;
        found.beyond = if found.beyond < area.end { found.beyond } else { tail.beyond };
    }
    Ok(true)
}

/// Maps the file at a new address and then removes the old mapping, unless it is to stay. Pages of a private
/// mapping that the program has changed are moved. The caller has recorded the new mapping's `bytes`.
fn move_to(task: &Task, list: &mut LockedAreas, area: &Area, to: &Move, bytes: usize) -> Result<usize> {
    let offset = area.offset + (to.old - area.start) as u64;
    let moved = Area { start: 0, end: bytes, beyond: bytes, offset, ..*area };
    let (hint, flags) = match to.flags & MREMAP_FIXED {
        0 => (if to.keeps_old() { to.new } else { 0 }, 0),
        _ => (to.new, MAP_FIXED),
    };
    let start = fill::place(task, list, moved, hint, flags, Content::of(area.protection, 0))?;
    let kept = (to.old_end - to.old).min(bytes);
    if area.sharing == Sharing::Private && to.old_length != 0 {
        if !carry(list, to.old, start, kept, to.flags & MREMAP_DONTUNMAP) {
            let _ = fill::unmap(start, bytes);
            list.cut_holes(start, start + bytes);
            list.drop_area(start);
            return Err(Errno::ENOMEM);
        }
        if let Some(moved) = list.find(start, start + bytes) {
            missing::watch(task, moved);
        }
    }
    if to.old_length != 0 && !to.keeps_old() && fill::unmap(to.old, to.old_end - to.old).is_ok() {
        list.forget(task, to.old, to.old_end);
    }
    Ok(start)
}

/// Moves pages one by one, because they may be many mappings. Moves all or none, but for those of holes,
/// which are holes at the new address too. With `MREMAP_DONTUNMAP` in `keeps` the old mappings stay.
fn carry(list: &mut LockedAreas, from: usize, to: usize, bytes: usize, keeps: u32) -> bool {
    let moves = MREMAP_MAYMOVE | MREMAP_FIXED;
    let page =
        |from, to, keeps| !is_error(kernel!(__NR_mremap, from, PAGE_SIZE, PAGE_SIZE, moves | keeps, to));
    let mut at = 0;
    while at < bytes {
        match list.hole_in(from + at, from + bytes) {
            Some((start, end)) if start == from + at => at = end - from,
            _ if page(from + at, to + at, keeps) => at += PAGE_SIZE,
            _ => break,
        }
    }
    if at >= bytes {
        return true;
    }
    for at in (0..at).step_by(PAGE_SIZE) {
        if list.hole_in(from + at, from + at + PAGE_SIZE).is_none() {
            page(to + at, from + at, 0);
        }
    }
    false
}
