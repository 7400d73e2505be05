//! Memfds with files of ours, for the kernel to execute or the builder of site images to read.

use core::ffi::CStr;

use lp_abi::linux::{__NR_ftruncate, __NR_lseek, __NR_pwrite64, __NR_sendfile, __NR_write, SEEK_SET};
use lp_abi::{Errno, Fd, OwnedFd, Result};
use lp_region::InodeRef;
use lp_vfs::task::Task;
use lp_vfs::version::Version;
use lp_vfs::{below, mapping, version};

use crate::high::frame::at::spare_buffer;
use crate::high::frame::content::read_at;
use crate::high::run::shelf::{self, Label};
use crate::low::tools::memfd;

/// Bytes that a copy of a program has in place of the program's.
pub(crate) struct Change {
    /// Their offset in the file.
    pub(crate) at: u64,
    pub(crate) bytes: [u8; Change::ROOM],
    pub(crate) length: usize,
}

impl Change {
    /// Most bytes of a change.
    pub(crate) const ROOM: usize = 40;

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length.min(Change::ROOM)]
    }

    fn make(&self, fd: Fd) -> Result<()> {
        let bytes = self.bytes();
        // SAFETY: the kernel reads the bytes.
        unsafe { lp_abi::syscall!(__NR_pwrite64, fd, bytes.as_ptr(), bytes.len(), self.at) }.map(drop)
    }
}

/// A memfd with a program, close-on-exec: a copy from the run's shelf, or a new one. The caller has the inode
/// pinned.
///
/// # Errors
/// Those of read(2), memfd_create(2) and write(2).
pub(crate) fn of_program(task: &Task, program: InodeRef, name: &CStr, change: Option<&Change>) -> Result<Fd> {
    let copy = || {
        let made = copied(task, program, name)?;
        change.map_or(Ok(()), |change| change.make(made.get())).map(|()| made.keep())
    };
    below::complete(task, task.region.inode(program.id))?;
    let Some(version) = version::of(task, program) else { return copy() };
    let label = Label::new(version, &[name.to_bytes(), change.map_or(&[], Change::bytes)]);
    if let Some(fd) = shelf::find(task, label) {
        return Ok(fd);
    }
    let fd = copy()?;
    if version::of(task, program) == Some(version) {
        shelf::keep(task, label, fd);
    }
    Ok(fd)
}

/// A memfd with an inode's content, close-on-exec. The caller has the inode pinned.
///
/// # Errors
/// As [`of_program`].
pub(crate) fn copied(task: &Task, of: InodeRef, name: &CStr) -> Result<OwnedFd> {
    // SAFETY: `name` is NUL-terminated.
    let made = unsafe { memfd::executable(name.as_ptr().cast()) }?;
    let fd = made.get();
    // A process that has restricted itself makes no more calls of its own than it must.
    let may_ask = task.region.has_file() && !lp_abi::sys::is_limited();
    match version::of(task, of).filter(|_| may_ask) {
        Some(version) => {
            by_kernel(task, of, fd, version).or_else(|_| empty(fd).and_then(|()| by_process(task, of, fd)))
        }
        None => by_process(task, of, fd),
    }?;
    Ok(made)
}

/// Lets the kernel copy the pages of a version of the file from the region's file.
///
/// # Errors
/// `ESTALE` if the file is changed meanwhile; those of ftruncate(2), lseek(2) and sendfile(2).
fn by_kernel(task: &Task, of: InodeRef, fd: Fd, version: Version) -> Result<()> {
    let (from, size) = (task.region.fd(), version.bytes());
    // SAFETY: the calls take numbers.
    unsafe { lp_abi::syscall!(__NR_ftruncate, fd, size) }?;
    mapping::pieces(task, of, 0, size as usize, 0, &mut |piece| {
        let Some(at) = piece.region else { return Ok(()) };
        let mut at = at as i64;
        let end = at + (piece.bytes as u64).min(size - piece.offset) as i64;
        // SAFETY: as above; the kernel advances `at`, which lives here.
        unsafe {
            lp_abi::syscall!(__NR_lseek, fd, piece.offset, SEEK_SET)?;
            while at < end {
                if lp_abi::syscall!(__NR_sendfile, fd, from, &raw mut at, (end - at) as usize)? == 0 {
                    return Err(Errno::EIO);
                }
            }
        }
        Ok(())
    })?;
    // Pages that were freed meanwhile may have had another file's content.
    if version::of(task, of) == Some(version) { Ok(()) } else { Err(Errno::ESTALE) }
}

/// Empties a memfd for another attempt.
fn empty(fd: Fd) -> Result<()> {
    // SAFETY: the calls take numbers.
    unsafe {
        lp_abi::syscall!(__NR_ftruncate, fd, 0)?;
        lp_abi::syscall!(__NR_lseek, fd, 0, SEEK_SET)?;
    }
    Ok(())
}

/// Copies the content through the process's memory, each piece as one read.
fn by_process(task: &Task, of: InodeRef, fd: Fd) -> Result<()> {
    let inode = task.region.inode(of.id);
    let bounce = spare_buffer();
    let mut at = 0;
    loop {
        let got = read_at(task, inode, bounce, at)?;
        if got == 0 {
            return Ok(());
        }
        // SAFETY: the kernel reads `got` bytes of the buffer.
        let put = unsafe { lp_abi::syscall!(__NR_write, fd, bounce.as_ptr(), got) }?;
        at += put as u64;
    }
}
