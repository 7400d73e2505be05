//! Descriptors: whether a number is ours ([`descriptor`]), placeholders ([`placeholder`]), the gate's own
//! descriptors ([`own_descriptor`]), devices answered here ([`device`]), marks of such descriptors
//! ([`mark`]), /proc/self/fd ([`directory`]), host directories that list mounts ([`parent`]), file systems
//! that the program has made and not mounted yet ([`made`]), contexts that change one of ours ([`picked`]),
//! and descriptors in messages ([`rights`]). [`ruleset`]: what is kept of rulesets of landlock(7).
//! [`fd_info`] answers /proc/self/fdinfo. [`marked_fds`]: the descriptors open on such directories.
//! [`stand_in`]: what the kernel gets in place of a file of ours in calls on sockets and the like.
//! [`soft_limit`]: the limit of numbers.

pub(crate) mod descriptor;
pub(crate) mod device;
pub(crate) mod directory;
pub(crate) mod fd_info;
pub(crate) mod made;
pub(crate) mod mark;
mod marked_fds;
pub(crate) mod own_descriptor;
pub(crate) mod parent;
pub(crate) mod picked;
pub(crate) mod placeholder;
pub(crate) mod rights;
pub(crate) mod ruleset;
pub(crate) mod soft_limit;
pub(crate) mod stand_in;
