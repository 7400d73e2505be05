//! Magic links of the host to things of ours: /proc/self/fd/N, /proc/self/cwd, /proc/self/root,
//! /proc/self/exe, /dev/fd/N, /dev/stdin.
//!
//! The kernel's links lead to placeholders, so these paths are answered here if their target is ours.

use lp_abi::linux::{__NR_readlink, S_IFLNK, S_IFMT};
use lp_abi::{Errno, Fd, PATH_MAX, Result};
use lp_region::sync::{AtomicU64, Ordering};
use lp_region::{FileId, ProcessId, Spot, ucopy};
use lp_vfs::getcwd::{self, Start};
use lp_vfs::table::{FdTable, entry};
use lp_vfs::task::Task;
use lp_vfs::{directories, target};

use crate::high::fd::{descriptor, directory, fd_info, own_descriptor};
use crate::high::frame::at::{At, DOT, Last, Route, Which, buffer, path_in, spare_buffer};
use crate::high::route::{absolute, elsewhere, rooted};
use crate::high::run::apart;
use crate::high::run::mounts::MountPaths;
use crate::high::run::{lock_table, mount_table};
use crate::low::start::standalone::link;
use crate::low::tools::names;
use lp_abi::text::parse_decimal;

/// What a magic link names.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// A descriptor.
    Descriptor(Fd),
    /// The working directory.
    Cwd,
    /// The root directory.
    Root,
    /// The running program.
    Exe,
}

/// A magic link at the start of a path.
#[derive(Clone, Copy)]
pub(super) struct Magic {
    /// The process to which the link belongs.
    pub(super) process: ProcessId,
    pub(super) link: Link,
    /// Offset of the rest of the path.
    pub(super) end: usize,
}

/// Parses the magic link at the start of `path`.
pub(super) fn parse(task: &Task, path: &[u8]) -> Option<Magic> {
    let (process, link, rest) = if let Some(name) = path.strip_prefix(b"/dev/") {
        let (link, rest) = parse_device(name)?;
        (task.process_id, link, rest)
    } else {
        parse_process(task, path.strip_prefix(b"/proc/")?)?
    };
    (rest.is_empty() || rest[0] == b'/').then(|| Magic { process, link, end: path.len() - rest.len() })
}

fn parse_device(name: &[u8]) -> Option<(Link, &[u8])> {
    if let Some(number) = name.strip_prefix(b"fd/") {
        let (fd, rest) = parse_decimal(number)?;
        return Some((Link::Descriptor(Fd::new(fd as i32)), rest));
    }
    let names: [(&[u8], i32); 3] = [(b"stdin", 0), (b"stdout", 1), (b"stderr", 2)];
    names.iter().find_map(|(text, fd)| Some((Link::Descriptor(Fd::new(*fd)), name.strip_prefix(*text)?)))
}

fn parse_process<'p>(task: &Task, name: &'p [u8]) -> Option<(ProcessId, Link, &'p [u8])> {
    let (process, name) = process_of(task, name)?;
    let mut name = name.strip_prefix(b"/")?;
    if let Some(task) = name.strip_prefix(b"task/") {
        let (_, rest) = parse_decimal(task)?;
        name = rest.strip_prefix(b"/")?;
    }
    if let Some(number) = name.strip_prefix(b"fd/") {
        let (fd, rest) = parse_decimal(number)?;
        return Some((process, Link::Descriptor(Fd::new(fd as i32)), rest));
    }
    let links: [(&[u8], Link); 3] = [(b"cwd", Link::Cwd), (b"exe", Link::Exe), (b"root", Link::Root)];
    links.iter().find_map(|(text, link)| Some((process, *link, name.strip_prefix(*text)?)))
}

/// The process and its descriptor that a path under /proc/PID/fdinfo describes.
fn described(task: &Task, path: &[u8]) -> Option<(ProcessId, Fd)> {
    let (process, rest) = process_of(task, path.strip_prefix(b"/proc/")?)?;
    match parse_decimal(rest.strip_prefix(b"/fdinfo/")?)? {
        (number, []) => Some((process, Fd::new(number as i32))),
        _ => None,
    }
}

/// The process of the run whose directory under /proc a path enters, and the rest of the path.
fn process_of<'p>(task: &Task, name: &'p [u8]) -> Option<(ProcessId, &'p [u8])> {
    for own in [&b"self"[..], b"thread-self"] {
        if let Some(rest) = name.strip_prefix(own) {
            return Some((task.process_id, rest));
        }
    }
    let (pid, rest) = parse_decimal(name)?;
    let found = fd_info::process_of(task, pid)?;
    (!task.region.process_is_dead(found, task.process_id)).then_some((found, rest))
}

