//! [`Sandbox`]: a region in a memfd and calls on it, by path.

use std::ffi::CString;
use std::sync::{Mutex, MutexGuard};

use lp_abi::linux::{AT_FDCWD, AT_REMOVEDIR, O_CREAT, O_RDWR};
use lp_abi::{Errno, Result};
use lp_region::{Geometry, Region};
use lp_vfs::open::Opened;
use lp_vfs::{Place, Task, boot, clock, table};

/// Credentials are the process's, and a fork must not catch another test's locks: one sandbox at a time.
static ONE: Mutex<()> = Mutex::new(());

/// A file system with one mount, `/light`, and the survivor's task on it.
pub struct Sandbox {
    /// The survivor.
    pub task: Task<'static>,
    fd: i32,
    _one: MutexGuard<'static, ()>,
}

/// A path as calls take it.
pub fn path(text: &str) -> CString {
    CString::new(text).expect("no NUL in a path")
}

impl Sandbox {
    /// A fresh one.
    pub fn new() -> Sandbox {
        let one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // SAFETY: the name is NUL-terminated.
        let fd = unsafe { libc::memfd_create(c"lightpath-crash".as_ptr(), 0) };
        assert!(fd >= 0, "memfd_create: {}", std::io::Error::last_os_error());
        let geometry = Geometry { data_bytes: 64 << 20, inodes: 10_000, identity: 7 };
        let region = Region::create(fd, &geometry).expect("a region");
        let setup = boot::RunSetup {
            mounts: &[b"/light"],
            covers: 0,
            launcher: b"",
            cache: b"",
            preload: b"",
            stats: 0,
        };
        let run = boot::claim_run(region, &setup).expect("a run");
        let process = boot::claim_process(region, run).expect("a process slot");
        let lane = boot::attach(region, process, std::process::id()).expect("a lane");
        let task = Task::new(region, process, lane, clock::now);
        boot::arrive(&task);
        boot::mkfs(&task, 0).expect("a root");
        Sandbox { task, fd, _one: one }
    }
}

impl Default for Sandbox {
    fn default() -> Self {
        Sandbox::new()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // SAFETY: nothing uses the region after its sandbox; the descriptor is ours.
        unsafe {
            self.task.region.unmap();
            libc::close(self.fd);
        }
    }
}

/// What is inside; these paths never lead outside.
pub fn inside<T>(place: Result<Place<T>>) -> Result<T> {
    match place? {
        Place::Inside(value) => Ok(value),
        Place::Outside(_) => Err(Errno::EXDEV),
    }
}

/// Opens a file and gives it the lowest free number. Allocates nothing: the victim calls it.
pub fn open(task: &Task, path: &CString, flags: u32) -> Result<i32> {
    match inside(lp_vfs::open::openat(task, AT_FDCWD, path.as_ptr().cast(), flags, 0o644))? {
        Opened::File(id) => {
            let fd = table::lowest(task, 0, 1024)?;
            table::install(task, fd, id, 0)?;
            Ok(fd)
        }
        Opened::HostNode(..) => Err(Errno::ENXIO),
    }
}

/// Makes a file with this content.
pub fn put(task: &Task, name: &str, content: &[u8]) -> Result<()> {
    let fd = open(task, &path(name), O_CREAT | O_RDWR)?;
    let mut done = 0;
    while done < content.len() {
        done += lp_vfs::write::pwrite(task, fd, content[done..].as_ptr(), content.len() - done, done as i64)?;
    }
    lp_vfs::close::close(task, fd)
}

/// Makes a directory.
pub fn mkdir(task: &Task, name: &str) -> Result<()> {
    inside(lp_vfs::mkdir::mkdirat(task, AT_FDCWD, path(name).as_ptr().cast(), 0o755))
}

/// Removes a name.
pub fn remove(task: &Task, name: &str, is_directory: IsDirectory) -> Result<()> {
    let flags = if is_directory == IsDirectory::Yes { AT_REMOVEDIR } else { 0 };
    inside(lp_vfs::unlink::unlinkat(task, AT_FDCWD, path(name).as_ptr().cast(), flags))
}

/// Whether a name to be removed is a directory's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IsDirectory {
    /// rmdir(2).
    Yes,
    /// unlink(2).
    No,
}
