//! What every handler uses: decoded arguments, paths and their buffers, results as `rax`.

pub(crate) mod at;
pub(crate) mod content;
pub(crate) mod handler;
pub(crate) mod message;
pub(crate) mod room;
pub(crate) mod timeout;