/// Whether the link's target is ours.
fn is_ours(task: &Task, magic: Magic) -> bool {
    let places = directories::of(task.region, magic.process);
    // Relaxed, all: one word each; the user of the result checks again.
    match magic.link {
        Link::Descriptor(fd) => {
            let word = FdTable::of(task.region, magic.process).entry(fd);
            word.is_some_and(|word| word.load(Ordering::Relaxed) & entry::OPEN != 0)
        }
        Link::Cwd => places.cwd.load(Ordering::Relaxed) != 0,
        Link::Exe => task.region.process(magic.process).exe.load(Ordering::Relaxed) != 0,
        Link::Root => places.root.load(Ordering::Relaxed) != 0,
    }
}

/// Whether a descriptor, opened with `O_PATH`, refers to a symbolic link.
fn is_symlink(task: &Task, fd: Fd) -> bool {
    // Relaxed: the type of an open inode does not change.
    task.fget_any(fd).is_ok_and(|held| held.inode.mode.load(Ordering::Relaxed) & S_IFMT == S_IFLNK)
}

/// Whether a path under /proc or /dev may concern a mount although the calling process has nothing of ours:
/// it names the gate's descriptor or the directory that lists it, what another process has open, a file that
/// the gate writes, or a device that is answered here.
#[cold]
pub(crate) fn may_concern_mount(path: &[u8]) -> bool {
    let is_written = path == lock_table::PATH || mount_table::of_path(path).is_some();
    if path == b"/dev/zero" || directory::is_path(path) || is_written {
        return true;
    }
    let is_hidden = |fd: u32| apart::is_hidden(Fd::new(fd as i32));
    if let Some(name) = path.strip_prefix(b"/dev/") {
        return matches!(parse_device(name), Some((Link::Descriptor(fd), _)) if apart::is_hidden(fd));
    }
    let Some(name) = path.strip_prefix(b"/proc/") else { return false };
    let own = [&b"self"[..], b"thread-self"].into_iter().find_map(|own| name.strip_prefix(own));
    let Some(mut rest) = own.or_else(|| Some(parse_decimal(name)?.1)) else { return false };
    if let Some((_, after)) = rest.strip_prefix(b"/task/").and_then(parse_decimal) {
        rest = after;
    }
    if own.is_none() {
        return [&b"/fd"[..], b"/cwd", b"/exe", b"/root"].iter().any(|name| rest.starts_with(name));
    }
    if rest.starts_with(b"/exe") && link::is_own() {
        return true;
    }
    let number = rest.strip_prefix(b"/fd/").or_else(|| rest.strip_prefix(b"/fdinfo/"));
    number.and_then(parse_decimal).is_some_and(|(fd, _)| is_hidden(fd))
}

/// The route of an absolute path under /proc or /dev, `length` bytes in the buffer of `which`.
#[cold]
pub(super) fn route(task: Option<&Task>, which: Which, last: Last, length: usize) -> Route {
    let text = buffer(which);
    let Some(task) = task else {
        return if may_concern_mount(&text[..length]) { Route::Bad(Errno::ENOENT) } else { Route::Host };
    };
    if last.follows() && own_descriptor::is_behind(task.region.fd(), At::text(text), &text[..length]) {
        return Route::Bad(Errno::ENOENT);
    }
    if let Some((process, fd)) = described(task, &text[..length])
        && descriptor::is_hidden_in(task, process, fd)
    {
        return Route::Bad(Errno::ENOENT);
    }
    let Some(magic) = parse(task, &text[..length]) else {
        let ends_here = |end| end == length && !last.follows();
        return match parse_apart(&text[..length]) {
            Some((pid, end)) if !ends_here(end) => route_program(which, (pid, false), end, length),
            _ => Route::Host,
        };
    };
    let own = magic.process == task.process_id;
    if let Link::Descriptor(fd) = magic.link
        && descriptor::is_hidden_in(task, magic.process, fd)
    {
        return Route::Bad(Errno::ENOENT);
    }
    let ends_here = magic.end == length;
    if ends_here && !last.follows() {
        return Route::Host;
    }
    if !is_ours(task, magic) {
        return match magic.link {
            Link::Exe => route_program(which, owner(task, magic), magic.end, length),
            _ => Route::Host,
        };
    }
    if !own && is_refused(text, magic.end) {
        return Route::Bad(Errno::EACCES);
    }
    if let Link::Descriptor(fd) = magic.link
        && own
        && ends_here
        && is_symlink(task, fd)
    {
        return Route::Itself(fd, None); // The link itself: its target is not followed.
    }
    if !own || matches!(magic.link, Link::Exe | Link::Root) {
        return route_named(task, which, magic, length);
    }
    let dirfd = match magic.link {
        Link::Descriptor(fd) => fd,
        Link::Cwd | Link::Exe | Link::Root => Fd::CWD,
    };
    match text[magic.end..length].iter().position(|byte| *byte != b'/') {
        Some(skip) => Route::Ours(At { dirfd, path: path_in(&text[magic.end + skip..]) }),
        None if magic.link == Link::Cwd || !ends_here => Route::Ours(At { dirfd, path: DOT }),
        None => route_named(task, which, magic, length),
    }
}

