//! Rebuilds what can be derived: directories' arrays, the hash table, links, bitmaps, free lists. It trusts
//! what cannot be derived: inodes with their page maps, as far as they own the pages, and entries, which
//! record their directory, position, name and target. It discards what only live processes have (lanes,
//! tables, open files, locks, mappings), because no process is alive.
//!
//! The records need not be of the same moment. After a power failure each page of the file is as the last
//! fsync left it or as some later change did. The records of an unchanged file are the same in all versions:
//! its inode, the pages of its map, their owners, its content, the entries on the way to it. So nothing else
//! may count against them:
//!
//! - A page belongs to a file if its owner word says so ([`owner`]), whatever other maps seem to name.
//! - An entry counts if its inode is live in the generation that the entry records. A free slot is
//!   recognisable: a free inode has no links, a free entry has no target.
//! - Of two entries with one name, or two of one directory, at least one is of another age, and neither
//!   belongs to an unchanged file: see [`tree`].
//! - Intents and lanes are never read.
//!
//! Passes: [`tree`] reads names, this module file content, [`reset`] empties what is derived, [`link`]
//! rebuilds it.

mod link;
#[allow(unsafe_code, reason = "writes whole slabs")]
mod reset;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use lp_abi::linux::{S_IFLNK, S_IFMT};
use lp_abi::{PAGE_SIZE, PATH_MAX};
use lp_region::layout as at;
use lp_region::records::{COVERED, Inode, inode_flags};
use lp_region::sync::{AtomicU32, Ordering::Relaxed};
use lp_region::{DirentId, InodeId, InodeRef, PageId, Region};
use lp_vfs::blob::BlobKind;
use lp_vfs::map::{self, MAX_HEIGHT};
use lp_vfs::owner;
use lp_vfs::run::PageHome;

use crate::bits::Bits;
use crate::extents::Extents;
use crate::inode::{is_marked_blob, map_of};
use crate::names;
use crate::pages::Walk;
use crate::shared;

/// Longest target of a symbolic link whose page is not counted.
const UNCOUNTED: u64 = 128;

/// A directory of the rebuilt tree.
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

/// The trusted state of a region, gathered before changes make it unreadable.
pub(crate) struct Rebuild {
    region: Region<'static>,
    extents: Extents,
    /// Highest possible inode number.
    last: u32,
    /// The tree: the roots first, then everything below them, then what lost its name and everything below
    /// that.
    directories: Vec<Directory>,
    /// How many of them are roots.
    roots: usize,
    /// The entry that names each directory.
    named: BTreeMap<u32, DirentId>,
    /// Their inodes.
    known: Bits,
    /// For each inode that is not a directory: number of names, and its root.
    files: BTreeMap<u32, (u32, u32)>,
    /// Those that lost their names.
    unnamed: Vec<InodeId>,
    /// Blobs that inodes keep, and common inodes.
    blobs: BTreeSet<u32>,
    /// The common inodes, and the files that have the content of each.
    shared: BTreeMap<u32, Vec<u32>>,
    entries: Bits,
    names: Bits,
    pages: Bits,
    /// Pages of content that no map names, and their places.
    stray: Vec<(PageHome, PageId)>,
    dropped: u64,
}

/// What a rebuild could not keep in its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rebuilt {
    /// Names that led nowhere and are gone.
    pub dropped: u64,
    /// Files and directories that lost their names and are in `lost+found`.
    pub unnamed: u64,
}

