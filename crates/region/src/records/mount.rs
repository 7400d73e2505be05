//! [`Mount`] and [`Superblock`]: what is mounted where, and the file systems that were made inside a run.
//!
//! No lock guards them. A lane claims a free record by `maker`, fills it in, and makes it part of the tree by
//! a change that is one event ([`crate::mount_change`]): `state` says whether the rest of a record counts. A
//! lane that dies before leaves a record that is free, one that dies after leaves the rest to others. Walks
//! read without a lock.

use crate::ids::{InodeRef, MountId};
use crate::layout::MOUNTS;
pub use crate::mount_state::{self, State};
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Bytes kept of what a mount was made of, for /proc.
pub const SOURCE: usize = 56;

/// A mount, like `struct mount`: a part of a file system at a place in the tree of a run. 128 bytes.
#[repr(C, align(128))]
pub struct Mount {
    /// [`mount_flags`]: what each writer looks at. Atomic.
    pub flags: AtomicU32,
    /// [`State`]. Atomic.
    pub state: AtomicU32,
    /// The run it belongs to ([`crate::ids::RunId`]). Immutable while the record is in use.
    pub run: AtomicU32,
    /// The mount it stands in ([`MountId`]); none for a mount of the run's command line. This, `point` and
    /// `point_dirent` are a place: the mount's own, unless its state names another record that has it.
    /// Immutable while in use.
    pub parent: AtomicU32,
    /// Its root ([`InodeRef`]), which it keeps alive. Immutable while in use.
    pub root: AtomicU64,
    /// What it covers ([`InodeRef`]). As `parent`.
    pub point: AtomicU64,
    /// The entry that names what it covers; none for a root. As `parent`.
    pub point_dirent: AtomicU32,
    /// Number of the root of the file system that it shows a part of.
    pub superblock: AtomicU32,
    /// [`Groups`], and the turn in which they were changed ([`crate::mount_change`]). Atomic.
    pub groups: AtomicU64,
    /// Grows with each mount of the region. Of several mounts in one place the first is above the others,
    /// which came there by propagation.
    pub serial: AtomicU32,
    /// The lane ([`crate::ids::LaneId`]) that has claimed the record while it is free, to fill it in; 0 none.
    /// That of a dead lane counts for nothing. Atomic.
    pub maker: AtomicU32,
    /// What it was made of, for /proc; zeros behind it. Immutable while in use.
    pub source: [AtomicU8; SOURCE],
    /// Number of the user namespace, of those that processes of the run have entered, in which it was made; 0
    /// none. Immutable while in use.
    pub owner: AtomicU32,
    /// The same for its flags, which a bind mount has from what it shows.
    pub flags_owner: AtomicU32,
}

/// Value of [`Mount::groups`]: peer groups, numbered from 1 to 254; 0 none. Where the last member of a group
/// leaves, its slaves get its own master in the same event, so a master's group always has members.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Groups {
    /// That it sends to and receives from.
    pub peers: u8,
    /// That it receives from.
    pub master: u8,
}

impl Groups {
    /// Of a mount that must not be bound elsewhere (`MNT_UNBINDABLE`). No group is its own master.
    pub const UNBINDABLE: Groups = Groups { peers: u8::MAX, master: u8::MAX };

    /// Whether it sends to others.
    pub fn is_shared(self) -> bool {
        self.peers != 0 && self != Groups::UNBINDABLE
    }

    /// As one word.
    pub const fn to_word(self) -> u16 {
        self.peers as u16 | (self.master as u16) << 8
    }

    /// The reverse of [`Groups::to_word`].
    pub const fn from_word(word: u16) -> Groups {
        Groups { peers: word as u8, master: (word >> 8) as u8 }
    }
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
    /// Asked to go by `MNT_EXPIRE`, and not used since.
    pub const EXPIRING: u32 = 2048;
    /// The region is being copied: a writer waits, or calls it off.
    pub const FREEZING: u32 = 4096;
    /// This bit and those above it: an unmount looks for users ([`crate::mount_leave`]).
    pub const LEAVING: u32 = crate::mount_leave::LEAVING;
    /// What a writer waits for.
    pub const WAITING: u32 = SHUTTING | FREEZING;
    /// What makes a writer look closer.
    pub const CLOSED: u32 = READ_ONLY | SB_READ_ONLY | WAITING;
}

