//! Content: read(2), write(2), lseek(2) and related calls.

use std::path::Path;

use lp_abi::{Result, UserPtr, lent};
use lp_vfs::{copy, fallocate, fsync, lseek, read, truncate, write};

use crate::task::with_path;
use crate::{Fd, Task};

impl Task<'_> {
    /// Reads at the file's position and advances it; returns fewer bytes than requested at the end of the
    /// file: read(2).
    ///
    /// # Errors
    /// Those of read(2).
    #[inline]
    pub fn read(&self, fd: Fd, into: &mut [u8]) -> Result<usize> {
        read::read(self.inner(), fd, lent::room(into))
    }

    /// Reads at `offset`: pread(2).
    ///
    /// # Errors
    /// Those of pread(2).
    #[inline]
    pub fn pread(&self, fd: Fd, into: &mut [u8], offset: i64) -> Result<usize> {
        read::pread(self.inner(), fd, lent::room(into), offset)
    }

    /// Writes at the file's position and advances it; writes fewer bytes than given when the file system is
    /// full: write(2).
    ///
    /// # Errors
    /// Those of write(2); no signal is sent with `EFBIG`.
    #[inline]
    pub fn write(&self, fd: Fd, from: &[u8]) -> Result<usize> {
        write::write(self.inner(), fd, lent::bytes(from))
    }

    /// Writes at `offset`: pwrite(2).
    ///
    /// # Errors
    /// Those of pwrite(2).
    #[inline]
    pub fn pwrite(&self, fd: Fd, from: &[u8], offset: i64) -> Result<usize> {
        write::pwrite(self.inner(), fd, lent::bytes(from), offset)
    }

    /// Moves the file's position, or finds data and holes: lseek(2).
    ///
    /// # Errors
    /// Those of lseek(2).
    #[inline]
    pub fn lseek(&self, fd: Fd, offset: i64, whence: u32) -> Result<u64> {
        lseek::lseek(self.inner(), fd, offset, whence)
    }

    /// Truncates or extends a file: truncate(2).
    ///
    /// # Errors
    /// Those of truncate(2).
    pub fn truncate(&self, path: impl AsRef<Path>, length: i64) -> Result<()> {
        with_path(path, |path| truncate::truncate(self.inner(), Fd::CWD, path, length))
    }

    /// Truncates or extends an open file: ftruncate(2).
    ///
    /// # Errors
    /// Those of ftruncate(2).
    pub fn ftruncate(&self, fd: Fd, length: i64) -> Result<()> {
        truncate::ftruncate(self.inner(), fd, length)
    }

    /// Allocates or frees space: fallocate(2).
    ///
    /// # Errors
    /// Those of fallocate(2).
    pub fn fallocate(&self, fd: Fd, mode: u32, offset: i64, length: i64) -> Result<()> {
        fallocate::fallocate(self.inner(), fd, mode, offset, length)
    }

    /// Checks the descriptor; there is nothing to sync: fsync(2).
    ///
    /// # Errors
    /// Those of fsync(2).
    pub fn fsync(&self, fd: Fd) -> Result<()> {
        fsync::fsync(self.inner(), fd, fsync::Sync::File)
    }

    /// Copies up to `length` bytes from one file to another, at `from_offset` and `to_offset`. Without
    /// offsets it copies at the files' positions and advances them: copy_file_range(2).
    ///
    /// # Errors
    /// Those of copy_file_range(2).
    pub fn copy_file_range(
        &self,
        from: Fd,
        from_offset: Option<&mut i64>,
        to: Fd,
        to_offset: Option<&mut i64>,
        length: usize,
    ) -> Result<usize> {
        let pointer = |offset: Option<&mut i64>| offset.map_or(UserPtr::NULL, lent::value);
        let (from_offset, to_offset) = (pointer(from_offset), pointer(to_offset));
        copy::copy_file_range(self.inner(), from, from_offset, to, to_offset, length, 0)
    }
}
