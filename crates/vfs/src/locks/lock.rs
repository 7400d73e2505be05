//! What a lock is: its owner, its bytes, its type, and the record that holds them.

use lp_region::FileId;
use lp_region::records::LockRecord;
use lp_region::sync::{Ordering, futex_wake};

/// Values of [`LockRecord::family`].
pub mod family {
    use lp_region::FileId;

    /// What a record's word says: its family, and the open file that it was requested through.
    pub fn of(word: u32) -> (u32, FileId) {
        (word & 3, FileId(word >> 2))
    }

    /// The word that says so.
    pub(crate) fn word(family: u32, through: FileId) -> u32 {
        family | through.0 << 2
    }

    /// Owned by a process, dropped when it closes any descriptor of the file.
    pub const POSIX: u32 = 0;
    /// Owned by an open file.
    pub const OFD: u32 = 1;
    /// flock(2): owned by an open file, always of one byte past all that record locks reach.
    pub const FLOCK: u32 = 2;
    /// No lock: what [`crate::locks::signal_target`] keeps of an open file.
    pub(crate) const SIGNAL: u32 = 3;
}

/// Last byte of a lock that reaches to the end of the file, whatever its length (`OFFSET_MAX`).
pub(crate) const TO_END: u64 = i64::MAX as u64;

/// Shared or exclusive, like `F_RDLCK` and `F_WRLCK`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockType {
    /// `F_RDLCK`, `LOCK_SH`.
    Shared = 0,
    /// `F_WRLCK`, `LOCK_EX`.
    Exclusive = 1,
}

/// Who owns a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// [`family`].
    pub family: u32,
    /// Process or open file.
    pub id: u32,
    /// Generation of its slot.
    pub generation: u32,
}

/// A byte range of a file, inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// Last byte; `TO_END` for the end of the file.
    pub end: u64,
}

impl ByteRange {
    /// What flock(2) locks: a byte past all that record locks reach. The two families do not meet.
    pub(crate) const FLOCK: ByteRange = ByteRange { start: 1 << 63, end: 1 << 63 };
    /// Every lock's bytes.
    pub(crate) const ALL: ByteRange = ByteRange { start: 0, end: u64::MAX };

    /// Whether it reaches to the end of the file, whatever its length, as that of flock(2) does.
    pub fn reaches_the_end(self) -> bool {
        self.end >= TO_END
    }

    pub(crate) fn meets(self, other: ByteRange) -> bool {
        self.start <= other.end && other.start <= self.end
    }

    /// With the neighbouring bytes.
    pub(crate) fn widened(self) -> ByteRange {
        ByteRange { start: self.start.saturating_sub(1), end: self.end.saturating_add(1) }
    }

    /// Up to both ends of both.
    pub(crate) fn with(self, other: ByteRange) -> ByteRange {
        ByteRange { start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// A lock, requested or held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lock {
    /// Its owner.
    pub owner: Owner,
    /// The bytes that it covers.
    pub range: ByteRange,
    /// Its type.
    pub kind: LockType,
    /// The process that requested it, for `l_pid`.
    pub pid: u32,
    /// The open file that it was requested through, for `/proc/PID/fdinfo`.
    pub through: FileId,
}

/// Decodes a record. The caller must hold the lock of the inode's tree.
pub(crate) fn read(record: &LockRecord) -> Lock {
    // Relaxed throughout: under that lock.
    let (family, through) = family::of(record.family.load(Ordering::Relaxed));
    Lock {
        through,
        owner: Owner {
            family,
            id: record.owner.load(Ordering::Relaxed),
            generation: record.owner_generation.load(Ordering::Relaxed),
        },
        range: ByteRange {
            start: record.start.load(Ordering::Relaxed),
            end: record.end.load(Ordering::Relaxed),
        },
        kind: if record.kind.load(Ordering::Relaxed) == 0 { LockType::Shared } else { LockType::Exclusive },
        pid: record.pid.load(Ordering::Relaxed),
    }
}

/// Wakes the waiters of a lock that has changed. The caller must hold the lock of the inode's tree.
pub(crate) fn wake(record: &LockRecord) {
    // Relaxed: under that lock. Release: a lock changes before its version does.
    record.version.store(record.version.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    if record.waiters.load(Ordering::Relaxed) != 0 {
        record.waiters.store(0, Ordering::Relaxed);
        futex_wake(&record.version, i32::MAX as u32);
    }
}
