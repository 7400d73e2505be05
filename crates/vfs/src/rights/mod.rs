//! Permissions: credentials, permission checks, ACLs, a new inode's attributes, and the privileges that a
//! write removes.
//!
//! Checks read single words as seen and take no lock. Only [`acl::get`] takes the inode's lock. Callers of
//! the functions that change something must hold it.
#![forbid(unsafe_code)]

pub(crate) mod acl;
pub(crate) mod credentials;
pub(crate) mod domain;
pub(crate) mod file_capabilities;
pub(crate) mod initial;
pub mod permission;
pub(crate) mod privileges;
pub(crate) mod protected;
