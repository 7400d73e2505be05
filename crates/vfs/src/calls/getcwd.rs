//! getcwd(2), and the paths of inodes, to which `/proc/self/cwd` and `/proc/self/fd/N` link.

use lp_abi::{Errno, NAME_MAX, PATH_MAX, Result, UserSlice};
use lp_region::process::Process;
use lp_region::records::OpenFile;
use lp_region::sync::Ordering;
use lp_region::{DirentId, InodeId, InodeRef, MountId, Spot, ucopy};

use crate::caller::task::Task;
use crate::names::mounts::{self, AboveRoot};
use crate::names::{dirent, root};

/// What the kernel's d_path appends to the path of something without a name.
const DELETED: &[u8] = b" (deleted)";

/// What the kernel's dentry_path appends.
const REMOVED: &[u8] = b"//deleted";

/// What getcwd puts before the path of a directory that is out of the tree.
const UNREACHABLE: &[u8] = b"(unreachable)";

/// Where a path starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// At the process's root directory, if what it names is there; else at the host's.
    Root,
    /// At the host's root directory.
    Host,
}

/// Maximum number of retries because a rename came in between.
const TRIES: u32 = 1000;

/// Copies the NUL-terminated path of the working directory to the program's buffer and returns its length
/// with the NUL; `None` if the directory is the host's.
///
/// # Errors
/// `ERANGE` if it does not fit, `ENOENT` if the directory was removed, `EFAULT`.
pub fn getcwd(task: &Task<'_>, buffer: UserSlice) -> Result<Option<usize>> {
    let cwd = task.directories.get().cwd.load(Ordering::Relaxed); // Relaxed: one word, as seen.
    if cwd == 0 {
        return Ok(None);
    }
    let cwd = Spot::from_word(cwd);
    if mounts::is_gone(task, cwd.inode) {
        return Err(Errno::ENOENT);
    }
    let path = of_spot(task, cwd, Start::Root, UNREACHABLE)?;
    if path.len() + 1 > buffer.len() {
        return Err(Errno::ERANGE);
    }
    // SAFETY: a NUL follows the path; the copy routine handles bad pointers.
    unsafe { ucopy::copy(buffer.start().as_ptr(), path.as_ptr(), path.len() + 1) }?;
    Ok(Some(path.len() + 1))
}

/// The path of a directory, in `scratch.outside`, followed by a NUL.
///
/// # Errors
/// `ENAMETOOLONG`.
pub fn of_directory<'t>(task: &'t Task<'_>, dir: Spot, start: Start) -> Result<&'t [u8]> {
    of_spot(task, dir, start, b"")
}

/// The path of a directory. `unreachable` is put before the path of one that is not below the process's root,
/// or in a mount that is out of the tree.
fn of_spot<'t>(task: &'t Task<'_>, dir: Spot, start: Start, unreachable: &[u8]) -> Result<&'t [u8]> {
    let top = start.top(task);
    for _ in 0..TRIES {
        let mut text = PathBuilder::new(task, top);
        match climb(task, &mut text, dir)? {
            Climbed::Moved => {}
            Climbed::Top => return Ok(text.get(task)),
            Climbed::Nowhere => {
                text.prepend(unreachable)?;
                return Ok(text.get(task));
            }
        }
    }
    Err(Errno::ENOENT)
}

/// Whether a directory is the process's root directory or below it.
pub(crate) fn is_reached(task: &Task<'_>, dir: Spot) -> bool {
    let path = of_spot(task, dir, Start::Root, UNREACHABLE);
    path.is_ok_and(|path| !path.starts_with(UNREACHABLE))
}

/// The path of an open file, in `scratch.outside`, followed by a NUL. It ends with " (deleted)" if the file
/// has no name.
///
/// # Errors
/// `ENAMETOOLONG`.
pub fn of_file<'t>(task: &'t Task<'_>, file: &OpenFile, start: Start) -> Result<&'t [u8]> {
    // Relaxed, all three: immutable while open.
    let inode = InodeRef::from_word(file.inode.load(Ordering::Relaxed));
    let opened = DirentId(file.dirent.load(Ordering::Relaxed));
    let parent = InodeId(file.parent.load(Ordering::Relaxed));
    of_entry(task, Spot { inode, mount: file.mount() }, opened, parent, start)
}

