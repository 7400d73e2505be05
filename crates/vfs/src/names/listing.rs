//! Listings: names of a directory of which nothing is known yet but the type and the inode number.
//!
//! While a directory waits for the attributes of its names ([`crate::below`]), getdents(2) shows the names of
//! its subdirectories, which are there, and those of a listing. The listing is in *pieces* of a file, each a
//! [`Piece`] and its names; a piece says where the one before it is. The directory's inode knows the last one
//! ([`mark_of`]). A name has its position in the array of the directory's entries already, behind those of
//! the subdirectories, and gets its entry there, so that a program may list one part before and one after.
//!
//! The mark changes under the directory's lock. Pieces never change.

use core::mem::offset_of;

use lp_abi::linux::{S_IFDIR, S_IFMT};
use lp_abi::{Errno, NAME_MAX, Result};
use lp_region::records::{Inode, SHORT_TARGET, inode_flags};
use lp_region::sync::AtomicU32;
use lp_region::sync::Ordering::{Acquire, Relaxed, Release};
use lp_region::{InodeId, Region};

use crate::content::snapshot;

/// Bytes of a piece at most, with its head.
pub(crate) const ROOM: usize = 1 << 13;

/// Start of a piece.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Piece {
    /// Bytes of its names.
    pub(crate) bytes: u32,
    /// Their number.
    pub(crate) count: u32,
    /// Names in the pieces before it.
    pub(crate) first: u32,
    /// Where the piece before it starts; 0 if it is the first.
    pub(crate) before: u32,
}

/// A name: a head, the name with a NUL, and its length once more, so that both ways lead through a piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed<'a> {
    /// `st_ino`.
    pub(crate) number: u64,
    /// `DT_*`.
    pub(crate) kind: u8,
    /// The name, which a NUL follows.
    pub(crate) name: &'a [u8],
}

/// Bytes before a name: the number, the type and the length.
const BEFORE: usize = 10;
/// Bytes besides a name.
const AROUND: usize = BEFORE + 2;

impl Piece {
    /// Bytes of a head.
    pub(crate) const HEAD: usize = size_of::<Piece>();

    /// The head as it is kept.
    pub(crate) fn to_bytes(self) -> [u8; Piece::HEAD] {
        let mut bytes = [0; Piece::HEAD];
        let words = [self.bytes, self.count, self.first, self.before];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: [u8; Piece::HEAD]) -> Piece {
        let [bytes, count, first, before] = bytes.as_chunks::<4>().0 else { return Piece::default() };
        let word = |bytes: &[u8; 4]| u32::from_ne_bytes(*bytes);
        Piece { bytes: word(bytes), count: word(count), first: word(first), before: word(before) }
    }

    /// Reads the head of the piece at `at` of the file `list`.
    ///
    /// # Errors
    /// `EIO` if there is none, as in a damaged region.
    pub(crate) fn read(region: Region<'_>, list: InodeId, at: u32) -> Result<Piece> {
        let mut bytes = [0; Piece::HEAD];
        whole(region, list, u64::from(at), &mut bytes)?;
        Ok(Piece::from_bytes(bytes))
    }

    /// Copies its names.
    ///
    /// # Errors
    /// As [`Piece::read`].
    pub(crate) fn names<'b>(
        &self,
        region: Region<'_>,
        list: InodeId,
        at: u32,
        room: &'b mut [u8],
    ) -> Result<&'b [u8]> {
        let to = room.get_mut(..self.bytes as usize).ok_or(Errno::EIO)?;
        whole(region, list, u64::from(at) + Piece::HEAD as u64, to)?;
        Ok(to)
    }
}

fn whole(region: Region<'_>, list: InodeId, at: u64, to: &mut [u8]) -> Result<()> {
    match snapshot::into(region, region.inode(list), &mut *to, at) {
        Ok(got) if got == to.len() => Ok(()),
        _ => Err(Errno::EIO),
    }
}

impl<'a> Listed<'a> {
    /// Writes it to `room`, from `at` on. Returns where it ends; `None` if there is no room.
    pub(crate) fn put(&self, room: &mut [u8], at: usize) -> Option<usize> {
        let length = u8::try_from(self.name.len()).ok()?;
        let end = at + AROUND + self.name.len();
        let to = room.get_mut(at..end)?;
        to[..8].copy_from_slice(&self.number.to_ne_bytes());
        (to[8], to[9]) = (self.kind, length);
        to[BEFORE..BEFORE + self.name.len()].copy_from_slice(self.name);
        let last = to.len() - 1;
        (to[last - 1], to[last]) = (0, length);
        Some(end)
    }

