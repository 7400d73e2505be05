//! Descriptors: open(2), close(2), dup(2), fcntl(2).

use std::path::Path;

use lp_abi::linux::O_CLOEXEC;
use lp_abi::{Errno, Fd, Result};
use lp_region::FileId;
use lp_region::layout::FDS;
use lp_vfs::open::{self, Opened};
use lp_vfs::table::entry;
use lp_vfs::{close, dup, fcntl, file, flock, table};

use crate::Task;
use crate::task::with_path;

impl Task<'_> {
    /// Opens a file, creating it with `mode` if `flags` say so: open(2). As in the kernel, the descriptor is
    /// the lowest free one.
    ///
    /// # Errors
    /// Those of open(2); `ENXIO` for FIFOs, sockets and devices, which have no kernel behind them here.
    pub fn open(&self, path: impl AsRef<Path>, flags: u32, mode: u32) -> Result<Fd> {
        self.openat(Fd::CWD, path, flags, mode)
    }

    /// As [`Task::open`], relative to a directory: openat(2).
    ///
    /// # Errors
    /// Those of openat(2).
    pub fn openat(&self, dir: Fd, path: impl AsRef<Path>, flags: u32, mode: u32) -> Result<Fd> {
        let opened = with_path(path, |path| open::openat(self.inner(), dir, path, flags, mode))?;
        let id = match opened {
            Opened::File(id) | Opened::Watched(id) | Opened::WatchedCut(id) => id,
            Opened::HostNode(_) => return Err(Errno::ENXIO),
        };
        let installed = self.lowest(0).and_then(|fd| {
            table::install(self.inner(), fd, id, cloexec(flags))?;
            Ok(fd)
        });
        installed.inspect_err(|_| file::discard(self.inner(), id))
    }

    /// Closes a descriptor: close(2).
    ///
    /// # Errors
    /// `EBADF`.
    pub fn close(&self, fd: Fd) -> Result<()> {
        close::close(self.inner(), fd)
    }

    /// Duplicates a descriptor: dup(2).
    ///
    /// # Errors
    /// `EBADF`, `EMFILE`.
    pub fn dup(&self, fd: Fd) -> Result<Fd> {
        let id = dup::dup(self.inner(), fd)?;
        self.lowest(0).and_then(|to| self.install_dup(to, id)).inspect_err(|_| dup::abandon(self.inner()))
    }

    /// Makes `to` a duplicate of `fd`, closing what `to` named before: dup2(2).
    ///
    /// # Errors
    /// `EBADF`.
    pub fn dup2(&self, fd: Fd, to: Fd) -> Result<Fd> {
        let id = dup::dup(self.inner(), fd)?;
        if fd == to {
            dup::abandon(self.inner());
            return Ok(to);
        }
        self.install_dup(to, id).inspect_err(|_| dup::abandon(self.inner()))
    }

    /// Status flags and access mode of an open file: fcntl(2) with `F_GETFL`.
    ///
    /// # Errors
    /// `EBADF`.
    pub fn flags(&self, fd: Fd) -> Result<u32> {
        fcntl::get_fl(self.inner(), fd)
    }

    /// Sets the status flags of an open file: fcntl(2) with `F_SETFL`.
    ///
    /// # Errors
    /// `EBADF`, and those of fcntl(2).
    pub fn set_flags(&self, fd: Fd, flags: u32) -> Result<()> {
        fcntl::set_fl(self.inner(), fd, flags)
    }

    /// Locks or unlocks an open file as a whole: flock(2).
    ///
    /// # Errors
    /// Those of flock(2).
    pub fn flock(&self, fd: Fd, operation: u32) -> Result<()> {
        flock::flock(self.inner(), fd, operation)
    }

    fn install_dup(&self, to: Fd, id: FileId) -> Result<Fd> {
        dup::install(self.inner(), to, id, 0)?;
        Ok(to)
    }

    fn lowest(&self, from: u32) -> Result<Fd> {
        self.inner().table.lowest(from, FDS as u32)
    }
}

fn cloexec(flags: u32) -> u64 {
    if flags & O_CLOEXEC != 0 { entry::CLOEXEC } else { 0 }
}
