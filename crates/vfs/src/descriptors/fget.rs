//! Finds the open file of a descriptor, like `fdget`.
//!
//! A process with one thread may use what an entry names until its next call, because nobody else removes
//! entries. While several threads share the table, a reader pins the open file in its own lane and checks the
//! entry again. These are methods of the task, because both the pin and the open file are outside the table.

use lp_abi::{Errno, Fd, Result};
use lp_region::records::{Inode, OpenFile, file_mode};
use lp_region::sync::{AtomicU64, Ordering};
use lp_region::{FileId, InodeId, InodeRef, MountId, Spot, marks};

use crate::caller::task::Task;
use crate::descriptors::table::entry;
use crate::lane::pin;

/// An open file held for the length of a call, like `struct fd` between `fdget` and `fdput`.
pub struct HeldFile<'r> {
    /// Its handle.
    pub id: FileId,
    /// The open file.
    pub file: &'r OpenFile,
    /// Its inode.
    pub inode: &'r Inode,
    pin: Option<&'r AtomicU64>,
}

impl HeldFile<'_> {
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

impl Drop for HeldFile<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(pin) = self.pin {
            marks::unpin(pin);
        }
    }
}

/// An open file that a fast path has pinned; dropping this unpins it.
pub(crate) struct Pinned<'r> {
    pub(crate) file: &'r OpenFile,
    pin: &'r AtomicU64,
}

impl Drop for Pinned<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        marks::unpin(self.pin);
    }
}

