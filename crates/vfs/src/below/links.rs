//! Files of the layer that have several links: what stands for each.

use lp_abi::Result;
use lp_abi::linux::{S_IFDIR, S_IFMT};
use lp_region::InodeRef;
use lp_region::sync::Ordering::Acquire;

use crate::below::list::{self, Record};
use crate::caller::task::Task;
use crate::content::fill;
use crate::inodes::inode;

/// The list's name.
const LINKS: &[u8] = b"links";

/// Whether what a record is of may be known by another name.
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

/// The inode that stands for a file of the layer that has several links, if one does.
pub(crate) fn find(task: &Task<'_>, seen: &Record) -> Result<Option<InodeRef>> {
    let list = list::file(task, LINKS)?;
    let region = task.region;
    let size = region.inode(list).size.load(Acquire);
    let mut links = [Link::default(); 64];
    let mut at = 0;
    while at < size {
        let room = core::mem::size_of_val(&links).min((size - at) as usize);
        list::raw(region, list, links.as_mut_ptr().cast(), room, at)?;
        for link in &links[..room / size_of::<Link>()] {
            let target = InodeRef::from_word(link.target);
            let lives = region.inode(target.id).generation.load(Acquire) == target.generation;
            if (link.dev, link.ino) == (seen.dev, seen.ino) && lives {
                return Ok(Some(target));
            }
        }
        at += room as u64;
    }
    Ok(None)
}

/// Notes what stands for a file of the layer that has several links.
pub(crate) fn note(task: &Task<'_>, seen: &Record, target: InodeRef) -> Result<()> {
    if !may_have(seen) || find(task, seen)?.is_some() {
        return Ok(());
    }
    let list = list::file(task, LINKS)?;
    let _locked = inode::lock(task, list);
    let link = Link { dev: seen.dev, ino: seen.ino, target: target.to_word() };
    fill::append_private(task, list, (&raw const link).cast(), size_of::<Link>())
}
