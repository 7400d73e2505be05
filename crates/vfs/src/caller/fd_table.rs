//! The descriptor table of a process, like `struct files_struct`: which numbers are ours and what they name.
//!
//! An entry is one word. A process with one thread reads it with one load and may use what it names until its
//! next call, because nobody else removes entries. While several threads share the table, readers pin what an
//! entry names (`descriptors::fget`), and writers exchange words or have the table alone
//! (`descriptors::table_lock`).

use lp_abi::{Errno, Fd, Result};
use lp_region::layout::{FDS, FDS_APART, FDS_BACKED, FarFds, fd_place};
use lp_region::process::ProcessSlot;
use lp_region::sync::{AtomicU64, Ordering};
use lp_region::{FileId, ProcessId, Region, marks};

/// Bits of a table entry; 0 is a descriptor that is not ours. Bits 0-31 are the [`FileId`].
pub mod entry {
    use lp_abi::Fd;
    use lp_region::FileId;

    /// It names an open file.
    pub const OPEN: u64 = 1 << 32;
    /// The whole word: the kernel's descriptor is the gate's, and an open or a close of the number is under
    /// way. The program sees it as closed. Not a file's number: those are below `layout::FILES`.
    pub const TRANSIT: u64 = 1 << 30;
    /// Close on exec.
    pub const CLOEXEC: u64 = 1 << 33;
    /// A kernel placeholder kept for the next open; the program sees it as closed.
    pub const PARKED: u64 = 1 << 34;
    /// With [`OPEN`]: data is ours too. Without, the kernel's descriptor is a real one (a FIFO, a socket)
    /// that backs an inode of ours, and only attributes are ours.
    pub const DATA: u64 = 1 << 35;
    /// For [`naming`]: without [`DATA`].
    pub const HOST: u64 = DATA;
    /// Without [`OPEN`]: a host device whose reads return zeros.
    pub const ZEROS: u64 = 1 << 36;
    /// Without [`OPEN`]: a host device whose reads return nothing.
    pub const EMPTY: u64 = 1 << 37;
    /// Without [`OPEN`]: a host device that accepts any write.
    pub const DISCARDS: u64 = 1 << 38;
    /// Without [`OPEN`]: may be a file of /proc that the gate writes. Not a file's number either.
    pub const INFO: u64 = 1 << 31;
    /// With [`PARKED`]: the gate's own descriptor of a shadow; see [`shadow`].
    pub const SHADOW: u64 = 1 << 39;
    /// An entry that names an open file. `flags` is [`CLOEXEC`], [`HOST`], both or 0.
    #[inline(always)]
    pub fn naming(file: FileId, flags: u64) -> u64 {
        (OPEN | DATA) ^ flags | u64::from(file.0)
    }

    /// Position of the shadow's descriptor number plus one.
    const SHADOW_SHIFT: u32 = 40;

    /// The door's descriptor, if any, that keeps the shadow open (`crate::watches::watch`). The kernel
    /// reports to watchers when it is closed, even by a death.
    pub fn shadow(word: u64) -> Option<Fd> {
        (word >> SHADOW_SHIFT).checked_sub(1).map(|fd| Fd::new(fd as i32))
    }

    /// The entry without what records it.
    pub const fn without_shadow(word: u64) -> u64 {
        word & !(u64::MAX << SHADOW_SHIFT)
    }

    /// The bits of an entry that record it.
    pub const fn with_shadow(fd: Fd) -> u64 {
        (fd.raw() as u64 + 1) << SHADOW_SHIFT
    }
}

/// Bits of `Process::posix_locks`: why a close has extra work.
pub mod closing {
    /// The process may hold POSIX locks.
    pub const LOCKS: u32 = 1;
    /// Some entry names a shadow, or did.
    pub const SHADOWS: u32 = 2;
}

/// The owner of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whose {
    /// The kernel.
    NotOurs,
    /// An open file of ours.
    Ours,
    /// Attributes are ours, data is the kernel's.
    Host,
}

/// The table of a process.
#[derive(Clone, Copy)]
pub struct FdTable<'r> {
    slot: &'r ProcessSlot,
    /// The entries that are not in the slot. See [`fd_place`].
    far: &'r FarFds,
}

