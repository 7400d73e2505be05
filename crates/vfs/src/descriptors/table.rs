//! The descriptor table of a process, like `struct files_struct`: which numbers are ours and what they name.
//!
//! An entry is one word. A process with one thread reads it with one load and may use what it names until its
//! next call, because nobody else removes entries. While several threads share the table, a reader pins the
//! open file in its own lane and checks the entry again; writers serialise on the process's `table_lock`.

use lp_abi::{Errno, Fd, Result};
use lp_region::layout::{FDS, FDS_BACKED};
use lp_region::order::{self, Kept, Rank};
use lp_region::process::Process;
use lp_region::records::{Inode, OpenFile, file_mode};
use lp_region::sync::Ordering::Relaxed;
use lp_region::sync::{AtomicU64, Ordering};
use lp_region::{FileId, InodeId, InodeRef, MountId, ProcessId, Region, Spot, marks};

use crate::caller::task::Task;
use crate::descriptors::file;
use crate::lane::pin;

/// The open file for a call on attributes, which fails on one opened with `O_PATH`.
///
/// # Errors
/// `EBADF`.
pub fn fget_no_path<'r>(task: &Task<'r>, fd: Fd) -> Result<Held<'r>> {
    let held = fget_any(task, fd)?;
    // Relaxed: immutable.
    if held.file.mode.load(Relaxed) & file_mode::PATH != 0 { Err(Errno::EBADF) } else { Ok(held) }
}

/// Bits of a table entry; 0 is a descriptor that is not ours. Bits 0-31 are the [`FileId`].
pub mod entry {
    use lp_abi::Fd;

    /// It names an open file.
    pub const OPEN: u64 = 1 << 32;
    /// The whole word: the kernel's descriptor is the gate's, and an open or a close of the number is under
    /// way. The program sees it as closed. Not a file's number: those are below `layout::FILES`.
    pub const TRANSIT: u64 = 1 << 30;
    /// Close on exec.
    pub const CLOEXEC: u64 = 1 << 33;
    /// A kernel placeholder kept for the next open; the program sees it as closed.
    pub const PARKED: u64 = 1 << 34;
    /// The kernel's descriptor is a real one (a FIFO, a socket) that backs an inode of ours. Attributes are
    /// ours, data is the kernel's.
    pub const HOST: u64 = 1 << 35;
    /// Without [`OPEN`]: a host device whose reads return zeros.
    pub const ZEROS: u64 = 1 << 36;
    /// Without [`OPEN`]: a host device whose reads return nothing.
    pub const EMPTY: u64 = 1 << 37;
    /// Without [`OPEN`]: a host device that accepts any write.
    pub const DISCARDS: u64 = 1 << 38;
    /// With [`PARKED`]: the gate's own descriptor of a shadow; see [`shadow`].
    pub const SHADOW: u64 = 1 << 39;
    /// Position of the shadow's descriptor number plus one.
    const SHADOW_SHIFT: u32 = 40;

    /// The door's descriptor, if any, that keeps the shadow open (`crate::watches::watch`). The kernel
    /// reports to watchers when it is closed, even by a death.
    pub fn shadow(word: u64) -> Option<Fd> {
        (word >> SHADOW_SHIFT).checked_sub(1).map(|fd| Fd::new(fd as i32))
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

/// An open file held for the length of a call, like `struct fd` between `fdget` and `fdput`.
pub struct Held<'r> {
    /// Its handle.
    pub id: FileId,
    /// The open file.
    pub file: &'r OpenFile,
    /// Its inode.
    pub inode: &'r Inode,
    pin: Option<&'r AtomicU64>,
}

impl Held<'_> {
    /// The inode's handle.
    #[inline]
    pub fn inode_id(&self) -> InodeId {
        self.inode_ref().id
    }

    /// The inode's handle and generation.
    #[inline]
    pub fn inode_ref(&self) -> InodeRef {
        InodeRef::from_word(self.file.inode.load(Ordering::Relaxed)) // Relaxed: immutable while held.
    }
}

impl Held<'_> {
    /// The mount through which it was opened.
    #[inline]
    pub fn mount(&self) -> MountId {
        self.file.mount()
    }

    /// The inode and the mount.
    #[inline]
    pub fn spot(&self) -> Spot {
        Spot { inode: self.inode_ref(), mount: self.mount() }
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(pin) = self.pin {
            marks::unpin(pin);
        }
    }
}