/// Whether the kernel refuses the caller a look at the link of another process that ends at `end` of `text`:
/// whoever may not trace a process does not see what it has open.
fn is_refused(text: &mut [u8; PATH_MAX], end: usize) -> bool {
    if lp_abi::sys::is_limited() {
        return false;
    }
    let (next, mut byte) = (core::mem::replace(&mut text[end], 0), 0u8);
    // SAFETY: the path is NUL-terminated, and the kernel writes one byte.
    let got = unsafe { lp_abi::syscall!(__NR_readlink, text.as_ptr(), &raw mut byte, 1) };
    text[end] = next;
    matches!(got, Err(Errno::EACCES | Errno::EPERM))
}

/// The route of the host program of process `pid`, and of what follows its link, which ends at `end`. `own`
/// says that it is the calling process.
fn route_program(which: Which, (pid, own): (u32, bool), end: usize, length: usize) -> Route {
    let (text, named) = (buffer(which), spare_buffer());
    let Some(program) = link::program(pid, own, named) else { return Route::Host };
    let rest_length = length - end;
    if program + rest_length >= PATH_MAX {
        return Route::Bad(Errno::ENAMETOOLONG);
    }
    text.copy_within(end..length, program);
    text[..program].copy_from_slice(&named[..program]);
    text[program + rest_length] = 0;
    Route::Elsewhere(At::text(text))
}

/// The process to which a link belongs, and whether it is the calling one.
fn owner(task: &Task, magic: Magic) -> (u32, bool) {
    let pid = task.region.process(magic.process).pid.load(Ordering::Relaxed); // Relaxed: one word.
    (pid, magic.process == task.process_id)
}

/// The process of a link /proc/PID/exe, and the link's end in `path`: processes that have not met a mount are
/// in no list.
fn parse_apart(path: &[u8]) -> Option<(u32, usize)> {
    let (pid, rest) = parse_decimal(path.strip_prefix(b"/proc/")?)?;
    let rest = rest.strip_prefix(b"/exe")?;
    (rest.is_empty() || rest[0] == b'/').then_some((pid, path.len() - rest.len()))
}

/// The route of a link's target by its own name, and of what follows it.
fn route_named(task: &Task, which: Which, magic: Magic, length: usize) -> Route {
    let text = buffer(which);
    let rest = spare_buffer();
    let rest_length = length - magic.end;
    rest[..rest_length].copy_from_slice(&text[magic.end..length]);
    match (name_of(task, magic, text), magic.link) {
        (Some(named), link) if named + rest_length < PATH_MAX => {
            text[named..named + rest_length].copy_from_slice(&rest[..rest_length]);
            text[named + rest_length] = 0;
            let inside = rooted::inside(Some(task), text);
            match link {
                Link::Descriptor(fd) if rest_length == 0 && magic.process == task.process_id => {
                    Route::Itself(fd, (!is_shut(task, inside)).then_some(inside))
                }
                _ => Route::Ours(inside),
            }
        }
        (Some(_), _) => Route::Bad(Errno::ENAMETOOLONG),
        (None, Link::Descriptor(fd)) if magic.process == task.process_id => Route::Itself(fd, None),
        (None, _) => Route::Bad(Errno::ENOENT),
    }
}

/// Whether the caller does not find its own file by the file's name: it may not search a directory.
fn is_shut(task: &Task, named: At) -> bool {
    target::at(task, named.dirfd, named.path, 0, |_, _, _| Ok(())).is_err()
}

