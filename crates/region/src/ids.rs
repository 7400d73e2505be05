//! Handles: 32-bit indices into the slabs, one type for each kind. Zero is the null handle.

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
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
