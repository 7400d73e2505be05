//! Site images: how `lp-sites` tells the gate where to patch an object.
//!
//! One file, the *bundle*, contains them all: a header page, a table of [`ObjectRecord`]s keyed by object,
//! and pages to map. An object with sites has *patched pages*, copies of pages of its text in which the
//! instructions before each needed `syscall` are replaced by a jump, and *thunk pages*, the targets of those
//! jumps, at a fixed distance from the object. Attaching means mapping these pages over and beside the
//! object.
//!
//! A thunk does, in this order: the displaced instructions; `lea rsp, [rsp - 128]`; a call through a slot of
//! the [`GatePage`]; `lea rsp, [rsp + 128]`; `jo` to the site's own `syscall` (the gate returns with the
//! overflow flag set for "not ours"); `jmp` to the instruction after it. Where the instructions after the
//! `syscall` are displaced too, `jo` leads to a copy of it at the end of the thunk, and both ways end with
//! them. The four bytes before the copy are the distance from it to the site's. At a site outside of C
//! libraries that makes exit(2) alone, the displaced instructions are followed by a jump through the slot: the
//! Go runtime gives a thread's stack away right before.
//!
//! A function of a C library that only makes a call, at a site that serves many, may start with a jump to a
//! thunk as well. If the function would make the call at once, which a byte of the library's data says, the
//! thunk calls the gate in the same way and returns in the function's place, after setting errno if the
//! call failed. Otherwise, and by the `jo`, it goes on with the function's displaced instructions. The four
//! bytes before these are the distance to one byte before the function's `ret`, which stands where a site
//! would.
//!
//! The builder appends pages and then fills in an entry, its state last, under flock(2) on the bundle.
//! Readers take no lock. Entries and pages are never changed or removed afterwards: a full bundle is replaced
//! by an empty one.

use crate::linux::{
    __NR_fstat, __NR_lseek, __NR_newfstatat, __NR_pread64, __NR_pwrite64, __NR_read, __NR_write,
};

/// Exit status of the builder when it cannot write the bundle and none of its objects needs an image: in a
/// sandbox, or under a filter.
pub const NONE_NEEDED: usize = 3;

/// Exit status of a builder that writes bundles of another version than the run's: the launcher has been
/// replaced since.
pub const OTHER_VERSION: usize = 4;

/// Address at which every process maps its [`GatePage`]: below 2 GiB so that a thunk reaches it by an
/// absolute operand, and above the addresses that a program linked at the usual 0x400000 and its heap are
/// likely to use.
pub const GATE_PAGE: usize = 0x7ffd_0000;

/// Calls with entries of their own, for sites that make only that call.
pub const QUICK_CALLS: [u32; 7] =
    [__NR_read, __NR_write, __NR_fstat, __NR_lseek, __NR_pread64, __NR_pwrite64, __NR_newfstatat];

/// The start of the page at [`GATE_PAGE`], private to the process. The data of a gate that is part of a C
/// library contains the same, for that library's thunks.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct GatePage {
    /// The gate's entry for objects with no live vector registers at their sites (C libraries).
    pub entry: usize,
    /// The entry that saves xmm0-15, for all other objects.
    pub entry_vector: usize,
    /// Base of the current dispatch table.
    pub table: usize,
    /// Entries for sites like those of `entry` that make one call of [`QUICK_CALLS`], in its order.
    pub quick: [usize; QUICK_CALLS.len()],
    /// The same for sites after which no argument register is read: unless the kernel makes the call,
    /// argument registers return clobbered.
    pub quick_scratch: [usize; QUICK_CALLS.len()],
    /// Not used by thunks: in a process that has not used a mount, descriptors from this one on get special
    /// treatment.
    pub hidden: usize,
    /// Called before the C library loads an object for the program: dlopen(3).
    pub before_load: usize,
}

/// What a tracer needs in order to have a process look for it. Follows the [`GatePage`] at [`GATE_PAGE`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TracerDoor {
    /// [`TracerDoor::MAGIC`].
    pub magic: u64,
    /// The value of [`GatePage::table`] that makes the process look.
    pub look: usize,
    /// The value of [`GatePage::quick`] and [`GatePage::quick_scratch`] that leads to that table.
    pub entry: usize,
    /// Address of the other [`GatePage`], which the thunks of a C library that contains the gate use.
    pub slots: usize,
}

impl TracerDoor {
    /// First word, with a version.
    pub const MAGIC: u64 = u64::from_le_bytes(*b"LPdoor 2");
}

/// What a thunk does after its call: `lea rsp, [rsp + 128]`, and the start of `jo`, whose distance to the
/// `syscall` follows.
pub const BACK_TO_SITE: [u8; 10] = [0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0, 0x0f, 0x80];

/// First bytes of a bundle.
pub const MAGIC: [u8; 8] = *b"LPsites\n";
/// Version of the format, of what thunks do, and of what can be patched.
pub const VERSION: u32 = 10;
/// Entries in the table; a power of two.
pub const ENTRIES: usize = 4096;
/// Entries probed for one key before it is considered absent.
pub const PROBES: usize = 32;
/// Ranges of patched pages per object.
pub const RANGES: usize = 16;
/// Offset of the table in the bundle, in bytes.
pub const ENTRIES_AT: usize = 4096;
/// Offset of the pages in the bundle, in bytes.
pub const PAGES_AT: usize = ENTRIES_AT + ENTRIES * size_of::<ObjectRecord>();

