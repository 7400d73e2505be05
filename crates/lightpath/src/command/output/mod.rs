//! What the command prints: results, and failures in one line.

pub(crate) mod failure;
pub(crate) mod message;
pub(crate) mod part;
pub(crate) mod print;
pub(crate) mod progress;
pub(crate) mod shown;
