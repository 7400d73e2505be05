//! [`Mount`] and [`Superblock`]: what is mounted where, and the file systems that were made inside a run.
//!
//! All changes are made under [`crate::records::Header::mount_lock`]. One store decides whether a mount is
//! made or taken out: `state` says whether the rest of a record counts, so a death between two stores leaves
//! a record that is free, or one that is whole. A move stores `parent`, `point` and `point_dirent`: a death
//! in between leaves a mount that no path leads to. Walks read without a lock.

use crate::ids::InodeRef;
use crate::sync::{AtomicU8, AtomicU32, AtomicU64};

/// Bytes kept of what a mount was made of, for /proc.
pub const SOURCE: usize = 56;

/// A mount, like `struct mount`: a part of a file system at a place in the tree of a run. 128 bytes.
#[repr(C, align(128))]
pub struct Mount {
    /// [`mount_flags`]: what each writer looks at. Atomic; changed under the lock, but a writer calls a
    /// shutting off.
    pub flags: AtomicU32,
    /// [`mount_state`]. Atomic.
    pub state: AtomicU32,
    /// The run it belongs to ([`crate::ids::RunId`]). Immutable while the record is in use.
    pub run: AtomicU32,
    /// The mount it stands in ([`crate::ids::MountId`]); none for a mount of the run's command line. Tree.
    pub parent: AtomicU32,
    /// Its root ([`InodeRef`]), which it keeps alive. Immutable while in use.
    pub root: AtomicU64,
    /// What it covers ([`InodeRef`]). Changes as `parent`.
    pub point: AtomicU64,
    /// The entry that names what it covers; none for a root.
    pub point_dirent: AtomicU32,
    /// Number of the root of the file system that it shows a part of.
    pub superblock: AtomicU32,
    /// Peer group that it sends to and receives from; 0 none. Atomic.
    pub peers: AtomicU32,
    /// Peer group that it receives from; 0 none. Atomic.
    pub master: AtomicU32,
    /// Grows with each mount of the region: later ones are above earlier ones.
    pub serial: AtomicU32,
    /// Spare.
    pub spare: AtomicU32,
    /// What it was made of, for /proc; zeros behind it. Immutable while in use.
    pub source: [AtomicU8; SOURCE],
}

/// Values of [`Mount::state`].
pub mod mount_state {
    /// Nobody's record.
    pub const FREE: u32 = 0;
    /// Part of its run's tree.
    pub const ATTACHED: u32 = 1;
    /// Taken out of the tree (umount2(2), `MNT_DETACH`); open files and working directories may be in it.
    pub const DETACHED: u32 = 2;
    /// Being filled in by the holder of the lock, who may have died.
    pub const NEW: u32 = 3;
}

/// Bits of [`Mount::flags`].
pub mod mount_flags {
    /// `MNT_READONLY`.
    pub const READ_ONLY: u32 = 1;
    /// `MNT_NOSUID`.
    pub const NOSUID: u32 = 2;
    /// `MNT_NODEV`.
    pub const NODEV: u32 = 4;
    /// `MNT_NOEXEC`.
    pub const NOEXEC: u32 = 8;
    /// `MNT_NOATIME`.
    pub const NOATIME: u32 = 16;
    /// `MNT_NODIRATIME`.
    pub const NODIRATIME: u32 = 32;
    /// `MNT_RELATIME`.
    pub const RELATIME: u32 = 64;
    /// `MNT_NOSYMFOLLOW`.
    pub const NOSYMFOLLOW: u32 = 128;
    /// What mount(2) may change of a mount alone.
    pub const OWN: u32 = 0xff;
    /// The whole file system is read-only.
    pub const SB_READ_ONLY: u32 = 256;
    /// It is about to become read-only: a writer waits, or calls it off.
    pub const SHUTTING: u32 = 512;
    /// `MNT_UNBINDABLE`.
    pub const UNBINDABLE: u32 = 1024;
    /// Asked to go by `MNT_EXPIRE`, and not used since.
    pub const EXPIRING: u32 = 2048;
    /// What makes a writer look closer.
    pub const CLOSED: u32 = READ_ONLY | SB_READ_ONLY | SHUTTING;
}

/// A file system that was made inside a run (`mount -t tmpfs`), like `struct super_block`. 64 bytes. Number n
/// has root number n; those below [`crate::layout::COMMAND_ROOTS`] are the header's.
#[repr(C, align(64))]
pub struct Superblock {
    /// Its root ([`InodeRef`]); 0 while the slot is free. Atomic.
    pub root: AtomicU64,
    /// Pages that it may use; 0 as many as there are. Set by mount and remount.
    pub pages: AtomicU64,
    /// Inodes that it may use; 0 as many as there are.
    pub inodes: AtomicU64,
    /// Permissions asked for, for /proc.
    pub mode: AtomicU32,
    /// Owner asked for.
    pub uid: AtomicU32,
    /// Group asked for.
    pub gid: AtomicU32,
    /// [`superblock_flags`]. Under the lock.
    pub flags: AtomicU32,
    /// Spare.
    pub spare: [AtomicU64; 3],
}

/// Bits of [`Superblock::flags`].
pub mod superblock_flags {
    /// The last mount of it is gone; what it holds is to be freed.
    pub const DYING: u32 = 1;
    /// It is read-only: what new mounts of it start from.
    pub const READ_ONLY: u32 = 2;
    /// A mode was asked for.
    pub const MODE: u32 = 4;
    /// An owner was asked for.
    pub const UID: u32 = 8;
    /// A group was asked for.
    pub const GID: u32 = 16;
}

impl crate::records::OpenFile {
    /// The mount that it was opened through.
    #[inline(always)]
    pub fn mount(&self) -> crate::ids::MountId {
        // Relaxed: immutable while open.
        let mode = self.mode.load(crate::sync::Ordering::Relaxed);
        crate::ids::MountId(mode >> crate::records::file_mode::MOUNT_SHIFT)
    }
}

impl Mount {
    /// Its root.
    #[inline]
    pub fn root(&self) -> InodeRef {
        // PAIRS: the release store that makes the mount.
        InodeRef::from_word(self.root.load(crate::sync::Ordering::Acquire))
    }
}

const _: () = {
    assert!(size_of::<Mount>() == 1 << crate::layout::MOUNT_SIZE_BITS && size_of::<Superblock>() == 64);
};
