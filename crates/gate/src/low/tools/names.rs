//! Paths by which the builder, another process, can open an object.

use lp_abi::linux::{__NR_gettid, __NR_readlink};
use lp_abi::{Fd, outline};

use lp_abi::text::decimal;

/// Bytes for such a path.
pub(crate) const ROOM: usize = 1024;
/// Prefix of the paths of objects that have no name of their own. Such an object is keyed by its content.
pub(crate) const NAMELESS: &[u8] = b"/proc/";

/// Directory of the descriptors of a process with one thread.
pub(crate) const DESCRIPTORS: &[u8] = b"/proc/self/fd/";

/// Prefix of a memfd's name in the target of /proc/self/exe.
pub(crate) const MEMFD: &[u8] = b"/memfd:";
/// Longest name of a memfd, in bytes: `MFD_NAME_MAX_LEN` of mm/memfd.c.
pub(crate) const MEMFD_NAME: usize = 249;
/// What the kernel appends to the name of a file that has none any more.
pub(crate) const DELETED: &[u8] = b" (deleted)";

/// The path of the running program.
pub(crate) fn of_program(room: &mut [u8; ROOM]) -> &[u8] {
    of_link(room, b"/exe", None)
}

/// The path of the program that process `pid` executed, as the kernel reports it, or that of the host program
/// whose outline it executed.
pub(crate) fn of_process(pid: u32, room: &mut [u8; ROOM]) -> &[u8] {
    let mut digits = [0u8; 20];
    of_directory(room, decimal(pid.into(), &mut digits), b"/exe", b"")
}

/// The path of the host program whose outline process `pid` executed; `None` if it executed another file.
pub(crate) fn of_outline(pid: u32, room: &mut [u8; ROOM]) -> Option<&[u8]> {
    let mut digits = [0u8; 20];
    let (mut link, process) = ([0u8; 64], decimal(pid.into(), &mut digits));
    join(&mut link, &[NAMELESS, process, b"/exe"]);
    let got = read_link(&link, room);
    let program = within_outline(&room[..got])?;
    Some(&room[program])
}

/// Where the path of the host program is in the kernel's name of its outline.
fn within_outline(target: &[u8]) -> Option<core::ops::Range<usize>> {
    let path = target.strip_suffix(DELETED)?.strip_prefix(MEMFD)?.strip_prefix(outline::NAME)?;
    let start = MEMFD.len() + outline::NAME.len();
    path.starts_with(b"/").then_some(start..start + path.len())
}

/// The name to show for an object that the dynamic linker's list names `name`. That list has no name for the
/// program; a static program or one in a mount has been mapped from a memfd.
pub(crate) fn shown<'a>(name: &'a [u8], room: &'a mut [u8; ROOM]) -> &'a [u8] {
    known(name, room).unwrap_or(b"the program")
}

/// The same; `None` if /proc does not tell.
pub(crate) fn known<'a>(name: &'a [u8], room: &'a mut [u8; ROOM]) -> Option<&'a [u8]> {
    let mut link = [0u8; 64];
    match name {
        b"" => join(&mut link, &[b"/proc/thread-self/exe"]),
        _ if name.starts_with(NAMELESS) => join(&mut link, &[name]),
        _ => return Some(name),
    };
    let got = read_link(&link, room);
    let target = &room[..got];
    if let Some(program) = within_outline(target) {
        return Some(&room[program]);
    }
    let own = target.strip_prefix(MEMFD).and_then(|path| path.strip_suffix(DELETED));
    Some(own.unwrap_or(target)).filter(|target| !target.is_empty())
}

/// The path of the file behind a descriptor.
pub(crate) fn of_descriptor(fd: Fd, room: &mut [u8; ROOM]) -> &[u8] {
    of_link(room, b"/fd/", Some(fd.index()))
}

/// The kernel's name of the memfd behind a descriptor; `None` for another file.
pub(crate) fn of_memfd(fd: Fd, room: &mut [u8; ROOM]) -> Option<&[u8]> {
    let mut link = [0u8; 64];
    link[..Fd::LINK].copy_from_slice(&fd.link());
    let got = read_link(&link, room);
    room[..got].strip_suffix(DELETED)?.strip_prefix(MEMFD)
}

/// The target of a link in the thread's directory in /proc; the first thread, whose number the process has,
/// may have ended. Returns the link itself if its target has no name (an unlinked file, a memfd).
fn of_link<'a>(room: &'a mut [u8; ROOM], name: &[u8], number: Option<usize>) -> &'a [u8] {
    // SAFETY: gettid(2) takes no pointers.
    let tid = unsafe { lp_abi::syscall!(__NR_gettid) }.unwrap_or(0);
    let (mut digits, mut more) = ([0u8; 20], [0u8; 20]);
    let number = number.map_or(&[][..], |number| decimal(number as u32 as u64, &mut more));
    of_directory(room, decimal(tid as u64, &mut digits), name, number)
}

fn of_directory<'a>(room: &'a mut [u8; ROOM], process: &[u8], name: &[u8], number: &[u8]) -> &'a [u8] {
    let mut link = [0u8; 64];
    let length = join(&mut link, &[NAMELESS, process, name, number]);
    let got = read_link(&link, room);
    if let Some(program) = within_outline(&room[..got]) {
        return &room[program];
    }
    let nameless = room[..got].ends_with(DELETED) || room[..got].starts_with(MEMFD);
    let length = if nameless { join(room, &[&link[..length]]) } else { got };
    &room[..length]
}

/// The length of the target, in `room`, of the link with this NUL-terminated name; 0 if there is none.
fn read_link(link: &[u8; 64], room: &mut [u8; ROOM]) -> usize {
    // SAFETY: the link's name is NUL-terminated, and the kernel writes within `room`.
    unsafe { lp_abi::syscall!(__NR_readlink, link.as_ptr(), room.as_mut_ptr(), ROOM - 1) }.unwrap_or(0)
}

/// Concatenates `parts` in `room` and returns the length. Parts that do not fit are left out.
fn join(room: &mut [u8], parts: &[&[u8]]) -> usize {
    let mut at = 0;
    for part in parts {
        if let Some(to) = room.get_mut(at..at + part.len()) {
            to.copy_from_slice(part);
            at += part.len();
        }
    }
    at
}
