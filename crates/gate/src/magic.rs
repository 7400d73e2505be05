//! Magic links of the host to things of ours: /proc/self/fd/N, /proc/self/cwd, /proc/self/exe, /dev/fd/N, /dev/stdin.
//!
//! The kernel's links lead to placeholders, so the paths are answered here when what they name is ours.

use lp_abi::linux::{__NR_getpid, AT_FDCWD};
use lp_abi::{Errno, PATH_MAX};
use lp_region::sync::Ordering;
use lp_region::{DirentId, InodeId, InodeRef, ucopy};
use lp_vfs::task::Task;
use lp_vfs::{getcwd, table};

use crate::descriptor;
use crate::path::{At, Last, Route, Which, buffer};
use crate::text::parse_decimal;

/// What a magic link names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// A descriptor.
    Descriptor(i32),
    /// The working directory.
    Cwd,
    /// The program that runs.
    Exe,
}

/// The magic link that `path` starts with, where the rest of the path starts, and whether the link's own name is the
/// last component's (in /dev/stdin it is a plain link to the magic one).
fn parse(path: &[u8]) -> Option<(Link, usize)> {
    let (link, rest) = if let Some(name) = path.strip_prefix(b"/dev/") {
        parse_device(name)?
    } else {
        parse_process(path.strip_prefix(b"/proc/")?)?
    };
    (rest.is_empty() || rest[0] == b'/').then(|| (link, path.len() - rest.len()))
}

fn parse_device(name: &[u8]) -> Option<(Link, &[u8])> {
    if let Some(number) = name.strip_prefix(b"fd/") {
        let (fd, rest) = parse_decimal(number)?;
        return Some((Link::Descriptor(fd as i32), rest));
    }
    let names: [(&[u8], i32); 3] = [(b"stdin", 0), (b"stdout", 1), (b"stderr", 2)];
    names.iter().find_map(|(text, fd)| Some((Link::Descriptor(*fd), name.strip_prefix(*text)?)))
}

fn parse_process(name: &[u8]) -> Option<(Link, &[u8])> {
    let own = |name| own_process(name).and_then(|rest: &[u8]| rest.strip_prefix(b"/"));
    let mut name = own(name)?;
    if let Some(task) = name.strip_prefix(b"task/") {
        let (_, rest) = parse_decimal(task)?;
        name = rest.strip_prefix(b"/")?;
    }
    if let Some(number) = name.strip_prefix(b"fd/") {
        let (fd, rest) = parse_decimal(number)?;
        return Some((Link::Descriptor(fd as i32), rest));
    }
    let rest = name.strip_prefix(b"cwd").map(|rest| (Link::Cwd, rest));
    rest.or_else(|| name.strip_prefix(b"exe").map(|rest| (Link::Exe, rest)))
}

/// What follows the calling process's own directory under /proc.
fn own_process(name: &[u8]) -> Option<&[u8]> {
    if let Some(rest) = name.strip_prefix(b"self") {
        return Some(rest);
    }
    if let Some(rest) = name.strip_prefix(b"thread-self") {
        return Some(rest);
    }
    let (pid, rest) = parse_decimal(name)?;
    // SAFETY: no effect.
    let own = unsafe { lp_abi::syscall!(__NR_getpid) }.ok()?;
    (pid as usize == own).then_some(rest)
}

/// The route of an absolute path under /proc or /dev, `length` bytes in the buffer of `which`.
#[cold]
pub fn route(task: &Task, which: Which, at: At, last: Last, length: usize) -> Route {
    let text = buffer(which);
    let Some((link, end)) = parse(&text[..length]) else {
        return Route::Host;
    };
    let rest = text[end..length].iter().position(|byte| *byte != b'/').map(|skip| end + skip);
    let ends_here = end == length;
    let is_ours = match link {
        Link::Descriptor(fd) if descriptor::is_hidden(task, fd) => return Route::Bad(Errno::ENOENT),
        Link::Descriptor(fd) => descriptor::is_listed(task, fd),
        Link::Cwd => task.process.cwd.load(Ordering::Relaxed) != 0, // Relaxed: the process's own.
        Link::Exe => task.process.exe.load(Ordering::Relaxed) != 0, // Relaxed: as above.
    };
    if !is_ours || ends_here && last == Last::Link {
        return Route::Host;
    }
    let dirfd = match link {
        Link::Descriptor(fd) => fd,
        Link::Cwd | Link::Exe => AT_FDCWD,
    };
    match rest {
        Some(rest) if link != Link::Exe => Route::Ours(At { dirfd, path: text[rest..].as_ptr() }),
        _ if link == Link::Cwd || !ends_here => Route::Ours(At { dirfd, path: c".".as_ptr().cast() }),
        _ => route_named(task, which, link, at),
    }
}

/// The route of what a link names, by its own name.
fn route_named(task: &Task, which: Which, link: Link, at: At) -> Route {
    let _ = at;
    match name_of(task, link, buffer(which)) {
        Some(_) => Route::Ours(At::cwd(buffer(which).as_ptr())),
        None => match link {
            Link::Descriptor(fd) => Route::Nameless(fd),
            Link::Cwd | Link::Exe => Route::Bad(Errno::ENOENT),
        },
    }
}

/// The path of what a link of ours names, NUL-terminated in `to`; none when it was unlinked or never had one.
fn name_of(task: &Task, link: Link, to: &mut [u8; PATH_MAX]) -> Option<usize> {
    let length = text_of(task, link, to)?;
    (!to[..length].ends_with(b" (deleted)")).then_some(length)
}

/// What readlink(2) gives for a link of ours, NUL-terminated in `to`.
fn text_of(task: &Task, link: Link, to: &mut [u8; PATH_MAX]) -> Option<usize> {
    let text = match link {
        Link::Descriptor(fd) => getcwd::of_file(task, table::fget_any(task, fd).ok()?.file),
        Link::Cwd => {
            let cwd = InodeRef::from_word(task.process.cwd.load(Ordering::Relaxed)); // Relaxed: the process's own.
            getcwd::of_directory(task, cwd.id)
        }
        Link::Exe => {
            // Relaxed: the process's own.
            let exe = InodeRef::from_word(task.process.exe.load(Ordering::Relaxed));
            let dirent = DirentId(task.process.exe_dirent.load(Ordering::Relaxed));
            getcwd::of_entry(task, exe, dirent, InodeId(task.region.dirent(dirent).parent.load(Ordering::Relaxed)))
        }
    };
    let text = text.ok().filter(|text| text.len() < to.len())?;
    to[..text.len()].copy_from_slice(text);
    to[text.len()] = 0;
    Some(text.len())
}

/// readlink(2) of a magic link of ours: its text in the thread's first buffer. `None` for everything else.
#[cold]
pub fn readlink(task: &Task, at: At) -> Option<&'static [u8]> {
    let text = buffer(Which::First);
    // SAFETY: the gate's fault handler is in place.
    let length = unsafe { ucopy::string(text, at.path) }.ok()?;
    if text[..length].starts_with(b"/dev/std") {
        return None;
    }
    let (link, end) = parse(&text[..length])?;
    let is_ours = match link {
        Link::Descriptor(fd) => descriptor::is_listed(task, fd),
        Link::Cwd => task.process.cwd.load(Ordering::Relaxed) != 0, // Relaxed: the process's own.
        Link::Exe => task.process.exe.load(Ordering::Relaxed) != 0, // Relaxed: as above.
    };
    if !is_ours || end != length {
        return None;
    }
    let length = text_of(task, link, text)?;
    Some(&text[..length])
}
