//! mmap(2), munmap(2), mremap(2), mprotect(2), remap_file_pages(2): where files of ours are concerned.

use lp_abi::linux::*;
use lp_abi::{Errno, PAGE_SIZE, Result};
use lp_region::InodeRef;
use lp_region::records::file_mode;
use lp_region::sync::Ordering;
use lp_vfs::mapping;
use lp_vfs::table;
use lp_vfs::task::Task;

use super::exec::{copy_to_memfd, read_at};
use super::handler::{handlers, kernel, ret};
use crate::dispatch::NOT_OURS;
use crate::mapping::{Source, mapped};
use crate::maps::{self, Area, Sharing};
use crate::{attach, descriptor, names, placeholder};

/// Flags that say where a mapping goes and how it behaves, handed on to the kernel.
const PLACE: u32 = MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_32BIT;

handlers! {
    /// mmap(2).
    fn mmap(task, address: usize, length: usize, protection: u32, flags: u32, fd: i32, offset: u64) {
        if flags & MAP_ANONYMOUS != 0 || !descriptor::is_file(task, fd) {
            return mmap_other(task, [address, length, protection as usize, flags as usize, fd as usize, offset as usize]);
        }
        let wanted = Wanted { address, length, protection, flags, fd, offset };
        ret(map(task, &wanted))
    }

    /// munmap(2).
    fn munmap(task, address: usize, length: usize) {
        if crate::process::unmaps_stack(address, length) {
            // SAFETY: passed on as it came.
            return unsafe { crate::process::munmap(address, length, 0, 0, 0, 0) };
        }
        if maps::is_empty() || length == 0 || !address.is_multiple_of(PAGE_SIZE) {
            return NOT_OURS;
        }
        let Some(end) = end_of(address, length) else { return NOT_OURS };
        let mut list = maps::list();
        if list.find(address, end).is_none() {
            return NOT_OURS;
        }
        let done = kernel!(__NR_munmap, address, length);
        if done == 0 && let Err(errno) = list.forget(task, address, end) {
            return errno.to_ret();
        }
        done
    }

    /// mprotect(2): what a descriptor could not write must not become writable.
    fn mprotect(task, address: usize, length: usize, protection: u32) {
        if maps::is_empty() || !address.is_multiple_of(PAGE_SIZE) {
            return NOT_OURS;
        }
        let Some(end) = end_of(address, length) else { return NOT_OURS };
        mprotect_slow(address, end, protection)
    }

    /// mremap(2).
    fn mremap(task, old: usize, old_length: usize, new_length: usize, flags: u32, new: usize) {
        if maps::is_empty() || !old.is_multiple_of(PAGE_SIZE) {
            return NOT_OURS;
        }
        remap(task, old, old_length, new_length, flags, new)
    }

    /// remap_file_pages(2): not for files of ours.
    fn remap_file_pages(task, address: usize, length: usize) {
        let end = address.saturating_add(length);
        if maps::is_empty() || maps::list().find(address, end).is_none() { NOT_OURS } else { Errno::EINVAL.to_ret() }
    }
}

/// mmap's arguments.
struct Wanted {
    address: usize,
    length: usize,
    protection: u32,
    flags: u32,
    fd: i32,
    offset: u64,
}

/// The end of a range of pages.
fn end_of(address: usize, length: usize) -> Option<usize> {
    address.checked_add(length.checked_next_multiple_of(PAGE_SIZE)?)
}

/// What is not a file of ours; it may replace one.
fn mmap_other(task: &Task, arguments: [usize; 6]) -> isize {
    let [address, length, protection, flags, fd, offset] = arguments;
    let replaces = flags as u32 & MAP_FIXED != 0 && !maps::is_empty();
    let mut list = replaces.then(maps::list);
    if let (Some(list), Some(end)) = (&mut list, end_of(address, length)) {
        let _ = list.forget(task, address, end);
    }
    // SAFETY: the program's own call.
    unsafe { crate::mapping::mmap(address, length, protection, flags, fd, offset) }
}

