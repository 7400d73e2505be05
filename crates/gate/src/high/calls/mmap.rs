//! mmap(2) and munmap(2) on files of ours.

use lp_abi::linux::*;
use lp_abi::{Errno, Fd, PAGE_SIZE, Result};
use lp_region::InodeRef;
use lp_region::mount::mount_flags;
use lp_region::records::file_mode;
use lp_region::sync::Ordering;
use lp_vfs::getcwd::{self, Start};
use lp_vfs::mapping;
use lp_vfs::mounts;
use lp_vfs::task::Task;

use crate::high::fd::descriptor;
use crate::high::frame::content::read_at;
use crate::high::frame::handler::{handlers, kernel, ret};
use crate::high::memory::areas::{self, Area, Sharing};
use crate::high::memory::fill::{self, Content};
use crate::high::memory::kept;
use crate::high::memory::written::{self, After};
use crate::high::run::image;
use crate::high::run::own;
use crate::high::run::own::end_of;
use crate::low::cover::build::{self, Ended, Source};
use crate::low::cover::mapped_code::{MappedFile, mapped};
use crate::low::dispatch::NOT_OURS;
use crate::low::tools::names;

/// Flags that determine a mapping's address, and whether it may be locked; passed on to the kernel.
const PLACE: u32 = MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_32BIT | MAP_LOCKED;

handlers! {
    /// mmap(2).
    fn mmap(task, address: usize, length: usize, protection: u32, flags: usize, fd: Fd, offset: u64) {
        let (given, flags) = (flags, flags as u32);
        if flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) == MAP_FIXED
            && let Some(refused) = own::refused(address, length)
        {
            return refused;
        }
        if flags & MAP_ANONYMOUS != 0 || !descriptor::is_file(task, fd) {
            return mmap_other(task, [address, length, protection as usize, given, fd.word(), offset as usize]);
        }
        let has_unknown = given & !(VALIDATED as usize) != 0;
        let wanted = Wanted { address, length, protection, flags, has_unknown, fd, offset };
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
    /// Whether there are flags that MAP_SHARED_VALIDATE does not accept.
    has_unknown: bool,
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
    written::within(task, &mut list, start, end, After::Goes);
    let done = call();
    if !is_error(done) {
        list.forget(task, start, end);
    }
    done
}

/// Whether `rax` of a call that returns an address is an error.
pub(crate) fn is_error(rax: isize) -> bool {
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
    if kind == MAP_SHARED_VALIDATE && wanted.has_unknown {
        return Err(Errno::EOPNOTSUPP);
    }
    let sharing = match (private, wanted.protection & PROT_WRITE) {
        (true, _) => mapping::MapAccess::Private,
        (false, 0) => mapping::MapAccess::SharedRead,
        (false, _) => mapping::MapAccess::SharedWrite,
    };
    let (writable, may_execute) = {
        let held = task.fget(wanted.fd)?;
        let is_noexec = mounts::has(task, held.mount(), mount_flags::NOEXEC);
        if wanted.protection & PROT_EXEC != 0 && is_noexec {
            return Err(Errno::EPERM);
        }
        (held.file.mode.load(Ordering::Relaxed) & file_mode::WRITE != 0, !is_noexec)
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
        is_written: false,
        is_left_out: false,
        may_execute,
    };
    let content = Content::of(wanted.protection, wanted.flags);
    let made = match wanted.flags & MAP_GROWSDOWN {
        0 => fill::place(task, &mut list, area, wanted.address, wanted.flags & PLACE, content),
        _ => Err(Errno::EINVAL),
    };
    drop(list);
    if wanted.flags & MAP_LOCKED != 0
        && let Ok(start) = made
    {
        kept::asked();
        // mmap(2) does not fail if a page cannot be made present.
        kernel!(__NR_mlock, start, bytes);
    }
    if wanted.flags & (MAP_POPULATE | MAP_NONBLOCK) == MAP_POPULATE
        && private
        && wanted.protection & PROT_WRITE != 0
        && let Ok(start) = made
    {
        // The copies are made at once, as far as the file reaches.
        kernel!(__NR_madvise, start, bytes, MADV_POPULATE_WRITE);
    }
    match made {
        Ok(start) if wanted.protection & PROT_EXEC != 0 => cover(task, of, start, wanted),
        Ok(_) => {}
        Err(_) => mapping::end(task, of, bytes),
    }
    made
}

/// Covers code of ours like code of the host. If its sites are not known, the builder reads the object from a
/// memfd.
#[cold]
fn cover(task: &Task, of: InodeRef, at: usize, wanted: &Wanted) {
    let record = task.region.inode(of.id);
    let mut path = [0; names::ROOM];
    let shown = path_of(task, wanted.fd, &mut path);
    let read = |to: &mut [u8], at: u64| read_at(task, record, to, at).unwrap_or(0);
    let build = || {
        let Ok(copy) = image::copied(task, of, c"lightpath-code") else { return Ended::Itself };
        build::build(core::iter::once(Source::Open(copy.get()))).ended
    };
    let source = MappedFile { read: &read, name: names::NAMELESS, shown, build: &build };
    // SAFETY: the mapping was just made, and nothing in it runs yet.
    unsafe { mapped(&source, at, wanted.length, wanted.offset as usize) };
}

/// The path of an open file of ours, or as much of it as there is room for.
fn path_of<'p>(task: &Task, fd: Fd, room: &'p mut [u8; names::ROOM]) -> &'p [u8] {
    let Ok(held) = task.fget(fd) else { return names::NAMELESS };
    let path = getcwd::of_file(task, held.file, Start::Root).unwrap_or(names::NAMELESS);
    let length = path.len().min(room.len());
    room[..length].copy_from_slice(&path[..length]);
    &room[..length]
}
