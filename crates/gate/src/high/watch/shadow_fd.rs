//! Descriptors of shadows: for each open file of ours that may be watched, its shadow is open too.
//!
//! The kernel itself then reports to watchers that the file was opened and, once the last copy in any process
//! is closed, that it was closed, even if a process is killed. The shadow's number is stored beside the open
//! file in the table and follows it: dup(2) duplicates it, fork(2) and exec keep both. The number is out of
//! the program's way and appears closed to it ([`entry::SHADOW`]).

use lp_abi::linux::{
    __NR_fcntl, __NR_openat, __NR_pwrite64, __NR_utimensat, F_DUPFD, O_ACCMODE, O_CLOEXEC, O_DIRECTORY,
    O_LARGEFILE, O_NOFOLLOW, O_NONBLOCK, UTIME_NOW, UTIME_OMIT,
};
use lp_abi::{Errno, Fd, Result};
use lp_region::sync::Ordering;
use lp_region::{FileId, InodeId, InodeRef};
use lp_vfs::file;
use lp_vfs::table::{self, Alone, closing, entry};
use lp_vfs::task::Task;
use lp_vfs::watch::{self, ShadowKind, Touched};

use crate::high::fd::descriptor;
use crate::high::frame::at::spare_buffer;
use crate::high::frame::handler;
use crate::high::watch::shadow_path;
use crate::low::tools::close::close_number;

/// Minimum numbers tried for shadows: above those that programs use, or at least above those that they care
/// about.
const FROM: [u32; 2] = [128, 64];

/// Opens the shadow of the file that was just opened as `fd`, with open(2)'s `flags`.
pub(crate) fn open(task: &'static Task<'static>, fd: Fd, flags: u32) {
    if let Some(low) = take_waited() {
        keep(&Alone::take(task), task, fd, low);
        close_number(low);
    } else if let Some(id) = inode_of(task, descriptor::word(task, fd)) {
        open_if(task, fd, id, flags, || true);
    }
}

/// Opens the shadow of inode `id` for the file of `fd`, if it `may` once this thread has the table alone.
fn open_if(task: &Task<'_>, fd: Fd, id: InodeId, flags: u32, may: impl FnOnce() -> bool) {
    let Ok(path) = shadow_path::path_of(task, id, spare_buffer()) else { return };
    // No thread may fork while there is a descriptor that the table does not name.
    let alone = Alone::take(task);
    if may()
        && let Ok(low) = open_path(task, path, id, flags)
    {
        keep(&alone, task, fd, low);
        close_number(low);
    }
}

/// Opens the shadows of the files that this process has open, of inodes that have just got one: when they
/// are closed, their watchers learn of the close alone. A watcher who is there already would learn of the
/// open.
pub(crate) fn open_all(task: &'static Task<'static>) {
    for (fd, word) in task.table.open() {
        let file = FileId(word as u32);
        let record = task.region.file(file);
        // What another process has open is not closed here alone.
        let lacks = || {
            let now = descriptor::word(task, fd);
            now as u32 == file.0 && of(task, now).is_none() && !file::is_shared(record)
        };
        let Some(id) = inode_of(task, word).filter(|id| watch::has_shadow(task.region.inode(*id))) else {
            continue;
        };
        // What was opened with O_PATH has no events.
        if descriptor::is_path(task, fd) || !lacks() {
            continue;
        }
        let mut copies = task.table.open().filter(|(_, other)| FileId(*other as u32) == file);
        match copies.find_map(|(_, other)| of(task, other)) {
            Some(shadow) => {
                let alone = Alone::take(task);
                if lacks() {
                    keep(&alone, task, fd, shadow);
                }
            }
            // Relaxed: changes to what an open asks for are none of the access.
            None => open_if(task, fd, id, record.flags.load(Ordering::Relaxed), lacks),
        }
    }
}

/// The shadow that this thread has opened for the file that it is about to open, because it had to wait
/// there.
pub(crate) fn take_waited() -> Option<Fd> {
    let waited = handler::thread().waited_shadow.take();
    waited.checked_sub(1).map(|fd| Fd::new(fd as i32))
}

/// [`take_waited`], closed: the file was not opened after all.
pub(crate) fn drop_waited() {
    if let Some(fd) = take_waited() {
        close_number(fd);
    }
}

/// Closes a file that was opened before it had a shadow: reports an open first, then the close.
///
/// # Errors
/// Those of [`shadow_path::path_of`] and open(2).
pub(crate) fn open_and_close(task: &Task<'_>, id: InodeId, flags: u32) -> Result<()> {
    let path = shadow_path::path_of(task, id, spare_buffer())?;
    open_path(task, path, id, flags).map(close_number)
}

