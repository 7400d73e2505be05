//! inotify(7): where the shadows of watched inodes stand, and what changes of names do to them.
//!
//! Changes of names are told under the directory's lock, everything else with no inode locked.
//! [`watch::mark_way`] locks one inode at a time.

pub(crate) mod watch;
pub(crate) mod watch_names;
