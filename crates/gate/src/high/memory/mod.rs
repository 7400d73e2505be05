//! Mappings of files of ours in this process. The list has a lock of its own, which comes before every lock
//! of the region.

pub mod areas;
