//! Names: creating, removing and listing directory entries.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use lp_abi::{Errno, PATH_MAX, Result, UserPtr, lent};
use lp_vfs::link::Two;
use lp_vfs::{Place, access, chdir, getcwd, getdents, link, mkdir, mknod, readlink, rename, symlink, unlink};

use crate::task::with_path;
use crate::{Fd, Task};

impl Task<'_> {
    /// Creates a directory: mkdir(2).
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
        with_path(path, |path| mkdir::mkdirat(self.inner(), dir, path, mode))
    }

    /// Creates a file of any type: mknod(2).
    ///
    /// # Errors
    /// Those of mknod(2).
    pub fn mknod(&self, path: impl AsRef<Path>, mode: u32, device: u32) -> Result<()> {
        with_path(path, |path| mknod::mknodat(self.inner(), Fd::CWD, path, mode, device))
    }

    /// Creates a symbolic link: symlink(2).
    ///
    /// # Errors
    /// Those of symlink(2).
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        with_path(target, |target| {
            with_path(path, |path| symlink::symlinkat(self.inner(), target, Fd::CWD, path)).map(Place::Inside)
        })
    }

    /// The target of a symbolic link: readlink(2).
    ///
    /// # Errors
    /// Those of readlink(2).
    pub fn readlink(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let mut target = vec![0; PATH_MAX];
        let length = with_path(path, |path| {
            readlink::readlinkat(self.inner(), Fd::CWD, path, lent::room(&mut target))
        })?;
        target.truncate(length);
        Ok(OsString::from_vec(target).into())
    }

    /// Gives a file another name: link(2).
    ///
    /// # Errors
    /// Those of link(2).
    pub fn link(&self, old: impl AsRef<Path>, new: impl AsRef<Path>) -> Result<()> {
        self.linkat(Fd::CWD, old, Fd::CWD, new, 0)
    }

    /// As [`Task::link`], relative to directories: linkat(2).
    ///
    /// # Errors
    /// Those of linkat(2).
    pub fn linkat(
        &self,
        old_dir: Fd,
        old: impl AsRef<Path>,
        new_dir: Fd,
        new: impl AsRef<Path>,
        flags: u32,
    ) -> Result<()> {
        with_paths(old, new, |old, new| link::linkat(self.inner(), old_dir, old, new_dir, new, flags))
    }

    /// Renames a file, replacing any file at the new path: rename(2).
    ///
    /// # Errors
    /// Those of rename(2).
    pub fn rename(&self, old: impl AsRef<Path>, new: impl AsRef<Path>) -> Result<()> {
        self.renameat2(Fd::CWD, old, Fd::CWD, new, 0)
    }

    /// As [`Task::rename`], relative to directories and with flags: renameat2(2).
    ///
    /// # Errors
    /// Those of renameat2(2).
    pub fn renameat2(
        &self,
        old_dir: Fd,
        old: impl AsRef<Path>,
        new_dir: Fd,
        new: impl AsRef<Path>,
        flags: u32,
    ) -> Result<()> {
        with_paths(old, new, |old, new| rename::renameat2(self.inner(), old_dir, old, new_dir, new, flags))
    }

    /// Removes a name: unlink(2).
    ///
    /// # Errors
    /// Those of unlink(2).
    pub fn unlink(&self, path: impl AsRef<Path>) -> Result<()> {
        with_path(path, |path| unlink::unlink(self.inner(), Fd::CWD, path))
    }

    /// Removes an empty directory: rmdir(2).
    ///
    /// # Errors
    /// Those of rmdir(2).
    pub fn rmdir(&self, path: impl AsRef<Path>) -> Result<()> {
        with_path(path, |path| unlink::rmdir(self.inner(), Fd::CWD, path))
    }

    /// As [`Task::unlink`] or [`Task::rmdir`], relative to a directory: unlinkat(2).
    ///
    /// # Errors
    /// Those of unlinkat(2).
    pub fn unlinkat(&self, dir: Fd, path: impl AsRef<Path>, flags: u32) -> Result<()> {
        with_path(path, |path| unlink::unlinkat(self.inner(), dir, path, flags))
    }

    /// Whether the task may read, write or execute the file at a path: access(2).
    ///
    /// # Errors
    /// Those of access(2).
    pub fn access(&self, path: impl AsRef<Path>, mode: u32) -> Result<()> {
        with_path(path, |path| access::faccessat(self.inner(), Fd::CWD, path, mode, 0))
    }

    /// Changes the working directory: chdir(2).
    ///
    /// # Errors
    /// Those of chdir(2).
    pub fn chdir(&self, path: impl AsRef<Path>) -> Result<()> {
        with_path(path, |path| chdir::chdir(self.inner(), path))
    }

    /// Changes the working directory to an open directory: fchdir(2).
    ///
    /// # Errors
    /// Those of fchdir(2).
    pub fn fchdir(&self, fd: Fd) -> Result<()> {
        chdir::fchdir(self.inner(), fd)
    }

    /// The working directory: getcwd(2).
    ///
    /// # Errors
    /// Those of getcwd(2).
    pub fn getcwd(&self) -> Result<PathBuf> {
        let mut path = vec![0; PATH_MAX];
        let length = getcwd::getcwd(self.inner(), lent::room(&mut path))?.ok_or(Errno::ENOENT)?;
        path.truncate(length.saturating_sub(1)); // The final NUL counts.
        Ok(OsString::from_vec(path).into())
    }

    /// Fills `into` with records of an open directory, from its position on; returns 0 at its end:
    /// getdents64(2).
    ///
    /// # Errors
    /// Those of getdents64(2).
    pub fn getdents(&self, dir: Fd, into: &mut [u8]) -> Result<usize> {
        getdents::getdents64(self.inner(), dir, lent::room(into))
    }

    /// The entries of an open directory from its position to its end, including `.` and `..`: readdir(3).
    ///
    /// # Errors
    /// Those of getdents64(2).
    pub fn entries(&self, dir: Fd) -> Result<Vec<DirEntry>> {
        let mut all = Vec::new();
        let mut records = vec![0; 32 << 10];
        loop {
            let length = self.getdents(dir, &mut records)?;
            if length == 0 {
                return Ok(all);
            }
            let mut rest = &records[..length];
            while let Some((entry, next)) = DirEntry::split_from(rest) {
                all.push(entry);
                rest = next;
            }
        }
    }
}

