//! File content, taken when it is needed: small files whole, large ones in runs.

use core::ops::Range;

use lp_abi::{Errno, PAGE_SIZE, Result};
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, InodeRef};

use crate::below::host::HostTree;
use crate::below::list::{self, Record};
use crate::below::{File, Layer, lock, may_call, spot};
use crate::caller::below::is_pending;
use crate::caller::task::Task;
use crate::calls::truncate;
use crate::content::map::{self, Map};
use crate::content::run::{Content, Fresh, PageHome};
use crate::content::{backing, linking, page};
use crate::life::reclaim;

/// Files up to this size are taken whole.
pub(crate) const SMALL: u64 = 1 << 20;

/// Bytes taken at a time, and compared with their origin before they are shown.
const RUN: u64 = 256 << 10;

/// Fewest bytes for which the layer's file is opened.
const LEAST: u64 = 64 << 10;

/// Bytes of what stat(2) counts as a block.
const BLOCK: u64 = 512;

/// Takes what is missing of `len` bytes at `offset`.
///
/// # Errors
/// Those of [`super::take`].
#[cold]
pub(crate) fn range(task: &Task<'_>, of: InodeRef, offset: u64, len: u64) -> Result<()> {
    match range_once(task, of, offset, len) {
        Err(Errno::ENOSPC) => {
            reclaim::all(task);
            range_once(task, of, offset, len)
        }
        done => done,
    }
}

fn range_once(task: &Task<'_>, of: InodeRef, offset: u64, len: u64) -> Result<()> {
    let id = of.id;
    let inode = task.region.inode(id);
    let _locked = lock(task, of)?;
    if !is_pending(inode) {
        return Ok(());
    }
    let size = inode.size.load(Relaxed); // Relaxed: under the lock.
    let end = offset.saturating_add(len.max(LEAST)).min(size);
    let pages = offset / PAGE_SIZE as u64..end.div_ceil(PAGE_SIZE as u64);
    if !pages.is_empty() {
        let at = spot(inode).ok_or(Errno::EIO)?;
        let seen = list::record(task.region, at)?;
        may_call()?;
        let file = HostTree.file(task, at)?;
        let mut data = if is_sparse(&seen) { 0..0 } else { 0..u64::MAX };
        let mut index = pages.start;
        loop {
            if index >= data.end {
                data = data_from(&file, &seen, index)?;
            }
            index = index.max(data.start);
            if index >= pages.end {
                break;
            }
            let piece = map::piece(task.region, Map::of(inode), index, pages.end.min(data.end) - index);
            let len = piece.len.min(RUN / PAGE_SIZE as u64);
            index +=
                if piece.page.is_some() { piece.len } else { run(task, id, (&file, &seen), (index, len))? };
        }
    }
    if offset == 0 && end == size {
        settle(task, inode);
    }
    Ok(())
}

/// Whether the layer's file has fewer blocks than its size needs, so that it has holes.
fn is_sparse(seen: &Record) -> bool {
    seen.blocks.saturating_mul(BLOCK) < seen.size
}

/// The next pages with data from `index` on. What is before them is a hole in the layer's file and stays one.
fn data_from(file: &impl File, seen: &Record, index: u64) -> Result<Range<u64>> {
    let data = file.data(index * PAGE_SIZE as u64)?;
    file.check(seen)?;
    let pages = |data: Range<u64>| data.start / PAGE_SIZE as u64..data.end.div_ceil(PAGE_SIZE as u64);
    Ok(data.map_or(u64::MAX..u64::MAX, pages))
}

/// Fills a hole of up to `len` pages at `index`. Returns the number filled. The caller must hold the lock.
fn run(
    task: &Task<'_>,
    id: InodeId,
    (file, seen): (&impl File, &Record),
    (index, len): (u64, u64),
) -> Result<u64> {
    let inode = task.region.inode(id);
    linking::prepare(task, id, inode, index, len)?;
    let want = len.min(u64::from(linking::room(inode, index))) as u32;
    let fresh = page::take_run(task, PageHome { inode: id, index }, want)?;
    let done = fill(task, file, seen, &fresh, index);
    if done.is_err() {
        page::give(task);
    }
    done?;
    linking::link(task, inode, index, fresh.run);
    Ok(u64::from(fresh.run.len))
}

fn fill(task: &Task<'_>, file: &impl File, seen: &Record, fresh: &Fresh, index: u64) -> Result<()> {
    let bytes = fresh.run.len as usize * PAGE_SIZE;
    let start = index * PAGE_SIZE as u64;
    let wanted = ((seen.size - start.min(seen.size)) as usize).min(bytes);
    let to = task.region.page(fresh.run.first);
    if fresh.content == Content::Zeros && fresh.run.len > 1 {
        backing::make_ready(task, fresh.run);
    }
    let mut done = 0;
    while done < wanted {
        // SAFETY: the `wanted` bytes from `to` on belong to the run.
        match unsafe { file.read(to.add(done), wanted - done, start + done as u64) } {
            // It may have become shorter.
            Ok(0) => return file.check(seen).and(Err(Errno::EIO)),
            Ok(got) => done += got,
            // It may be no file any more.
            Err(errno) => return file.check(seen).and(Err(errno)),
        }
    }
    if fresh.content == Content::Old {
        // SAFETY: within the run.
        unsafe { to.add(wanted).write_bytes(0, bytes - wanted) };
    }
    file.check(seen)
}

/// Records that all content is there. The caller must hold the lock.
pub(super) fn settle(task: &Task<'_>, inode: &Inode) {
    let pages = map::count(task.region, inode);
    // A reader that saw a hole earlier sees the count change.
    inode.data_seq.begin();
    inode.seq.begin();
    inode.pages.store(pages as u32, Relaxed); // Relaxed: inside the section.
    inode.seq.end();
    // Relaxed: under the lock.
    inode.flags.store(inode.flags.load(Relaxed) & !inode_flags::PENDING, Relaxed);
    inode.data_seq.end();
}

/// Empties a file that is opened with truncation; nothing more is taken. The caller must be a mount writer.
///
/// # Errors
/// `ESTALE`.
#[cold]
pub(crate) fn forgo(task: &Task<'_>, of: InodeRef) -> Result<()> {
    let inode = task.region.inode(of.id);
    let _locked = lock(task, of)?;
    if is_pending(inode) {
        // If this lane dies after this, the file is empty and there is nothing to take.
        inode.pages.store(map::count(task.region, inode) as u32, Relaxed); // Relaxed: under the lock.
        truncate::resize(task, of.id, inode, 0)?;
        settle(task, inode);
    }
    Ok(())
}