/// The bundle's first page.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BundleHeader {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: u32,
    /// [`crate::gated::GATED_SET`].
    pub gated_set: u32,
}

/// States of [`ObjectRecord::state`].
pub mod state {
    /// The entry is free.
    pub const EMPTY: u32 = 0;
    /// The object has no site that needs patching.
    pub const NO_SITES: u32 = 1;
    /// The object is to be patched as the entry says.
    pub const IMAGE: u32 = 2;
    /// The object has a site that needs patching and cannot be patched, or is packed: nothing in it is
    /// patched, and the calls of its process are trapped.
    pub const TRAPPED: u32 = 3;
}

/// What is known about one object. 512 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ObjectRecord {
    /// Key of the object; see [`key_of_build_id`] and [`key_of_bytes`].
    pub key: [u64; 2],
    /// [`state`]. Written last.
    pub state: u32,
    /// Ranges in use.
    pub range_count: u32,
    /// Address of the executable segment, relative to the object's base; checked against the program headers.
    pub text_at: u64,
    /// Length of the executable segment in the file; checked as well.
    pub text_bytes: u64,
    /// Address of the thunk pages relative to the object's base.
    pub thunk_delta: i64,
    /// Their offset in the bundle.
    pub thunk_at: u64,
    /// Their length in bytes, whole pages.
    pub thunk_bytes: u64,
    /// Sites patched.
    pub sites: u32,
    /// Fixups: 32-bit distances between text and thunks, to be corrected when the thunks cannot be placed at
    /// `thunk_delta`.
    pub fixups: u32,
    /// Offset of the [`Fixup`]s in the bundle.
    pub fixups_at: u64,
    /// Patched pages.
    pub ranges: [TextRange; RANGES],
    /// Zero.
    pub spare: [u64; 6],
}

/// Pages of text to replace.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct TextRange {
    /// Address relative to the object's base.
    pub at: u64,
    /// Offset of the patched copy in the bundle.
    pub from: u64,
    /// Length in bytes, whole pages.
    pub bytes: u64,
}

/// A 32-bit little-endian distance that depends on the address of the thunks.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixup {
    /// For a thunk: offset in the thunk pages, with the top bit set. For the text: address relative to the
    /// object's base.
    pub at: u32,
}

impl Fixup {
    /// Set in [`Fixup::at`] for a distance in a thunk, which shrinks by as much as the thunks move up; a
    /// distance in the text grows by it.
    pub const IN_THUNK: u32 = 1 << 31;
}

impl ObjectRecord {
    /// A free entry.
    pub const EMPTY: ObjectRecord = ObjectRecord {
        key: [0; 2],
        state: state::EMPTY,
        range_count: 0,
        text_at: 0,
        text_bytes: 0,
        thunk_delta: 0,
        thunk_at: 0,
        thunk_bytes: 0,
        sites: 0,
        fixups: 0,
        fixups_at: 0,
        ranges: [TextRange { at: 0, from: 0, bytes: 0 }; RANGES],
        spare: [0; 6],
    };
}

/// The key of an object with a build-id.
pub fn key_of_build_id(id: &[u8]) -> [u64; 2] {
    hash(id, 1)
}

/// The key of an object without a build-id, from its first page as mapped and the fields of stat(2) that
/// identify the file.
pub fn key_of_bytes(first_page: &[u8], stat: [u64; 4]) -> [u64; 2] {
    let [a, b] = hash(first_page, 2);
    stat.iter().fold([a, b], |[a, b], word| {
        let a = (a ^ word).wrapping_mul(PRIME_A);
        [a ^ (a >> 29), (b ^ word.rotate_left(32)).wrapping_mul(PRIME_B) ^ (a >> 32)]
    })
}

/// The key of an object that has neither a build-id nor a name, from its first page and its executable
/// segment.
pub fn key_of_content(first_page: &[u8], text: &[u8]) -> [u64; 2] {
    let [a, b] = hash(text, 3);
    key_of_bytes(first_page, [a, b, text.len() as u64, 0])
}

/// The slot where the search for `key` starts.
pub fn first_probe(key: [u64; 2]) -> usize {
    key[0] as usize % ENTRIES
}

const PRIME_A: u64 = 0x9e37_79b9_7f4a_7c15;
const PRIME_B: u64 = 0xc2b2_ae3d_27d4_eb4f;

/// Two 64-bit hashes at once. They distinguish objects but do not resist a forger, who could forge the
/// build-id as well.
fn hash(bytes: &[u8], seed: u64) -> [u64; 2] {
    let mut a = seed.wrapping_mul(PRIME_B) ^ bytes.len() as u64;
    let mut b = seed.wrapping_mul(PRIME_A);
    for chunk in bytes.chunks(8) {
        let mut word = 0;
        for (at, byte) in chunk.iter().enumerate() {
            word |= u64::from(*byte) << (8 * at);
        }
        a = (a ^ word).wrapping_mul(PRIME_A);
        a ^= a >> 29;
        b = (b ^ word.rotate_left(32)).wrapping_mul(PRIME_B);
        b ^= b >> 32;
    }
    // A zero key is never valid.
    [a | 1, b]
}

const _: () = {
    assert!(size_of::<ObjectRecord>() == 512);
    assert!(PAGES_AT.is_multiple_of(4096));
    assert!(size_of::<GatePage>() <= 4096);
};
