//! Whether the places where the loader looks for libraries lead into a mount, so that the gate must be loaded
//! first.
//!
//! The call's first buffer may hold the path of what is executed: it is left alone.

use core::mem::MaybeUninit;

use lp_abi::library::DEFAULTS;
use lp_abi::linux::{__NR_newfstatat, __NR_openat, O_CLOEXEC, O_NOCTTY, O_NONBLOCK, S_IFDIR, S_IFMT, stat};
use lp_abi::{Errno, Fd, PATH_MAX, UserPtr};
use lp_region::sync::Ordering;
use lp_region::ucopy;
use lp_vfs::stat as attributes;
use lp_vfs::task::{Place, Task};
use lp_vfs::walk::{self, Follow};
use lp_vfs::{pin, root};

use crate::high::frame::at::{At, Last, Route, Which};
use crate::high::frame::content::read_at;
use crate::high::route::hostlink;
use crate::high::route::path::{route, route_apart};
use crate::high::run::mounts::mounts;
use crate::low::above::List;
use crate::low::object::elf::{Elf, Read, read_file};
use crate::low::tools::close::close_number;
use lp_abi::text::Writer;

impl List {
    fn separates(self, byte: u8) -> bool {
        byte == b':' || byte == if self == List::Directories { b';' } else { b' ' }
    }

    /// Whether the loader opens or searches an entry as written.
    fn takes(self, entry: &[u8]) -> bool {
        self == List::Directories || entry.contains(&b'/')
    }
}

/// Whether an entry of the program's list at `text` leads into a mount. Entries longer than a path do not. Not
/// inlined: most execs have no such list, and must do with the stack that the kernel needs.
#[cold]
#[inline(never)]
pub(crate) fn list_leads_into_mount(task: Option<&Task>, list: List, text: *const u8) -> bool {
    let mut at = text;
    let mut whole = true;
    let mut room = [0u8; PATH_MAX];
    loop {
        // SAFETY: the copy routine handles bad pointers.
        let (length, ends) = match unsafe { ucopy::string(&mut room, at) } {
            Ok(0) if at == text => return false,
            Ok(length) => (length, true),
            Err(Errno::ENAMETOOLONG) => (room.len(), false),
            Err(_) => return false,
        };
        let end = room[..length].iter().position(|byte| list.separates(*byte));
        let entry = end.unwrap_or(length);
        if whole && (ends || end.is_some()) && list.takes(&room[..entry]) && leads(task, &mut room, entry) {
            return true;
        }
        if ends && end.is_none() {
            return false;
        }
        whole = end.is_some();
        at = at.wrapping_add(entry + usize::from(whole));
    }
}

/// Whether a directory or library, by the path that a program in the directory `origin` gives it, leads into
/// a mount.
#[cold]
pub(crate) fn leads_into_mount(task: Option<&Task>, origin: &[u8], path: &[u8]) -> bool {
    let mut room = [0u8; PATH_MAX];
    put(&mut room, origin, &[path]).is_some_and(|length| leads(task, &mut room, length))
}

/// Concatenates `parts` in `room`, replaces a leading `$ORIGIN`, and returns the length.
fn put(room: &mut [u8; PATH_MAX], origin: &[u8], parts: &[&[u8]]) -> Option<usize> {
    let mut path = Writer::new(room);
    for (index, part) in parts.iter().enumerate() {
        let token = [&b"$ORIGIN"[..], b"${ORIGIN}"].into_iter().find_map(|token| part.strip_prefix(token));
        match token.filter(|_| index == 0) {
            Some(rest) => [origin, rest].iter().for_each(|part| path.push(part)),
            None => path.push(part),
        }
    }
    path.finish()
}

/// Bytes of thread-local storage of the library `name` in a directory; `None` if it is not there.
#[cold]
pub(crate) fn storage_of(task: &Task, origin: &[u8], directory: &[u8], name: &[u8]) -> Option<u64> {
    let mut room = [0u8; PATH_MAX];
    put(&mut room, origin, &[directory, b"/", name])?;
    let at = At::text(&room);
    let inside = match route(task, Which::Second, at, Last::Follow).by_name() {
        Route::Host => return storage_on_host(at),
        Route::Elsewhere(at) => return storage_on_host(at),
        Route::Ours(inside) => inside,
        Route::Itself(..) | Route::Bad(_) => return None,
    };
    match walk::inode(task, inside.dirfd, inside.path, Follow::Link).ok()? {
        Place::Inside(found) => {
            let _pin = pin::hold(task, pin::slot::SECOND, found.inode).ok()?;
            let record = task.region.inode(found.inode.id);
            storage(&|to, at| read_at(task, record, to, at).unwrap_or(0))
        }
        Place::Outside(_) => None,
    }
}

