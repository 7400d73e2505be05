//! What every handler uses: decoded arguments, paths and their buffers, results as `rax`.

pub mod at;
pub mod content;
pub mod handler;
pub mod message;
