//! `run --from FILE`: a region of a run's own that begins as a frozen one.

use std::fs::File;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use lp_abi::Errno;
use lp_region::Region;
use lp_region::layout::MAGIC;
use lp_region::records::Header;
use lp_region::sync::Ordering::Relaxed;
use lp_vfs::Task;
use lp_vfs::below::frozen;
use lp_vfs::below::list::Record;

use super::origin::record_of;
use super::{extents, skeleton};
use crate::command::output::failure::{Failure, REGION, reason};
use crate::command::region::make;
use crate::command::region::packed::refuse_packed;

/// A copy of a frozen region.
pub(crate) struct Branch {
    pub(crate) fd: OwnedFd,
    /// Where the content of files is, if it is not in the copy.
    pub(crate) below: Option<Below>,
}

/// A frozen region that has the content of a branch's files.
pub(crate) struct Below {
    path: PathBuf,
    seen: Record,
}

impl From<OwnedFd> for Branch {
    fn from(fd: OwnedFd) -> Branch {
        Branch { fd, below: None }
    }
}

/// A copy of the frozen region in a file: one that shares its blocks if the file system can do that, else one
/// in memory, without the content of files.
pub(crate) fn of(path: &Path) -> Result<Branch, Failure> {
    let fail = |e: std::io::Error| Failure::new(REGION, format!("{}: {}", path.display(), reason(&e)));
    let from = open(path)?;
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let unnamed =
        File::options().read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE).open(above);
    if let Some(to) = unnamed.ok().filter(|to| extents::by_reference(&from, to)) {
        return Ok(OwnedFd::from(to).into());
    }
    let to = File::from(make::open_memory()?);
    let seen = || from.metadata().map(|found| record_of(&found)).map_err(fail);
    let before = seen()?;
    let path = path.canonicalize().map_err(fail)?;
    skeleton::copy(&from, &to).map_err(fail)?;
    // Its access time has changed.
    let known = |record: &Record| (record.size, record.seconds[2], record.nanoseconds[2]);
    if known(&seen()?) != known(&before) {
        return Err(Failure::new(REGION, format!("{} has changed as it was copied", path.display())));
    }
    Ok(Branch { fd: to.into(), below: Some(Below { path, seen: before }) })
}

impl Below {
    /// Records it in the region of a run that is about to start.
    pub(crate) fn lay(&self, task: &Task) -> lp_abi::Result<()> {
        frozen::lay(task, self.path.as_os_str().as_bytes(), &self.seen)
    }

    /// Why it could not be recorded.
    pub(crate) fn failed(&self, errno: Errno) -> Failure {
        Failure::new(REGION, format!("the branch of {}: {errno:?}", self.path.display()))
    }
}

/// Opens a frozen region.
pub(crate) fn open(path: &Path) -> Result<File, Failure> {
    let fail = |line: &str| Failure::new(REGION, format!("{} {line}", path.display()));
    let from = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let from = from.map_err(|e| Failure::new(REGION, format!("{}: {}", path.display(), reason(&e))))?;
    refuse_packed(&from, &path.display().to_string())?;
    let word = |at: usize| {
        let mut word = [0; 8];
        from.read_exact_at(&mut word, at as u64).map(|()| u64::from_ne_bytes(word))
    };
    match (word(offset_of!(Header, magic)), word(offset_of!(Header, frozen))) {
        (Ok(MAGIC), Ok(1)) => Ok(from),
        (Ok(MAGIC), _) => Err(fail("has been used since it was frozen: make another with lightpath freeze")),
        _ => Err(fail("is not a frozen region: see lightpath freeze")),
    }
}

/// Makes a copy a region of its own.
pub(crate) fn own(region: Region<'static>) -> Result<(), Failure> {
    region.set_identity(make::identity()?);
    let is_memory = rustix::fs::fcntl_get_seals(fd(region)).is_ok();
    match is_memory {
        // Relaxed: no process of a run has it yet.
        true => region.header().in_file.store(0, Relaxed),
        false => {
            // Shared blocks are not in the page cache yet, and what this process touches of them lies far
            // apart. The command has a mapping of its own. A failure only costs time. SAFETY: changes only
            // what is read ahead of the region's mapping.
            let _ = unsafe { libc::madvise(region.base().cast(), region.length(), libc::MADV_RANDOM) };
            region.mark_boot();
        }
    }
    Ok(())
}

/// The region's descriptor.
fn fd(region: Region<'static>) -> std::os::fd::BorrowedFd<'static> {
    // SAFETY: it stays open for ever.
    unsafe { std::os::fd::BorrowedFd::borrow_raw(region.fd().raw()) }
}
