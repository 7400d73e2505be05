//! Support for mmap(2): the pages of a file as pieces of the region's file, and a record that keeps them in
//! place.
//!
//! A process has one record for each inode that it maps. While one exists, the inode is not freed; and while
//! the inode has [`inode_flags::MAPPED`], truncation zeroes its pages instead of freeing them. The last
//! record's removal clears the flag. The addresses of mappings are the door's business.
//!
//! A process changes the list of its own records only. Others read the slab instead: a list that they follow
//! may lead into another one by a record that was freed meanwhile.

use lp_abi::linux::O_NOATIME;
use lp_abi::{Errno, Fd, PAGE_SIZE, Result};
use lp_region::layout::MAPPINGS;
use lp_region::process::Process;
use lp_region::records::{Inode, Mapping, file_mode, inode_flags};
use lp_region::sync::Ordering::{Acquire, Relaxed, Release};
use lp_region::{InodeRef, MappingId, MountId, ProcessId, Spot};

use crate::caller::below::{self, Need};
use crate::caller::task::Task;
use crate::content::cut;
use crate::content::map::{self, Map, Purpose};
use crate::descriptors::table;
use crate::inodes::inode;
use crate::life::reclaim;

/// The access of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapAccess {
    /// `MAP_PRIVATE`.
    Private,
    /// `MAP_SHARED` without `PROT_WRITE`.
    SharedRead,
    /// `MAP_SHARED` with `PROT_WRITE`.
    SharedWrite,
}

/// Consecutive pages of a file that are also consecutive in the region, or a hole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Offset in the file.
    pub offset: u64,
    /// Offset in the region's file; none for a hole.
    pub region: Option<usize>,
    /// Bytes, whole pages.
    pub bytes: usize,
}

/// Records that the process is about to map `len` bytes of `fd` from `offset`; [`end`] undoes it.
///
/// # Errors
/// Those of mmap(2): `EBADF`, `EACCES`, `ENODEV` if it is not a regular file, `EOVERFLOW`; `ENOMEM` without a
/// record.
pub fn begin(task: &Task, fd: Fd, offset: u64, len: usize, sharing: MapAccess) -> Result<InodeRef> {
    let held = task.fget_no_path(fd)?;
    let mode = held.file.mode.load(Relaxed); // Relaxed: immutable.
    let append_only = held.inode.flags.load(Relaxed) & inode_flags::APPEND != 0;
    let may_write = mode & file_mode::WRITE != 0 && !append_only;
    if mode & file_mode::READ == 0 || sharing == MapAccess::SharedWrite && !may_write {
        return Err(Errno::EACCES);
    }
    if mode & file_mode::REGULAR == 0 || !task.region.has_file() {
        return Err(Errno::ENODEV);
    }
    offset.checked_add(len as u64).filter(|end| *end <= i64::MAX as u64).ok_or(Errno::EOVERFLOW)?;
    let of = held.inode_ref();
    let locked = inode::lock(task, of.id);
    add(task, held.spot(), mode & (file_mode::READ | file_mode::WRITE), len as u64)?;
    let flags = held.inode.flags.load(Relaxed); // Relaxed: under the lock.
    held.inode.flags.store(flags | inode_flags::MAPPED, Relaxed);
    drop(locked);
    // The kernel's shmem_mmap: no bytes are read, so nothing is reported.
    if held.file.flags.load(Relaxed) & O_NOATIME == 0 {
        inode::accessed(task, held.inode, 0, || held.mount());
    }
    Ok(of)
}

/// Records another mapping of `len` bytes of an inode that the process maps already: mremap(2), the halves of
/// a split.
///
/// # Errors
/// `ENOMEM`.
pub fn grow(task: &Task, of: InodeRef, len: usize) -> Result<()> {
    let _locked = inode::lock(task, of.id);
    add(task, Spot { inode: of, mount: MountId::NONE }, 0, len as u64)
}

/// Records that `len` bytes of an inode are unmapped. The last such call frees the pages behind the file's
/// end, and the inode if it has no links.
pub fn end(task: &Task, of: InodeRef, len: usize) {
    let locked = inode::lock(task, of.id);
    let gone = subtract(task, of, len as u64);
    if gone {
        record_gone(task, of);
    }
    drop(locked);
    // Relaxed: a lane that unlinks it from here on looks for mappings itself.
    if gone && task.region.inode(of.id).nlink.load(Relaxed) == 0 {
        reclaim::let_go_slow(task, of);
    }
}

