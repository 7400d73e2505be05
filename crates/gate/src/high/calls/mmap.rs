//! mmap(2), munmap(2), mremap(2), mprotect(2), remap_file_pages(2) on files of ours.

use lp_abi::linux::*;
use lp_abi::{Errno, Fd, PAGE_SIZE, Result};
use lp_region::InodeRef;
use lp_region::mount::mount_flags;
use lp_region::records::file_mode;
use lp_region::sync::Ordering;
use lp_vfs::mapping;
use lp_vfs::mounts;
use lp_vfs::task::Task;

use crate::high::fd::{descriptor, placeholder};
use crate::high::frame::content::read_at;
use crate::high::frame::handler::{handlers, kernel, ret};
use crate::high::memory::areas;
use crate::high::memory::areas::{Area, LockedAreas, Sharing};
use crate::high::memory::holes::Content;
use crate::high::run::image::copy_to_memfd;
use crate::high::run::own;
use crate::high::run::own::end_of;
use crate::low::cover::build;
use crate::low::cover::mapped_code::{MappedFile, mapped};
use crate::low::dispatch::NOT_OURS;
use crate::low::tools::names;

/// Flags that determine a mapping's address, and whether it may be locked; passed on to the kernel.
const PLACE: u32 = MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_32BIT | MAP_LOCKED;

handlers! {
    /// mmap(2).
    fn mmap(task, address: usize, length: usize, protection: u32, flags: u32, fd: Fd, offset: u64) {
        if flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) == MAP_FIXED
            && let Some(refused) = own::refused(address, length)
        {
            return refused;
        }
        if flags & MAP_ANONYMOUS != 0 || !descriptor::is_file(task, fd) {
            return mmap_other(task, [address, length, protection as usize, flags as usize, fd.word(), offset as usize]);
        }
        let wanted = Wanted { address, length, protection, flags, fd, offset };
        ret(map(task, &wanted))
    }

    /// munmap(2).
    fn munmap(task, address: usize, length: usize) {
        if crate::low::live::process::unmaps_stack(address, length) {
            // SAFETY: the program's own call with its own arguments.
            return unsafe { crate::low::live::process::munmap(address, length, 0, 0, 0, 0) };
        }
        if let Some(refused) = own::refused(address, length) {
            return refused;
        }
        if areas::is_empty() || length == 0 || !address.is_multiple_of(PAGE_SIZE) {
            return NOT_OURS;
        }
        let Some(end) = end_of(address, length) else { return NOT_OURS };
        replacing(task, address, end, || kernel!(__NR_munmap, address, length))
    }

    /// mprotect(2): a mapping of a descriptor without write access must not become writable.
    fn mprotect(task, address: usize, length: usize, protection: u32) {
        protect(address, length, protection, &|| kernel!(__NR_mprotect, address, length, protection))
    }

    /// pkey_mprotect(2): as mprotect(2).
    fn pkey_mprotect(task, address: usize, length: usize, protection: u32, key: i32) {
        protect(address, length, protection, &|| kernel!(__NR_pkey_mprotect, address, length, protection, key))
    }

    /// mremap(2).
    fn mremap(task, old: usize, old_length: usize, new_length: usize, flags: u32, new: usize) {
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

    /// remap_file_pages(2).
    fn remap_file_pages(task, address: usize, length: usize, protection: u32, page: u64) {
        let (start, bytes) = (address & !(PAGE_SIZE - 1), length & !(PAGE_SIZE - 1));
        if let Some(refused) = own::refused(start, bytes) {
            return refused;
        }
        let mut list = areas::list();
        let Some(area) = list.find(start, start.saturating_add(1)).map(|area| *area) else { return NOT_OURS };
        if protection != 0 {
            return Errno::EINVAL.to_ret();
        }
        ret(other_pages(task, &mut list, &area, start, bytes, page).map(|_| 0usize))
    }
}

/// The flags that MAP_SHARED_VALIDATE accepts: the kernel's LEGACY_MAP_MASK.
const VALIDATED: u32 = MAP_TYPE
    | MAP_FIXED
    | MAP_ANONYMOUS
    | MAP_DENYWRITE
    | MAP_EXECUTABLE
    | MAP_GROWSDOWN
    | MAP_LOCKED
    | MAP_NORESERVE
    | MAP_POPULATE
    | MAP_NONBLOCK
    | MAP_STACK
    | MAP_HUGETLB
    | MAP_32BIT
    | 0x80 // MAP_ABOVE4G
    | 0x1f << 26; // MAP_UNINITIALIZED, and the sizes of huge pages.

