//! Attributes: stat(2) and what changes them.

use std::mem::MaybeUninit;
use std::path::Path;

use lp_abi::Result;
use lp_abi::linux::AT_SYMLINK_NOFOLLOW;
use lp_vfs::stat;

use crate::task::with_path;
use crate::{Fd, Task};

/// The kernel's `struct stat`.
pub type Stat = lp_abi::linux::stat;

impl Task<'_> {
    /// Attributes of an open file: fstat(2).
    ///
    /// # Errors
    /// `EBADF`.
    #[inline]
    pub fn fstat(&self, fd: Fd) -> Result<Stat> {
        let mut stat = MaybeUninit::uninit();
        stat::fstat(self.inner(), fd.0, stat.as_mut_ptr())?;
        // SAFETY: the call succeeded, so it filled the structure.
        Ok(unsafe { stat.assume_init() })
    }

    /// Attributes of what a path names, links followed: stat(2).
    ///
    /// # Errors
    /// Those of stat(2).
    pub fn stat(&self, path: impl AsRef<Path>) -> Result<Stat> {
        self.fstatat(Fd::CWD, path, 0)
    }

    /// Attributes of what a path names, a link at its end not followed: lstat(2).
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
        with_path(path, |path| stat::fstatat(self.inner(), dir.0, path, stat.as_mut_ptr(), flags))?;
        // SAFETY: the call succeeded, so it filled the structure.
        Ok(unsafe { stat.assume_init() })
    }
}
