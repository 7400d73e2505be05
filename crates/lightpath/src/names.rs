//! Names: making, removing and listing what directories hold.

use std::path::Path;

use lp_abi::Result;
use lp_vfs::{Place, mkdir, mknod, symlink};

use crate::task::with_path;
use crate::{Fd, Task};

impl Task<'_> {
    /// Makes a directory: mkdir(2).
    ///
    /// # Errors
    /// Those of mkdir(2).
    pub fn mkdir(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        self.mkdirat(Fd::CWD, path, mode)
    }

    /// As [`Task::mkdir`], relative to a directory: mkdirat(2).
    ///
    /// # Errors
    /// Those of mkdirat(2).
    pub fn mkdirat(&self, dir: Fd, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        with_path(path, |path| mkdir::mkdirat(self.inner(), dir.0, path, mode))
    }

    /// Makes a file of any kind: mknod(2).
    ///
    /// # Errors
    /// Those of mknod(2).
    pub fn mknod(&self, path: impl AsRef<Path>, mode: u32, device: u32) -> Result<()> {
        with_path(path, |path| mknod::mknodat(self.inner(), Fd::CWD.0, path, mode, device))
    }

    /// Makes a symbolic link: symlink(2).
    ///
    /// # Errors
    /// Those of symlink(2).
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        with_path(target, |target| {
            with_path(path, |path| symlink::symlinkat(self.inner(), target, Fd::CWD.0, path))
                .map(Place::Inside)
        })
    }
}