impl<'r> Task<'r> {
    /// The open file of `fd`, like `fdget`.
    ///
    /// # Errors
    /// `EBADF` if it is not ours or its data is the kernel's.
    #[inline(always)]
    pub fn fget(&self, fd: Fd) -> Result<HeldFile<'r>> {
        self.find(fd, pin::slot::FIRST, entry::DATA)
    }

    /// [`Task::fget`] for the second descriptor of a call.
    ///
    /// # Errors
    /// `EBADF`.
    #[inline]
    pub(crate) fn fget_second(&self, fd: Fd) -> Result<HeldFile<'r>> {
        self.find(fd, pin::slot::SECOND, entry::DATA)
    }

    /// [`Task::fget`] for calls on attributes and paths, which also accept files whose data is the kernel's.
    ///
    /// # Errors
    /// `EBADF`.
    #[inline(always)]
    pub fn fget_any(&self, fd: Fd) -> Result<HeldFile<'r>> {
        self.find(fd, pin::slot::FIRST, entry::OPEN)
    }

    /// The open file for a call on attributes, which fails on one opened with `O_PATH`.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn fget_no_path(&self, fd: Fd) -> Result<HeldFile<'r>> {
        let held = self.fget_any(fd)?;
        // Relaxed: immutable.
        if held.file.mode.load(Ordering::Relaxed) & file_mode::PATH != 0 {
            Err(Errno::EBADF)
        } else {
            Ok(held)
        }
    }

    /// The open file of an entry just read, if no other thread shares the table. Nobody removes it before
    /// this thread's next call, so no pin is needed. `mask` is [`entry::OPEN`], or [`entry::DATA`] for
    /// calls on data.
    #[inline(always)]
    fn own(&self, entry: u64, mask: u64) -> Option<&'r OpenFile> {
        // Relaxed: only this thread can have created the second thread.
        if entry & mask == 0 || self.process.threads.load(Ordering::Relaxed) != 0 {
            return None;
        }
        Some(self.region.file(FileId(entry as u32)))
    }

    /// The open file of an entry for a call on data, where no pin is needed.
    #[inline(always)]
    pub(crate) fn own_file(&self, entry: u64) -> Option<&'r OpenFile> {
        self.own(entry, entry::DATA)
    }

    /// [`Task::own_file`], if its mode has `mode`.
    #[inline(always)]
    pub(crate) fn own_opened_for(&self, entry: u64, mode: u32) -> Option<&'r OpenFile> {
        // Relaxed: immutable.
        self.own_file(entry).filter(|file| file.mode.load(Ordering::Relaxed) & mode == mode)
    }

    /// The open file of an entry for a call on attributes, where no pin is needed.
    #[inline(always)]
    pub(crate) fn own_any(&self, entry: u64) -> Option<&'r OpenFile> {
        self.own(entry, entry::OPEN)
    }

    /// [`Task::own_file`], if no other descriptor names it, so that nobody else can use its position, and its
    /// mode has `mode`.
    #[inline(always)]
    pub(crate) fn sole(&self, entry: u64, mode: u32) -> Option<&'r OpenFile> {
        let file = self.own_file(entry)?;
        // Relaxed: `shared` was set by this process or before it was forked; `mode` is immutable.
        let alone = file.shared.load(Ordering::Relaxed) == 0;
        (alone && file.mode.load(Ordering::Relaxed) & mode == mode).then_some(file)
    }

    /// The open file of `fd` for a fast path beside other threads or users of its position, if there may be
    /// any: if its entry has `mask`, its mode has `mode`, and no other thread changes the entry meanwhile.
    #[inline(always)]
    pub(crate) fn pin_for(&self, fd: Fd, mask: u64, mode: u32) -> Option<Pinned<'r>> {
        let place = self.table.covered(fd)?;
        let entry = marks::named(place);
        if entry & mask == 0 {
            return None;
        }
        let id = FileId(entry as u32);
        let file = self.region.file(id);
        // Relaxed, both: only this thread can have created the second thread, or shared the file.
        if self.process.threads.load(Ordering::Relaxed) | file.shared.load(Ordering::Relaxed) == 0 {
            return None;
        }
        pin::file(self, pin::slot::FIRST, id);
        let pinned = Pinned { file, pin: &self.lane.pins[pin::slot::FIRST] };
        // Relaxed: immutable.
        let is_so = marks::named(place) == entry && pinned.file.mode.load(Ordering::Relaxed) & mode == mode;
        (is_so && self.lane.quiescent.is_here()).then_some(pinned)
    }

    /// The inode of an open file that the caller holds.
    #[inline(always)]
    pub(crate) fn inode_of(&self, file: &OpenFile) -> &'r Inode {
        let inode = InodeRef::from_word(file.inode.load(Ordering::Relaxed)); // Relaxed: immutable while open.
        self.region.inode(inode.id)
    }

    /// The open file of `fd` if its entry has `mask`, [`entry::OPEN`] or [`entry::DATA`].
    #[inline(always)]
    fn find(&self, fd: Fd, slot: usize, mask: u64) -> Result<HeldFile<'r>> {
        let entry = self.table.load(fd);
        if entry & mask == 0 {
            return Err(Errno::EBADF);
        }
        // Relaxed: only this thread can have created the second thread.
        if self.process.threads.load(Ordering::Relaxed) != 0 {
            return self.shared(fd, slot, mask);
        }
        Ok(self.held(entry, None))
    }

    #[inline(always)]
    fn held(&self, entry: u64, pin: Option<&'r AtomicU64>) -> HeldFile<'r> {
        let id = FileId(entry as u32);
        let file = self.region.file(id);
        let inode = InodeRef::from_word(file.inode.load(Ordering::Relaxed)); // Relaxed: immutable while open.
        HeldFile { id, file, inode: self.region.inode(inode.id), pin }
    }

    /// [`Task::fget`] while threads share the table.
    #[inline(always)]
    fn shared(&self, fd: Fd, slot: usize, mask: u64) -> Result<HeldFile<'r>> {
        match self.pinned(fd, slot, mask) {
            0 => Err(Errno::EBADF),
            entry => Ok(self.held(entry, Some(&self.lane.pins[slot]))),
        }
    }

    /// Pins the open file of `fd` and returns its entry; 0 if there is none. One word, so that callers keep
    /// it in a register.
    #[inline(never)]
    fn pinned(&self, fd: Fd, slot: usize, mask: u64) -> u64 {
        loop {
            let entry = self.table.load(fd);
            if entry & mask == 0 {
                pin::clear(self, slot);
                return 0;
            }
            pin::file(self, slot, FileId(entry as u32));
            if !self.lane.quiescent.is_here() {
                self.lane.quiescent.come_back(&self.process.periods);
            }
            if self.table.load(fd) as u32 == entry as u32 {
                return entry;
            }
        }
    }
}
