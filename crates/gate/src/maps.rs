//! Mappings of files of ours.
use lp_region::ProcessId;
use lp_vfs::task::Task;
pub fn resized(_task: &Task) {}
pub fn before_fork(_task: &Task, _child: ProcessId) {}
pub fn after_fork_parent() {}
pub fn after_fork_child() {}
