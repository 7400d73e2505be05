//! Who may do what: credentials, permission checks, ACLs, what a new inode starts with and what a write takes
//! away.
//!
//! Checks read single words as seen and take no lock. Only [`acl::get`] takes the inode's lock; the other
//! functions that change something expect their caller to hold it.

pub(crate) mod acl;
pub(crate) mod credentials;
pub(crate) mod initial;
pub mod permission;
pub(crate) mod privileges;
