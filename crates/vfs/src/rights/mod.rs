//! Permissions: credentials, permission checks, ACLs, a new inode's attributes, and the privileges that a
//! write removes.
//!
//! Checks and [`acl::get`] read single words as seen and take no lock. Callers of the functions that change
//! something must hold the inode's.
#![forbid(unsafe_code)]

pub(crate) mod acl;
pub(crate) mod credentials;
pub(crate) mod domain;
pub(crate) mod file_capabilities;
pub(crate) mod initial;
pub mod permission;
pub(crate) mod privileges;
pub(crate) mod protected;
