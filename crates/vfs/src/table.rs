//! The descriptor table of a process, like `struct files_struct`: which numbers are ours and what they name.
//!
//! An entry is one word. A process with one thread reads it with one load and may use what it names until its next
//! call: nobody else takes entries out. While several threads share the table, a reader pins the open file in its own
//! lane and looks at the entry again; writers serialise on the process's `table_lock`.

use lp_abi::{Errno, Result};
use lp_region::layout::FDS;
use lp_region::marks;
use lp_region::order::{self, Rank};
use lp_region::records::{Inode, OpenFile, inode_flags};
use lp_region::sync::{AtomicU64, Ordering};
use lp_region::{FileId, InodeId, InodeRef, ProcessId, Region};

use crate::task::Task;
use crate::{file, pin, watch};

/// Bits of a table entry; 0 is a descriptor that is not ours. Bits 0-31 are the [`FileId`].
pub mod entry {
    /// It names an open file.
    pub const OPEN: u64 = 1 << 32;
    /// The whole word: the kernel's descriptor is the gate's, and an open or a close of the number is under
    /// way. As far as the program can see it is closed. Not a file's number: those are below `layout::FILES`.
    pub const TRANSIT: u64 = 1 << 30;
    /// Close on exec.
    pub const CLOEXEC: u64 = 1 << 33;
    /// A placeholder of the kernel's that is kept for the next open; closed as far as the program can see.
    pub const PARKED: u64 = 1 << 34;
    /// The kernel's descriptor is a real one (a FIFO, a socket) that backs an inode of ours: attributes are ours, data is
    /// the kernel's.
    pub const HOST: u64 = 1 << 35;
    /// Without [`OPEN`]: a device of the host's whose reads give zeros.
    pub const ZEROS: u64 = 1 << 36;
    /// Without [`OPEN`]: a device of the host's whose reads give nothing.
    pub const EMPTY: u64 = 1 << 37;
    /// Without [`OPEN`]: a device of the host's that takes any write.
    pub const DISCARDS: u64 = 1 << 38;
    /// With [`PARKED`]: the gate's own descriptor of a shadow; see [`shadow`].
    pub const SHADOW: u64 = 1 << 39;
    /// Where the number of the shadow's descriptor stands, plus one.
    const SHADOW_SHIFT: u32 = 40;

    /// The descriptor of the door's, if any, that says to watchers that the file is open ([`crate::watch`]):
    /// the kernel tells them when it is closed, also by a death.
    pub fn shadow(word: u64) -> Option<i32> {
        (word >> SHADOW_SHIFT).checked_sub(1).map(|fd| fd as i32)
    }

    /// The bits of an entry that name it.
    pub const fn with_shadow(fd: i32) -> u64 {
        (fd as u64 + 1) << SHADOW_SHIFT
    }
}

/// Bits of `Process::posix_locks`: why a close has to look.
pub mod closing {
    /// The process may hold POSIX locks.
    pub const LOCKS: u32 = 1;
    /// Some entry names a shadow, or did.
    pub const SHADOWS: u32 = 2;
}

/// What a descriptor is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The kernel's business.
    NotOurs,
    /// An open file of ours.
    Ours,
    /// Attributes are ours, data is the kernel's.
    Host,
}

/// An open file for the length of a call, like `struct fd` between `fdget` and `fdput`.
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

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(pin) = self.pin {
            marks::unpin(pin);
        }
    }
}

/// The entry of `fd`; 0 for numbers past the table.
#[inline]
pub fn load(task: &Task, fd: i32) -> u64 {
    match task.table.get(fd as u32 as usize) {
        Some(entry) => marks::named(entry),
        None => 0,
    }
}

/// Whether a call on `fd` is answered here and not by the kernel: an open file of ours, data included.
#[inline]
pub fn is_ours(task: &Task, fd: i32) -> bool {
    load(task, fd) & (entry::OPEN | entry::HOST) == entry::OPEN
}

/// What `fd` is.
#[inline]
pub fn kind(task: &Task, fd: i32) -> Kind {
    match load(task, fd) & (entry::OPEN | entry::HOST) {
        entry::OPEN => Kind::Ours,
        0 => Kind::NotOurs,
        _ => Kind::Host,
    }
}

