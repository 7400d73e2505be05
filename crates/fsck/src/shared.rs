//! Content that files share ([`lp_vfs::membership`]): which inodes have pages in common, and whether the
//! number of files that have content of a common inode is right.

use std::collections::{BTreeMap, BTreeSet};

use lp_abi::linux::{S_IFMT, S_IFREG};
use lp_region::records::{Inode, inode_flags};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, InodeRef, LaneId, Region};
use lp_vfs::membership;

use crate::Check;
use crate::extents::Extents;
use crate::inode::{is_marked_blob, map_of};

/// The pairs of files and common inodes.
#[derive(Default)]
pub(crate) struct Shared {
    /// The others of each inode that is in a pair.
    kin: BTreeMap<u32, BTreeSet<u32>>,
    /// The files that name a common inode, and that inode.
    files: Vec<(u32, InodeRef)>,
    /// Those of both kinds that a lane was changing when it died.
    changing: BTreeSet<u32>,
}

impl Shared {
    /// Reads the pairs, of lanes 1 to `lanes` as well: those which dead lanes were making or parting.
    pub(crate) fn of(region: Region<'_>, extents: &Extents, last: u32, lanes: u32) -> Shared {
        let mut shared = Shared::default();
        for index in extents.slots::<Inode>().take_while(|index| *index <= last) {
            let common = named_by(region.inode(InodeId(index)));
            if common != InodeRef::NONE {
                shared.pair(index, common.id.0);
                shared.files.push((index, common));
            }
        }
        for lane in (1..lanes).map(|index| region.lane(LaneId(index))) {
            for (file, common) in membership::under_way(lane) {
                shared.pair(file.0, common.id.0);
                shared.changing.extend([file.0, common.id.0]);
            }
        }
        shared
    }

    fn pair(&mut self, file: u32, common: u32) {
        self.kin.entry(file).or_default().insert(common);
        self.kin.entry(common).or_default().insert(file);
    }

    /// The inodes that may own pages of this one's map.
    pub(crate) fn kin(&self, index: u32) -> Vec<u32> {
        self.kin.get(&index).into_iter().flatten().copied().collect()
    }

    /// Whether the map of an inode is that of one without a name, a common one or one that a lane has made a
    /// map in: that one counts its pages.
    pub(crate) fn is_lent(&self, region: Region<'_>, index: u32) -> bool {
        let inode = region.inode(InodeId(index));
        let lends = |other: &Inode| is_marked_blob(other) && map_of(other) == map_of(inode);
        !is_marked_blob(inode) && self.kin(index).into_iter().any(|other| lends(region.inode(InodeId(other))))
    }
}

/// The common inode that a file names; none if it shares nothing.
pub(crate) fn named_by(inode: &Inode) -> InodeRef {
    let flags = inode.flags.load(Relaxed);
    let is_member = flags & inode_flags::MEMBER != 0 && flags & inode_flags::BLOB == 0;
    match is_member && inode.mode.load(Relaxed) & S_IFMT == S_IFREG {
        true => InodeRef::from_word(inode.tail.load(Relaxed)),
        false => InodeRef::NONE,
    }
}

/// The inode whose pages may stand in the map of another, which borrows them.
pub(crate) fn lender(region: Region<'_>, index: u32, last: u32) -> Option<InodeId> {
    let inode = region.inode(InodeId(index));
    let borrows = inode.flags.load(Relaxed) & inode_flags::BORROWS != 0;
    let common = InodeRef::from_word(inode.tail.load(Relaxed)).id;
    Some(common).filter(|common| borrows && common.is_some() && common.0 <= last && common.0 != index)
}

/// Whether an inode was made to be a common one.
pub(crate) fn is_common(region: Region<'_>, index: u32) -> bool {
    let both = inode_flags::BLOB | inode_flags::COMMON;
    region.inode(InodeId(index)).flags.load(Relaxed) & both == both
}

impl Check<'_> {
    /// The common inodes: those that files name, and those of steps under way.
    pub(crate) fn common(&mut self) {
        let fresh = self.slabs.inodes.fresh;
        let mut members = BTreeMap::<u32, u64>::new();
        for (index, common) in core::mem::take(&mut self.shared.files) {
            *members.entry(common.id.0).or_default() += 1;
            if !self.slabs.inodes.is_used(index) {
                continue;
            }
            self.named.insert(common.id.0);
            if self.slabs.inodes.hand.has(index) {
                continue;
            }
            let flags = self.region.inode(InodeId(index)).flags.load(Relaxed);
            let has_whole = flags & inode_flags::SHARES != 0;
            if common.id.0 > fresh || !self.lives(common) || !is_common(self.region, common.id.0) {
                self.structure(|| {
                    format!("inode {index} has content of inode {}, which is no common one", common.id.0)
                });
            } else if flags & inode_flags::MEMBER == inode_flags::MEMBER {
                self.structure(|| format!("inode {index} both has the content of another and borrows it"));
            } else if has_whole
                && !self.shared.is_lent(self.region, index)
                && !self.shared.changing.contains(&index)
            {
                self.structure(|| {
                    format!("inode {index} has another map than inode {}, whose content it has", common.id.0)
                });
            }
        }
        // A step whose lane died may be all that still names one.
        for index in self.shared.changing.iter().filter(|index| is_common(self.region, **index)) {
            self.named.insert(*index);
        }
        for (common, counted) in members.into_iter().filter(|(common, _)| *common <= fresh) {
            let said = self.region.members(InodeId(common)).load().value();
            if said != counted && !self.shared.changing.contains(&common) {
                self.inconsistent(|| {
                    format!("{counted} files have content of inode {common}, its count says {said}")
                });
            }
        }
    }
}