/// Maps a file of ours.
fn map(task: &Task, wanted: &Wanted) -> Result<usize> {
    let kind = wanted.flags & MAP_TYPE;
    let private = kind == MAP_PRIVATE;
    if !matches!(kind, MAP_SHARED | MAP_PRIVATE | MAP_SHARED_VALIDATE)
        || wanted.length == 0
        || !wanted.offset.is_multiple_of(PAGE_SIZE as u64)
    {
        return Err(Errno::EINVAL);
    }
    let bytes = wanted.length.checked_next_multiple_of(PAGE_SIZE).ok_or(Errno::ENOMEM)?;
    if kind == MAP_SHARED_VALIDATE && wanted.flags & MAP_SYNC != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let sharing = match (private, wanted.protection & PROT_WRITE) {
        (true, _) => mapping::Sharing::Private,
        (false, 0) => mapping::Sharing::SharedRead,
        (false, _) => mapping::Sharing::SharedWrite,
    };
    let writable = table::fget(task, wanted.fd)?.file.mode.load(Ordering::Relaxed) & file_mode::WRITE != 0;
    let of = mapping::begin(task, wanted.fd, wanted.offset, bytes, sharing)?;
    let placed = place(task, wanted, bytes);
    let mut list = maps::list();
    let made = placed.and_then(|start| {
        let mut area = Area {
            start,
            end: start + bytes,
            of,
            offset: wanted.offset,
            protection: wanted.protection,
            sharing: match (private, writable) {
                (true, _) => Sharing::Private,
                (false, true) => Sharing::Shared,
                (false, false) => Sharing::SharedReadOnly,
            },
            beyond: start + bytes,
        };
        list.reserve()?;
        if let Err(errno) = maps::fill(task, &mut area) {
            maps::unmap(start, bytes);
            return Err(errno);
        }
        list.insert(area);
        Ok(start)
    });
    drop(list);
    match made {
        Ok(start) if wanted.protection & PROT_EXEC != 0 => cover(task, of, start, wanted.offset),
        Ok(_) => {}
        Err(_) => mapping::end(task, of, bytes),
    }
    made
}

/// Code of ours is covered as code of the host is; where its sites are not known yet, the builder reads them from a memfd.
#[cold]
fn cover(task: &Task, of: InodeRef, at: usize, offset: u64) {
    let record = task.region.inode(of.id);
    let read = |to: &mut [u8], at: u64| read_at(task, record, to, at).unwrap_or(0);
    let build = || {
        let Ok(fd) = copy_to_memfd(task, record, c"lightpath-code") else { return };
        let mut room = [0; names::ROOM];
        attach::build(core::iter::once(names::of_descriptor(fd as usize, &mut room)));
        placeholder::close_number(fd);
    };
    let source = Source { read: &read, name: names::NAMELESS, build: &build };
    // SAFETY: the mapping was made just now, and nothing in it runs yet.
    unsafe { mapped(&source, at, offset as usize) };
}

/// Addresses for a mapping: what was there is forgotten.
fn place(task: &Task, wanted: &Wanted, bytes: usize) -> Result<usize> {
    let start = maps::reserve(wanted.address, bytes, wanted.flags & PLACE)?;
    if wanted.flags & MAP_FIXED != 0 && !maps::is_empty() {
        maps::list().forget(task, start, start + bytes)?;
    }
    Ok(start)
}

#[cold]
fn mprotect_slow(address: usize, end: usize, protection: u32) -> isize {
    let mut list = maps::list();
    if list.find(address, end).is_none() {
        return NOT_OURS;
    }
    let mut refused = false;
    list.each(address, end, &mut |area| {
        refused |= area.sharing == Sharing::SharedReadOnly && protection & PROT_WRITE != 0;
    });
    if refused {
        return Errno::EACCES.to_ret();
    }
    let done = kernel!(__NR_mprotect, address, end - address, protection);
    if done == 0 {
        if let Err(errno) = list.split(address).and_then(|()| list.split(end)) {
            return errno.to_ret();
        }
        list.each(address, end, &mut |area| area.protection = protection);
    }
    done
}