/// [`of_file`] for a directory that no open file names: a process's working or root directory.
///
/// # Errors
/// `ENAMETOOLONG`.
pub fn of_place<'t>(task: &'t Task<'_>, dir: Spot, start: Start) -> Result<&'t [u8]> {
    let record = task.region.inode(dir.inode.id);
    // Relaxed, both: what a directory was removed as does not change.
    let removed = DirentId(record.self_dirent.load(Ordering::Relaxed));
    let above = InodeId(record.parent.load(Ordering::Relaxed));
    of_entry(task, dir, removed, above, start)
}

/// [`of_file`] for what a process executes.
///
/// # Errors
/// `ENAMETOOLONG`.
pub fn of_executed<'t>(task: &'t Task<'_>, process: &Process, start: Start) -> Result<&'t [u8]> {
    // Relaxed, all: one word each, of this program or, during an exec, of the next one.
    let exe = Spot::from_word(process.exe.load(Ordering::Relaxed));
    let dirent = DirentId(process.exe_dirent.load(Ordering::Relaxed));
    let found_in = InodeId(process.exe_parent.load(Ordering::Relaxed));
    of_entry(task, exe, dirent, found_in, start)
}

/// [`of_file`] for an inode that was found as `opened` in the directory `found_in`.
///
/// # Errors
/// `ENAMETOOLONG`.
pub fn of_entry<'t>(
    task: &'t Task<'_>,
    spot: Spot,
    opened: DirentId,
    found_in: InodeId,
    start: Start,
) -> Result<&'t [u8]> {
    let top = start.top(task);
    let Spot { inode, mount } = spot;
    let record = task.region.inode(inode.id);
    if record.is_dir() && !record.is_dead() || task.region.mount(mount).root() == inode {
        return of_directory(task, spot, start);
    }
    for _ in 0..TRIES {
        let named = names(task, opened, inode);
        let entry = if named { opened } else { other_name(task, inode) };
        let mut text = PathBuilder::new(task, top);
        let parent = if entry.is_some() {
            InodeId(task.region.dirent(entry).parent.load(Ordering::Relaxed))
        } else {
            text.prepend(DELETED)?;
            found_in
        };
        if entry.is_some() {
            text.prepend_name(task, entry)?;
        } else {
            text.prepend_removed(task, opened)?;
        }
        let parent = InodeRef { id: parent, generation: 0 };
        let done = climb(task, &mut text, Spot { inode: parent, mount })? != Climbed::Moved;
        if done && (entry.is_none() || names(task, entry, inode)) {
            return Ok(text.get(task));
        }
    }
    Err(Errno::ENOENT)
}

/// Whether the entry names this inode.
fn names(task: &Task<'_>, entry: DirentId, inode: InodeRef) -> bool {
    entry.is_some() && dirent::names(task.region.dirent(entry), inode)
}

/// Finds some name of an inode whose name at open is gone because of a rename. Searches all entries.
#[cold]
fn other_name(task: &Task<'_>, inode: InodeRef) -> DirentId {
    // Relaxed: a file without links has no names.
    if task.region.inode(inode.id).nlink.load(Ordering::Relaxed) == 0 {
        return DirentId::NONE;
    }
    dirent::any(task.region, inode)
}

/// The path of an inode from the root of its file system, in `scratch.outside`, followed by a NUL. That of
/// one without a name ends with "//deleted", as in the kernel's dentry_path.
///
/// # Errors
/// `ENAMETOOLONG`.
pub fn within<'t>(task: &'t Task<'_>, inode: InodeRef) -> Result<&'t [u8]> {
    // Without a mount, the climb meets no mount's root.
    let mut spot = Spot { inode, mount: MountId::NONE };
    for _ in 0..TRIES {
        let mut text = PathBuilder::new(task, None);
        let record = task.region.inode(inode.id);
        if record.is_dead() {
            text.prepend(REMOVED)?;
        }
        if !record.is_dir() {
            let entry = other_name(task, inode);
            if entry.is_none() {
                // Nothing says what it was called.
                text.prepend_removed(task, entry)?;
                return Ok(text.get(task));
            }
            text.prepend_name(task, entry)?;
            let id = InodeId(task.region.dirent(entry).parent.load(Ordering::Relaxed));
            spot.inode = InodeRef { id, generation: 0 };
        }
        if climb(task, &mut text, spot)? != Climbed::Moved {
            return Ok(text.get(task));
        }
    }
    Err(Errno::ENOENT)
}

/// How a climb ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Climbed {
    /// Something moved meanwhile.
    Moved,
    /// At the root directory.
    Top,
    /// At the host's root directory, which is not the process's; at the root of a mount that is out of the
    /// tree, or of a file system that the mount shows only in part.
    Nowhere,
}