/// Opens the shadow of an inode, by the shadow's path, with the access of the inode's open.
fn open_path(task: &Task<'_>, path: &[u8], id: InodeId, flags: u32) -> Result<Fd> {
    let kind = match watch::kind(task.region.inode(id)) {
        ShadowKind::Directory => O_DIRECTORY,
        ShadowKind::File => 0,
    };
    let flags = flags & O_ACCMODE | kind | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_LARGEFILE;
    // SAFETY: a NUL-terminated path; the call only creates a descriptor.
    unsafe { lp_abi::syscall!(__NR_openat, Fd::CWD, path.as_ptr(), flags, 0) }.map(|fd| Fd::new(fd as i32))
}

/// The file of `old` has also been opened as `new`.
pub(crate) fn duplicate(task: &'static Task<'static>, old: Fd, new: Fd) {
    if let Some(shadow) = of(task, descriptor::word(task, old)) {
        keep(&Alone::take(task), task, new, shadow);
    }
}

/// Moves a duplicate of a shadow's descriptor out of the way and records it beside the file of `fd`.
fn keep(_: &Alone<'_, '_>, task: &Task<'_>, fd: Fd, shadow: Fd) {
    // SAFETY: F_DUPFD only creates a descriptor. It survives exec, as the file of `fd` may.
    let copy = |from: &u32| unsafe { lp_abi::syscall!(__NR_fcntl, shadow, F_DUPFD, *from) }.ok();
    let Some(number) = FROM.iter().find_map(copy) else { return };
    let number = Fd::new(number as i32);
    if record(task, fd, number).is_none() {
        close_number(number);
    }
}

/// Records descriptor `number` as the shadow's beside the file of `fd`, unless that is closed or has one. The
/// caller has the table alone.
fn record(task: &Task<'_>, fd: Fd, number: Fd) -> Option<()> {
    let own = task.table.covered(fd)?;
    let word = own.load(Ordering::Relaxed); // Relaxed: nobody else changes it.
    if word & entry::OPEN == 0 || of(task, word).is_some() {
        return None;
    }
    let place = table::reach(task, number).ok()?;
    table::replace(task, place, entry::PARKED | entry::SHADOW);
    task.process.closes_look(closing::SHADOWS);
    own.store(entry::without_shadow(word) | entry::with_shadow(number), Ordering::Release);
    Some(())
}

/// Closes the descriptor of a shadow whose file was closed.
pub(crate) fn close(task: &Task<'_>, fd: Fd) {
    let Some(place) = task.table.covered(fd) else { return };
    let _locked = Alone::take(handler::task());
    // The program may have put something else at the number.
    if place.load(Ordering::Relaxed) & (entry::OPEN | entry::SHADOW) == entry::SHADOW {
        close_number(fd);
        place.store(0, Ordering::Release);
    }
}

/// The shadow's descriptor that an entry names, if it is still that.
pub(crate) fn of(task: &Task<'_>, word: u64) -> Option<Fd> {
    entry::shadow(word)
        .filter(|fd| descriptor::word(task, *fd) & (entry::OPEN | entry::SHADOW) == entry::SHADOW)
}

fn inode_of(task: &Task<'_>, word: u64) -> Option<InodeId> {
    let file = (word & entry::OPEN != 0).then(|| task.region.file(FileId(word as u32)))?;
    Some(InodeRef::from_word(file.inode.load(Ordering::Relaxed)).id) // Relaxed: immutable while open.
}

/// Reports an event of an inode without a name, through a descriptor of this process. `None` if the process
/// has none.
pub(crate) fn touch(task: &Task<'_>, id: InodeId, what: Touched) -> Option<()> {
    let mut shadows = task
        .table
        .open()
        .filter(|(_, word)| inode_of(task, *word) == Some(id))
        .filter_map(|(_, word)| of(task, word));
    let first = shadows.next()?;
    if what == Touched::Modified {
        let store = |fd: Fd| -> Result<usize> {
            // SAFETY: the kernel reads one byte.
            match unsafe { lp_abi::syscall!(__NR_pwrite64, fd, [0u8].as_ptr(), 1, 0) } {
                Ok(0) => Err(Errno::EIO),
                done => done,
            }
        };
        if store(first).is_ok() || shadows.any(|fd| store(fd).is_ok()) {
            return Some(());
        }
    }
    let times = times_of(what);
    let times = times.as_ref().map_or(core::ptr::null(), |times| times.as_ptr());
    // SAFETY: the times outlive the call; without a path this is futimens.
    let _ = unsafe { lp_abi::syscall!(__NR_utimensat, first, 0, times, 0) };
    Some(())
}

/// The times to set for an event; `None` sets both to the current time.
pub(crate) fn times_of(what: Touched) -> Option<[[i64; 2]; 2]> {
    let (now, keep) = ([0, i64::from(UTIME_NOW)], [0, i64::from(UTIME_OMIT)]);
    match what {
        Touched::Accessed => Some([now, keep]),
        Touched::Modified => Some([keep, now]),
        Touched::Attributes | Touched::Links => None,
    }
}
