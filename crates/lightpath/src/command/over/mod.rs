//! `run --over` and what comes after it: what a session has changed, showing it, and writing it.

pub(crate) mod apply;
mod archive;
mod ask;
mod compare;
pub(crate) mod diff;
pub(crate) mod discard;
pub(crate) mod export;
mod lower;
mod members;
mod patch;
mod paths;
pub(crate) mod run;
pub(crate) mod sessions;
pub(crate) mod undo;
mod write;
