//! /proc/PID/exe of a static program, and of a host program that is executed by an outline. The kernel's own
//! link leads to the gate's file, or to the outline.

use lp_abi::linux::{__NR_openat, __NR_read, O_CLOEXEC};

use crate::low::exec::environment;
use crate::low::object::elf::read_file;
use crate::low::thread::home;
use crate::low::thread::tls;
use crate::low::tools::names;
use lp_abi::text::Writer;
use lp_abi::{Fd, OwnedFd};

const AT_PHDR: u64 = 3;
/// Words of an auxiliary vector examined.
const VECTOR: usize = 128;

/// Whether the gate answers the running program's link.
pub(crate) fn is_own() -> bool {
    home::settings().is_outlined || is_static()
}

/// Whether the running program is a static one on the host.
fn is_static() -> bool {
    tls::is_by_gs() && !home::settings().program.get().is_empty()
}

/// Writes the path of the host program that process `pid` runs to `to`, NUL-terminated, and returns its
/// length, unless the kernel's link leads to it. `own` says that `pid` is the calling process.
#[cold]
pub(crate) fn program(pid: u32, own: bool, to: &mut [u8]) -> Option<usize> {
    if own && is_static() {
        return put(home::settings().program.get(), to);
    }
    let (mut link, mut gate) = ([0u8; names::ROOM], [0u8; names::ROOM]);
    if let Some(path) = names::of_outline(pid, &mut link) {
        return put(path, to);
    }
    if own {
        return None;
    }
    let gate = environment::static_gate(&mut gate)?;
    let gate = &gate[..gate.len() - 1];
    if names::of_process(pid, &mut link) != gate {
        return None;
    }
    let headers = headers_of(pid)?;
    let directory = gate.iter().rposition(|byte| *byte == b'/')?;
    let mut maps = Lines::open(pid)?;
    loop {
        // START-END PROTECTION OFFSET DEVICE INODE PATH
        let line = maps.next()?;
        let end = line.iter().position(|byte| *byte == b' ').and_then(|end| {
            let dash = line.iter().position(|byte| *byte == b'-')?;
            hexadecimal(line.get(dash + 1..end)?)
        })?;
        let path = line.iter().position(|byte| *byte == b'/').map_or(&b""[..], |start| &line[start..]);
        // Patched pages are mapped from the bundle: skip them.
        if end > headers && !path.is_empty() && !path.starts_with(&gate[..=directory]) {
            return if path.ends_with(b" (deleted)") { None } else { put(path, to) };
        }
    }
}

fn put(path: &[u8], to: &mut [u8]) -> Option<usize> {
    let mut text = Writer::new(to);
    text.push(path);
    text.finish()
}

fn hexadecimal(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0, |sum, digit| Some(sum << 4 | u64::from(char::from(*digit).to_digit(16)?)))
}

/// Opens a file in a process's directory in /proc.
fn open(pid: u32, name: &[u8]) -> Option<OwnedFd> {
    let mut path = [0u8; 32];
    let mut text = Writer::new(&mut path);
    text.push(names::NAMELESS);
    text.push_decimal(u64::from(pid));
    text.push(name);
    text.finish()?;
    // SAFETY: the path is NUL-terminated.
    unsafe { lp_abi::syscall!(__NR_openat, Fd::CWD, path.as_ptr(), O_CLOEXEC) }.ok().map(OwnedFd::new)
}

/// Address of a process's program headers, from its auxiliary vector.
fn headers_of(pid: u32) -> Option<u64> {
    let file = open(pid, b"/auxv")?;
    let mut vector = [0u8; VECTOR * 8];
    let got = read_file(file.get(), &mut vector, 0);
    let (words, _) = vector[..got].as_chunks::<8>();
    let (pairs, _) = words.as_chunks::<2>();
    let found = pairs.iter().find(|[kind, _]| u64::from_le_bytes(*kind) == AT_PHDR);
    found.map(|[_, value]| u64::from_le_bytes(*value))
}

/// The lines of /proc/PID/maps. A line longer than the buffer ends the iteration.
struct Lines {
    file: OwnedFd,
    room: [u8; 2048],
    at: usize,
    end: usize,
}

impl Lines {
    fn open(pid: u32) -> Option<Lines> {
        Some(Lines { file: open(pid, b"/maps")?, room: [0; 2048], at: 0, end: 0 })
    }

    fn next(&mut self) -> Option<&[u8]> {
        loop {
            if let Some(length) = self.room[self.at..self.end].iter().position(|byte| *byte == b'\n') {
                let start = self.at;
                self.at += length + 1;
                return Some(&self.room[start..start + length]);
            }
            self.room.copy_within(self.at..self.end, 0);
            (self.at, self.end) = (0, self.end - self.at);
            let left = &mut self.room[self.end..];
            // SAFETY: the kernel writes within the buffer.
            match unsafe { lp_abi::syscall!(__NR_read, self.file.get(), left.as_mut_ptr(), left.len()) } {
                Ok(got) if got != 0 => self.end += got,
                _ => return None,
            }
        }
    }
}