/// A process's record of an inode is gone. If it was the last, truncation may free pages again, and the pages
/// that were kept are freed. The caller must hold the inode's lock.
pub(crate) fn record_gone(task: &Task, of: InodeRef) {
    if cut::is_mapped(task, of) {
        return;
    }
    let inode = task.region.inode(of.id);
    let flags = inode.flags.load(Relaxed); // Relaxed: under the lock.
    inode.flags.store(flags & !inode_flags::MAPPED, Relaxed);
    let size = inode.size.load(Relaxed); // Relaxed: under the lock.
    inode.data_seq.begin();
    inode.seq.begin();
    map::less_in_section(inode, cut::behind(task, of.id, inode, size));
    inode.seq.end();
    cut::cut(task, of.id, inode, size);
    inode.data_seq.end();
}

/// Calls `visit` with the pieces of the file from `offset` to `offset + len` or to the page of its last byte,
/// whichever comes first. Holes of less than `shortest` pages get pages. The process has a record, so the
/// pages stay. Returns the offset where it stopped.
///
/// # Errors
/// `ENOMEM` without free pages; those of `visit`.
pub fn pieces(
    task: &Task,
    of: InodeRef,
    offset: u64,
    len: usize,
    shortest: u64,
    visit: &mut dyn FnMut(Piece) -> Result<()>,
) -> Result<u64> {
    let page = PAGE_SIZE as u64;
    let inode = task.region.inode(of.id);
    if below::is_pending(inode) {
        below::take(task, of.id, Need::Range(offset / page * page, len as u64 + page))?;
    }
    let mut index = offset / page;
    // Relaxed: one word.
    let mut end = (offset + len as u64).div_ceil(page).min(inode.size.load(Relaxed).div_ceil(page));
    while index < end {
        let piece = piece(task, inode, index, end - index);
        if piece.page.is_none() && piece.len < shortest {
            end = end.min(fill(task, of, inode, index, (index + piece.len) * page)?);
            continue;
        }
        let region = task.region.page_offset(piece.page).filter(|_| piece.page.is_some());
        visit(Piece { offset: index * page, region, bytes: piece.len as usize * PAGE_SIZE })?;
        index += piece.len;
    }
    Ok(index.min(end) * page)
}

/// The piece that starts at `index`: all of a hole.
fn piece(task: &Task, inode: &Inode, index: u64, most: u64) -> map::Extent {
    let map = Map::of(inode);
    let mut piece = map::piece(task.region, map, index, most);
    while piece.page.is_none() && piece.len < most {
        let next = map::piece(task.region, map, index + piece.len, most - piece.len);
        if next.page.is_some() {
            break;
        }
        piece.len += next.len;
    }
    piece
}

/// Allocates the pages from `index` to byte `end` or to the file's end. Returns the index after its last
/// page.
fn fill(task: &Task, of: InodeRef, inode: &Inode, index: u64, end: u64) -> Result<u64> {
    let make = || {
        let _locked = inode::lock(task, of.id);
        let last = inode.size.load(Relaxed).div_ceil(PAGE_SIZE as u64); // Relaxed: under the lock.
        let wanted = (index, last.min(end.div_ceil(PAGE_SIZE as u64)));
        let mut made = 0;
        inode.data_seq.begin();
        let filled = map::fill(task, of.id, inode, wanted, Purpose::Content, &mut made);
        inode.seq.begin();
        map::more_in_section(inode, made);
        inode.seq.end();
        inode.data_seq.end();
        filled.map(|()| last)
    };
    let made = make().or_else(|_| {
        reclaim::all(task);
        make()
    });
    made.map_err(|_| Errno::ENOMEM)
}

/// Gives a child that is about to be forked copies of the parent's records. If threads share the table, the
/// caller must hold its lock.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn inherit(task: &Task, child: ProcessId) -> Result<()> {
    let record = task.region.process(child);
    for (_, mapping) in list(task, task.process) {
        let of = InodeRef::from_word(mapping.inode.load(Relaxed)); // Relaxed: the process's own.
        let of = Spot { inode: of, mount: MountId(mapping.mount.load(Relaxed)) };
        let (modes, bytes) = (mapping.modes.load(Relaxed), mapping.bytes.load(Relaxed));
        add_locked(task, (record, child), of, modes, bytes)?;
    }
    Ok(())
}

