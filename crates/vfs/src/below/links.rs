//! Files of the layer that have several links: which inode stands for each.
//!
//! A table of chains, by device and inode number; the links of a chain are the records of names in the lists
//! ([`Record::list`] and [`Record::next`] of a record that is no directory's). A record enters at the head of
//! its chain, by one exchange, once what stands for it is complete. Nothing is waited for: of two directories
//! that are taken in at once with a name of one file, the one that comes second finds the other's record, and
//! gives its own inode up. Its names are not seen before it is complete. ABA: a record enters once, and never
//! leaves. Source: insertion into a list-based set, Harris, "A pragmatic implementation of non-blocking
//! linked-lists" (2001), without removal.

use lp_abi::linux::{S_IFDIR, S_IFMT};
use lp_abi::{Errno, PAGE_SIZE, Result};
use lp_region::sync::AtomicU64;
use lp_region::sync::Ordering::{AcqRel, Acquire, Relaxed};
use lp_region::{InodeId, InodeRef, Region};

use crate::below::list::{self, Record, RecordAt};
use crate::caller::task::{Task, Time};
use crate::content::fill;
use crate::inodes::inode;

/// The table's name.
const TABLE: &[u8] = b"linked";
/// Chains; a power of two.
const CHAINS: u64 = 1 << 13;
/// Records of a chain that are looked at: more are a damaged region's.
const LONGEST: u32 = 1 << 24;

/// Whether a record's origin may have another name.
pub(crate) fn may_have(seen: &Record) -> bool {
    seen.mode & S_IFMT != S_IFDIR && seen.nlink > 1
}

/// Makes the table, unless it is there.
///
/// # Errors
/// `ENOSPC`.
pub(crate) fn prepare(task: &Task<'_>) -> Result<()> {
    let file = list::file(task, TABLE)?;
    let _locked = inode::lock(task, file);
    let zeros = [0u8; PAGE_SIZE];
    // Relaxed: under the lock.
    while task.region.inode(file).size.load(Relaxed) < CHAINS * size_of::<u64>() as u64 {
        fill::append_private(task, file, &zeros)?;
    }
    Ok(())
}

/// When the table was made, which is before anything of a layer was seen.
pub(crate) fn laid(region: Region<'_>, table: InodeId) -> Time {
    inode::born(region.inode(table))
}

/// The table.
///
/// # Errors
/// `EIO` if there is none.
pub(crate) fn table(task: &Task<'_>) -> Result<InodeId> {
    list::known(task, TABLE)
}

/// The chain of a file of the layer.
pub(crate) struct Chain<'r> {
    region: Region<'r>,
    head: &'r AtomicU64,
    dev: u64,
    ino: u64,
}

/// What a look at a chain found.
enum Found {
    /// What stands for the file.
    Other(InodeRef),
    /// The record itself.
    Own,
    /// Nothing.
    Nothing,
}

impl<'r> Chain<'r> {
    /// The chain of a file of the layer, by device and number.
    ///
    /// # Errors
    /// `EIO` if the table is damaged.
    pub(crate) fn of(region: Region<'r>, table: InodeId, (dev, ino): (u64, u64)) -> Result<Self> {
        // Fibonacci hashing.
        let key = (ino ^ dev.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = key >> (u64::BITS - CHAINS.trailing_zeros());
        let head = list::address(region, table, place * size_of::<u64>() as u64).ok_or(Errno::EIO)?;
        // SAFETY: 8 bytes at a multiple of 8 of a page; the table is never freed.
        Ok(Chain { region, head: unsafe { &*head.cast() }, dev, ino })
    }

    /// The inode that stands for the file, if one does.
    ///
    /// # Errors
    /// As [`list::record`].
    pub(crate) fn find(&self) -> Result<Option<InodeRef>> {
        // PAIRS: the exchange in `enter`.
        match self.look(self.head.load(Acquire), None)? {
            Found::Other(target) => Ok(Some(target)),
            _ => Ok(None),
        }
    }

    /// Says that `target` stands for the file of the record at `at`, whose [`Record::target`] it is, unless
    /// another does: that one.
    ///
    /// # Errors
    /// As [`list::record`].
    pub(crate) fn enter(&self, at: RecordAt, target: InodeRef) -> Result<InodeRef> {
        loop {
            // PAIRS: the exchange below.
            let first = self.head.load(Acquire);
            match self.look(first, Some(at))? {
                Found::Other(other) => return Ok(other),
                Found::Own => return Ok(target),
                Found::Nothing => {}
            }
            list::set_next(self.region, at, from_word(first));
            // PAIRS: the acquire loads of the head: the record, and what stands for it.
            if self.head.compare_exchange(first, to_word(at), AcqRel, Relaxed).is_ok() {
                return Ok(target);
            }
        }
    }

    /// Calls `each` with the records of the file's names that the layer still has.
    ///
    /// # Errors
    /// As [`list::record`]; `EIO` for a damaged chain.
    pub(super) fn each(&self, mut each: impl FnMut(RecordAt, &Record)) -> Result<()> {
        // PAIRS: the exchange in `enter`.
        let mut next = self.head.load(Acquire);
        for _ in 0..LONGEST {
            if next == 0 {
                return Ok(());
            }
            let at = from_word(next);
            let seen = list::record(self.region, at)?;
            if (seen.dev, seen.ino) == (self.dev, self.ino) && !seen.is_gone() {
                each(at, &seen);
            }
            next = to_word(RecordAt { list: InodeId(seen.list), offset: seen.next });
        }
        Err(Errno::EIO)
    }

    fn look(&self, first: u64, own: Option<RecordAt>) -> Result<Found> {
        let mut next = first;
        for _ in 0..LONGEST {
            if next == 0 {
                return Ok(Found::Nothing);
            }
            let at = from_word(next);
            // Power may have failed before the list was written, and after the table was.
            let Ok(seen) = list::record(self.region, at) else { return Ok(Found::Nothing) };
            let target = seen.target();
            // Acquire: the generation grows before the slot is used again. A record that is being renewed has
            // no target.
            let lives = seen.target != 0
                && self.region.inode(target.id).generation.load(Acquire) == target.generation;
            if own == Some(at) {
                return Ok(Found::Own);
            }
            if (seen.dev, seen.ino) == (self.dev, self.ino) && lives {
                return Ok(Found::Other(target));
            }
            next = to_word(RecordAt { list: InodeId(seen.list), offset: seen.next });
        }
        Err(Errno::EIO)
    }
}

fn to_word(at: RecordAt) -> u64 {
    u64::from(at.list.0) << 32 | u64::from(at.offset)
}

fn from_word(word: u64) -> RecordAt {
    RecordAt { list: InodeId((word >> 32) as u32), offset: word as u32 }
}
