//! Sessions: what is kept of what runs have changed over directories.

pub(crate) mod kept;
pub(crate) mod lock;
pub(crate) mod name;
pub(crate) mod open;
pub(crate) mod remove;
pub(crate) mod trees;
pub(crate) mod which;
