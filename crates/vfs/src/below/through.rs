//! Reads that pass through: content that a program reads from start to end is read from the layer into the
//! program's memory, and nothing of it is kept. A tree that is searched once would otherwise be copied.
//!
//! An inode says how far its content has passed through (`passed`). A read that goes on there passes
//! through as well, unless it is short and neither the first nor the last. All others take content in
//! (`content.rs`), so what is read a second time is kept from then on, unless the region's space is scarce:
//! then all reads pass through.
//!
//! Nothing is locked. A file is written only once all of its content is there, so while it is pending it has
//! the content of the layer, and a read that passes through takes place at the moment when it finds the file
//! pending. Its origin is compared after the bytes were read, so they are never a mixture. How far content
//! has passed through is a hint: of two readers that store it at once one is forgotten, which costs time
//! only.

use core::mem::offset_of;

use lp_abi::{Errno, Result, UserSlice};
use lp_region::InodeRef;
use lp_region::records::{Inode, SHORT_TARGET};
use lp_region::sync::AtomicU64;
use lp_region::sync::Ordering::Relaxed;

use crate::below::host::HostTree;
use crate::below::{File, Layer, list, may_call, spot};
use crate::caller::below::{Passage, is_pending};
use crate::caller::task::Task;

/// Bytes of the shortest read that passes through, unless it begins at the start of the file, as the look at
/// a header does, or reaches the end: the layer's file is opened for each.
const LEAST: u64 = 8 << 10;

/// How many bytes of a file's content, from its start, have passed through. Behind the words that name the
/// file's record.
fn passed(inode: &Inode) -> &AtomicU64 {
    const AT: usize = offset_of!(Inode, inline) + 8;
    const { assert!(AT.is_multiple_of(8) && 8 + 8 <= SHORT_TARGET) };
    // SAFETY: 8 bytes within `inline`, at a multiple of 8, accessed as one atomic while the inode is a
    // regular file.
    unsafe { &*(&raw const *inode).cast::<u8>().add(AT).cast() }
}

/// Records that nothing has passed through. Nobody else can reach the inode, a regular file, yet.
pub(super) fn begin(inode: &Inode) {
    passed(inode).store(0, Relaxed); // Relaxed: published with the name.
}

/// Reads from an open file whose content is not all there, if the read passes through. Returns the number of
/// bytes, at least one; `None` if content is to be taken in, which after [`Passage::First`] also decides on
/// the error if the program's memory is bad.
///
/// # Errors
/// Those of the layer; `EIO` for a conflict; `EFAULT`.
#[cold]
pub fn read(
    task: &Task<'_>,
    of: InodeRef,
    to: UserSlice,
    offset: u64,
    passage: Passage,
) -> Result<Option<usize>> {
    let inode = task.region.inode(of.id);
    let Some(at) = spot(inode).filter(|_| is_pending(inode)) else { return Ok(None) };
    let seen = list::record(task.region, at)?;
    let left = seen.size.saturating_sub(offset);
    let wanted = left.min(to.len() as u64);
    // Relaxed: a hint.
    let goes_on = passed(inode).load(Relaxed) == offset;
    let is_first = goes_on && (offset == 0 || wanted >= left.min(LEAST));
    if wanted == 0 || passage == Passage::First && !is_first || may_call().is_err() {
        return Ok(None);
    }
    let file = HostTree.file(task, at)?;
    let (memory, mut done) = (to.start().as_ptr(), 0);
    while done < wanted {
        let (to, here) = (memory.wrapping_add(done as usize), (wanted - done) as usize);
        // SAFETY: the program's memory, which the kernel checks.
        match unsafe { file.read(to, here, offset + done) } {
            Err(Errno::EFAULT) if passage == Passage::First => return Ok(None),
            Err(Errno::EFAULT) if done != 0 => break,
            // It may have become shorter, or be no file any more.
            Ok(0) => return file.check(&seen).and(Err(Errno::EIO)),
            Err(errno) => return file.check(&seen).and(Err(errno)),
            Ok(got) => done += got as u64,
        }
    }
    file.check(&seen)?;
    if goes_on {
        passed(inode).store(offset + done, Relaxed); // Relaxed: a hint.
    }
    Ok(Some(done as usize))
}
