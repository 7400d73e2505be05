//! What a thread notes in its own lane, where others look for it: pins, the mount-writer mark, intents, slots
//! in hand and what is left to be freed.
//!
//! Used by every folder that changes something. It takes no lock: each word has one writer.

pub mod intent;
pub(crate) mod kept;
pub mod pin;
pub(crate) mod taken;
pub(crate) mod writer;