#[cold]
fn remap(task: &Task, old: usize, old_length: usize, new_length: usize, flags: u32, new: usize) -> isize {
    let Some(old_end) = end_of(old, old_length.max(1)) else { return NOT_OURS };
    let mut list = maps::list();
    let Some(area) = list.find(old, old + 1).map(|area| *area) else {
        // The kernel's mapping may land on one of ours.
        if flags & MREMAP_FIXED != 0
            && let Some(end) = end_of(new, new_length)
        {
            let _ = list.forget(task, new, end);
        }
        return NOT_OURS;
    };
    ret(remap_area(task, &mut list, &area, &Move { old, old_end, old_length, new_length, flags, new }))
}

/// mremap's arguments.
struct Move {
    old: usize,
    old_end: usize,
    old_length: usize,
    new_length: usize,
    flags: u32,
    new: usize,
}

fn remap_area(task: &Task, list: &mut maps::List, area: &Area, to: &Move) -> Result<usize> {
    let known = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    let fixed = to.flags & MREMAP_FIXED != 0;
    let may_move = to.flags & MREMAP_MAYMOVE != 0;
    if to.flags & !known != 0 || fixed && !may_move || to.new_length == 0 || to.flags & MREMAP_DONTUNMAP != 0
    {
        return Err(Errno::EINVAL);
    }
    if fixed && !to.new.is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL);
    }
    if to.old_end > area.end {
        return Err(Errno::EFAULT);
    }
    let bytes = to.new_length.checked_next_multiple_of(PAGE_SIZE).ok_or(Errno::EINVAL)?;
    let old_bytes = to.old_end - to.old;
    if !fixed && to.old_length != 0 {
        if bytes <= old_bytes {
            if bytes < old_bytes {
                maps::unmap(to.old + bytes, old_bytes - bytes);
                list.forget(task, to.old + bytes, to.old_end)?;
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
    let start = match fixed {
        true => {
            let start = maps::reserve(to.new, bytes, MAP_FIXED)?;
            list.forget(task, start, start + bytes)?;
            start
        }
        false => maps::reserve(0, bytes, 0)?,
    };
    move_to(task, list, area, to, start, bytes)
}

/// Grows an area where it is; whether there was room.
fn extend(task: &Task, list: &mut maps::List, area: &Area, more: usize) -> Result<bool> {
    match maps::reserve(area.end, more, MAP_FIXED_NOREPLACE) {
        Ok(at) if at == area.end => {}
        Ok(at) => {
            maps::unmap(at, more);
            return Ok(false);
        }
        Err(_) => return Ok(false),
    }
    mapping::grow(task, area.of, more)?;
    let mut tail = Area {
        start: area.end,
        end: area.end + more,
        offset: area.offset + area.bytes() as u64,
        beyond: area.end + more,
        ..*area
    };
    maps::fill(task, &mut tail)?;
    if let Some(found) = list.find(area.start, area.end) {
        found.end = tail.end;
        found.beyond = if found.beyond < area.end { found.beyond } else { tail.beyond };
    }
    Ok(true)
}

/// Maps the file anew at `start` and takes the old mapping away. Pages of a private mapping that the program has changed are
/// moved.
fn move_to(
    task: &Task,
    list: &mut maps::List,
    area: &Area,
    to: &Move,
    start: usize,
    bytes: usize,
) -> Result<usize> {
    mapping::grow(task, area.of, bytes)?;
    let mut moved = Area {
        start,
        end: start + bytes,
        offset: area.offset + (to.old - area.start) as u64,
        beyond: start + bytes,
        ..*area
    };
    list.reserve()?;
    maps::fill(task, &mut moved)?;
    let kept = (to.old_end - to.old).min(bytes);
    if area.sharing == Sharing::Private && to.old_length != 0 {
        for at in (0..kept).step_by(PAGE_SIZE) {
            let flags = MREMAP_MAYMOVE | MREMAP_FIXED;
            kernel!(__NR_mremap, to.old + at, PAGE_SIZE, PAGE_SIZE, flags, start + at);
        }
    }
    list.insert(moved);
    if to.old_length != 0 {
        maps::unmap(to.old, to.old_end - to.old);
        list.forget(task, to.old, to.old_end)?;
    }
    Ok(start)
}
