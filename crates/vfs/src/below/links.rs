//! Files of the layer that have several links, and the inode that stands for each.

use lp_abi::Result;
use lp_abi::linux::{S_IFDIR, S_IFMT};
use lp_region::sync::Ordering::{Acquire, Relaxed};
use lp_region::{InodeId, InodeRef};

use crate::below::list::{self, Record};
use crate::caller::task::Task;
use crate::inodes::inode::{self, Locked};

/// The list's name.
const LINKS: &[u8] = b"links";

/// Whether a record's origin may have another name.
pub(crate) fn may_have(seen: &Record) -> bool {
    seen.mode & S_IFMT != S_IFDIR && seen.nlink > 1
}

/// An entry of the list of links.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Link {
    dev: u64,
    ino: u64,
    target: u64,
}

// SAFETY: three words of the same size, without padding.
unsafe impl list::Plain for Link {}

/// The list of links, locked. While a file with several links is taken in, it is held from [`Links::find`] to
/// [`Links::note`], so that directories taken in at the same time share one inode.
pub(crate) struct Links<'r> {
    list: InodeId,
    _locked: Locked<'r>,
}

impl<'r> Links<'r> {
    /// Locks the list.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub(crate) fn lock(task: &Task<'r>) -> Result<Self> {
        let list = list::file(task, LINKS)?;
        Ok(Links { list, _locked: inode::lock(task, list) })
    }

    /// The inode that stands for a file of the layer, if any.
    pub(crate) fn find(&self, task: &Task<'_>, seen: &Record) -> Result<Option<InodeRef>> {
        let region = task.region;
        let size = region.inode(self.list).size.load(Relaxed); // Relaxed: under the lock.
        let mut links = [Link::default(); 64];
        let mut at = 0;
        while at + size_of::<Link>() as u64 <= size {
            let count = links.len().min((size - at) as usize / size_of::<Link>());
            let links = &mut links[..count];
            list::raw(region, self.list, links, at)?;
            for link in links {
                let target = InodeRef::from_word(link.target);
                let lives = region.inode(target.id).generation.load(Acquire) == target.generation;
                if (link.dev, link.ino) == (seen.dev, seen.ino) && lives {
                    return Ok(Some(target));
                }
            }
            at += (count * size_of::<Link>()) as u64;
        }
        Ok(None)
    }

    /// Records the inode that stands for a file that was not found.
    pub(crate) fn note(&self, task: &Task<'_>, seen: &Record, target: InodeRef) -> Result<()> {
        let link = Link { dev: seen.dev, ino: seen.ino, target: target.to_word() };
        list::push(task, self.list, &link)
    }
}
