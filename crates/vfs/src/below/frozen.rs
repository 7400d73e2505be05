//! A frozen region as a layer: the content of regular files, taken in at the first open.
//!
//! A branch begins as a copy of a frozen region without that content and without the map pages that lead to
//! it. Such a file is `PENDING` and has no `ORIGIN`. Its map, if it has map pages, is not in `Inode::map` yet
//! but in the words that name a record otherwise. The pages are allocated, and what they hold is read to the
//! same places that it has in the frozen region's file.
//!
//! All content of a file is read at once: pages that are linked in cannot be told from pages that were read.
//! Nobody has the file open until then, so nobody reads or writes pages meanwhile, and reading them again
//! after a death does no harm. A file that loses a name needs its map, so that its pages can be freed.
//!
//! The frozen region's file is reached by its path, like the files of a host tree. Its record is a list of
//! its own, named after the branch's identity: the frozen region may have been a branch itself.

use lp_abi::linux::{__NR_madvise, MADV_POPULATE_WRITE};
use lp_abi::text::Writer;
use lp_abi::{Errno, OwnedFd, PAGE_SIZE, Result};
use lp_region::records::{Inode, inode_flags};
use lp_region::slab::Slot;
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, InodeRef, PageId};

use crate::below::host::HostTree;
use crate::below::list::{self, Record, RecordAt, State};
use crate::below::{File, Layer, content, lock, may_call, spot, words};
use crate::caller::below::{complete, is_pending, lacks_map};
use crate::caller::task::Task;
use crate::content::map::{self, Map};

/// Most pages that are read at a time.
const RUN: u64 = 256;

/// Length of a record's name: a prefix and the identity in hexadecimal.
const NAME: usize = 7 + 16;

fn write_name<'n>(task: &Task<'_>, room: &'n mut [u8; NAME + 1]) -> &'n [u8] {
    let identity = task.region.header().identity.load(Relaxed); // Relaxed: immutable.
    let mut text = Writer::new(room);
    text.push(b"frozen-");
    for shift in (0..16).rev() {
        text.push(&[b"0123456789abcdef"[(identity >> (4 * shift)) as usize & 15]]);
    }
    let _ = text.finish(); // The room is for the whole name.
    &room[..NAME]
}

/// Records that content and maps of pending files are in the region file at `path`, which `seen` describes.
/// Nobody else may use the region yet.
///
/// # Errors
/// `ENOSPC`.
pub fn lay(task: &Task<'_>, path: &[u8], seen: &Record) -> Result<()> {
    let mut room = [0; NAME + 1];
    let file = list::file(task, write_name(task, &mut room))?;
    let (list, _) = list::begin_file(task, file, RecordAt { list: InodeId::NONE, offset: 0 })?;
    list::append(task, list, seen, path)?;
    list::finish(task, list, State::Complete, 1);
    Ok(())
}

/// Whether a branch may leave the content of an inode out, as its words say. A map with map pages goes with
/// it: root page and height into the first words of `Inode::inline`.
pub const fn may_wait(mode: u32, flags: u32, root: u32) -> bool {
    let others = inode_flags::BLOB | inode_flags::ORIGIN | inode_flags::PENDING | inode_flags::MEMBER;
    mode & inode_flags::KIND == lp_abi::linux::S_IFREG && flags & others == 0 && root != list::ROOT
}

/// The map of a pending file.
fn kept(inode: &Inode) -> Map {
    match Map::of(inode) {
        map if map.parts().0.is_some() => map,
        _ => {
            let [root, height] = words(inode);
            Map::from_parts(root.load(Relaxed), height.load(Relaxed)) // Relaxed: immutable.
        }
    }
}

