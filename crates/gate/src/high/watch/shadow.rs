//! Shadows: host objects that stand for inodes of ours where inotify(7) watches them; see [`lp_vfs::watch`].
//!
//! They lie in a directory of the user's below /dev/shm, or in the run's cache directory, in `SECRET`, at the
//! inodes' paths below the number of their root. Every process of the region finds them and may change them,
//! whatever its user; the secret keeps others out. What is done to a shadow is what the kernel reports to
//! watchers. A change of names is repeated. For an inode's other events a time is set: by which times are
//! set, fsnotify_change infers a read, a write or a change of attributes.

use lp_abi::linux::{
    __NR_chmod, __NR_getrandom, __NR_linkat, __NR_mkdir, __NR_mknod, __NR_newfstatat, __NR_renameat2,
    __NR_rmdir, __NR_setxattr, __NR_truncate, __NR_umask, __NR_unlink, __NR_utimensat, AT_SYMLINK_NOFOLLOW,
    RENAME_EXCHANGE, S_IFDIR, S_IFMT, S_IFREG, stat,
};
use lp_abi::{Errno, Fd, PATH_MAX, Result};
use lp_region::InodeId;
use lp_region::sync::Ordering;
use lp_vfs::id_map::{self, IdKind};
use lp_vfs::task::Task;
use lp_vfs::watch::{Event, Move, NameAt, NameOrigin, ShadowKind, Sides, Touched};

use crate::high::frame::at::spare_buffer;
use crate::high::frame::handler::thread;
use crate::high::run::words::SHADOWS;
use crate::high::watch::shadow_end::Watchers;
use crate::high::watch::shadow_path::{BASE, IN_CACHE, MEMORY, STALE, base, path_at, path_of};
use crate::high::watch::{lease_break, shadow_end, shadow_fd, tree};
use lp_abi::text::Writer;

/// [`Task::notify`]: reports an event to watchers through shadows. A process that has limited itself makes no
/// call for it.
pub(crate) fn notify(task: &Task<'_>, event: &Event<'_>) {
    if lp_abi::sys::is_limited() {
        return;
    }
    // There is nobody to report a failure to; an event is lost.
    let _ = match event {
        Event::Touched(id, what) => {
            let done = touch(task, *id, *what);
            shadow_end::told(task);
            done
        }
        Event::Named(at, new) => name(task, *at, *new),
        Event::Removed(at, kind) => remove(task, *at, *kind),
        Event::Moved(moved) => rename(task, moved),
        Event::Closed(fd) => {
            shadow_fd::close(task, *fd);
            Ok(())
        }
        Event::Unmounted(root) => remove_all(task, *root),
        Event::Breaks(broken) => {
            broken.outcome.set(lease_break::give_way(task, broken));
            Ok(())
        }
        Event::ClosedLate(id, flags) => shadow_fd::open_and_close(task, *id, *flags),
    };
}