/// Whether a mount is over a directory where the loader looks by itself.
pub(crate) fn defaults_are_covered() -> bool {
    DEFAULTS.iter().any(|directory| mounts().holds(directory.to_bytes()))
}

/// Whether such a directory has got or lost a name since the host had it, so that the loader may find other
/// libraries there.
#[cold]
pub(crate) fn defaults_differ(task: &Task) -> bool {
    let covered = DEFAULTS.iter().filter(|directory| mounts().holds(directory.to_bytes()));
    let mut covered = covered.map(|directory| At::text(directory.to_bytes_with_nul()));
    root::of(task).is_none() && covered.any(|directory| differs(task, directory, directory))
}

/// Whether `inside`, where the path `at` leads in a mount, is another file than `at` on the host, as far as
/// type, size and time of modification tell.
pub(crate) fn differs(task: &Task, inside: At, at: At) -> bool {
    let mut here = MaybeUninit::<stat>::zeroed();
    // SAFETY: the record is a local that outlives the call.
    let to = unsafe { UserPtr::new(here.as_mut_ptr()) };
    let here = match attributes::fstatat(task, inside.dirfd, inside.path, to, 0) {
        // SAFETY: zeros are a valid record, and the call has filled it in.
        Ok(Place::Inside(())) => Some(unsafe { here.assume_init() }),
        Ok(Place::Outside(_)) => return false,
        Err(_) => None,
    };
    let mut there = MaybeUninit::<stat>::zeroed();
    // SAFETY: the kernel fills the record in; zeros are a valid record too.
    let there = unsafe {
        lp_abi::syscall!(__NR_newfstatat, at.dirfd, at.path, there.as_mut_ptr(), 0)
            .ok()
            .map(|_| there.assume_init())
    };
    match (here, there) {
        (Some(here), Some(there)) => {
            let kind = there.st_mode & S_IFMT;
            here.st_mode & S_IFMT != kind
                || (here.st_mtime, here.st_mtime_nsec) != (there.st_mtime, there.st_mtime_nsec)
                || kind != S_IFDIR && here.st_size != there.st_size
        }
        (None, None) => false,
        _ => true,
    }
}

/// [`storage_of`] where the loader looks by itself.
#[cold]
pub(crate) fn default_storage_of(task: &Task, name: &[u8]) -> Option<u64> {
    DEFAULTS.iter().find_map(|directory| storage_of(task, b"", directory.to_bytes(), name))
}

fn storage_on_host(at: At) -> Option<u64> {
    // SAFETY: the kernel reads the path; the descriptor is closed below.
    let fd = unsafe { lp_abi::syscall!(__NR_openat, at.dirfd, at.path, O_CLOEXEC | O_NONBLOCK | O_NOCTTY) };
    let fd = Fd::new(fd.ok()? as i32);
    let bytes = storage(&|to, at| read_file(fd, to, at));
    close_number(fd);
    bytes
}

fn storage(read: Read<'_>) -> Option<u64> {
    let mut head = [0u8; 1024];
    let got = read(&mut head, 0);
    Some(Elf::new(&head[..got], read)?.storage())
}

/// [`leads_into_mount`] for the path of `length` bytes in `room`.
fn leads(task: Option<&Task>, room: &mut [u8; PATH_MAX], length: usize) -> bool {
    let Some(end) = room.get_mut(length) else { return false };
    *end = 0;
    let path = &room[..length];
    if path.is_empty() {
        // The working directory. Relaxed: one word, as seen.
        return task.is_some_and(|task| task.directories.get().cwd.load(Ordering::Relaxed) != 0);
    }
    // A token in an environment: most likely `$ORIGIN` of a program in a mount.
    if path[0] == b'$' || mounts().holds(path) {
        return true;
    }
    if path.starts_with(b"/proc/") {
        return false;
    }
    let at = At::text(path);
    let routed = match task {
        Some(task) => route(task, Which::Second, at, Last::Follow),
        None => route_apart(Which::Second, at, Last::Follow),
    };
    match routed {
        Route::Host => hostlink::into_mount(Which::Second, at, Last::Follow).is_some(),
        Route::Ours(_) | Route::Itself(..) => true,
        Route::Bad(_) | Route::Elsewhere(_) => false,
    }
}
