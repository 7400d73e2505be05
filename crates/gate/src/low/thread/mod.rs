//! X.

pub mod home;
pub mod record;
pub mod settings;
pub mod tls;