/// mmap's arguments.
struct Wanted {
    address: usize,
    length: usize,
    protection: u32,
    flags: u32,
    fd: Fd,
    offset: u64,
}

/// Makes a kernel call that removes mappings within `start..end`, and updates the list if it succeeds.
pub(crate) fn replacing(task: &Task, start: usize, end: usize, call: impl FnOnce() -> isize) -> isize {
    let mut list = areas::list();
    if list.find(start, end).is_none() {
        return NOT_OURS;
    }
    if let Err(errno) = list.reserve() {
        return errno.to_ret();
    }
    let done = call();
    if !is_error(done) {
        list.forget(task, start, end);
    }
    done
}

/// Whether `rax` of a call that returns an address is an error.
fn is_error(rax: isize) -> bool {
    (-4095..0).contains(&rax)
}

/// mmap(2) of anything but a file of ours. It may replace a mapping of one.
fn mmap_other(task: &Task, arguments: [usize; 6]) -> isize {
    let [address, length, protection, flags, fd, offset] = arguments;
    // SAFETY: the program's own call with its own arguments.
    let map =
        || unsafe { crate::low::cover::mapped_code::mmap(address, length, protection, flags, fd, offset) };
    if flags as u32 & MAP_FIXED == 0 || areas::is_empty() {
        return map();
    }
    let replaced = end_of(address, length).map_or(NOT_OURS, |end| {
        replacing(task, address, end, || match map() {
            NOT_OURS => kernel!(__NR_mmap, address, length, protection, flags, fd, offset),
            done => done,
        })
    });
    if replaced == NOT_OURS { map() } else { replaced }
}

/// Maps a file of ours.
fn map(task: &Task, wanted: &Wanted) -> Result<usize> {
    // The kernel's ksys_mmap_pgoff and do_mmap, in their order.
    if !wanted.offset.is_multiple_of(PAGE_SIZE as u64) {
        return Err(Errno::EINVAL);
    }
    task.fget_no_path(wanted.fd)?;
    if wanted.flags & MAP_HUGETLB != 0 || wanted.length == 0 {
        return Err(Errno::EINVAL);
    }
    let bytes = wanted.length.checked_next_multiple_of(PAGE_SIZE).ok_or(Errno::ENOMEM)?;
    if wanted.offset.checked_add(bytes as u64).is_none_or(|end| end > i64::MAX as u64) {
        return Err(Errno::EOVERFLOW);
    }
    let kind = wanted.flags & MAP_TYPE;
    let private = kind == MAP_PRIVATE;
    if !matches!(kind, MAP_SHARED | MAP_PRIVATE | MAP_SHARED_VALIDATE) {
        return Err(Errno::EINVAL);
    }
    if kind == MAP_SHARED_VALIDATE && wanted.flags & !VALIDATED != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let sharing = match (private, wanted.protection & PROT_WRITE) {
        (true, _) => mapping::MapAccess::Private,
        (false, 0) => mapping::MapAccess::SharedRead,
        (false, _) => mapping::MapAccess::SharedWrite,
    };
    let writable = {
        let held = task.fget(wanted.fd)?;
        let is_noexec = mounts::has(task, held.mount(), mount_flags::NOEXEC);
        if wanted.protection & PROT_EXEC != 0 && is_noexec {
            return Err(Errno::EPERM);
        }
        held.file.mode.load(Ordering::Relaxed) & file_mode::WRITE != 0
    };
    // Held from the record on: a fork in between would give its child a record without a mapping.
    let mut list = areas::list();
    let of = mapping::begin(task, wanted.fd, wanted.offset, bytes, sharing)?;
    let area = Area {
        start: 0,
        end: bytes,
        of,
        offset: wanted.offset,
        protection: wanted.protection,
        sharing: match (private, writable) {
            (true, _) => Sharing::Private,
            (false, true) => Sharing::Shared,
            (false, false) => Sharing::SharedReadOnly,
        },
        beyond: bytes,
    };
    let content = Content::of(wanted.protection, wanted.flags);
    let made = match wanted.flags & MAP_GROWSDOWN {
        0 => place(task, &mut list, area, wanted.address, wanted.flags & PLACE, content),
        _ => Err(Errno::EINVAL),
    };
    drop(list);
    if wanted.flags & MAP_LOCKED != 0
        && let Ok(start) = made
    {
        // mmap(2) does not fail if a page cannot be made present.
        kernel!(__NR_mlock, start, bytes);
    }
    match made {
        Ok(start) if wanted.protection & PROT_EXEC != 0 => cover(task, of, start, wanted.offset),
        Ok(_) => {}
        Err(_) => mapping::end(task, of, bytes),
    }
    made
}