impl Rebuild {
    /// Reads the trusted state, repairing what is in the way.
    pub(crate) fn gather(region: Region<'static>) -> Rebuild {
        let extents = Extents::of(region);
        // A user of a damaged region may have touched slots that no inode ever had.
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
            shared: BTreeMap::new(),
            entries: Bits::default(),
            names: Bits::default(),
            pages: Bits::default(),
            stray: Vec::new(),
            dropped: 0,
        };
        all.tree();
        let files: Vec<u32> = all.files.keys().copied().collect();
        for index in files {
            if !all.shared_content(index) {
                all.content(index, None);
            }
            all.attached(index);
        }
        for index in 0..all.directories.len() {
            all.attached(all.directories[index].id.0);
        }
        all.strays();
        all
    }

    /// Collects pages of content that no map names any more, for the files that own them: the map, or a page
    /// of it, may be older than the pages.
    fn strays(&mut self) {
        let pages = self.extents.records(at::OWNER_SLAB);
        let data_pages = self.region.header().data_pages.load(Relaxed);
        for page in pages.filter(|page| *page != 0 && u64::from(*page) <= data_pages) {
            let Some(home) = owner::content_of(self.region, PageId(page)) else { continue };
            let (id, inode) = (home.inode.0, self.region.inode(home.inode));
            let end = inode.size.load(Relaxed).div_ceil(PAGE_SIZE as u64);
            let stays = self.files.contains_key(&id) || self.blobs.contains(&id);
            let is_whole = end <= 1 << owner::INDEX_BITS;
            if stays && is_whole && home.index < end && !self.pages.has(page) {
                self.stray.push((home, PageId(page)));
            }
        }
        // If two claim one place, because the file was truncated meanwhile, either is acceptable.
        self.stray
            .retain(|(home, _)| map::get(self.region, self.region.inode(home.inode), home.index).is_none());
        self.stray.sort_unstable_by_key(|(home, _)| (home.inode.0, home.index));
        self.stray.dedup_by_key(|(home, _)| *home);
        self.stray.iter().for_each(|(_, page)| _ = self.pages.insert(page.0));
    }

    /// Keeps the content that a file has in common with others; false if it has nothing but its own. Nothing
    /// is shared in a region's file, so this is a copy of a region in memory, with all its records of one
    /// moment.
    fn shared_content(&mut self, index: u32) -> bool {
        let inode = self.region.inode(InodeId(index));
        let named = shared::named_by(inode);
        let common = named.id.0;
        let record = self.region.inode(named.id);
        let is_there = named != InodeRef::NONE
            && common <= self.last
            && shared::is_common(self.region, common)
            && record.generation.load(Relaxed) == named.generation
            && (self.shared.contains_key(&common) || !self.blobs.contains(&common));
        if !is_there {
            inode.flags.fetch_and(!inode_flags::MEMBER, Relaxed);
            return false;
        }
        if self.blobs.insert(common) {
            [&record.xattr, &record.acl, &record.default_acl].iter().for_each(|word| word.store(0, Relaxed));
            self.content(common, None);
        }
        self.shared.entry(common).or_default().push(index);
        if inode.flags.load(Relaxed) & inode_flags::BORROWS != 0 {
            inode.flags.fetch_and(!inode_flags::SHARES, Relaxed);
            self.content(index, Some(named.id));
            return true;
        }
        inode.map.store(record.map.load(Relaxed), Relaxed);
        inode.pages.store(record.pages.load(Relaxed), Relaxed);
        inode.size.store(inode.size.load(Relaxed).min(i64::MAX as u64), Relaxed);
        true
    }

    /// Keeps the part of an inode's page map that is valid and belongs to no other inode but the `lender`.
    fn content(&mut self, index: u32, lender: Option<InodeId>) {
        let inode = self.region.inode(InodeId(index));
        let (root, height) = map_of(inode);
        let mut content = 0;
        let mut walk = Walk {
            region: self.region,
            owner: InodeId(index),
            kin: &[],
            lender,
            claimed: &mut self.pages,
            content: &mut |_, _| content += 1,
            fault: &mut |_, _, word| word.store(0, Relaxed),
        };
        let spare = AtomicU32::new(0);
        if root != 0 && height <= MAX_HEIGHT && walk.claim(root, (height, 0), &spare) {
            walk.below(root, height, 0);
        } else {
            inode.map.store(0, Relaxed);
        }
        let kind = inode.mode.load(Relaxed) & S_IFMT;
        let most = if kind == S_IFLNK { PATH_MAX as u64 - 1 } else { i64::MAX as u64 };
        let size = inode.size.load(Relaxed).min(most);
        inode.size.store(size, Relaxed);
        inode.pages.store(if counts_pages(inode) { content as u32 } else { 0 }, Relaxed);
    }

    /// Keeps the blobs of an inode that are valid and belong to no other inode.
    fn attached(&mut self, index: u32) {
        let inode = self.region.inode(InodeId(index));
        for which in [BlobKind::Xattr, BlobKind::Acl, BlobKind::DefaultAcl] {
            let word = which.word(inode);
            // Nothing is mounted on anything when nobody uses the region.
            if which != BlobKind::Acl || inode.flags.load(Relaxed) & inode_flags::HOSTS == 0 {
                word.fetch_and(!COVERED, Relaxed);
            }
            let blob = which.handle(inode);
            if blob == 0 {
                continue;
            }
            let is_named = self.files.contains_key(&blob) || self.known.has(blob);
            let is_blob = blob <= self.last
                && !is_named
                && is_marked_blob(self.region.inode(InodeId(blob)))
                && names::is_blob(self.region, InodeId(blob));
            if is_blob && self.blobs.insert(blob) {
                // A blob has no blobs.
                let own = self.region.inode(InodeId(blob));
                [&own.xattr, &own.acl, &own.default_acl].iter().for_each(|word| word.store(0, Relaxed));
                self.content(blob, None);
            } else {
                word.store(0, Relaxed);
            }
        }
    }
}

/// Whether the pages of an inode that is not a directory are counted.
fn counts_pages(inode: &Inode) -> bool {
    inode.mode.load(Relaxed) & S_IFMT != S_IFLNK || inode.size.load(Relaxed) > UNCOUNTED
}