/// The entry of `fd`, if its memory exists.
#[inline(always)]
pub fn covered<'r>(task: &Task<'r>, fd: Fd) -> Option<&'r AtomicU64> {
    // Relaxed: a thread that knows a number added by another has synchronised with that thread.
    let is_past = |fd| fd >= task.process.fd_limit.load(Ordering::Relaxed);
    if fd.raw() as u32 >= FDS_BACKED as u32 && is_past(fd.raw() as u32) {
        return None;
    }
    Some(&task.table[usize::from(fd.raw() as u16)]) // The limit never exceeds `FDS`.
}

/// The entry of `fd` in the table of any process, if that table covers the number.
pub fn covered_of<'r>(region: Region<'r>, process: ProcessId, fd: Fd) -> Option<&'r AtomicU64> {
    let limit = region.process(process).fd_limit.load(Ordering::Relaxed); // Relaxed: see `covered`.
    region.fd_table(process).iter().take(limit as usize).nth(fd.index())
}

/// The value of the entry of `fd`; 0 for numbers that the table does not cover.
#[inline]
pub fn load(task: &Task, fd: Fd) -> u64 {
    match covered(task, fd) {
        Some(entry) => marks::named(entry),
        None => 0,
    }
}

/// Whether calls on `fd` are answered here rather than by the kernel: an open file of ours, data included.
#[inline]
pub(crate) fn is_ours(task: &Task, fd: Fd) -> bool {
    load(task, fd) & (entry::OPEN | entry::HOST) == entry::OPEN
}

/// The owner of `fd`.
#[inline]
pub(crate) fn whose(task: &Task, fd: Fd) -> Whose {
    match load(task, fd) & (entry::OPEN | entry::HOST) {
        entry::OPEN => Whose::Ours,
        0 => Whose::NotOurs,
        _ => Whose::Host,
    }
}

/// The open file of `fd`, like `fdget`.
///
/// # Errors
/// `EBADF` if it is not ours or its data is the kernel's.
#[inline(always)]
pub fn fget<'r>(task: &Task<'r>, fd: Fd) -> Result<Held<'r>> {
    let entry = load(task, fd);
    if entry & (entry::OPEN | entry::HOST) != entry::OPEN {
        return Err(Errno::EBADF);
    }
    // Relaxed: only this thread can have created the second thread.
    if task.process.threads.load(Ordering::Relaxed) != 0 {
        return shared(task, fd, pin::slot::FIRST, entry::OPEN | entry::HOST);
    }
    Ok(held(task, entry, None))
}

/// The open file of an entry just read, if no other thread shares the table. Nobody removes it before this
/// thread's next call, so no pin is needed. `mask` is [`entry::OPEN`], with [`entry::HOST`] for calls on
/// data.
#[inline(always)]
fn own<'r>(task: &Task<'r>, entry: u64, mask: u64) -> Option<&'r OpenFile> {
    // Relaxed: only this thread can have created the second thread.
    if entry & mask != entry::OPEN || task.process.threads.load(Ordering::Relaxed) != 0 {
        return None;
    }
    Some(task.region.file(FileId(entry as u32)))
}

/// The open file of an entry for a call on data, where no pin is needed.
#[inline(always)]
pub(crate) fn own_file<'r>(task: &Task<'r>, entry: u64) -> Option<&'r OpenFile> {
    own(task, entry, entry::OPEN | entry::HOST)
}

/// The open file of an entry for a call on attributes, where no pin is needed.
#[inline(always)]
pub(crate) fn own_any<'r>(task: &Task<'r>, entry: u64) -> Option<&'r OpenFile> {
    own(task, entry, entry::OPEN)
}

/// [`own_file`], if no other descriptor names it, so that nobody else can use its position, and its mode has
/// `mode`.
#[inline(always)]
pub(crate) fn sole<'r>(task: &Task<'r>, entry: u64, mode: u32) -> Option<&'r OpenFile> {
    let file = own_file(task, entry)?;
    // Relaxed: `shared` was set by this process or before it was forked; `mode` is immutable.
    let alone = file.shared.load(Ordering::Relaxed) == 0;
    (alone && file.mode.load(Ordering::Relaxed) & mode == mode).then_some(file)
}

/// The inode of an open file that the caller holds.
#[inline(always)]
pub(crate) fn inode_of<'r>(task: &Task<'r>, file: &OpenFile) -> &'r Inode {
    let inode = InodeRef::from_word(file.inode.load(Ordering::Relaxed)); // Relaxed: immutable while open.
    task.region.inode(inode.id)
}

