//! Words of a process's record that belong to the gate: indices into `Process::gate_words`, each used once.

/// The base of the placeholders' numbers plus one; 0 if there is none yet.
pub(crate) const BASE: usize = 0;
/// The watermark of placeholders.
pub(crate) const WATERMARK: usize = 1;
/// Nonzero once device entries are no longer recorded.
pub(crate) const DISTRUSTED: usize = 2;
/// Nonzero in a child whose table was copied while threads shared it.
pub(crate) const FROM_THREADS: usize = 3;
/// Nonzero during an exec by a thread that has its own credentials.
pub(crate) const STALE: usize = 4;
/// Nonzero once the process, or an ancestor, has used inotify.
pub(crate) const WATCHES: usize = 5;
/// In a limited process, the set of reserved numbers that have a placeholder.
pub(crate) const READY: usize = 6;
/// Index 7: the descriptor of userfaultfd(2) plus one, and whether it is used.
pub(crate) use crate::high::memory::missing::WORD as MISSING;
/// Index 8: the descriptor of /proc/self/pagemap plus one, and whether it is used.
pub(crate) use crate::high::memory::pagemap::WORD as PAGEMAP;

/// Bit of `Run::host_objects`: some inode of the run has an object on the host.
pub(crate) const NODES: u64 = 1;
/// Bit of `Run::host_objects`: there may be shadows.
pub(crate) const SHADOWS: u64 = 2;
/// Bit of `Run::host_objects`: new objects of inodes are created in /tmp.
pub(crate) const NODES_IN_TMP: u64 = 4;
/// Bit of `Run::host_objects`: new objects of inodes are created in /dev/shm.
pub(crate) const NODES_IN_MEMORY: u64 = 8;
