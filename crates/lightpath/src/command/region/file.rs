//! The file that a region is in: opening it, its lock and its space.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use lp_abi::Errno;
use lp_abi::linux::F_SETSIG;
use lp_region::layout::LANES_AT;
use rustix::fs::{FlockOperation, flock};

use crate::command::output::failure::{Failure, REGION, reason};

const NANOSECONDS: u64 = 1_000_000_000;

/// Opens the region file, creating an empty one if there is none.
pub(crate) fn open(path: &Path) -> Result<OwnedFd, Failure> {
    let fail = |what: &str, e: &std::io::Error| {
        Failure::new(REGION, format!("{what} region file {}: {}", path.display(), reason(e)))
    };
    let mut options = File::options();
    // A FIFO must not make the launcher wait.
    options.read(true).write(true).mode(0o600).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = match options.open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => {
            options.create(true).open(path).map_err(|e| fail("cannot make", &e))?
        }
        opened => opened.map_err(|e| fail("cannot open", &e))?,
    };
    match file.metadata() {
        Ok(found) if found.is_file() => Ok(file.into()),
        Ok(_) => Err(Failure::new(REGION, format!("{} is not a regular file; name another", path.display()))),
        Err(e) => Err(fail("cannot open", &e)),
    }
}

pub(crate) fn locked(fd: &OwnedFd, name: &str, operation: FlockOperation) -> Result<(), Failure> {
    flock(fd, operation).map_err(|e| Failure::new(REGION, format!("locking {name}: {}", reason(&e.into()))))
}

/// Whether any process has a file open, also one that cannot be seen from here: the kernel grants a lease
/// for writing only to the sole holder of a file. False if the file system has no leases, or for another
/// user's file.
pub(crate) fn is_open_elsewhere(path: &Path) -> bool {
    let Ok(file) = File::options().read(true).write(true).open(path) else { return false };
    // If somebody opens the file meanwhile, the kernel tells the holder of the lease by a signal: by one that
    // is ignored, not by SIGIO, which would end the process.
    // SAFETY: fcntl(2) of a descriptor that is open. Closing it ends the lease.
    let leased = unsafe {
        libc::fcntl(file.as_raw_fd(), F_SETSIG as i32, libc::SIGURG);
        libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK)
    };
    leased != 0 && std::io::Error::last_os_error().kind() == ErrorKind::WouldBlock
}

/// When a file last changed, in nanoseconds since 1970. A store through a mapping counts if it is the first
/// to its page since the page was written out.
pub(crate) fn changed(fd: &OwnedFd) -> u64 {
    let time = |found: rustix::fs::Stat| found.st_ctime as u64 * NANOSECONDS + found.st_ctime_nsec;
    rustix::fs::fstat(fd).map_or(u64::MAX, time)
}

/// Reserves space for the first pages of a region file, which are touched before anything is checked;
/// [`lp_vfs::boot::back`] does the rest.
pub(crate) fn make_room(fd: &OwnedFd) -> lp_abi::Result<()> {
    let is_empty = rustix::fs::fstat(fd).is_ok_and(|found| found.st_size == 0);
    if is_empty && let Ok(flags) = rustix::fs::ioctl_getflags(fd) {
        // On a copy-on-write file system, space reserved for the first write of a block does not cover the
        // second. A file system that does not support the flag does not need it.
        let _ = rustix::fs::ioctl_setflags(fd, flags | rustix::fs::IFlags::NOCOW);
    }
    let made = rustix::fs::fallocate(fd, rustix::fs::FallocateFlags::KEEP_SIZE, 0, LANES_AT as u64);
    match made {
        Err(e) if is_full(e) => Err(Errno::ENOSPC),
        _ => Ok(()), // A file system that cannot promise room says so: see `take_room`.
    }
}

fn is_full(errno: rustix::io::Errno) -> bool {
    errno == rustix::io::Errno::NOSPC || errno == rustix::io::Errno::DQUOT
}

/// Allocates space for the start of a new region file by writing it, if it could not be reserved. The file
/// stays empty if there is not enough space.
pub(super) fn take_room(fd: &OwnedFd) -> lp_abi::Result<()> {
    let has = rustix::fs::fstat(fd).map_or(0, |found| found.st_blocks as usize * 512);
    if has >= LANES_AT {
        return Ok(());
    }
    let zeros = [0; 1 << 16];
    let mut at = 0;
    while at < LANES_AT {
        let piece = &zeros[..zeros.len().min(LANES_AT - at)];
        match rustix::io::pwrite(fd, piece, at as u64) {
            Ok(done) => at += done,
            Err(e) => {
                let _ = rustix::fs::ftruncate(fd, 0);
                return Err(if is_full(e) { Errno::ENOSPC } else { Errno::new(e.raw_os_error()) });
            }
        }
    }
    Ok(())
}

pub(crate) fn no_room(name: &str, errno: Errno) -> Failure {
    let line = match errno {
        Errno::ENOSPC => "its file system has no room for it".to_owned(),
        errno => reason(&std::io::Error::from_raw_os_error(errno.number())),
    };
    Failure::new(REGION, format!("{name}: {line}"))
}
