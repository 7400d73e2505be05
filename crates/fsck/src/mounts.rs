//! Mounts and the file systems that mount(2) made: what they name lives.

use lp_region::layout::{COMMAND_ROOTS, SUPERBLOCKS};
use lp_region::mount::mount_state;
use lp_region::sync::Ordering::Relaxed;
use lp_region::{InodeId, InodeRef, Region};

use crate::Check;

/// The roots of all file systems.
pub(crate) fn roots(region: Region<'_>) -> Vec<u32> {
    let named = region.header().roots.iter().map(|root| root.load(Relaxed));
    let made = (COMMAND_ROOTS as u32..SUPERBLOCKS as u32)
        .map(|root| InodeRef::from_word(region.superblock(root).root.load(Relaxed)).id.0);
    named.chain(made).filter(|root| *root != 0).collect()
}

impl Check<'_> {
    /// Roots of file systems are directories, and roots of mounts are kept.
    pub(crate) fn mounts(&mut self) {
        let region = self.region;
        let last = self.extents.last::<lp_region::records::Inode>();
        for root in COMMAND_ROOTS as u32..SUPERBLOCKS as u32 {
            let id = InodeRef::from_word(region.superblock(root).root.load(Relaxed)).id.0;
            if id != 0 && (id > last || !region.inode(InodeId(id)).is_dir()) {
                self.structure(|| {
                    format!("file system {root} has inode {id} as its root, which is no directory")
                });
            }
        }
        for id in region.mounts() {
            let record = region.mount(id);
            if matches!(record.state().kind(), mount_state::FREE | mount_state::PLACE) {
                continue;
            }
            let root = record.root().id.0;
            if root > last {
                self.structure(|| format!("mount {} shows inode {root}, past the last", id.0));
            } else {
                self.reach(root);
            }
        }
    }
}