    /// The first of some names, and the others.
    pub(crate) fn first(names: &'a [u8]) -> Option<(Listed<'a>, &'a [u8])> {
        let length = usize::from(*names.get(BEFORE - 1)?);
        let (own, rest) = names.split_at_checked(AROUND + length)?;
        Some((Listed::of(own, length)?, rest))
    }

    /// The last of some names, and the others.
    pub(crate) fn last(names: &'a [u8]) -> Option<(Listed<'a>, &'a [u8])> {
        let length = usize::from(*names.last()?);
        let (rest, own) = names.split_at_checked(names.len().checked_sub(AROUND + length)?)?;
        Some((Listed::of(own, length)?, rest))
    }

    fn of(own: &'a [u8], length: usize) -> Option<Listed<'a>> {
        let name = own.get(BEFORE..BEFORE + length)?;
        let number = u64::from_ne_bytes(*own.first_chunk()?);
        Some(Listed { number, kind: own[8], name })
    }
}

/// Where the listing of a directory is, as its inode says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// The file.
    pub(crate) list: InodeId,
    /// Where its last piece starts.
    pub(crate) last: u32,
    /// Entries that the directory has: those of its subdirectories.
    pub(crate) entries: u32,
}

/// The words of an inode that hold a mark, behind those that name the directory's record.
fn words(inode: &Inode) -> &[AtomicU32; 3] {
    const AT: usize = offset_of!(Inode, inline) + 8;
    const { assert!(AT.is_multiple_of(4) && 8 + 12 <= SHORT_TARGET) };
    // SAFETY: 12 bytes within `inline`, at a multiple of 4, accessed as atomics of this size while the inode
    // is not a symbolic link.
    unsafe { &*(&raw const *inode).cast::<u8>().add(AT).cast() }
}

/// The mark of a directory whose names are still to be taken; `None` if it has no listing.
pub(crate) fn mark_of(inode: &Inode) -> Option<Mark> {
    let both = inode_flags::PENDING | inode_flags::ORIGIN;
    let [list, last, entries] = words(inode);
    // Acquire: the rest of the mark. PAIRS: the release store in `set_mark`.
    let at = last.load(Acquire);
    // Relaxed, all: the callers that need more than a hint hold the lock.
    let has = inode.flags.load(Relaxed) & both == both && inode.mode.load(Relaxed) & S_IFMT == S_IFDIR;
    (has && at != 0).then(|| Mark {
        list: InodeId(list.load(Relaxed)),
        last: at,
        entries: entries.load(Relaxed),
    })
}

/// Gives a directory a mark, or takes it away. The caller must hold the lock, or be the only one who knows
/// the inode.
pub(crate) fn set_mark(inode: &Inode, mark: Option<Mark>) {
    let [list, last, entries] = words(inode);
    if let Some(mark) = mark {
        list.store(mark.list.0, Relaxed); // Relaxed, both: published by the store below.
        entries.store(mark.entries, Relaxed);
    }
    // Release: the words above. PAIRS: the acquire load in `mark_of`.
    last.store(mark.map_or(0, |mark| mark.last), Release);
}

impl Mark {
    /// Positions of the directory, those of its entries and of the names that are listed.
    ///
    /// # Errors
    /// As [`Piece::read`].
    pub(crate) fn end(&self, region: Region<'_>) -> Result<u64> {
        let piece = Piece::read(region, self.list, self.last)?;
        Ok(u64::from(self.entries) + u64::from(piece.first) + u64::from(piece.count))
    }

    /// Calls `each` with the positions and names of the listing below `bound`, the highest first, until it
    /// fails. `room` holds a piece.
    ///
    /// # Errors
    /// As [`Piece::read`]; those of `each`.
    pub(crate) fn below(
        &self,
        region: Region<'_>,
        bound: u64,
        room: &mut [u8],
        mut each: impl FnMut(u64, &Listed<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut at = self.last;
        while at != 0 {
            let piece = Piece::read(region, self.list, at)?;
            let first = u64::from(self.entries) + u64::from(piece.first);
            if first < bound {
                let mut names = piece.names(region, self.list, at, room)?;
                let mut position = first + u64::from(piece.count);
                while position > first {
                    let (listed, rest) = Listed::last(names).ok_or(Errno::EIO)?;
                    (position, names) = (position - 1, rest);
                    if position < bound {
                        each(position, &listed)?;
                    }
                }
            }
            // A damaged region may have a circle.
            at = if piece.before < at { piece.before } else { return Err(Errno::EIO) };
        }
        Ok(())
    }
}

const _: () = assert!(AROUND + NAME_MAX + Piece::HEAD < ROOM);