/// [`fget`] for the second descriptor of a call.
///
/// # Errors
/// `EBADF`.
#[inline]
pub(crate) fn fget_second<'r>(task: &Task<'r>, fd: Fd) -> Result<Held<'r>> {
    let entry = load(task, fd);
    if entry & (entry::OPEN | entry::HOST) != entry::OPEN {
        return Err(Errno::EBADF);
    }
    if task.process.threads.load(Ordering::Relaxed) != 0 {
        return shared(task, fd, pin::slot::SECOND, entry::OPEN | entry::HOST);
    }
    Ok(held(task, entry, None))
}

/// [`fget`] for calls on attributes and paths, which also accept files whose data is the kernel's.
///
/// # Errors
/// `EBADF`.
#[inline(always)]
pub fn fget_any<'r>(task: &Task<'r>, fd: Fd) -> Result<Held<'r>> {
    let entry = load(task, fd);
    if entry & entry::OPEN == 0 {
        return Err(Errno::EBADF);
    }
    if task.process.threads.load(Ordering::Relaxed) != 0 {
        return shared(task, fd, pin::slot::FIRST, entry::OPEN);
    }
    Ok(held(task, entry, None))
}

#[inline(always)]
fn held<'r>(task: &Task<'r>, entry: u64, pin: Option<&'r AtomicU64>) -> Held<'r> {
    let id = FileId(entry as u32);
    let file = task.region.file(id);
    let inode = InodeRef::from_word(file.inode.load(Ordering::Relaxed)); // Relaxed: immutable while open.
    Held { id, file, inode: task.region.inode(inode.id), pin }
}

/// [`fget`] while threads share the table.
#[inline(always)]
fn shared<'r>(task: &Task<'r>, fd: Fd, slot: usize, mask: u64) -> Result<Held<'r>> {
    match pinned(task, fd, slot, mask) {
        0 => Err(Errno::EBADF),
        entry => Ok(held(task, entry, Some(&task.lane.pins[slot]))),
    }
}

/// Pins the open file of `fd` and returns its entry; 0 if there is none. One word, so that callers keep it in
/// a register.
#[inline(never)]
fn pinned(task: &Task, fd: Fd, slot: usize, mask: u64) -> u64 {
    loop {
        let entry = load(task, fd);
        if entry & mask != entry::OPEN {
            pin::clear(task, slot);
            return 0;
        }
        pin::file(task, slot, FileId(entry as u32));
        if load(task, fd) as u32 == entry as u32 {
            return entry;
        }
    }
}

/// Stores `new` in an entry that [`reach`] covers and returns the previous value. The change is one store, so
/// other threads always see the number open. If threads share the table, the caller must hold its lock. It
/// must call [`let_go`](crate::life::open_file::let_go) once it does not.
#[inline]
pub fn replace(task: &Task, place: &AtomicU64, new: u64) -> u64 {
    let old = place.load(Ordering::Relaxed); // Relaxed: guarded by the lock.
    match old & entry::OPEN {
        0 => place.store(new, Ordering::Release),
        _ => file::leave(task, place, FileId(old as u32), new),
    }
    old
}

/// The entry of `fd`, which the table covers from here on. Call it before storing the entry, under the same
/// lock.
///
/// # Errors
/// `EBADF` for a number that no table holds; `ENOSPC` if the region's file has no space for a larger table.
#[inline(always)]
pub fn reach<'r>(task: &Task<'r>, fd: Fd) -> Result<&'r AtomicU64> {
    // Relaxed: guarded by the table's lock. The limit never exceeds `FDS`.
    if (fd.raw() as u32) < task.process.fd_limit.load(Ordering::Relaxed) {
        Ok(&task.table[usize::from(fd.raw() as u16)])
    } else {
        grow(task, fd)
    }
}

#[cold]
fn grow<'r>(task: &Task<'r>, fd: Fd) -> Result<&'r AtomicU64> {
    let place = task.table.get(fd.index()).ok_or(Errno::EBADF)?;
    let limit = &task.process.fd_limit;
    // Relaxed: guarded by the lock.
    task.region.back_table(task.process_id, limit.load(Ordering::Relaxed) as usize, fd.index() + 1)?;
    limit.store(fd.index() as u32 + 1, Ordering::Release);
    Ok(place)
}

/// Records that a reference was copied within the table. A scan under way may have passed the copy but not
/// reached the original, which may be removed from here on.
pub(crate) fn moved(task: &Task) {
    // PAIRS: the loads in `look_through`.
    task.process.moves.fetch_add(1, Ordering::Release);
}

