//! [`Place`]: where on the host the objects of FIFOs, sockets and devices lie.
//!
//! They lie in the cache directory, unless its path is too long for the addresses of sockets. A process for
//! which a place is read-only or missing, as in a mount namespace or a root of its own, moves the run to the
//! next that it can use ([`prepare`]). The object at the run's current place is the one that counts: an inode
//! that has its object at an earlier place gets a symbolic link to that one.

use lp_abi::linux::{__NR_access, __NR_chmod, __NR_gettid, __NR_mkdir, __NR_rename, __NR_rmdir, F_OK, W_OK};
use lp_abi::text::Writer;
use lp_abi::{Errno, Result};
use lp_region::InodeRef;
use lp_region::process::Run;
use lp_region::sync::Ordering;
use lp_vfs::task::Task;

use crate::high::run::words::{NODES, NODES_IN_MEMORY, NODES_IN_TMP};

/// Longest path of a directory of objects: a socket's 108 bytes less the name.
const DIRECTORY: usize = 80;
/// Space for the path of an object.
pub(crate) const PATH: usize = 128;
/// Space for a path, and for what makes another name of it.
pub(crate) const OTHER: usize = 144;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) enum Place {
    /// `nodes` in the run's cache directory.
    Cache,
    /// A directory in /tmp.
    Temporary,
    /// A directory in /dev/shm.
    Memory,
}

impl Place {
    /// All, the preferred ones first.
    const ALL: [Place; 3] = [Place::Cache, Place::Temporary, Place::Memory];

    /// Where new objects of a run get created.
    pub(crate) fn current(run: &Run) -> Place {
        // PAIRS: the bit that `prepare` sets.
        let bits = run.host_objects.load(Ordering::Acquire);
        match () {
            () if bits & NODES_IN_MEMORY != 0 => Place::Memory,
            () if bits & NODES_IN_TMP != 0 => Place::Temporary,
            () => Place::first(run),
        }
    }

    /// Where its first objects got created.
    pub(super) fn first(run: &Run) -> Place {
        let fits = run.cache.get().len() + 23 <= DIRECTORY;
        if fits { Place::Cache } else { Place::Temporary }
    }

    /// The places where objects of a run may lie, the current one first.
    pub(crate) fn used(run: &Run) -> impl Iterator<Item = Place> {
        let (first, current) = (Place::first(run), Place::current(run));
        Place::ALL.into_iter().rev().filter(move |place| (first..=current).contains(place))
    }

    /// Bit of `Run::host_objects` that makes it the current one.
    fn bit(self) -> u64 {
        match self {
            Place::Cache => 0,
            Place::Temporary => NODES_IN_TMP,
            Place::Memory => NODES_IN_MEMORY,
        }
    }

    /// Mode of the directory. Everyone can read the names in /tmp and /dev/shm.
    fn mode(self) -> u32 {
        if self == Place::Cache { 0o777 } else { 0o700 }
    }

    /// Writes the path of the object of `inode` to `to`, NUL-terminated. Returns its length and that of the
    /// directory's path.
    ///
    /// # Errors
    /// `ENAMETOOLONG`.
    pub(crate) fn path(self, task: &Task, inode: InodeRef, to: &mut [u8]) -> Result<(usize, usize)> {
        let mut path = Writer::new(to);
        match self {
            Place::Cache => {
                path.push(task.run.cache.get());
                path.push(b"/nodes/");
            }
            Place::Temporary => path.push(b"/tmp/lightpath-nodes-"),
            Place::Memory => path.push(b"/dev/shm/lightpath-nodes-"),
        }
        path.push_hex(task.region.header().identity.load(Ordering::Relaxed), 16); // Relaxed: immutable.
        let directory = path.length();
        path.push(b"/");
        path.push_decimal(u64::from(inode.id.0));
        path.push(b"-");
        path.push_decimal(u64::from(inode.generation));
        Ok((path.finish().ok_or(Errno::ENAMETOOLONG)?, directory))
    }

    /// Creates the directory unless it is there. Returns whether objects can be created in it, as far as this
    /// does not depend on the user.
    fn make(self, task: &Task) -> bool {
        let mut room = [0; PATH];
        let Ok((_, directory)) = self.path(task, InodeRef::NONE, &mut room) else { return false };
        let path = &mut room[..=directory];
        path[directory] = 0;
        match accessible(path, W_OK) {
            Err(Errno::ENOENT) => {}
            found => return is_usable(found),
        }
        let Some(other) = other_name(&path[..directory]) else { return false };
        // SAFETY: NUL-terminated paths. It fails if another process was faster, and its directory is in use.
        unsafe {
            let _ = lp_abi::syscall!(__NR_mkdir, other.as_ptr(), self.mode());
            let _ = lp_abi::syscall!(__NR_chmod, other.as_ptr(), self.mode());
            if lp_abi::syscall!(__NR_rename, other.as_ptr(), path.as_ptr()).is_err() {
                let _ = lp_abi::syscall!(__NR_rmdir, other.as_ptr());
            }
        }
        is_usable(accessible(path, W_OK))
    }
}

/// Whether a directory is there and writable. One that the user may not write to is another user's.
fn is_usable(found: Result<()>) -> bool {
    matches!(found, Ok(()) | Err(Errno::EACCES))
}

fn accessible(path: &[u8], mode: u32) -> Result<()> {
    // SAFETY: callers pass NUL-terminated paths.
    unsafe { lp_abi::syscall!(__NR_access, path.as_ptr(), mode) }.map(drop)
}

/// A name beside `path` that no other thread uses.
pub(super) fn other_name(path: &[u8]) -> Option<[u8; OTHER]> {
    let mut name = [0; OTHER];
    let mut text = Writer::new(&mut name);
    text.push(path);
    text.push(b".");
    // SAFETY: gettid(2) takes no arguments.
    text.push_decimal(unsafe { lp_abi::syscall!(__NR_gettid) }.ok()? as u64);
    text.finish()?;
    Some(name)
}

/// Whether there is an object at a NUL-terminated path.
pub(super) fn exists(path: &[u8]) -> bool {
    accessible(path, F_OK).is_ok()
}

/// Makes the directory of objects ready, and sets [`NODES`]. If this process cannot use the current one,
/// moves the run to the next that it can. Returns the place that is current now.
pub(crate) fn prepare(task: &Task) -> Place {
    let objects = &task.run.host_objects;
    objects.fetch_or(NODES, Ordering::Relaxed); // Relaxed: see `node::any_of`.
    let current = Place::current(task.run);
    let usable = Place::ALL.into_iter().find(|place| *place >= current && place.make(task));
    if let Some(next) = usable.filter(|place| *place != current) {
        // PAIRS: the load in `current`. A full barrier: a process that creates an object at an earlier place
        // looks at the current one afterwards, and we look at that object after this.
        objects.fetch_or(next.bit(), Ordering::SeqCst);
    }
    Place::current(task.run)
}

/// Whether a path leads to an object.
pub(super) fn holds(task: &Task, path: &[u8]) -> bool {
    let mut room = [0; PATH];
    let mut places = Place::used(task.run);
    places.any(|place| {
        place.path(task, InodeRef::NONE, &mut room).is_ok_and(|(_, end)| path.starts_with(&room[..end]))
    })
}