/// Puts the path of `from`, a directory or the root of a mount, before the text. Its generation does not
/// matter.
fn climb(task: &Task<'_>, text: &mut PathBuilder, from: Spot) -> Result<Climbed> {
    let Spot { inode: InodeRef { id: mut at, .. }, mut mount } = from;
    loop {
        let inode = task.region.inode(at);
        if text.top.is_some_and(|top| top.inode.id == at && top.mount == mount) {
            text.end_at_root()?;
            return Ok(Climbed::Top);
        }
        if task.region.mount(mount).root().id == at {
            match mounts::above(task, mount, mounts::ASIDE) {
                AboveRoot::Host => {
                    text.prepend(mounts::path(task, mount))?;
                    text.end_at_root()?;
                    return Ok(if text.top.is_some() { Climbed::Nowhere } else { Climbed::Top });
                }
                AboveRoot::Nothing => {
                    text.end_at_root()?;
                    return Ok(Climbed::Nowhere);
                }
                AboveRoot::Point(point, entry) => {
                    (at, mount) = (point.inode.id, point.mount);
                    let is_root = task.region.mount(mount).root() == point.inode;
                    if !is_root && !task.region.inode(at).is_dir() {
                        text.prepend_name(task, entry)?;
                        at = InodeId(task.region.dirent(entry).parent.load(Ordering::Relaxed));
                    }
                    continue;
                }
            }
        }
        let (entry, parent) = inode
            .seq
            .snapshot(|| (inode.self_dirent.load(Ordering::Relaxed), inode.parent.load(Ordering::Relaxed)));
        if entry == 0 {
            text.end_at_root()?;
            return Ok(Climbed::Nowhere);
        }
        if inode.is_dead() {
            text.prepend_removed(task, DirentId(entry))?;
        } else {
            text.prepend_name(task, DirentId(entry))?;
            if dirent::target(task.region.dirent(DirentId(entry))).id != at {
                return Ok(Climbed::Moved);
            }
        }
        at = InodeId(parent);
    }
}

/// A path that grows at its front, at the end of `scratch.outside`.
struct PathBuilder {
    buffer: *mut u8,
    start: usize,
    /// Where a climb ends: the process's root directory if it is in a mount.
    top: Option<Spot>,
}

impl Start {
    fn top(self, task: &Task<'_>) -> Option<Spot> {
        if self == Start::Root { root::of(task) } else { None }
    }
}

/// Position of the NUL behind a path.
const END: usize = PATH_MAX - 1;

impl PathBuilder {
    fn new(task: &Task<'_>, top: Option<Spot>) -> Self {
        let buffer = task.scratch.outside.get().cast::<u8>();
        // SAFETY: the buffer is longer than PATH_MAX and belongs to the task.
        unsafe { *buffer.add(END) = 0 };
        PathBuilder { buffer, start: END, top }
    }

    /// Makes an empty path a slash, the path of a root.
    fn end_at_root(&mut self) -> Result<()> {
        if self.start == END { self.prepend(b"/") } else { Ok(()) }
    }

    fn prepend(&mut self, bytes: &[u8]) -> Result<()> {
        self.start = self.start.checked_sub(bytes.len()).ok_or(Errno::ENAMETOOLONG)?;
        // SAFETY: within the buffer; `bytes` lies elsewhere.
        unsafe { self.buffer.add(self.start).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn prepend_name(&mut self, task: &Task<'_>, entry: DirentId) -> Result<()> {
        let mut name = [0; NAME_MAX];
        let length = dirent::copy_name(task.region, task.region.dirent(entry), &mut name);
        self.prepend(&name[..length])?;
        self.prepend(b"/")
    }

    /// [`PathBuilder::prepend_name`] for an entry that was removed, which keeps its name until it is used
    /// again.
    fn prepend_removed(&mut self, task: &Task<'_>, entry: DirentId) -> Result<()> {
        let is_free = entry.is_some() && dirent::target(task.region.dirent(entry)) == InodeRef::NONE;
        if is_free { self.prepend_name(task, entry) } else { self.prepend(b"/#") }
    }

    fn get<'t>(&self, _task: &'t Task<'_>) -> &'t [u8] {
        // SAFETY: written above; the task makes one call at a time, and nobody writes the buffer while the
        // call uses it.
        unsafe { core::slice::from_raw_parts(self.buffer.add(self.start), END - self.start) }
    }
}
