//! Mending.
use lp_region::Region;
/// Mends.
pub fn repair(_region: Region<'static>) {}
