//! Support for mmap(2): the pages of a file as pieces of the region's file, and a record that keeps them in
//! place.
//!
//! The records are in `mapped.rs`. The addresses of mappings are the door's business.

use lp_abi::{Errno, Fd, PAGE_SIZE, Result};
use lp_region::records::{Inode, file_mode, inode_flags};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, InodeRef, MountId, Region, Spot};

use crate::caller::below::{self, Need};
use crate::caller::task::Task;
use crate::content::bare;
use crate::content::linking::{self, Purpose};
use crate::content::map::{self, Map};
use crate::inodes::inode::{self, Touch};
use crate::inodes::reflink;
use crate::life::{mapped, reclaim};

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
/// record, or without pages for a copy of content that it shares.
pub fn begin(task: &Task, fd: Fd, offset: u64, len: usize, sharing: MapAccess) -> Result<InodeRef> {
    let held = task.fget_no_path(fd)?;
    let mode = held.file.mode.load(Relaxed); // Relaxed: immutable.
    let append_only = held.inode.flags.load(Relaxed) & inode_flags::APPEND != 0;
    let may_write = mode & file_mode::WRITE != 0;
    let is_shut = match sharing {
        MapAccess::Private => false,
        // The mapping could become writable.
        MapAccess::SharedRead => may_write && append_only,
        MapAccess::SharedWrite => !may_write || append_only,
    };
    if mode & file_mode::READ == 0 || is_shut {
        return Err(Errno::EACCES);
    }
    if mode & file_mode::REGULAR == 0 || !task.region.has_file() {
        return Err(Errno::ENODEV);
    }
    offset.checked_add(len as u64).filter(|end| *end <= i64::MAX as u64).ok_or(Errno::EOVERFLOW)?;
    let of = held.inode_ref();
    let lock = || reflink::lock_unshared(task, held.spot());
    let locked = lock().or_else(|_| {
        reclaim::all(task);
        lock().map_err(|_| Errno::ENOMEM)
    })?;
    mapped::add(task, held.spot(), mode & (file_mode::READ | file_mode::WRITE), len as u64)?;
    if sharing != MapAccess::Private && may_write {
        let flags = held.inode.flags.load(Relaxed); // Relaxed, here and below: under the inode's lock.
        held.inode.flags.store(flags | inode_flags::WRITABLE_MAP, Relaxed);
    }
    drop(locked);
    // The kernel's shmem_mmap: no bytes are read, so nothing is reported.
    inode::read_by(task, held.file, held.inode, 0);
    Ok(of)
}

/// Records another mapping of `len` bytes of an inode that the process maps already: mremap(2), the halves of
/// a split.
///
/// # Errors
/// `ENOMEM`.
pub fn grow(task: &Task, of: InodeRef, len: usize) -> Result<()> {
    let _locked = inode::lock(task, of.id);
    mapped::add(task, Spot { inode: of, mount: MountId::NONE }, 0, len as u64)
}

/// Records that `len` bytes of an inode are unmapped. The last such call frees the pages behind the file's
/// end, and the inode if it has no links.
pub fn end(task: &Task, of: InodeRef, len: usize) {
    let locked = inode::lock(task, of.id);
    let gone = mapped::subtract(task, of, len as u64);
    if gone {
        mapped::record_gone(task, of);
    }
    drop(locked);
    // Relaxed: a lane that unlinks it from here on looks for mappings itself.
    if gone && task.region.inode(of.id).nlink.load(Relaxed) == 0 {
        reclaim::let_go_slow(task, of);
    }
}

/// The process has written to the file through a mapping: sets the times, as the kernel's file_update_time.
pub fn written(task: &Task, of: InodeRef) {
    let _locked = inode::lock(task, of.id);
    inode::touch(task, task.region.inode(of.id), Touch::Modify);
}

/// Before the times of an inode are read or set: has the process look what it has written through mappings.
#[inline(always)]
pub(crate) fn settle_times(task: &Task, id: InodeId, inode: &Inode) {
    if is_writable(inode) {
        settle_times_slow(task, id);
    }
}

#[cold]
fn settle_times_slow(task: &Task, id: InodeId) {
    (task.sources.mappings)(task, id);
}

/// Whether a process maps the inode and may write to it by that.
#[inline(always)]
pub(crate) fn is_writable(inode: &Inode) -> bool {
    inode.flags.load(Relaxed) & inode_flags::WRITABLE_MAP != 0 // Relaxed: as seen.
}

/// Pages of the shortest hole that content still to be taken leaves.
const LONG: u64 = 1024;
/// Pages at the start of such a hole that are taken all the same: then the process can reach the layer, and
/// a file that has changed there fails now and not when it is touched.
const REACHED: u64 = 16;

/// Calls `visit` with the pieces of the file from `offset` to `offset + len` or to the page of its last byte,
/// whichever comes first. Holes of less than `shortest` pages get pages, and so does content still to be
/// taken, unless 4 MiB or more of it are missing. The process has a record, so the pages stay. Returns the
/// offset where it stopped.
///
/// # Errors
/// `ENOMEM` without free pages; those of [`crate::below::take`] and of `visit`.
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
    let mut index = offset / page;
    let mut is_reached = false;
    // What is missing before it is a hole of the layer's file as well.
    let mut taken = 0;
    // Relaxed: one word.
    let mut end = (offset + len as u64).div_ceil(page).min(inode.size.load(Relaxed).div_ceil(page));
    while index < end {
        let most = if index < taken { end.min(taken) } else { end };
        let piece = piece(task.region, inode, index, most - index);
        if piece.page.is_none() && index >= taken && below::is_pending(inode) {
            let is_long = piece.len >= shortest.max(LONG);
            if !is_long || !is_reached {
                let wanted = if is_long { REACHED } else { piece.len };
                below::take(task, of.id, Need::Range(index * page, wanted * page))?;
                is_reached |= is_long;
                taken = index + wanted;
                continue;
            }
        } else if piece.page.is_none() && piece.len < shortest {
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
pub(crate) fn piece(region: Region, inode: &Inode, index: u64, most: u64) -> map::Extent {
    let map = Map::of(inode);
    let mut piece = map::piece(region, map, index, most);
    while piece.page.is_none() && piece.len < most {
        let next = map::piece(region, map, index + piece.len, most - piece.len);
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
        let before = inode.flags.load(Relaxed); // Relaxed, here and below: under the lock.
        // Before the pages are linked in: who maps them from here on looks.
        inode.flags.store(before | inode_flags::BARE, Relaxed);
        inode.data_seq.begin();
        let filled = linking::fill(task, of.id, inode, wanted, Purpose::Content, &mut made);
        inode.seq.begin();
        linking::more_in_section(inode, made);
        inode.seq.end();
        inode.data_seq.end();
        if bare::touch(task.region, inode, wanted.0, wanted.1) {
            inode.flags.store(before, Relaxed);
        }
        filled.map(|()| last)
    };
    let made = make().or_else(|_| {
        reclaim::all(task);
        make()
    });
    made.map_err(|_| Errno::ENOMEM)
}
