//! What the gate keeps in the words of a process's record that the region has no name for: indices into
//! `Process::spare`, each once.

/// The number of the placeholders' base plus one; 0 none yet.
pub(crate) const BASE: usize = 0;
/// The watermark of placeholders.
pub(crate) const WATERMARK: usize = 1;
/// Nonzero when no marks of devices are made any more.
pub(crate) const DISTRUSTED: usize = 2;
/// Nonzero in a child whose table was copied while threads shared it.
pub(crate) const FROM_THREADS: usize = 3;
/// Nonzero while an exec is under way of a thread whose credentials are its own.
pub(crate) const STALE: usize = 4;
/// Nonzero once the process, or one that it is a child of, has watched.
pub(crate) const WATCHES: usize = 5;
/// In a limited process, which of the numbers that are kept ready have a placeholder.
pub(crate) const READY: usize = 6;

/// Bit of `Run::spare[0]`: some inode of the run has an object on the host.
pub(crate) const NODES: u64 = 1;
/// The same: there may be shadows.
pub(crate) const SHADOWS: u64 = 2;
