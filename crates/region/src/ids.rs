//! Handles: 32-bit indices into the slabs, one type for each kind. Zero is the null handle.

use crate::layout::{INODE_BITS, LANE_BITS, MOUNT_BITS, MOUNT_SIZE_BITS};

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The null handle.
            pub const NONE: $name = $name(0);

            /// Whether this is the null handle.
            #[inline]
            pub const fn is_none(self) -> bool {
                self.0 == 0
            }

            /// Whether it names a slot.
            #[inline]
            pub const fn is_some(self) -> bool {
                self.0 != 0
            }

            /// Its index, as a `usize`.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}

ids! {
    /// An inode.
    InodeId
    /// A directory entry.
    DirentId
    /// An open file description, like `struct file`.
    FileId
    /// A process slot.
    ProcessId
    /// A thread's lane, with its generation when it was claimed, so that a lock's owner word is never
    /// mistaken for the lane's next owner.
    LaneId
    /// A page of data: page n is at `DATA_AT + n * PAGE_SIZE`. Page 0 is never handed out.
    PageId
    /// A long name.
    NameId
    /// An overflow hash bucket.
    OverflowId
    /// A lock record.
    LockId
    /// A mapping record.
    MappingId
    /// A run record.
    RunId
    /// A mount.
    MountId
}

/// An inode and the generation of its slot when it was named. A reference that may outlive the inode holds
/// one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InodeRef {
    /// The slot.
    pub id: InodeId,
    /// The slot's generation.
    pub generation: u32,
}

impl InodeRef {
    /// The null reference.
    pub const NONE: InodeRef = InodeRef { id: InodeId::NONE, generation: 0 };

    /// Packs it into one word, so that it can be read and replaced atomically.
    #[inline]
    pub const fn to_word(self) -> u64 {
        self.id.0 as u64 | (self.generation as u64) << 32
    }

    /// The inverse of [`InodeRef::to_word`].
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        InodeRef { id: InodeId(word as u32), generation: (word >> 32) as u32 }
    }
}

impl LaneId {
    /// The lane's number, without the generation.
    #[inline(always)]
    pub const fn number(self) -> u32 {
        self.0 & ((1 << LANE_BITS) - 1)
    }
}

impl MountId {
    /// What a lane is marked with that writes through this mount: where the record lies among the others.
    #[inline(always)]
    pub const fn mark(self) -> u32 {
        self.0 << MOUNT_SIZE_BITS
    }

    /// The reverse of [`MountId::mark`].
    pub const fn of_mark(mark: u32) -> Self {
        MountId(mark >> MOUNT_SIZE_BITS)
    }
}

/// Where a path leads, like `struct path`: an inode and the mount that it was reached through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    /// The inode.
    pub inode: InodeRef,
    /// The mount.
    pub mount: MountId,
}

/// Bits of a word that [`Spot::to_word`] gives which are the inode's number.
const INODE_MASK: u64 = (1 << INODE_BITS) - 1;

impl Spot {
    /// Nowhere.
    pub const NONE: Spot = Spot { inode: InodeRef::NONE, mount: MountId::NONE };

    /// Packs it into one word, so that it is read and replaced at once. 0 is nowhere.
    #[inline]
    pub const fn to_word(self) -> u64 {
        self.inode.to_word() | (self.mount.0 as u64) << INODE_BITS
    }

    /// The reverse of [`Spot::to_word`].
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        let mount = MountId((word as u32) >> INODE_BITS);
        Spot { inode: InodeRef::from_word(word & (INODE_MASK | u64::MAX << 32)), mount }
    }
}

const _: () = assert!(INODE_BITS + MOUNT_BITS <= 32);
