//! Attributes: stat(2) and the calls that change them.

use std::mem::MaybeUninit;
use std::path::Path;

use lp_abi::linux::AT_SYMLINK_NOFOLLOW;
use lp_abi::{Result, lent};
use lp_vfs::{chmod, chown, stat, statfs, utimens};

use crate::task::with_path;
use crate::{Fd, Task};

/// The kernel's `struct stat`.
pub type Stat = lp_abi::linux::stat;
/// The kernel's `struct statfs`.
pub type Statfs = lp_abi::linux::statfs;

impl Task<'_> {
    /// Attributes of an open file: fstat(2).
    ///
    /// # Errors
    /// `EBADF`.
    #[inline]
    pub fn fstat(&self, fd: Fd) -> Result<Stat> {
        let mut stat = MaybeUninit::uninit();
        stat::fstat(self.inner(), fd, lent::value(&mut stat).cast())?;
        // SAFETY: the call succeeded, so it filled the structure.
        Ok(unsafe { stat.assume_init() })
    }

    /// Attributes of the file at a path, following links: stat(2).
    ///
    /// # Errors
    /// Those of stat(2).
    pub fn stat(&self, path: impl AsRef<Path>) -> Result<Stat> {
        self.fstatat(Fd::CWD, path, 0)
    }

    /// Attributes of the file at a path, without following a link at its end: lstat(2).
    ///
    /// # Errors
    /// Those of lstat(2).
    pub fn lstat(&self, path: impl AsRef<Path>) -> Result<Stat> {
        self.fstatat(Fd::CWD, path, AT_SYMLINK_NOFOLLOW)
    }

    /// As [`Task::stat`], relative to a directory: fstatat(2).
    ///
    /// # Errors
    /// Those of fstatat(2).
    pub fn fstatat(&self, dir: Fd, path: impl AsRef<Path>, flags: u32) -> Result<Stat> {
        let mut stat = MaybeUninit::uninit();
        with_path(path, |path| stat::fstatat(self.inner(), dir, path, lent::value(&mut stat).cast(), flags))?;
        // SAFETY: the call succeeded, so it filled the structure.
        Ok(unsafe { stat.assume_init() })
    }

    /// Sets permission bits: chmod(2).
    ///
    /// # Errors
    /// Those of chmod(2).
    pub fn chmod(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        with_path(path, |path| chmod::fchmodat(self.inner(), Fd::CWD, path, mode, 0))
    }

    /// Sets the permission bits of an open file: fchmod(2).
    ///
    /// # Errors
    /// Those of fchmod(2).
    pub fn fchmod(&self, fd: Fd, mode: u32) -> Result<()> {
        chmod::fchmod(self.inner(), fd, mode)
    }

    /// Sets owner and group; `u32::MAX` keeps the current one. Follows a link at the path's end: chown(2).
    ///
    /// # Errors
    /// Those of chown(2).
    pub fn chown(&self, path: impl AsRef<Path>, owner: u32, group: u32) -> Result<()> {
        with_path(path, |path| chown::fchownat(self.inner(), Fd::CWD, path, owner, group, 0))
    }

    /// As [`Task::chown`] for a link itself: lchown(2).
    ///
    /// # Errors
    /// Those of lchown(2).
    pub fn lchown(&self, path: impl AsRef<Path>, owner: u32, group: u32) -> Result<()> {
        with_path(path, |path| {
            chown::fchownat(self.inner(), Fd::CWD, path, owner, group, AT_SYMLINK_NOFOLLOW)
        })
    }

    /// Sets owner and group of an open file: fchown(2).
    ///
    /// # Errors
    /// Those of fchown(2).
    pub fn fchown(&self, fd: Fd, owner: u32, group: u32) -> Result<()> {
        chown::fchown(self.inner(), fd, owner, group)
    }

    /// Sets access and modification time, each as seconds and nanoseconds; `None` sets both to now:
    /// utimensat(2).
    ///
    /// # Errors
    /// Those of utimensat(2).
    pub fn utimensat(
        &self,
        path: impl AsRef<Path>,
        times: Option<[(i64, i64); 2]>,
        flags: u32,
    ) -> Result<()> {
        with_path(path, |path| utimens::utimensat(self.inner(), Fd::CWD, path, flat(times), flags))
    }

    /// As [`Task::utimensat`] for an open file: futimens(3).
    ///
    /// # Errors
    /// Those of futimens(3).
    pub fn futimens(&self, fd: Fd, times: Option<[(i64, i64); 2]>) -> Result<()> {
        utimens::futimens(self.inner(), fd, flat(times))
    }

    /// Usage of the file system: statfs(2).
    ///
    /// # Errors
    /// Those of statfs(2).
    pub fn statfs(&self, path: impl AsRef<Path>) -> Result<Statfs> {
        let mut usage = MaybeUninit::uninit();
        with_path(path, |path| statfs::statfs(self.inner(), Fd::CWD, path, lent::value(&mut usage).cast()))?;
        // SAFETY: the call succeeded, so it filled the structure.
        Ok(unsafe { usage.assume_init() })
    }
}

fn flat(times: Option<[(i64, i64); 2]>) -> Option<[i64; 4]> {
    times.map(|[(asec, ansec), (msec, mnsec)]| [asec, ansec, msec, mnsec])
}
