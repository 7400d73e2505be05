//! X.

pub mod shadow;
pub mod shadow_end;
pub mod shadow_fd;
pub mod tree;
