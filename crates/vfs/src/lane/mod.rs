//! The marks that a thread leaves in its own lane, where others look for them: pins, the mount-writer mark,
//! intents, slots in hand, claims of mounts, and what remains to be freed.
//!
//! Every folder that changes something uses it. It takes no lock: each word has one writer.
#![forbid(unsafe_code)]

pub mod freeze;
pub mod intent;
pub(crate) mod kept;
pub(crate) mod mount_claim;
pub mod pin;
pub(crate) mod taken;
pub(crate) mod writer;