/// A file system that was made inside a run (`mount -t tmpfs`), like `struct super_block`. 128 bytes. Number
/// n has root number n; those below [`crate::layout::COMMAND_ROOTS`] are the header's.
#[repr(C, align(128))]
pub struct Superblock {
    /// Its root ([`InodeRef`]); 0 while the slot is free. Atomic.
    pub root: AtomicU64,
    /// Pages that it may use; 0 as many as there are. Set by mount and remount.
    pub pages: AtomicU64,
    /// Inodes that it may use; 0 as many as there are.
    pub inodes: AtomicU64,
    /// Permissions of its root when it was made, for /proc.
    pub mode: AtomicU32,
    /// Owner, likewise.
    pub uid: AtomicU32,
    /// Group, likewise.
    pub gid: AtomicU32,
    /// [`superblock_flags`]. Atomic.
    pub flags: AtomicU32,
    /// The lane ([`crate::ids::LaneId`]) that makes or destroys it; 0 none. That of a dead lane counts for
    /// nothing. Atomic.
    pub maker: AtomicU32,
    /// Nodes of the memory policy asked for, for /proc: a bit each.
    pub nodes: AtomicU32,
    /// Pages charged so far and, in the high half, the number at which somebody counts again, if there is a
    /// limit. Atomic.
    pub page_allowance: AtomicU64,
    /// Inodes, likewise.
    pub inode_allowance: AtomicU64,
    /// A hash of the region's pages in use when those of this file system were last counted, and of what
    /// came of it: while it stays the same, counting again finds the same. Atomic.
    pub counted_pages: AtomicU64,
}

/// Bits of [`Superblock::flags`].
pub mod superblock_flags {
    /// The last mount of it is gone; what it holds is to be freed.
    pub const DYING: u32 = 1;
    /// It is read-only: what new mounts of it start from.
    pub const READ_ONLY: u32 = 2;
    /// As many inodes as there are were asked for.
    pub const UNLIMITED: u32 = 32;
    /// `MS_SYNCHRONOUS`. This and the next three change nothing in memory; they are shown.
    pub const SYNCHRONOUS: u32 = 64;
    /// `MS_DIRSYNC`.
    pub const DIRSYNC: u32 = 128;
    /// `MS_MANDLOCK`.
    pub const MANDLOCK: u32 = 256;
    /// `MS_LAZYTIME`.
    pub const LAZYTIME: u32 = 512;
    /// It is a ramfs, and not a tmpfs.
    pub const RAMFS: u32 = 1024;
    /// `inode64` was asked for. This and those below are shown only.
    pub const INODE64: u32 = 2048;
    /// `noswap` was asked for.
    pub const NOSWAP: u32 = 4096;
    /// Where the value of `huge=` is.
    pub const HUGE_SHIFT: u32 = 16;
    /// Bits of it.
    pub const HUGE_BITS: u32 = 3;
    /// Where mode and flags of the memory policy are.
    pub const POLICY_SHIFT: u32 = 18;
}

impl crate::records::OpenFile {
    /// The mount that it was opened through.
    #[inline(always)]
    pub fn mount(&self) -> MountId {
        // Relaxed: immutable while open.
        let mode = self.mode.load(Ordering::Relaxed);
        MountId(mode >> crate::records::file_mode::MOUNT_SHIFT)
    }
}

impl Mount {
    /// Its root.
    #[inline]
    pub fn root(&self) -> InodeRef {
        // PAIRS: the release store that makes the mount.
        InodeRef::from_word(self.root.load(Ordering::Acquire))
    }

    /// Its state.
    #[inline]
    pub fn state(&self) -> State {
        // PAIRS: the exchanges in `mount_change`, and that in `pass`.
        State(self.state.load(Ordering::Acquire))
    }

    /// Replaces a state that is no longer in the tree, or of a run that is over: whether it was still `from`.
    pub fn pass(&self, from: State, kind: u32, at: MountId) -> bool {
        let to = from.next(kind, at);
        // PAIRS: the load in `state`.
        self.state.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Its peer groups.
    pub fn groups(&self) -> Groups {
        // PAIRS: the exchange in `mount_change`.
        Groups::from_word(self.groups.load(Ordering::Acquire) as u16)
    }
}

const _: () = {
    assert!(size_of::<Mount>() == 1 << crate::layout::MOUNT_SIZE_BITS);
    assert!(size_of::<Superblock>() == crate::layout::SUPERBLOCK_SIZE);
    assert!(MOUNTS == 256);
};