/// The frozen region's file, and what it was.
fn open(task: &Task<'_>) -> Result<(OwnedFd, Record)> {
    may_call()?;
    let mut room = [0; NAME + 1];
    let list = list::known(task, write_name(task, &mut room))?;
    let at = RecordAt { list, offset: list::FIRST };
    let seen = list::record(task.region, at)?;
    let file = HostTree.file(task, at)?;
    file.check(&seen)?;
    Ok((file, seen))
}

/// Takes the map of a file in.
///
/// # Errors
/// As [`super::take`].
#[cold]
pub(super) fn map(task: &Task<'_>, of: InodeRef) -> Result<()> {
    let inode = task.region.inode(of.id);
    let _locked = lock(task, of)?;
    if !lacks_map(inode) {
        return Ok(());
    }
    let (file, seen) = open(task)?;
    let map = kept(inode);
    read_map(task, &file, map)?;
    file.check(&seen)?;
    map.store(inode);
    Ok(())
}

/// Takes all content of a file in.
///
/// # Errors
/// As [`super::take`].
#[cold]
pub(super) fn whole(task: &Task<'_>, of: InodeRef) -> Result<()> {
    let inode = task.region.inode(of.id);
    let _locked = lock(task, of)?;
    if !is_pending(inode) {
        return Ok(());
    }
    let (file, seen) = open(task)?;
    let map = kept(inode);
    read_map(task, &file, map)?;
    let mut index = 0;
    while index < map.span() {
        let piece = map::piece(task.region, map, index, (map.span() - index).min(RUN));
        if piece.page.is_some() {
            read(task, &file, piece.page, piece.len as usize)?;
        }
        index += piece.len;
    }
    file.check(&seen)?;
    map.store(inode);
    content::settle(task, inode);
    Ok(())
}

/// Reads the map pages of a map.
fn read_map(task: &Task<'_>, file: &impl File, map: Map) -> Result<()> {
    match map.parts() {
        (root, height) if root.is_some() => read_map_page(task, file, root, height),
        _ => Ok(()),
    }
}

/// Reads a map page and those below it. Recursion depth: the height.
fn read_map_page(task: &Task<'_>, file: &impl File, page: PageId, height: u32) -> Result<()> {
    if height == 0 {
        return Ok(());
    }
    read(task, file, page, 1)?;
    if height == 1 {
        return Ok(());
    }
    for word in task.region.page_words(page) {
        let child = PageId(word.load(Relaxed)); // Relaxed: under the inode's lock.
        if child.is_some() {
            read_map_page(task, file, child, height - 1)?;
        }
    }
    Ok(())
}

/// Reads consecutive pages from their places in the frozen region's file.
fn read(task: &Task<'_>, file: &impl File, first: PageId, pages: usize) -> Result<()> {
    let (to, bytes) = (task.region.page(first), pages * PAGE_SIZE);
    let at = task.region.page_offset(first).ok_or(Errno::EIO)? as u64;
    if pages > 1 {
        // A failure shows when the pages are touched. SAFETY: pages of the file, whose lock is held.
        let _ = unsafe { lp_abi::syscall!(__NR_madvise, to, bytes, MADV_POPULATE_WRITE) };
    }
    let mut done = 0;
    while done < bytes {
        // SAFETY: the pages are consecutive, and the file's alone.
        match unsafe { file.read(to.add(done), bytes - done, at + done as u64) }? {
            0 => return Err(Errno::EIO),
            got => done += got,
        }
    }
    Ok(())
}

/// Takes in everything that files still have in a frozen region, so that this one can be frozen itself.
///
/// # Errors
/// As [`super::take`].
pub fn all(task: &Task<'_>) -> Result<()> {
    // A file that is made later has nothing to be taken.
    let last = task.region.header().slabs[Inode::SLAB].last();
    for id in (1..=last).map(InodeId) {
        let inode = task.region.inode(id);
        if is_pending(inode) && spot(inode).is_none() {
            match complete(task, inode) {
                // It has been removed since.
                Err(Errno::ESTALE) => {}
                done => done?,
            }
        }
    }
    Ok(())
}