/// A number that changes with each copy of a reference that a scan of all tables may miss at both ends.
/// Copies within a table that one thread uses are not included, because [`look_through`] detects those.
pub(crate) fn moves(region: Region) -> u64 {
    // PAIRS: the increments after a copy, in `dup::received` and `fork`.
    let between = region.header().moves.load(Ordering::Acquire);
    let within = |process: ProcessId| {
        let record = region.process(process);
        // PAIRS: the release in `boot::thread_gone`. For a thread that came and went meanwhile, its going is
        // counted. One more than the copies, so that the existence of threads counts.
        let copies = match record.threads.load(Ordering::Acquire) {
            0 => 0,
            _ => u64::from(record.moves.load(Ordering::Acquire)) + 1, // PAIRS: the release in `moved`.
        };
        copies + u64::from(record.threads_gone.load(Ordering::Acquire))
    };
    region.processes().fold(between, |sum, process| sum.wrapping_add(within(process)))
}

/// Calls `found` for each open file that a process's table names. Returns false if references moved within
/// the table meanwhile, so that one may have been missed.
pub(crate) fn look_through(region: Region, process: ProcessId, mut found: impl FnMut(FileId)) -> bool {
    let record = region.process(process);
    // PAIRS: the release in `moved`.
    let moves = record.moves.load(Ordering::Acquire);
    let limit = record.fd_limit.load(Ordering::Acquire) as usize;
    for word in region.fd_table(process).iter().take(limit) {
        // PAIRS: the releases of those who change an entry.
        let word = word.load(Ordering::Acquire);
        if word & entry::OPEN != 0 {
            found(FileId(word as u32));
        }
    }
    record.moves.load(Ordering::Acquire) == moves
}

/// Undoes a [`replace`] that returned `old`. The caller still holds the lock.
#[cold]
pub fn restore(task: &Task, place: &AtomicU64, old: u64) {
    place.store(old, Ordering::Release);
    moved(task);
    pin::clear(task, pin::slot::CLOSE);
}

/// Sets or clears bits of the entry of `fd`.
///
/// # Errors
/// `EBADF` if it is not ours.
pub fn change(task: &Task, fd: Fd, set: u64, clear: u64) -> Result<()> {
    let Some(place) = covered(task, fd) else { return Err(Errno::EBADF) };
    let _locked = lock(task);
    let old = place.load(Ordering::Relaxed);
    let ours = old & entry::OPEN != 0;
    if ours {
        place.store(old & !clear | set, Ordering::Release);
    }
    if ours { Ok(()) } else { Err(Errno::EBADF) }
}

/// The lowest number that is at least `from`, below `limit` and names nothing: what the kernel would choose,
/// for doors without a kernel table.
///
/// # Errors
/// `EMFILE`.
pub fn lowest(task: &Task, from: u32, limit: u32) -> Result<Fd> {
    (from..limit.min(FDS as u32))
        .map(|fd| Fd::new(fd as i32))
        .find(|fd| covered(task, *fd).is_none_or(|entry| entry.load(Ordering::Relaxed) == 0))
        .ok_or(Errno::EMFILE)
}

/// The calling process's open entries, with their numbers.
pub fn open_entries<'r>(task: &Task<'r>) -> impl Iterator<Item = (Fd, u64)> + use<'r> {
    let limit = task.process.fd_limit.load(Ordering::Acquire).min(FDS as u32);
    let table = task.table;
    (0..limit)
        .map(move |fd| (Fd::new(fd as i32), table[fd as usize].load(Ordering::Acquire)))
        .filter(|(_, entry)| entry & entry::OPEN != 0)
}

/// The table's lock, held until this is dropped, if threads share the table.
#[must_use = "the lock is given back once this is dropped"]
pub(crate) struct TableLock<'r> {
    _held: Option<Kept<'r>>,
}

impl TableLock<'_> {
    /// Leaves the lock held, for another function of this thread to unlock.
    pub(crate) fn leave(self) {
        core::mem::forget(self);
    }
}

/// Takes the table's lock if threads share it.
#[inline]
#[cfg_attr(any(debug_assertions, feature = "order"), track_caller)]
pub(crate) fn lock<'r>(task: &Task<'r>) -> TableLock<'r> {
    // Relaxed: only this thread can have created the second thread.
    if task.process.threads.load(Ordering::Relaxed) == 0 {
        return TableLock { _held: None };
    }
    let process: &'r Process = task.process;
    let of = order::of(&task.lane.holding);
    order::wait(of, order::what(Rank::Table, &process.table_lock));
    process.table_lock.lock(task.lane_id, task);
    TableLock { _held: Some(order::keep(of, &process.table_lock)) }
}
