//! How calls and signals arrive. Thunks jump to [`entry`] and [`entry_quick`]; the kernel jumps to the
//! handler in [`sigaction`]. [`deliver`] ends a call during which a signal arrived.
//! `unwind` tells debuggers where a call came from.
//!
//! Mostly assembly, which names its handlers by symbol.

pub(crate) mod deliver;
pub(crate) mod entry;
pub(crate) mod entry_quick;
pub(crate) mod sigaction;
mod unwind;
