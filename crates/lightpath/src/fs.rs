//! [`Fs`]: a file system in private memory.

use lp_abi::Result;
use lp_region::process::protections;
use lp_region::{Geometry, Region, RegionError, RunId};
use lp_vfs::boot::{self, RunSetup};

use crate::Task;
use lp_abi::Errno;

/// A file system in this process's memory. It is empty when created and gone when dropped.
///
/// It is like a private tmpfs mount. It is used through [`Task`]s.
pub struct Fs {
    region: Region<'static>,
    run: RunId,
}

impl Fs {
    /// Creates a file system that holds up to `bytes` of data; memory is allocated as files fill it.
    ///
    /// # Errors
    /// `EFBIG` for more than a region can hold; `ENOMEM` when the address space is limited.
    pub fn new(bytes: u64) -> Result<Fs> {
        // SAFETY: the address comes from the kernel.
        unsafe { lp_vfs::clock::init(libc::getauxval(libc::AT_SYSINFO_EHDR) as usize) };
        let geometry = Geometry { data_bytes: bytes, inodes: u64::MAX, identity: identity() };
        let region = Region::create_private(&geometry).map_err(|error| match error {
            RegionError::System(errno) => errno,
            _ => Errno::EUCLEAN,
        })?;
        // The mount covers everything: "/" is the root of the file system, and no path leads out of it.
        let setup = RunSetup { mounts: &[b""], protections: protections::HARDLINKS, ..RunSetup::default() };
        let run = boot::claim_run(region, &setup)?;
        let fs = Fs { region, run };
        boot::mkfs(fs.task()?.inner(), 0)?;
        Ok(fs)
    }

    /// Creates a task with the credentials and the umask of this process, in the root directory.
    ///
    /// # Errors
    /// `EAGAIN` when there are already about 4,000.
    pub fn task(&self) -> Result<Task<'_>> {
        Task::new(self.region, self.run)
    }
}

impl Drop for Fs {
    fn drop(&mut self) {
        // SAFETY: tasks borrow the file system, so none is left, and nothing else refers to the region.
        unsafe { self.region.unmap() }
    }
}

/// A number that distinguishes the file systems of this process, for `st_dev`.
fn identity() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
