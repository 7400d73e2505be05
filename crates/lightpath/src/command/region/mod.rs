//! A region as its launcher sees it: made or opened, checked, refused.

pub(crate) mod explain;
pub(crate) mod file;
pub(crate) mod make;
pub(crate) mod packed;
pub(crate) mod sound;
pub(crate) mod space;
