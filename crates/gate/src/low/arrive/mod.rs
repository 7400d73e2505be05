//! How calls and signals arrive. Thunks jump to [`entry`] and [`entry_quick`]; the kernel jumps to the
//! handler in [`sigaction`]. [`deliver`] ends a call during which a signal arrived.
//! `unwind` tells debuggers where a call came from.
//!
//! Mostly assembly, which names its handlers by symbol.

pub mod deliver;
pub mod entry;
pub mod entry_quick;
pub mod sigaction;
mod unwind;