/// The records of a process. Bounded, in case the list is damaged.
fn list<'r>(
    task: &Task<'r>,
    process: &'r Process,
) -> impl Iterator<Item = (MappingId, &'r Mapping)> + use<'r> {
    let region = task.region;
    let first = MappingId(process.mappings.load(Acquire));
    core::iter::successors(Some(first), move |id| Some(MappingId(region.mapping(*id).link.load(Acquire))))
        .take_while(|id| id.is_some())
        .take(MAPPINGS)
        .map(move |id| (id, region.mapping(id)))
}

/// Whether the list of a process, which does not change it meanwhile, has a record.
pub(crate) fn lists<'r>(task: &Task<'r>, process: &'r Process, id: MappingId) -> bool {
    list(task, process).any(|(listed, _)| listed == id)
}

fn add(task: &Task, of: Spot, modes: u32, bytes: u64) -> Result<()> {
    let _locked = table::lock(task);
    add_locked(task, (task.process, task.process_id), of, modes, bytes)
}

fn add_locked(
    task: &Task,
    (process, process_id): (&Process, ProcessId),
    of: Spot,
    modes: u32,
    bytes: u64,
) -> Result<()> {
    let region = task.region;
    let first = MappingId(process.mappings.load(Acquire));
    let word = of.inode.to_word();
    let mut at = first;
    while at.is_some() {
        let record = region.mapping(at);
        if record.inode.load(Relaxed) == word {
            record.bytes.store(record.bytes.load(Relaxed) + bytes, Relaxed); // Relaxed: the process's own.
            if of.mount.is_some() {
                record.mount.store(of.mount.0, Relaxed);
            }
            record.modes.store(record.modes.load(Relaxed) | modes, Release);
            return Ok(());
        }
        at = MappingId(record.link.load(Relaxed));
    }
    let id = region.take::<Mapping>(task.lane).map_err(|_| Errno::ENOMEM)?;
    let record = region.mapping(id);
    // Relaxed: published by the store that links it in.
    record.bytes.store(bytes, Relaxed);
    record.process.store(process_id.0, Relaxed);
    record.mount.store(of.mount.0, Relaxed);
    record.modes.store(modes, Relaxed);
    record.link.store(first.0, Relaxed);
    record.inode.store(word, Release); // PAIRS: the acquire in `Region::mappings`.
    process.mappings.store(id.0, Release);
    region.settle::<Mapping>(task.lane);
    Ok(())
}

/// Subtracts bytes from the process's record. Returns whether none are left and the record is gone.
fn subtract(task: &Task, of: InodeRef, bytes: u64) -> bool {
    let _locked = table::lock(task);
    let mut before = MappingId::NONE;
    let mut gone = false;
    for (id, record) in list(task, task.process) {
        if record.inode.load(Relaxed) == of.to_word() {
            let left = record.bytes.load(Relaxed).saturating_sub(bytes); // Relaxed: the process's own.
            record.bytes.store(left, Relaxed);
            gone = left == 0;
            break;
        }
        before = id;
    }
    if gone {
        unlink(task, before);
    }
    gone
}

/// Unlinks the record after `before`, or the first, from the process's list.
fn unlink(task: &Task, before: MappingId) {
    let region = task.region;
    let slot = if before.is_none() { &task.process.mappings } else { &region.mapping(before).link };
    let id = MappingId(slot.load(Relaxed)); // Relaxed: the process's own.
    let record = region.mapping(id);
    // The lane names the record until it is freed.
    task.lane.taken[<Mapping as lp_region::slab::Slot>::SLAB].store(id.0, Release);
    slot.store(record.link.load(Relaxed), Release);
    record.inode.store(0, Release);
    region.give::<Mapping>(task.lane, id);
    region.settle::<Mapping>(task.lane);
}

/// The mount through which the process maps an inode; none if it does not map it.
pub(crate) fn mount_of(task: &Task, of: InodeRef) -> MountId {
    let _locked = table::lock(task);
    let mapped = list(task, task.process)
        .find(|(_, record)| record.inode.load(Relaxed) == of.to_word()) // Relaxed: the process's own.
        .map(|(_, record)| record.mount.load(Relaxed));
    mapped.map_or(MountId::NONE, MountId)
}

/// Whether the process maps an inode without links.
pub(crate) fn keeps_unlinked(task: &Task) -> bool {
    list(task, task.process).any(|(_, record)| {
        let of = InodeRef::from_word(record.inode.load(Relaxed)); // Relaxed: the process's own.
        of != InodeRef::NONE && task.region.inode(of.id).nlink.load(Relaxed) == 0
    })
}
