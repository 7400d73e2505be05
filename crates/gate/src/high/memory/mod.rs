//! Mappings of files of ours in this process. The list has its own lock, which is taken before every lock of
//! the region.

pub(crate) mod areas;
pub(crate) mod bus;
pub(crate) mod fault;
pub(crate) mod fill;
pub(crate) mod holes;
pub(crate) mod kept;
pub(crate) mod missing;
mod own_fd;
pub(crate) mod pagemap;
pub(crate) mod resize;
mod sorted;
pub(crate) mod written;
