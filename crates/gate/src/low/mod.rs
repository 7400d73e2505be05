//! X.

pub mod arrive;
pub mod cover;
pub mod dispatch;
pub mod exec;
pub mod live;
pub mod object;
pub mod start;
pub mod thread;
pub mod tools;
