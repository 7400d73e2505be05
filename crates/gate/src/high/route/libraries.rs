//! Whether the places where the loader looks for libraries lead into a mount, so that the gate must be loaded
//! first. Needs no task, so it also answers for a process that is apart.

use lp_abi::linux::{__NR_faccessat, __NR_openat, F_OK, O_CLOEXEC, O_NOCTTY, O_NONBLOCK};
use lp_abi::{Errno, Fd};
use lp_region::sync::Ordering;
use lp_region::ucopy;
use lp_vfs::pin;
use lp_vfs::task::{Place, Task};
use lp_vfs::walk::{self, Follow};

use crate::high::fd::placeholder;
use crate::high::frame::at::{At, Last, Route, Which, buffer};
use crate::high::frame::content::read_at;
use crate::high::route::hostlink;
use crate::high::route::path::{route, route_apart};
use crate::high::run::mounts::mounts;
use crate::low::above::List;
use crate::low::object::elf::{Elf, Read, read_file};
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

/// Whether an entry of the program's list at `text` leads into a mount. Entries longer than a path do not.
#[cold]
pub(crate) fn list_leads_into_mount(task: Option<&Task>, list: List, text: *const u8) -> bool {
    let mut at = text;
    let mut whole = true;
    loop {
        let room = buffer(Which::Second);
        // SAFETY: the copy routine handles bad pointers.
        let (length, ends) = match unsafe { ucopy::string(room, at) } {
            Ok(0) if at == text => return false,
            Ok(length) => (length, true),
            Err(Errno::ENAMETOOLONG) => (room.len(), false),
            Err(_) => return false,
        };
        let end = room[..length].iter().position(|byte| list.separates(*byte));
        let entry = end.unwrap_or(length);
        if whole && (ends || end.is_some()) && list.takes(&room[..entry]) && second_leads(task, entry) {
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
    put(origin, &[path]).is_some_and(|length| second_leads(task, length))
}

/// Concatenates `parts` in the second buffer, replaces a leading `$ORIGIN`, and returns the length.
fn put(origin: &[u8], parts: &[&[u8]]) -> Option<usize> {
    let mut path = Writer::new(buffer(Which::Second));
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
    put(origin, &[directory, b"/", name])?;
    let at = At::text(buffer(Which::Second));
    let inside = match route(task, Which::First, at, Last::Follow) {
        Route::Host => return storage_on_host(at),
        Route::Elsewhere(at) => return storage_on_host(at),
        Route::Ours(inside) => inside,
        Route::Nameless(_) | Route::Bad(_) => return None,
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

/// Where the GNU loader looks for libraries by itself, or by the usual ld.so.conf.
const DEFAULTS: [&[u8]; 8] = [
    b"/lib/x86_64-linux-gnu",
    b"/usr/lib/x86_64-linux-gnu",
    b"/lib64",
    b"/usr/lib64",
    b"/usr/local/lib",
    b"/usr/local/lib/x86_64-linux-gnu",
    b"/lib",
    b"/usr/lib",
];

/// Whether the loader may find the library `name` by itself only in a mount: one is over a place where it
/// looks, and the host has no such file.
#[cold]
pub(crate) fn may_be_in_mount_only(name: &[u8]) -> bool {
    let is_on_host = |directory: &&[u8]| {
        put(b"", &[directory, b"/", name]).is_some_and(|_| {
            let path = buffer(Which::Second).as_ptr();
            // SAFETY: the path is NUL-terminated; the call changes nothing.
            unsafe { lp_abi::syscall!(__NR_faccessat, Fd::CWD, path, F_OK) }.is_ok()
        })
    };
    DEFAULTS.iter().any(|directory| mounts().holds(directory)) && !DEFAULTS.iter().any(is_on_host)
}

/// [`storage_of`] where the loader looks by itself.
#[cold]
pub(crate) fn default_storage_of(task: &Task, name: &[u8]) -> Option<u64> {
    DEFAULTS.iter().find_map(|directory| storage_of(task, b"", directory, name))
}

fn storage_on_host(at: At) -> Option<u64> {
    // SAFETY: the kernel reads the path; the descriptor is closed below.
    let fd = unsafe { lp_abi::syscall!(__NR_openat, at.dirfd, at.path, O_CLOEXEC | O_NONBLOCK | O_NOCTTY) };
    let fd = Fd::new(fd.ok()? as i32);
    let bytes = storage(&|to, at| read_file(fd, to, at));
    placeholder::close_number(fd);
    bytes
}

fn storage(read: Read<'_>) -> Option<u64> {
    let mut head = [0u8; 1024];
    let got = read(&mut head, 0);
    Some(Elf::new(&head[..got], read)?.storage())
}

/// [`leads_into_mount`] for the path of `length` bytes in the second buffer.
fn second_leads(task: Option<&Task>, length: usize) -> bool {
    let room = buffer(Which::Second);
    let Some(end) = room.get_mut(length) else { return false };
    *end = 0;
    let path = &room[..length];
    if path.is_empty() {
        // The working directory. Relaxed: the process's own word.
        return task.is_some_and(|task| task.process.cwd.load(Ordering::Relaxed) != 0);
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
        Some(task) => route(task, Which::First, at, Last::Follow),
        None => route_apart(Which::First, at),
    };
    match routed {
        Route::Host => hostlink::into_mount(Which::First, at, Last::Follow).is_some(),
        Route::Ours(_) | Route::Nameless(_) => true,
        Route::Bad(_) | Route::Elsewhere(_) => false,
    }
}
