//! X.

pub mod above;
pub mod calls;
pub mod fd;
pub mod frame;
pub mod memory;
pub mod route;
pub mod run;
pub mod special;
pub mod table;
pub mod watch;
