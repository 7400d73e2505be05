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
use lp_region::layout::FDS;
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
    let own = || inode_of(task, descriptor::word(task, fd)).and_then(|id| open_shadow(task, id, flags).ok());
    if let Some(low) = take_waited().or_else(own) {
        keep(task, fd, low);
        close_number(low);
    }
}

/// Opens the shadows of the files that this process has open, of inodes that have just got one: when they
/// are closed, their watchers learn of the close alone. A watcher who is there already would learn of the
/// open.
pub(crate) fn open_all(task: &'static Task<'static>) {
    let lacking = |word: u64| {
        of(task, word).is_none()
            && inode_of(task, word).is_some_and(|id| watch::has_shadow(task.region.inode(id)))
    };
    for (fd, word) in task.table.open().filter(|(_, word)| lacking(*word)) {
        let id = FileId(word as u32);
        // What was opened with O_PATH has no events. What another process has open is not closed here alone.
        if descriptor::is_path(task, fd) || file::is_shared(task.region.file(id)) {
            continue;
        }
        let copies = task.table.open().filter(|(_, other)| FileId(*other as u32) == id);
        match copies.filter_map(|(_, other)| of(task, other)).next() {
            Some(shadow) => keep(task, fd, shadow),
            // Relaxed: changes to what an open asks for are none of the access.
            None => open(task, fd, task.region.file(id).flags.load(Ordering::Relaxed)),
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
/// Those of [`open_shadow`].
pub(crate) fn open_and_close(task: &Task<'_>, id: InodeId, flags: u32) -> Result<()> {
    open_shadow(task, id, flags).map(close_number)
}

/// Opens the shadow of an inode with the access of the inode's open.
///
/// # Errors
/// Those of [`shadow_path::path_of`] and open(2).
fn open_shadow(task: &Task<'_>, id: InodeId, flags: u32) -> Result<Fd> {
    let path = shadow_path::path_of(task, id, spare_buffer())?;
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
        keep(task, new, shadow);
    }
}

/// Moves a duplicate of a shadow's descriptor out of the way and records it beside the file of `fd`.
fn keep(task: &'static Task<'static>, fd: Fd, shadow: Fd) {
    // SAFETY: F_DUPFD only creates a descriptor. It survives exec, as the file of `fd` may.
    let copy = |from: &u32| unsafe { lp_abi::syscall!(__NR_fcntl, shadow, F_DUPFD, *from) }.ok();
    let Some(number) = FROM.iter().find_map(copy) else { return };
    if number >= FDS {
        return close_number(Fd::new(number as i32));
    }
    let locked = Alone::take(task);
    let Ok(place) = table::reach(task, Fd::new(number as i32)) else {
        return close_number(Fd::new(number as i32));
    };
    table::replace(task, place, entry::PARKED | entry::SHADOW);
    drop(locked);
    task.process.closes_look(closing::SHADOWS);
    if table::change(task, fd, entry::with_shadow(Fd::new(number as i32)), 0).is_err() {
        close(task, Fd::new(number as i32));
    }
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
