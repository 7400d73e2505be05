//! X.

pub mod descriptor;
pub mod device;
pub mod directory;
pub mod own_descriptor;
pub mod placeholder;
pub mod rights;
