//! How full a region is.

use lp_abi::PAGE_SIZE;
use lp_region::Region;
use lp_region::sync::Ordering::Relaxed;

/// Bytes in use, and their limit.
pub(crate) fn space(region: Region<'_>) -> (u64, u64) {
    let pages = region.header().data_pages.load(Relaxed); // Relaxed: immutable.
    let used = pages.saturating_sub(lp_vfs::page::free_count(region));
    (used * PAGE_SIZE as u64, pages * PAGE_SIZE as u64)
}