/// The path of the target of a link of ours, NUL-terminated in `to`; `None` if it was unlinked or never had
/// one.
fn name_of(task: &Task, magic: Magic, to: &mut [u8; PATH_MAX]) -> Option<usize> {
    let length = text_of(task, magic, Start::Host, to).ok()?;
    (!to[..length].ends_with(b" (deleted)")).then_some(length)
}

/// The result of readlink(2) for a link of ours, NUL-terminated in `to`.
///
/// # Errors
/// `ENAMETOOLONG`; `ENOENT` if the descriptor was closed meanwhile.
fn text_of(task: &Task, magic: Magic, start: Start, to: &mut [u8; PATH_MAX]) -> Result<usize> {
    let places = directories::of(task.region, magic.process);
    // Relaxed, all: one word each. If another process closes the file meanwhile, the name was right a moment
    // ago.
    let text = match magic.link {
        Link::Descriptor(fd) => {
            let place = FdTable::of(task.region, magic.process).entry(fd).ok_or(Errno::ENOENT)?;
            let word = place.load(Ordering::Relaxed);
            getcwd::of_file(task, task.region.file(FileId(word as u32)), start)
        }
        Link::Cwd => of_place(task, &places.cwd, start),
        Link::Root => of_place(task, &places.root, start),
        Link::Exe => getcwd::of_executed(task, task.region.process(magic.process), start),
    }?;
    if text.len() >= to.len() {
        return Err(Errno::ENAMETOOLONG);
    }
    to[..text.len()].copy_from_slice(text);
    to[text.len()] = 0;
    Ok(text.len())
}

/// The path of a process's working or root directory.
fn of_place<'t>(task: &'t Task, place: &AtomicU64, start: Start) -> Result<&'t [u8]> {
    getcwd::of_place(task, Spot::from_word(place.load(Ordering::Relaxed)), start)
}

/// readlink(2) of a magic link of ours: its text in the thread's first buffer. `None` for everything else.
#[cold]
pub(crate) fn readlink(task: &Task, at: At) -> Option<Result<&'static [u8]>> {
    let text = buffer(Which::First);
    // SAFETY: the gate's fault handler is installed.
    let mut length = unsafe { ucopy::string(text, at.path.as_ptr()) }.ok()?;
    if text[..length].starts_with(b"/dev/std") {
        return None;
    }
    if elsewhere::may_continue(&text[..length]) {
        length = absolute::join(Which::First, at.dirfd, length)?;
    }
    let length = match parse(task, &text[..length]) {
        Some(magic) if magic.end != length => return None,
        Some(magic)
            if is_ours(task, magic) && magic.process != task.process_id && is_refused(text, length) =>
        {
            return Some(Err(Errno::EACCES));
        }
        Some(magic) if is_ours(task, magic) => match text_of(task, magic, Start::Root, text) {
            Ok(length) => length,
            Err(errno) => return Some(Err(errno)),
        },
        Some(magic) if magic.link == Link::Exe => {
            let (pid, own) = owner(task, magic);
            link::program(pid, own, text)?
        }
        Some(_) => return None,
        None => {
            let (pid, _) = parse_apart(&text[..length]).filter(|(_, end)| *end == length)?;
            link::program(pid, false, text)?
        }
    };
    Some(Ok(&text[..length]))
}

/// The path in a mount of what a magic link of ours leads to, in `to`, for a walk over host directories that
/// has arrived at the link. `ENOENT` if it has no name; `None` for any other path.
#[cold]
pub(crate) fn target<'t>(task: &Task, path: &[u8], to: &'t mut [u8; PATH_MAX]) -> Option<Result<&'t [u8]>> {
    let magic = parse(task, path).filter(|magic| magic.end == path.len() && is_ours(task, *magic))?;
    Some(name_of(task, magic, to).map(|length| &to[..length]).ok_or(Errno::ENOENT))
}

/// The path in a mount that a host path denotes if it starts with the memfd of the running program.
pub(crate) fn in_memfd<'p>(task: &Task, mounts: &MountPaths, path: &'p [u8]) -> Option<&'p [u8]> {
    let path = path.strip_prefix(names::MEMFD).filter(|path| mounts.holds(path))?;
    (task.process.exe.load(Ordering::Relaxed) != 0).then_some(path) // Relaxed: the process's own word.
}
