//! getcwd(2), and the paths of inodes: what `/proc/self/cwd` and `/proc/self/fd/N` are links to.

use lp_abi::{Errno, NAME_MAX, PATH_MAX, Result};
use lp_region::records::OpenFile;
use lp_region::sync::Ordering;
use lp_region::{DirentId, InodeId, InodeRef, ucopy};

use crate::caller::task::Task;
use crate::names::{dir, dirent, mounts};

/// What d_path appends to the path of something that has no name any more.
const DELETED: &[u8] = b" (deleted)";

/// Times that a path is put together again because a rename came in between.
const TRIES: u32 = 1000;

/// Copies the path of the working directory, with its NUL, into the program's buffer and gives its length with the NUL;
/// none if the directory is the host's.
///
/// # Errors
/// `ERANGE` when it does not fit, `ENOENT` when the directory was removed, `EFAULT`.
pub fn getcwd(task: &Task<'_>, buffer: *mut u8, size: usize) -> Result<Option<usize>> {
    let cwd = task.process.cwd.load(Ordering::Relaxed); // Relaxed: written by the calling process only.
    if cwd == 0 {
        return Ok(None);
    }
    let cwd = InodeRef::from_word(cwd);
    if mounts::is_gone(task, cwd) {
        return Err(Errno::ENOENT);
    }
    let path = of_directory(task, cwd.id)?;
    if path.len() + 1 > size {
        return Err(Errno::ERANGE);
    }
    // SAFETY: bad pointers are the fault handler's; a NUL follows the path.
    unsafe { ucopy::copy(buffer, path.as_ptr(), path.len() + 1) }?;
    Ok(Some(path.len() + 1))
}

/// The path of a directory, in `scratch.outside`, a NUL behind it.
///
/// # Errors
/// `ENAMETOOLONG`.
pub fn of_directory<'t>(task: &'t Task<'_>, dir: InodeId) -> Result<&'t [u8]> {
    for _ in 0..TRIES {
        let mut text = Text::new(task);
        if climb(task, &mut text, dir)? {
            return Ok(text.get(task));
        }
    }
    Err(Errno::ENOENT)
}

/// The path of an open file, in `scratch.outside`, a NUL behind it; with " (deleted)" at its end if it has no name.
///
/// # Errors
/// `ENAMETOOLONG`.
pub fn of_file<'t>(task: &'t Task<'_>, file: &OpenFile) -> Result<&'t [u8]> {
    // Relaxed, all three: immutable while open.
    let inode = InodeRef::from_word(file.inode.load(Ordering::Relaxed));
    let opened = DirentId(file.dirent.load(Ordering::Relaxed));
    of_entry(task, inode, opened, InodeId(file.parent.load(Ordering::Relaxed)))
}

/// [`of_file`] for an inode that was found as `opened` in the directory `found_in`.
///
/// # Errors
/// `ENAMETOOLONG`.
pub fn of_entry<'t>(
    task: &'t Task<'_>,
    inode: InodeRef,
    opened: DirentId,
    found_in: InodeId,
) -> Result<&'t [u8]> {
    let record = task.region.inode(inode.id);
    if dir::is(record) && !dir::is_dead(record) {
        return of_directory(task, inode.id);
    }
    for _ in 0..TRIES {
        let named = names(task, opened, inode);
        let entry = if named { opened } else { other_name(task, inode) };
        let mut text = Text::new(task);
        let parent = if entry.is_some() {
            InodeId(task.region.dirent(entry).parent.load(Ordering::Relaxed))
        } else {
            text.prepend(DELETED)?;
            found_in
        };
        let shown = if entry.is_some() { entry } else { opened };
        if shown.is_some() {
            text.prepend_name(task, shown)?;
        } else {
            text.prepend(b"/#")?;
        }
        let done = climb(task, &mut text, parent)?;
        if done && (entry.is_none() || names(task, entry, inode)) {
            return Ok(text.get(task));
        }
    }
    Err(Errno::ENOENT)
}

/// Whether the entry names this inode.
fn names(task: &Task<'_>, entry: DirentId, inode: InodeRef) -> bool {
    let record = task.region.dirent(entry);
    entry.is_some() && dirent::lives(record) && dirent::target(record) == inode
}

/// Some name of an inode whose name at open has gone: after a rename. Looks through all entries.
#[cold]
fn other_name(task: &Task<'_>, inode: InodeRef) -> DirentId {
    // Relaxed: a file without links has no names.
    if task.region.inode(inode.id).nlink.load(Ordering::Relaxed) == 0 {
        return DirentId::NONE;
    }
    dirent::all(task.region).find(|entry| names(task, *entry, inode)).unwrap_or(DirentId::NONE)
}

/// Puts the path of directory `dir` before the text. Whether nothing moved meanwhile.
fn climb(task: &Task<'_>, text: &mut Text, dir: InodeId) -> Result<bool> {
    let mut at = dir;
    loop {
        let inode = task.region.inode(at);
        let (entry, parent) = inode
            .seq
            .snapshot(|| (inode.self_dirent.load(Ordering::Relaxed), inode.parent.load(Ordering::Relaxed)));
        if entry == 0 {
            text.prepend(mounts::path(task, inode))?;
            if text.is_empty() {
                text.prepend(b"/")?;
            }
            return Ok(true);
        }
        text.prepend_name(task, DirentId(entry))?;
        if dirent::target(task.region.dirent(DirentId(entry))).id != at && !dir::is_dead(inode) {
            return Ok(false);
        }
        at = InodeId(parent);
    }
}

/// A path that grows at its front, at the end of `scratch.outside`.
struct Text {
    buffer: *mut u8,
    start: usize,
}

/// Where the NUL behind a path stands.
const END: usize = PATH_MAX - 1;

impl Text {
    fn new(task: &Task<'_>) -> Self {
        let buffer = task.scratch.outside.get().cast::<u8>();
        // SAFETY: the buffer is longer than PATH_MAX and the task's own.
        unsafe { *buffer.add(END) = 0 };
        Text { buffer, start: END }
    }

    fn is_empty(&self) -> bool {
        self.start == END
    }

    fn prepend(&mut self, bytes: &[u8]) -> Result<()> {
        self.start = self.start.checked_sub(bytes.len()).ok_or(Errno::ENAMETOOLONG)?;
        // SAFETY: between the buffer's start and its end; `bytes` lies elsewhere.
        unsafe { self.buffer.add(self.start).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn prepend_name(&mut self, task: &Task<'_>, entry: DirentId) -> Result<()> {
        let mut name = [0; NAME_MAX];
        let length = dirent::copy_name(task.region, task.region.dirent(entry), &mut name);
        self.prepend(&name[..length])?;
        self.prepend(b"/")
    }

    fn get<'t>(&self, _task: &'t Task<'_>) -> &'t [u8] {
        // SAFETY: written above; the task makes one call at a time, and nobody writes the buffer while the call uses it.
        unsafe { core::slice::from_raw_parts(self.buffer.add(self.start), END - self.start) }
    }
}