/// A directory entry, like `struct dirent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Inode number (`d_ino`).
    pub ino: u64,
    /// Position after this entry, an offset for [`Task::lseek`] (`d_off`).
    pub next: i64,
    /// File type, one of the `DT_` constants of readdir(3) (`d_type`).
    pub kind: u8,
    /// The name.
    pub name: OsString,
}

impl DirEntry {
    /// The first of several records of getdents64(2), and the records after it.
    fn split_from(records: &[u8]) -> Option<(DirEntry, &[u8])> {
        let (ino, rest) = records.split_first_chunk::<8>()?;
        let (next, rest) = rest.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let (kind, name) = rest.split_first()?;
        let entry = DirEntry {
            ino: u64::from_ne_bytes(*ino),
            next: i64::from_ne_bytes(*next),
            kind: *kind,
            name: OsString::from_vec(name.iter().copied().take_while(|byte| *byte != 0).collect()),
        };
        Some((entry, records.get(usize::from(u16::from_ne_bytes(*length))..)?))
    }
}

/// Makes a call with two paths.
fn with_paths(
    old: impl AsRef<Path>,
    new: impl AsRef<Path>,
    call: impl FnOnce(UserPtr, UserPtr) -> Result<Two>,
) -> Result<()> {
    let two =
        with_path(old, |old| with_path(new, |new| call(old, new).map(Place::Inside)).map(Place::Inside))?;
    match two {
        Two::Done => Ok(()),
        // No path leads out of the file system.
        Two::Outside { .. } => Err(Errno::ENOENT),
    }
}