/// Creates the directory of shadows. If the existing one may be stale and the caller is the only watcher,
/// creates a new one.
///
/// # Errors
/// `ENAMETOOLONG`, those of mkdir(2).
pub(crate) fn prepare(task: &Task<'_>, watchers: Watchers) -> Result<()> {
    let words = &task.region.header().shadows;
    let mut random = [0u64; 2];
    // SAFETY: the kernel writes within `random`.
    unsafe { lp_abi::syscall!(__NR_getrandom, random.as_mut_ptr(), size_of_val(&random), 0) }?;
    for (word, random) in words.iter().zip(random) {
        // Relaxed: published by the exchange of the last word.
        let _ = word.compare_exchange(0, random & !STALE | 1, Ordering::Relaxed, Ordering::Relaxed);
    }
    if words[2].load(Ordering::Relaxed) == 0 {
        // PAIRS: none is needed. A reader that sees this word but not the others finds no directory, and
        // tries again at its next event.
        let _ = words[2].compare_exchange(0, choose(task), Ordering::Release, Ordering::Relaxed);
    }
    let mut room = [0; BASE];
    // PAIRS: the release in `shadow_end::told`.
    if watchers == Watchers::One && words[2].load(Ordering::Acquire) & STALE != 0 {
        let (length, _) = base(task, &mut room)?;
        words[2].fetch_and(!STALE, Ordering::Relaxed); // Relaxed, both: watchers check them again.
        words[0].store(random[0] & !STALE | 1, Ordering::Relaxed);
        room[length] = 0;
        let _ = tree::remove(&room[..=length]);
    }
    let (length, above) = base(task, &mut room)?;
    task.run.host_objects.fetch_or(SHADOWS, Ordering::Relaxed); // Relaxed: see `node::any_of`.
    room[above] = 0;
    let _ = make_above(&room[..=above]);
    room[above] = b'/';
    match make(task, &room[..=length], ShadowKind::Directory) {
        Ok(()) => {
            open_to_others(task, &room[..=length]);
            // Flags that are still set belong to an earlier directory.
            shadow_end::forget_all(task);
            Ok(())
        }
        Err(Errno::EEXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Chooses where a region's shadows lie: in memory, if possible.
fn choose(task: &Task<'_>) -> u64 {
    let user = task.credentials.get().fsuid.load(Ordering::Relaxed); // Relaxed: the process's own.
    let mut room = [0; BASE];
    let mut path = Writer::new(&mut room);
    path.push(MEMORY);
    path.push_decimal(u64::from(user));
    let Some(length) = path.finish() else { return IN_CACHE };
    if make_above(&room[..=length]).is_ok()
        && is_safe(&room[..=length], id_map::shown(task.process, IdKind::User, user))
    {
        u64::from(user) + 1
    } else {
        IN_CACHE
    }
}

/// Creates a directory in which other users find only what they know the name of.
fn make_above(path: &[u8]) -> Result<()> {
    // SAFETY: a NUL-terminated path.
    match unsafe { lp_abi::syscall!(__NR_mkdir, path.as_ptr(), 0o711) } {
        Ok(_) | Err(Errno::EEXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Whether a path names a directory of this user's, as the kernel shows it, in which nobody else can change
/// or list anything.
fn is_safe(path: &[u8], user: u32) -> bool {
    // SAFETY: zeros are a valid `stat`.
    let mut found: stat = unsafe { core::mem::zeroed() };
    // SAFETY: a NUL-terminated path; the kernel writes within `found`.
    let done = unsafe {
        lp_abi::syscall!(__NR_newfstatat, Fd::CWD, path.as_ptr(), &raw mut found, AT_SYMLINK_NOFOLLOW)
    };
    done.is_ok() && found.st_uid == user && found.st_mode & (S_IFMT | 0o066) == S_IFDIR
}

/// The task's buffer for a second path.
#[allow(clippy::mut_from_ref)]
fn second_buffer<'t>(task: &'t Task<'_>) -> &'t mut [u8; PATH_MAX] {
    // SAFETY: the buffer is longer, and no walk uses it while watchers are told.
    unsafe { &mut *task.scratch.outside.get().cast() }
}

/// A name that no shadow has, unique to this thread.
fn spare_path<'b>(task: &Task<'_>, to: &'b mut [u8; BASE]) -> Result<&'b [u8]> {
    let (length, _) = base(task, to)?;
    let mut name = Writer::new(&mut to[length..]);
    name.push(b"/t");
    name.push_decimal(u64::from(thread().tid.get()));
    let more = name.finish().ok_or(Errno::ENAMETOOLONG)?;
    to[length + more] = 0;
    Ok(&to[..=length + more])
}

/// Has the kernel give every user access to the directory of shadows and to what will be made in it: of a
/// process with several threads it applies the umask, which they share, unless there is a default ACL.
fn open_to_others(task: &Task<'_>, path: &[u8]) {
    /// Version 2 of the kernel's format, and entries for owner, group and others: tag, permissions, no id.
    const EVERYONE: [u16; 14] =
        [2, 0, 0x01, 7, u16::MAX, u16::MAX, 0x04, 7, u16::MAX, u16::MAX, 0x20, 7, u16::MAX, u16::MAX];
    if has_other_users(task) {
        let (name, value) = (c"system.posix_acl_default".as_ptr(), EVERYONE.as_ptr());
        // A file system without ACLs takes the modes that `make` gives. SAFETY: the path and the name are
        // NUL-terminated, and the kernel reads the value.
        unsafe {
            let _ = lp_abi::syscall!(__NR_chmod, path.as_ptr(), 0o777);
            let _ = lp_abi::syscall!(__NR_setxattr, path.as_ptr(), name, value, size_of_val(&EVERYONE), 0);
        }
    }
}

/// Whether the run may have processes of other users: only root's can.
fn has_other_users(task: &Task<'_>) -> bool {
    task.run.owner.load(Ordering::Relaxed) == 0 // Relaxed: immutable.
}

/// Creates a shadow that every process of the run may change.
///
/// # Errors
/// Those of mkdir(2) and mknod(2).
pub(crate) fn make(task: &Task<'_>, path: &[u8], kind: ShadowKind) -> Result<()> {
    // A process's threads share its umask. Relaxed: one word.
    let clears_umask = has_other_users(task) && task.process.threads.load(Ordering::Relaxed) == 0;
    // SAFETY: umask(2) takes no pointers.
    let umask = clears_umask.then(|| unsafe { lp_abi::syscall!(__NR_umask, 0) });
    let made = match kind {
        // SAFETY: a NUL-terminated path.
        ShadowKind::Directory => unsafe { lp_abi::syscall!(__NR_mkdir, path.as_ptr(), 0o777) },
        // SAFETY: a NUL-terminated path.
        ShadowKind::File => unsafe { lp_abi::syscall!(__NR_mknod, path.as_ptr(), S_IFREG | 0o666, 0) },
    };
    if let Some(Ok(umask)) = umask {
        // SAFETY: umask(2) takes no pointers.
        let _ = unsafe { lp_abi::syscall!(__NR_umask, umask) };
    }
    made.map(drop)
}

/// Creates the directories on the way to a shadow, but not the shadow.
///
/// # Errors
/// Those of [`make`].
pub(crate) fn make_way(task: &Task<'_>, path: &mut [u8]) -> Result<()> {
    let mut room = [0; BASE];
    let (length, _) = base(task, &mut room)?;
    for at in length + 1..path.len() {
        if path[at] == b'/' {
            path[at] = 0;
            let made = make(task, &path[..=at], ShadowKind::Directory);
            path[at] = b'/';
            if !matches!(made, Ok(()) | Err(Errno::EEXIST)) {
                return made;
            }
        }
    }
    Ok(())
}

fn touch(task: &Task<'_>, id: InodeId, what: Touched) -> Result<()> {
    let path = match path_of(task, id, spare_buffer()) {
        Ok(path) => path,
        Err(errno) => return shadow_fd::touch(task, id, what).ok_or(errno),
    };
    if what == Touched::Links {
        return touch_links(task, path);
    }
    let times = shadow_fd::times_of(what);
    let times = times.as_ref().map_or(core::ptr::null(), |times| times.as_ptr());
    // SAFETY: a NUL-terminated path; the times outlive the call.
    let set = unsafe { lp_abi::syscall!(__NR_utimensat, Fd::CWD, path.as_ptr(), times, AT_SYMLINK_NOFOLLOW) };
    if set == Err(Errno::EPERM) && what == Touched::Modified {
        // Another user's object: this process may not set its times separately. SAFETY: a NUL-terminated
        // path.
        return unsafe { lp_abi::syscall!(__NR_truncate, path.as_ptr(), 0) }.map(drop);
    }
    set.map(drop)
}

/// Adds and removes a link, which watchers see as one event.
fn touch_links(task: &Task<'_>, path: &[u8]) -> Result<()> {
    let mut room = [0; BASE];
    let spare = spare_path(task, &mut room)?;
    // SAFETY: NUL-terminated paths.
    unsafe { lp_abi::syscall!(__NR_linkat, Fd::CWD, path.as_ptr(), Fd::CWD, spare.as_ptr(), 0) }?;
    // SAFETY: a NUL-terminated path.
    unsafe { lp_abi::syscall!(__NR_unlink, spare.as_ptr()) }.map(drop)
}

fn name(task: &Task<'_>, at: NameAt<'_>, new: NameOrigin) -> Result<()> {
    let path = path_at(task, at, spare_buffer())?;
    let made = match new {
        NameOrigin::Made(kind) => make(task, path, kind),
        NameOrigin::Link(of) => link(task, of, path),
    };
    if made == Err(Errno::EEXIST) {
        // A leftover whose removal was not reported.
        let kind = if let NameOrigin::Made(kind) = new { kind } else { ShadowKind::File };
        take_away(path, kind)?;
        return make(task, path, kind);
    }
    made
}

/// Creates the shadow of an additional name of an inode.
pub(crate) fn link(task: &Task<'_>, of: InodeId, path: &[u8]) -> Result<()> {
    if let Ok(old) = path_of(task, of, second_buffer(task)) {
        // SAFETY: NUL-terminated paths.
        let done = unsafe { lp_abi::syscall!(__NR_linkat, Fd::CWD, old.as_ptr(), Fd::CWD, path.as_ptr(), 0) };
        if done != Err(Errno::ENOENT) {
            return done.map(drop);
        }
    }
    make(task, path, ShadowKind::File)
}

fn remove(task: &Task<'_>, at: NameAt<'_>, kind: ShadowKind) -> Result<()> {
    take_away(path_at(task, at, spare_buffer())?, kind)
}

/// Removes a shadow.
///
/// # Errors
/// Those of unlink(2) and rmdir(2).
pub(crate) fn take_away(path: &[u8], kind: ShadowKind) -> Result<()> {
    let done = match kind {
        // SAFETY: a NUL-terminated path.
        ShadowKind::File => unsafe { lp_abi::syscall!(__NR_unlink, path.as_ptr()) },
        // SAFETY: a NUL-terminated path.
        ShadowKind::Directory => unsafe { lp_abi::syscall!(__NR_rmdir, path.as_ptr()) },
    };
    match done {
        // Leftovers of names whose removal was not reported.
        Err(Errno::ENOTEMPTY) => tree::remove(path),
        done => done.map(drop),
    }
}

fn rename(task: &Task<'_>, moved: &Move<'_>) -> Result<()> {
    let mut room = [0; BASE];
    let spare = spare_path(task, &mut room)?;
    if moved.sides == Sides::New {
        make(task, spare, moved.what)?;
        let to = path_at(task, moved.to, second_buffer(task))?;
        let Some(swapped) = moved.swapped else { return rename_path(spare, to, 0) };
        rename_path(spare, to, RENAME_EXCHANGE)?;
        return take_away(spare, swapped);
    }
    let from = path_at(task, moved.from, spare_buffer())?;
    if moved.sides == Sides::Old {
        rename_path(from, spare, 0)?;
        return take_away(spare, moved.what);
    }
    let to = path_at(task, moved.to, second_buffer(task))?;
    let flags = if moved.swapped.is_some() { RENAME_EXCHANGE } else { 0 };
    match rename_path(from, to, flags) {
        Err(Errno::ENOENT) => {
            make_way(task, to)?;
            if moved.swapped.is_some() {
                make_way(task, from)?;
                // What comes into a watched directory has had none.
                match make(task, from, moved.what) {
                    Ok(()) | Err(Errno::EEXIST) => {}
                    failed => return failed,
                }
            }
            rename_path(from, to, flags)
        }
        Err(Errno::ENOTEMPTY) => {
            tree::remove(to)?;
            rename_path(from, to, flags)
        }
        done => done,
    }
}

fn rename_path(from: &[u8], to: &[u8], flags: u32) -> Result<()> {
    // SAFETY: NUL-terminated paths.
    let done =
        unsafe { lp_abi::syscall!(__NR_renameat2, Fd::CWD, from.as_ptr(), Fd::CWD, to.as_ptr(), flags) };
    done.map(drop)
}

/// Removes the shadows of a file system, whose watches end by that.
fn remove_all(task: &Task<'_>, root: InodeId) -> Result<()> {
    let length = path_of(task, root, spare_buffer())?.len();
    let text = spare_buffer();
    text.copy_within(PATH_MAX - length.., 0);
    tree::remove_at(text, length - 1)
}
