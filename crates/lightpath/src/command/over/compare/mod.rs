//! A session's tree and the directories of the host below it: what each has, how they differ, and bringing
//! what the session knows of them up to date.

pub(super) mod changes;
pub(super) mod content;
mod glance;
pub(super) mod host;
pub(super) mod looks;
mod renew;
mod revert;
mod settle;
pub(super) mod tree;