impl<'r> FdTable<'r> {
    /// The table of any process.
    pub fn of(region: Region<'r>, process: ProcessId) -> FdTable<'r> {
        FdTable { slot: region.process_slot(process), far: region.far_fds(process) }
    }

    /// Where the table begins: the entry of descriptor 0.
    #[inline(always)]
    pub fn start(&self) -> *const AtomicU64 {
        self.slot.fds.as_ptr().cast()
    }

    /// The entry of a number below [`FDS`], whether or not it has memory; greater numbers wrap around.
    #[inline(always)]
    pub fn place(&self, number: u32) -> &'r AtomicU64 {
        let (line, word) = fd_place(number as usize % FDS);
        match self.slot.fds.get(line) {
            Some(line) => &line[word],
            None => &self.far[line][word],
        }
    }

    /// [`FdTable::place`] for a number below [`FDS_APART`]; greater ones wrap around.
    #[inline(always)]
    pub fn low(&self, number: u32) -> &'r AtomicU64 {
        &self.slot.fds[number as usize % FDS_APART][0]
    }

    /// The entry of `fd`, if its memory exists. Only for the table of the calling process, whose first
    /// entries always have memory.
    #[inline(always)]
    pub fn covered(&self, fd: Fd) -> Option<&'r AtomicU64> {
        let number = fd.raw() as u32;
        if number < FDS_APART as u32 {
            return Some(&self.slot.fds[number as usize][0]);
        }
        // Relaxed: a thread that knows a number added by another has synchronised with that thread.
        if number >= FDS_BACKED as u32 && number >= self.slot.process.fd_limit.load(Ordering::Relaxed) {
            return None;
        }
        Some(self.place(number)) // The limit never exceeds `FDS`.
    }

    /// The value of the entry of `fd`; 0 for numbers that the table does not cover.
    #[inline]
    pub fn load(&self, fd: Fd) -> u64 {
        match self.covered(fd) {
            Some(entry) => marks::named(entry),
            None => 0,
        }
    }

    /// Whether calls on `fd` are answered here rather than by the kernel: an open file of ours, data
    /// included.
    #[inline]
    pub(crate) fn is_ours(&self, fd: Fd) -> bool {
        self.load(fd) & entry::DATA != 0
    }

    /// The owner of `fd`.
    #[inline]
    pub(crate) fn whose(&self, fd: Fd) -> Whose {
        match self.load(fd) & (entry::OPEN | entry::DATA) {
            0 => Whose::NotOurs,
            entry::OPEN => Whose::Host,
            _ => Whose::Ours,
        }
    }

    /// The lowest number that is at least `from`, below `limit` and names nothing: what the kernel would
    /// choose, for doors without a kernel table.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn lowest(&self, from: u32, limit: u32) -> Result<Fd> {
        (from..limit.min(FDS as u32))
            .map(|fd| Fd::new(fd as i32))
            .find(|fd| self.covered(*fd).is_none_or(|entry| entry.load(Ordering::Relaxed) == 0))
            .ok_or(Errno::EMFILE)
    }

    /// The entries that the table covers.
    pub fn entries(&self) -> impl Iterator<Item = (Fd, &'r AtomicU64)> + use<'r> {
        let limit = self.slot.process.fd_limit.load(Ordering::Acquire); // PAIRS: the release in `table::grow`.
        let table = *self;
        (0..limit.min(FDS as u32)).map(move |number| (Fd::new(number as i32), table.place(number)))
    }

    /// The entry of `fd`, if the table covers the number: [`FdTable::covered`] for the table of any process.
    pub fn entry(&self, fd: Fd) -> Option<&'r AtomicU64> {
        self.entries().nth(fd.index()).map(|(_, entry)| entry)
    }

    /// The numbers that name open files, with their words.
    pub fn open(&self) -> impl Iterator<Item = (Fd, u64)> + use<'r> {
        // PAIRS: the releases of those who change an entry.
        self.entries()
            .map(|(fd, entry)| (fd, entry.load(Ordering::Acquire)))
            .filter(|(_, word)| word & entry::OPEN != 0)
    }

    /// Records that a reference was copied within the table. A scan under way may have passed the copy but
    /// not reached the original, which may be removed from here on.
    pub(crate) fn moved(&self) {
        // PAIRS: the loads in `look_through`.
        self.slot.process.moves.fetch_add(1, Ordering::Release);
    }

    /// Calls `found` for each open file that the table names. Returns false if references moved within it
    /// meanwhile, so that one may have been missed.
    pub(crate) fn look_through(&self, found: impl FnMut(FileId)) -> bool {
        // PAIRS: the release in `moved`.
        let moves = self.slot.process.moves.load(Ordering::Acquire);
        self.open().map(|(_, word)| FileId(word as u32)).for_each(found);
        self.slot.process.moves.load(Ordering::Acquire) == moves
    }
}