/// The open file that `fd` names, as `fdget`.
///
/// # Errors
/// `EBADF` when it is not ours or its data is the kernel's.
#[inline(always)]
pub fn fget<'r>(task: &Task<'r>, fd: i32) -> Result<Held<'r>> {
    let entry = load(task, fd);
    if entry & (entry::OPEN | entry::HOST) != entry::OPEN {
        return Err(Errno::EBADF);
    }
    // Relaxed: only this thread can have made the second thread.
    if task.process.threads.load(Ordering::Relaxed) != 0 {
        return shared(task, fd, pin::slot::FIRST, entry::OPEN | entry::HOST);
    }
    Ok(held(task, entry, None))
}

/// The open file of an entry just read if no other thread shares the table: nobody takes it out before this thread's next
/// call, and no pin is needed. `mask` is [`entry::OPEN`], with [`entry::HOST`] for calls on data.
#[inline(always)]
fn own<'r>(task: &Task<'r>, entry: u64, mask: u64) -> Option<&'r OpenFile> {
    // Relaxed: only this thread can have made the second thread.
    if entry & mask != entry::OPEN || task.process.threads.load(Ordering::Relaxed) != 0 {
        return None;
    }
    Some(task.region.file(FileId(entry as u32)))
}

/// The open file of an entry for a call on data, where no pin is needed.
#[inline(always)]
pub fn own_file<'r>(task: &Task<'r>, entry: u64) -> Option<&'r OpenFile> {
    own(task, entry, entry::OPEN | entry::HOST)
}

/// The open file of an entry for a call on attributes, where no pin is needed.
#[inline(always)]
pub fn own_any<'r>(task: &Task<'r>, entry: u64) -> Option<&'r OpenFile> {
    own(task, entry, entry::OPEN)
}

/// [`own_file`] if no other descriptor names it either, so that nobody else can use its position, and its mode has `mode`.
#[inline(always)]
pub fn sole<'r>(task: &Task<'r>, entry: u64, mode: u32) -> Option<&'r OpenFile> {
    let file = own_file(task, entry)?;
    // Relaxed: `shared` was set by this process or before it was forked; `mode` is immutable.
    let alone = file.shared.load(Ordering::Relaxed) == 0;
    (alone && file.mode.load(Ordering::Relaxed) & mode == mode).then_some(file)
}

/// The inode of an open file that is held.
#[inline(always)]
pub fn inode_of<'r>(task: &Task<'r>, file: &OpenFile) -> &'r Inode {
    let inode = InodeRef::from_word(file.inode.load(Ordering::Relaxed)); // Relaxed: immutable while open.
    task.region.inode(inode.id)
}

/// [`fget`] for the second descriptor of a call that has two.
///
/// # Errors
/// `EBADF`.
#[inline]
pub fn fget_second<'r>(task: &Task<'r>, fd: i32) -> Result<Held<'r>> {
    let entry = load(task, fd);
    if entry & (entry::OPEN | entry::HOST) != entry::OPEN {
        return Err(Errno::EBADF);
    }
    if task.process.threads.load(Ordering::Relaxed) != 0 {
        return shared(task, fd, pin::slot::SECOND, entry::OPEN | entry::HOST);
    }
    Ok(held(task, entry, None))
}

/// [`fget`] for calls on attributes and paths: those whose data is the kernel's count too.
///
/// # Errors
/// `EBADF`.
#[inline(always)]
pub fn fget_any<'r>(task: &Task<'r>, fd: i32) -> Result<Held<'r>> {
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
fn shared<'r>(task: &Task<'r>, fd: i32, slot: usize, mask: u64) -> Result<Held<'r>> {
    match pinned(task, fd, slot, mask) {
        0 => Err(Errno::EBADF),
        entry => Ok(held(task, entry, Some(&task.lane.pins[slot]))),
    }
}

