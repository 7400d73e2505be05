//! Outlines: what an exec tells the dynamic linker of `lp_sites::linker`.
//!
//! An outline is a memfd with a program's first page and no other content, executed in its place. The kernel
//! lays out the address space from its headers and enters the linker that it names, which maps the program's
//! own pages over the outline's, as the [`Plan`] in the outline's first page says: those of a host file, or
//! those of the region's file that hold a program in a mount.

use crate::PAGE_SIZE;

/// Start of the name of a host program's outline; the program's path follows.
pub const NAME: &[u8] = b"lightpath:";
/// Most pieces of a plan.
pub const PIECES: usize = 64;

/// What to map, followed by the pieces. That with the first page is the last, because it replaces this.
/// Addresses are those of the program's headers.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// [`Plan::MAGIC`].
    pub magic: u64,
    /// Address of the program's first page, which contains this.
    pub first: u64,
    /// Descriptor of the file whose pages are mapped.
    pub fd: u32,
    /// Descriptor to be closed, or [`Plan::NONE`].
    pub close: u32,
    /// Number of pieces.
    pub count: u64,
    /// Address and number of the bytes to clear: behind the data that the file holds.
    pub clear: u64,
    /// See `clear`.
    pub clear_bytes: u64,
}

/// Pages of the program.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Piece {
    /// Where they are mapped.
    pub address: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// `PROT_READ` and the like.
    pub protection: u32,
    /// `MAP_PRIVATE` and the like.
    pub flags: u32,
    /// Where they are in the file.
    pub offset: u64,
}

impl Plan {
    /// First word of a plan.
    pub const MAGIC: u64 = u64::from_le_bytes(*b"LPplan 2");
    /// No descriptor.
    pub const NONE: u32 = u32::MAX;
    /// Offset of the plan in the outline.
    pub const AT: usize = Plan::PIECES_AT - size_of::<Plan>();
    /// Offset of the pieces.
    pub const PIECES_AT: usize = PAGE_SIZE - PIECES * size_of::<Piece>();
}

/// Bytes of a linker's file name.
const LINKER: usize = b"ld-0123456789abcdef.so".len();

/// Set in the number of a linker if programs of the host are executed by outlines: where CPUID is so slow
/// that an outline costs less than the questions. Programs of a mount can have one wherever there is a
/// linker, because it also saves copying them.
pub const FOR_HOST: u64 = 1;

/// The file name of the linker with this number.
pub fn linker_name(number: u64) -> [u8; LINKER] {
    let (mut name, number) = (*b"ld-0123456789abcdef.so", number & !FOR_HOST);
    for (index, digit) in name[3..19].iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (60 - 4 * index)) as usize & 15];
    }
    name
}
