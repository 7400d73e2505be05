//! Paths of a process whose root directory is in a mount ([`lp_vfs::root`]).
//!
//! Its absolute paths are ours, and none of them is the host's. A path that the gate has found on the host,
//! from a host directory or through a link there, still starts at the host's root directory: it is given to
//! the file system as one from the mount that it leads into ([`lp_vfs::mounts::from_mount`]).

use lp_abi::text::within;
use lp_region::sync::Ordering;
use lp_region::ucopy;
use lp_vfs::task::Task;
use lp_vfs::{directories, root};

use crate::high::frame::at::{At, DOT, Route, Which, buffer, path_in};
use crate::high::frame::handler::given;
use crate::high::run::mounts::mounts;
use crate::high::run::region::joined;
use crate::low::tools::names;

/// The route of an absolute path in such a process; `None` for any other.
#[cold]
pub(crate) fn route(task: &Task, at: At) -> Option<At> {
    root::of(task)?;
    let mut head = [0; names::MEMFD.len() + 2];
    // SAFETY: the gate's fault handler is installed. A longer string leaves its start.
    let _ = unsafe { ucopy::string(&mut head, at.path.as_ptr()) };
    if head[0] != b'/' {
        return None;
    }
    // What the dynamic linker makes of the name of the memfd with the program.
    let is_memfd = head.starts_with(names::MEMFD) && head[names::MEMFD.len()] == b'/';
    // Relaxed: the process's own word.
    match is_memfd && task.process.exe.load(Ordering::Relaxed) != 0 {
        true => Some(At::cwd(given(at.path.addr() + names::MEMFD.len()))),
        false => Some(at),
    }
}

/// The route of an absolute path from the host's root directory that leads into a mount.
pub(crate) fn from_host(task: Option<&Task>, which: Which, at: At) -> Route {
    if task.and_then(root::of).is_none() {
        return Route::Ours(at);
    }
    let text = buffer(which);
    // SAFETY: the gate's fault handler is installed.
    match unsafe { ucopy::string(text, at.path.as_ptr()) } {
        Ok(_) => Route::Ours(inside(task, text)),
        Err(errno) => Route::Bad(errno),
    }
}

/// The path in a mount that NUL-terminated text in a buffer of the gate's denotes from the host's root
/// directory.
pub(crate) fn inside(task: Option<&Task>, text: &[u8]) -> At {
    if task.and_then(root::of).is_none() {
        return At::text(text);
    }
    let length = text.iter().position(|byte| *byte == 0).unwrap_or(0);
    let text = &text[..=length];
    let longest = |(_, path): &(usize, &&[u8])| path.len();
    let all = mounts().paths().iter().enumerate();
    match all.filter(|(_, path)| within(&text[..length], path).is_some()).max_by_key(longest) {
        Some((index, path)) => {
            let rest = &text[path.len()..];
            let skip = rest.iter().take_while(|byte| **byte == b'/').count();
            let path = if rest[skip] == 0 { DOT } else { path_in(&rest[skip..]) };
            At { dirfd: lp_vfs::mounts::from_mount(index), path }
        }
        None => At::text(text),
    }
}

/// Whether a path of the calling process is one in its root directory.
pub(crate) fn takes(path: &[u8]) -> bool {
    let is_rooted = |(region, process): (lp_region::Region<'static>, _)| {
        directories::of(region, process).root.load(Ordering::Relaxed) != 0 // Relaxed: one word, as seen.
    };
    path.starts_with(b"/") && joined().is_some_and(is_rooted)
}
