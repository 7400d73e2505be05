//! Writing a session's changes to its directories, so that it can be done again, and undone.

pub(super) mod check;
pub(super) mod limit;
pub(super) mod put;
pub(super) mod reverse;
mod steps;
pub(super) mod times;
pub(super) mod writer;
