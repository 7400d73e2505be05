//! [`Task`]: the caller of system calls.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;

use lp_abi::{Errno, Result, UserPtr, lent};
use lp_region::sync::Ordering;
use lp_region::{Region, RunId};
use lp_vfs::{Place, boot, clock};

/// A caller of system calls, with credentials, working directory, umask and descriptors.
///
/// Like `struct task_struct`, as far as files are concerned. It belongs to one thread at a time. Dropping it
/// closes its descriptors.
pub struct Task<'fs> {
    /// Boxed: its path buffers are large, and a task may move.
    inner: Box<lp_vfs::Task<'fs>>,
}

/// Reading the kernel's umask sets it for a moment, so tasks are created one at a time.
static BEGINNING: Mutex<()> = Mutex::new(());

impl<'fs> Task<'fs> {
    pub(crate) fn new(region: Region<'fs>, run: RunId) -> Result<Task<'fs>> {
        let _one = BEGINNING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let process = boot::claim_process(region, run)?;
        let lane = boot::attach(region, process, std::process::id())?;
        let inner = Box::new(lp_vfs::Task::new(region, process, lane, clock::now));
        // The task that makes the root directory starts without one.
        if let Ok(root) = boot::root_spot(&inner, 0) {
            inner.process.cwd.store(root.to_word(), Ordering::Release);
        }
        Ok(Task { inner })
    }

    pub(crate) fn inner(&self) -> &lp_vfs::Task<'fs> {
        &self.inner
    }

    /// Sets the umask, the permission bits that new files do not get, and returns the previous one: umask(2).
    pub fn umask(&self, mask: u32) -> u32 {
        // Relaxed: only this task's thread uses it.
        self.inner.directories.get().umask.swap(mask & 0o777, Ordering::Relaxed)
    }
}

impl Drop for Task<'_> {
    fn drop(&mut self) {
        boot::exit(&self.inner);
    }
}

/// Longest path, including its NUL, that needs no heap memory.
const SHORT: usize = 256;

/// Makes a call with a path in the form that system calls take.
///
/// # Errors
/// Those of the call; `ENOENT` for a path that contains a NUL, because no file has such a name.
#[inline]
pub(crate) fn with_path<T>(
    path: impl AsRef<Path>,
    call: impl FnOnce(UserPtr) -> Result<Place<T>>,
) -> Result<T> {
    let path = path.as_ref().as_os_str().as_bytes();
    if path.len() >= SHORT || path.contains(&0) {
        let path = CString::new(path).map_err(|_| Errno::ENOENT)?;
        return inside(call(lent::path(&path))?);
    }
    let mut short = [MaybeUninit::<u8>::uninit(); SHORT];
    for (to, from) in short.iter_mut().zip(path.iter().chain([&0])) {
        to.write(*from);
    }
    // SAFETY: `short` holds the path and its NUL for as long as the call takes, which only reads it.
    inside(call(unsafe { UserPtr::new(short.as_ptr().cast()) })?)
}

/// A name, not a path, in the form that system calls take.
///
/// # Errors
/// `EINVAL` when it contains a NUL.
pub(crate) fn c_name(name: &str) -> Result<CString> {
    CString::new(name).map_err(|_| Errno::EINVAL)
}

/// The result of a call in a file system that no path leads out of.
fn inside<T>(place: Place<T>) -> Result<T> {
    match place {
        Place::Inside(value) => Ok(value),
        Place::Outside(_) => Err(Errno::ENOENT),
    }
}
