//! inotify(7): where the shadows of watched inodes are, and how changes of names affect them.
//!
//! Changes of names are reported under the directory's lock, everything else with no inode locked.
//! [`watch::mark_way`] locks one inode at a time.
#![forbid(unsafe_code)]

pub(crate) mod watch;
pub(crate) mod watch_names;