/// Maps `area`, given as if at address 0, at `hint` according to `flags`, and adds it to the list. With
/// `MAP_FIXED` it replaces what is there, which stays mapped and listed as long as the call can still fail
/// for lack of pages or addresses.
fn place(
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
        areas::populate(task, &area, content)?;
    }
    let start = areas::reserve(hint, bytes, flags)?;
    if flags & MAP_FIXED != 0 {
        list.forget(task, start, start + bytes);
    }
    let mut placed = Area { start, end: start + bytes, beyond: start + bytes, ..area };
    if let Err(errno) = areas::fill(task, list, &mut placed, content) {
        let _ = areas::unmap(start, bytes);
        list.cut_holes(start, start + bytes);
        return Err(errno);
    }
    list.insert(placed);
    Ok(start)
}

/// Covers code of ours like code of the host. If its sites are not known, the builder reads the object from a
/// memfd.
#[cold]
fn cover(task: &Task, of: InodeRef, at: usize, offset: u64) {
    let record = task.region.inode(of.id);
    let read = |to: &mut [u8], at: u64| read_at(task, record, to, at).unwrap_or(0);
    let build = || {
        let Ok(fd) = copy_to_memfd(task, of, c"lightpath-code") else { return false };
        let mut room = [0; names::ROOM];
        let built = build::build(core::iter::once(names::of_descriptor(fd, &mut room)));
        placeholder::close_number(fd);
        built.none_needed
    };
    let source = MappedFile { read: &read, name: names::NAMELESS, build: &build };
    // SAFETY: the mapping was just made, and nothing in it runs yet.
    unsafe { mapped(&source, at, offset as usize) };
}

/// mprotect(2) by `call`.
fn protect(address: usize, length: usize, protection: u32, call: &dyn Fn() -> isize) -> isize {
    if let Some(refused) = own::refused(address, length) {
        return refused;
    }
    if areas::is_empty() || !address.is_multiple_of(PAGE_SIZE) {
        return NOT_OURS;
    }
    let Some(end) = end_of(address, length) else { return NOT_OURS };
    protect_slow(address, end, protection, call)
}

#[cold]
fn protect_slow(address: usize, end: usize, protection: u32, call: &dyn Fn() -> isize) -> isize {
    let mut list = areas::list();
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
    if let Err(errno) = list.reserve() {
        return errno.to_ret();
    }
    let done = call();
    if done == 0 {
        list.split(address, end);
        list.each(address, end, &mut |area| area.protection = protection);
    }
    done
}

#[cold]
fn remap(task: &Task, to: &Move) -> isize {
    let mut list = areas::list();
    match list.find(to.old, to.old + 1).map(|area| *area) {
        Some(area) => ret(remap_area(task, &mut list, &area, to)),
        None => remap_other(task, &mut list, to),
    }
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
    let cut = end_of(to.old, to.new_length).filter(|cut| *cut < to.old_end && to.flags & MREMAP_FIXED == 0);
    if goes_on && cut.is_none() {
        return Errno::EFAULT.to_ret(); // The range to move or grow must be one mapping.
    }
    if let Err(errno) = list.reserve() {
        return errno.to_ret();
    }
    let done = kernel!(__NR_mremap, to.old, to.old_length, to.new_length, to.flags, to.new);
    if !is_error(done) {
        for (start, end) in lands.into_iter().chain(cut.map(|cut| (cut, to.old_end))) {
            list.forget(task, start, end);
        }
    }
    done
}

/// mremap's arguments.
struct Move {
    old: usize,
    /// End of the pages to move; of the one page if `old_length` is 0.
    old_end: usize,
    old_length: usize,
    new_length: usize,
    flags: u32,
    new: usize,
}

