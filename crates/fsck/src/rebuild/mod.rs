//! Makes anew what can be derived: directories' arrays, the hash table, links, bitmaps, free lists. What counts as true is
//! what cannot: inodes with their page maps as far as they own the pages, and entries, which know their directory, place,
//! name and target. What only live processes have (lanes, tables, open files, locks, mappings) goes, as nobody lives.
//!
//! The records need not be of one moment. After a loss of power each page of the file is as the last fsync left it or as some
//! later change did. What belongs to a file that did not change meanwhile is the same in all of them: its inode, the pages of
//! its map, their owners, its content, the entries on the way to it. So nothing else may count against it:
//!
//! - A page is a file's if its owner says so ([`Region::page_owner`]), whatever other maps seem to name.
//! - An entry counts if the inode that it names lives in that generation. A free slot says so itself: an inode has no links,
//!   an entry no target.
//! - Of two entries with one name, or two of one directory, at least one is of another age, and neither is an unchanged
//!   file's: see [`tree`].
//! - Intents and lanes are never looked at.
//!
//! Passes: [`tree`] reads names, this file content, [`reset`] empties what is derived, [`link`] makes it anew.

mod link;
mod reset;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use lp_abi::PATH_MAX;
use lp_abi::linux::{S_IFLNK, S_IFMT};
use lp_region::records::Inode;
use lp_region::sync::{AtomicU32, Ordering::Relaxed};
use lp_region::{DirentId, InodeId, Region};
use lp_vfs::blob::Which;
use lp_vfs::map::MAX_HEIGHT;

use crate::bits::Bits;
use crate::extents::Extents;
use crate::names;
use crate::pages::{Walk, map_of};

/// Longest target of a symbolic link whose page is not counted.
const UNCOUNTED: u64 = 128;

/// A directory of the tree to come.
struct Directory {
    id: InodeId,
    /// Its parent; none if it lost its name.
    parent: InodeId,
    /// The entry that names it; none of a root.
    entry: DirentId,
    root: u32,
    /// Its entries, in order.
    entries: Vec<DirentId>,
}

/// What is true of a region, gathered before anything is changed that cannot be seen any more afterwards.
pub(crate) struct Rebuild {
    region: Region<'static>,
    extents: Extents,
    /// Last inode that there can be.
    last: u32,
    /// The tree: the roots first, then what hangs on them, then what lost its name and what hangs on that.
    directories: Vec<Directory>,
    /// How many of them are roots.
    roots: usize,
    /// The entry that names each directory.
    named: BTreeMap<u32, DirentId>,
    /// Which inodes they are.
    known: Bits,
    /// Names of each inode that is no directory, and its root.
    files: BTreeMap<u32, (u32, u32)>,
    /// Those of them that lost their names.
    unnamed: Vec<InodeId>,
    /// Blobs that inodes keep.
    blobs: BTreeSet<u32>,
    entries: Bits,
    names: Bits,
    pages: Bits,
    dropped: u64,
}

/// What a rebuild could not keep where it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rebuilt {
    /// Names that led nowhere and are gone.
    pub dropped: u64,
    /// Files and directories that lost their names and are in `lost+found`.
    pub unnamed: u64,
}

impl Rebuild {
    /// Reads what is true, putting right what stands in the way.
    pub(crate) fn gather(region: Region<'static>) -> Rebuild {
        let extents = Extents::of(region);
        // A use of a damaged region may have touched slots that no inode ever had.
        let limit = region.header().inode_limit.load(Relaxed).min(u64::from(u32::MAX)) as u32;
        let mut all = Rebuild {
            region,
            last: extents.last::<Inode>().min(limit),
            extents,
            directories: Vec::new(),
            roots: 0,
            named: BTreeMap::new(),
            known: Bits::default(),
            files: BTreeMap::new(),
            unnamed: Vec::new(),
            blobs: BTreeSet::new(),
            entries: Bits::default(),
            names: Bits::default(),
            pages: Bits::default(),
            dropped: 0,
        };
        all.tree();
        let files: Vec<u32> = all.files.keys().copied().collect();
        for index in files {
            all.content(index);
            all.attached(index);
        }
        for index in 0..all.directories.len() {
            all.attached(all.directories[index].id.0);
        }
        all
    }

    /// Keeps of an inode's page map what is a map and nobody else's.
    fn content(&mut self, index: u32) {
        let inode = self.region.inode(InodeId(index));
        let (root, height) = map_of(inode);
        let mut content = 0;
        let mut walk = Walk {
            region: self.region,
            owner: index,
            claimed: &mut self.pages,
            content: &mut |_, _| content += 1,
            fault: &mut |_, _, word| word.store(0, Relaxed),
        };
        let spare = AtomicU32::new(0);
        if root != 0 && height <= MAX_HEIGHT && walk.claim(root, &spare) {
            walk.below(root, height, 0);
        } else {
            inode.map.store(0, Relaxed);
        }
        let kind = inode.mode.load(Relaxed) & S_IFMT;
        let most = if kind == S_IFLNK { PATH_MAX as u64 - 1 } else { i64::MAX as u64 };
        let size = inode.size.load(Relaxed).min(most);
        inode.size.store(size, Relaxed);
        let counts = kind != S_IFLNK || size > UNCOUNTED;
        inode.pages.store(if counts { content } else { 0 }, Relaxed);
    }

    /// Keeps the blobs of an inode that are blobs and nobody else's.
    fn attached(&mut self, index: u32) {
        let inode = self.region.inode(InodeId(index));
        for which in [Which::Xattr, Which::Acl, Which::DefaultAcl] {
            let word = which.word(inode);
            let blob = word.load(Relaxed);
            if blob == 0 {
                continue;
            }
            let is_named = self.files.contains_key(&blob) || self.known.has(blob);
            let is_blob = blob <= self.last
                && !is_named
                && names::is_marked_blob(self.region, InodeId(blob))
                && names::is_blob(self.region, InodeId(blob));
            if is_blob && self.blobs.insert(blob) {
                // It has none itself.
                let own = self.region.inode(InodeId(blob));
                [&own.xattr, &own.acl, &own.default_acl].iter().for_each(|word| word.store(0, Relaxed));
                self.content(blob);
            } else {
                word.store(0, Relaxed);
            }
        }
    }

}