/// Pins what `fd` names and gives its entry; 0 if it names nothing. One word, so that callers keep it in a register.
#[inline(never)]
fn pinned(task: &Task, fd: i32, slot: usize, mask: u64) -> u64 {
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

/// Makes `fd` name the open file `id`; `flags` is [`entry::CLOEXEC`], [`entry::HOST`] or 0. What it named before is
/// closed, as by dup2(2). The file leaves the lane's open pin.
///
/// # Errors
/// `EBADF` for a number that no table holds: the file stays the caller's.
#[inline]
pub fn install(task: &Task, fd: i32, id: FileId, flags: u64) -> Result<()> {
    install_and(task, fd, id, flags, || ())
}

/// [`install`] that calls `arrived` between the store of the entry and the end of the pin.
#[inline(always)]
pub(crate) fn install_and(
    task: &Task,
    fd: i32,
    id: FileId,
    flags: u64,
    arrived: impl FnOnce(),
) -> Result<()> {
    let Some(place) = task.table.get(fd as u32 as usize) else { return Err(Errno::EBADF) };
    let locked = lock(task);
    let old = replace(task, fd, place, entry::OPEN | flags | u64::from(id.0));
    unlock(task, locked);
    arrived();
    file::arrived(task);
    let_go(task, old);
    Ok(())
}

/// Stores `new` at `fd`, over what was there, and gives that: it goes from the old file to the new one in one
/// store, so that other threads find `fd` open all the while. The caller holds the table's lock if threads
/// share it, and calls [`let_go`] when it does not any more.
#[inline]
pub fn replace(task: &Task, fd: i32, place: &AtomicU64, new: u64) -> u64 {
    let old = place.load(Ordering::Relaxed); // Relaxed: guarded by the lock.
    if fd as u32 >= task.process.fd_limit.load(Ordering::Relaxed) {
        task.process.fd_limit.store(fd as u32 + 1, Ordering::Release);
    }
    match old & entry::OPEN {
        0 => place.store(new, Ordering::Release),
        _ => file::leave(task, place, FileId(old as u32), new),
    }
    old
}

/// Says that a reference was copied within the table: a look under way may have passed the copy and not
/// reached the original, which may go from now on.
pub fn moved(task: &Task) {
    // PAIRS: the loads in `look_through`.
    task.process.moves.fetch_add(1, Ordering::Release);
}

/// A number that changes with each copy of a reference that a scan of all tables may miss at both ends.
/// Copies within a table that one thread has are not among them: [`look_through`] sees those.
pub(crate) fn moves(region: Region) -> u64 {
    // PAIRS: the increments after a copy, in `dup::received` and `fork`.
    let between = region.header().moves.load(Ordering::Acquire);
    let within = |process: ProcessId| {
        let record = region.process(process);
        // PAIRS: the release in `boot::thread_gone`: of a thread that came and went meanwhile it is counted
        // that it went. One more than the copies, so that it counts that there are threads.
        let copies = match record.threads.load(Ordering::Acquire) {
            0 => 0,
            _ => u64::from(record.moves.load(Ordering::Acquire)) + 1, // PAIRS: the release in `moved`.
        };
        copies + u64::from(record.threads_gone.load(Ordering::Acquire))
    };
    region.processes().fold(between, |sum, process| sum.wrapping_add(within(process)))
}

/// Calls `found` for each open file that a process's table names; false if references moved within the table
/// meanwhile, so that one may have been missed.
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

/// Takes back a [`replace`] that gave `old`. The caller still holds the lock.
#[cold]
pub fn restore(task: &Task, place: &AtomicU64, old: u64) {
    place.store(old, Ordering::Release);
    moved(task);
    pin::clear(task, pin::slot::CLOSE);
}

/// Lets go of what an entry named that this thread has taken out: the rest of close(2).
#[inline]
pub fn let_go(task: &Task, old: u64) {
    if old & entry::OPEN == 0 {
        return;
    }
    let id = FileId(old as u32);
    // Relaxed: only this process makes it nonzero.
    if task.process.posix_locks.load(Ordering::Relaxed) != 0 {
        look_slow(task, old);
    }
    file::left(task, id);
}

/// What a close has to look at.
#[cold]
fn look_slow(task: &Task, old: u64) {
    let reasons = task.process.posix_locks.load(Ordering::Relaxed);
    if reasons & closing::LOCKS != 0 {
        drop_locks(task, FileId(old as u32));
    }
    if reasons & closing::SHADOWS != 0 {
        watch::closed_slow(task, old);
    }
}

/// close(2), and dup2(2) onto a descriptor, drop the process's POSIX locks on the file, whichever descriptor
/// they were taken through.
fn drop_locks(task: &Task, id: FileId) {
    let inode = InodeRef::from_word(task.region.file(id).inode.load(Ordering::Relaxed)).id;
    if task.region.inode(inode).flags.load(Ordering::Relaxed) & inode_flags::LOCKED != 0 {
        crate::lock::drop_posix(task, inode);
    }
}

/// Takes `fd` out of the table and lets go of what it named: close(2) where no kernel's descriptor stands
/// behind it.
///
/// # Errors
/// `EBADF` when it is not ours.
#[inline]
pub fn remove(task: &Task, fd: i32) -> Result<()> {
    take_out(task, fd, |place| place.store(0, Ordering::Release))
}

/// Takes `fd` out of the table, has `vacate` do what the kernel's descriptor behind it needs and store what
/// is left, and lets go of what `fd` named. The entry is [`entry::TRANSIT`] meanwhile, and other threads that
/// change the table wait: of two that close one number one gets `EBADF`, and nobody is given the number too
/// early.
///
/// # Errors
/// `EBADF` when it is not ours.
#[inline]
pub fn take_out(task: &Task, fd: i32, vacate: impl FnOnce(&AtomicU64)) -> Result<()> {
    let Some(place) = task.table.get(fd as u32 as usize) else { return Err(Errno::EBADF) };
    let locked = lock(task);
    let old = place.load(Ordering::Relaxed);
    if old & entry::OPEN == 0 {
        unlock(task, locked);
        return Err(Errno::EBADF);
    }
    file::leave(task, place, FileId(old as u32), entry::TRANSIT);
    vacate(place);
    unlock(task, locked);
    let_go(task, old);
    Ok(())
}

/// Sets or clears bits of the entry of `fd`, which is ours.
///
/// # Errors
/// `EBADF` when it is not.
pub fn change(task: &Task, fd: i32, set: u64, clear: u64) -> Result<()> {
    let Some(place) = task.table.get(fd as u32 as usize) else { return Err(Errno::EBADF) };
    let locked = lock(task);
    let old = place.load(Ordering::Relaxed);
    let ours = old & entry::OPEN != 0;
    if ours {
        place.store(old & !clear | set, Ordering::Release);
    }
    unlock(task, locked);
    if ours { Ok(()) } else { Err(Errno::EBADF) }
}

/// The lowest number at or past `from` and below `limit` that names nothing: what the kernel would choose, for doors
/// without a kernel table.
///
/// # Errors
/// `EMFILE`.
pub fn lowest(task: &Task, from: u32, limit: u32) -> Result<i32> {
    (from..limit.min(FDS as u32))
        .find(|fd| task.table[*fd as usize].load(Ordering::Relaxed) == 0)
        .map(|fd| fd as i32)
        .ok_or(Errno::EMFILE)
}

/// Open entries of the calling process: number and entry.
pub fn open_entries<'r>(task: &Task<'r>) -> impl Iterator<Item = (i32, u64)> + use<'r> {
    let limit = task.process.fd_limit.load(Ordering::Acquire).min(FDS as u32);
    let table = task.table;
    (0..limit)
        .map(move |fd| (fd as i32, table[fd as usize].load(Ordering::Acquire)))
        .filter(|(_, entry)| entry & entry::OPEN != 0)
}

/// Whether a change of a table is made under its lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Locking {
    /// One thread has the table.
    NotNeeded,
    /// The lock is held.
    Held,
}

/// Takes the table's lock if threads share it.
#[inline]
#[cfg_attr(any(debug_assertions, feature = "order"), track_caller)]
pub(crate) fn lock(task: &Task) -> Locking {
    // Relaxed: only this thread can have made the second thread.
    if task.process.threads.load(Ordering::Relaxed) == 0 {
        return Locking::NotNeeded;
    }
    order::wait(order::of(&task.lane.holding), order::what(Rank::Table, &task.process.table_lock));
    task.process.table_lock.lock(task.lane_id, task);
    Locking::Held
}

/// Gives it back.
#[inline]
pub(crate) fn unlock(task: &Task, locking: Locking) {
    if locking == Locking::Held {
        task.process.table_lock.unlock();
        order::gave(order::of(&task.lane.holding), &task.process.table_lock);
    }
}
