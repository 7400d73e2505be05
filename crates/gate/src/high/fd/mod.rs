//! Descriptors: whose a number is ([`descriptor`]), placeholders and their lock ([`placeholder`]), the gate's
//! own ([`own_descriptor`]), devices that are answered ([`device`]), /proc/self/fd ([`directory`]), and
//! descriptors in messages ([`rights`]).

pub mod descriptor;
pub mod device;
pub mod directory;
pub mod own_descriptor;
pub mod placeholder;
pub mod rights;