fn remap_area(task: &Task, list: &mut LockedAreas, area: &Area, to: &Move) -> Result<usize> {
    let known = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    let fixed = to.flags & MREMAP_FIXED != 0;
    let may_move = to.flags & MREMAP_MAYMOVE != 0;
    if to.flags & !known != 0 || fixed && !may_move || to.new_length == 0 || to.flags & MREMAP_DONTUNMAP != 0
    {
        return Err(Errno::EINVAL);
    }
    let bytes = to.new_length.checked_next_multiple_of(PAGE_SIZE).ok_or(Errno::EINVAL)?;
    let old_bytes = to.old_end - to.old;
    if fixed {
        let end = end_of(to.new, bytes).filter(|_| to.new.is_multiple_of(PAGE_SIZE)).ok_or(Errno::EINVAL)?;
        if to.new < to.old_end && to.old < end {
            return Err(Errno::EINVAL);
        }
    }
    if to.old_end > area.end {
        return Err(Errno::EFAULT);
    }
    list.reserve()?;
    if !fixed && to.old_length != 0 {
        if bytes <= old_bytes {
            if bytes < old_bytes {
                areas::unmap(to.old + bytes, old_bytes - bytes)?;
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
    match areas::reserve(area.end, more, MAP_FIXED_NOREPLACE) {
        Ok(at) if at == area.end => {}
        Ok(at) => {
            let _ = areas::unmap(at, more);
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
    if let Err(errno) = noted.and_then(|()| areas::fill(task, list, &mut tail, content)) {
        let _ = areas::unmap(tail.start, more);
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

/// Maps the file at a new address and then removes the old mapping. Pages of a private mapping that the
/// program has changed are moved. The caller has recorded the new mapping's `bytes`.
fn move_to(task: &Task, list: &mut LockedAreas, area: &Area, to: &Move, bytes: usize) -> Result<usize> {
    let offset = area.offset + (to.old - area.start) as u64;
    let moved = Area { start: 0, end: bytes, beyond: bytes, offset, ..*area };
    let (hint, flags) = if to.flags & MREMAP_FIXED != 0 { (to.new, MAP_FIXED) } else { (0, 0) };
    let start = place(task, list, moved, hint, flags, Content::of(area.protection, 0))?;
    let kept = (to.old_end - to.old).min(bytes);
    if area.sharing == Sharing::Private && to.old_length != 0 && !carry(list, to.old, start, kept) {
        let _ = areas::unmap(start, bytes);
        list.cut_holes(start, start + bytes);
        list.drop_area(start);
        return Err(Errno::ENOMEM);
    }
    if to.old_length != 0 && areas::unmap(to.old, to.old_end - to.old).is_ok() {
        list.forget(task, to.old, to.old_end);
    }
    Ok(start)
}

/// Moves pages one by one, because they may be many mappings. Moves all or none, but for those of holes,
/// which are holes at the new address too.
fn carry(list: &mut LockedAreas, from: usize, to: usize, bytes: usize) -> bool {
    let page = |from, to| {
        !is_error(kernel!(__NR_mremap, from, PAGE_SIZE, PAGE_SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, to))
    };
    let mut at = 0;
    while at < bytes {
        match list.hole_in(from + at, from + bytes) {
            Some((start, end)) if start == from + at => at = end - from,
            _ if page(from + at, to + at) => at += PAGE_SIZE,
            _ => break,
        }
    }
    if at >= bytes {
        return true;
    }
    for at in (0..at).step_by(PAGE_SIZE) {
        if list.hole_in(from + at, from + at + PAGE_SIZE).is_none() {
            page(to + at, from + at);
        }
    }
    false
}

/// Maps other pages of the file at `start`, in `area` and what continues it.
fn other_pages(
    task: &Task,
    list: &mut LockedAreas,
    area: &Area,
    start: usize,
    bytes: usize,
    page: u64,
) -> Result<usize> {
    let end = start.checked_add(bytes).filter(|end| *end > start).ok_or(Errno::EINVAL)?;
    page.checked_add((bytes / PAGE_SIZE) as u64).ok_or(Errno::EINVAL)?;
    let mut last = *area;
    while last.end < end {
        let next = list.find(last.end, last.end + 1).map(|next| *next).ok_or(Errno::EINVAL)?;
        let continues =
            next.of == last.of && next.sharing == last.sharing && next.protection == last.protection;
        last = if continues { next } else { return Err(Errno::EINVAL) };
    }
    if area.sharing == Sharing::Private {
        return Err(Errno::EINVAL);
    }
    let offset = page.checked_mul(PAGE_SIZE as u64).ok_or(Errno::EOVERFLOW)?;
    offset.checked_add(bytes as u64).filter(|end| *end <= i64::MAX as u64).ok_or(Errno::EOVERFLOW)?;
    mapping::grow(task, area.of, bytes)?;
    let other = Area { start: 0, end: bytes, beyond: bytes, offset, ..*area };
    let made = place(task, list, other, start, MAP_FIXED, Content::of(area.protection, 0));
    if made.is_err() {
        mapping::end(task, area.of, bytes);
    }
    made
}
