//! Whether a program can be started in a run: where it is, what it loads, and what its caller passes on.

pub(crate) mod caller;
pub(crate) mod coverage;
pub(crate) mod inherited;
pub(crate) mod libraries;
pub(crate) mod lookup;
