//! May this file be executed under the gate? What the gate could not cover is refused before it starts.
//!
//! The dynamic linker loads the gate, so a file needs one: ELF for x86-64 with an interpreter. A file whose execution
//! changes ids or capabilities would run without it (ld.so then ignores LD_PRELOAD). What the kernel itself refuses is
//! left to the kernel, for its errno.

use lp_abi::Errno;
use lp_abi::linux::{
    __NR_close, __NR_fgetxattr, __NR_fstat, __NR_getegid, __NR_geteuid, __NR_openat, __NR_prctl,
    __NR_pread64, O_CLOEXEC, O_NOCTTY, O_NONBLOCK, O_PATH, O_RDONLY, S_ISGID, S_ISUID, S_IXGRP, stat,
};

use crate::exec_known::Known;
use crate::report;

/// Why a file is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// No dynamic linker loads it.
    Static,
    /// Made for another processor mode.
    Bits32,
    /// The set-user-id bit would change the effective user.
    SetUser,
    /// The set-group-id bit would change the effective group.
    SetGroup,
    /// It carries capabilities.
    Capabilities,
    /// It may be executed but not read, so that it cannot be looked at.
    Unreadable,
}

impl Refusal {
    /// The line for the user.
    pub fn words(self) -> &'static [u8] {
        match self {
            Refusal::Static => b"is statically linked: its file calls cannot be answered; not started",
            Refusal::Bits32 => b"is a 32-bit program: its file calls cannot be answered; not started",
            Refusal::SetUser => b"is set-user-id: the dynamic linker would leave Lightpath out; not started",
            Refusal::SetGroup => {
                b"is set-group-id: the dynamic linker would leave Lightpath out; not started"
            }
            Refusal::Capabilities => {
                b"carries file capabilities: the dynamic linker would leave Lightpath out; not started"
            }
            Refusal::Unreadable => b"cannot be read, so it cannot be checked; not started",
        }
    }

    /// Writes the line and gives the errno, which a shell turns into status 126.
    pub fn report(self, path: &[u8]) -> Errno {
        report::line(&[path, b": ", self.words()]);
        Errno::EACCES
    }
}

const PR_GET_NO_NEW_PRIVS: usize = 39;
/// Bytes at the start of a file that are looked at; the kernel looks at 256 for `#!`.
const HEAD: usize = 1024;
/// `#!` files in a row that the kernel follows.
const SCRIPTS: usize = 5;
const AT_FDCWD: isize = -100;

/// Looks at the host's file `path` (relative to `directory`, as execveat(2) takes it) and at the interpreters of scripts.
/// What `known` has is not opened.
///
/// # Errors
/// The refusal. Files that are absent or that the kernel will refuse pass.
///
/// # Safety
/// `path` is a NUL-terminated string, or bad in a way that the kernel answers with `EFAULT`.
pub unsafe fn host_file(
    known: Option<Known<'_>>,
    directory: isize,
    path: *const u8,
    flags: usize,
) -> Result<(), Refusal> {
    // SAFETY: the caller's promise.
    if known.is_some_and(|known| unsafe { known.has(directory, path, flags) }) {
        return Ok(());
    }
    let mut head = [0u8; HEAD];
    // SAFETY: the caller's promise.
    let mut file = unsafe { File::open(directory, path, flags) }?;
    for _ in 0..SCRIPTS {
        let Some(open) = &file else { return Ok(()) };
        let got = open.read(&mut head, 0);
        let head = &mut head[..got];
        if !head.starts_with(b"#!") {
            return program(known, open, head);
        }
        let Some((interpreter, _)) = interpreter_of(head) else { return Ok(()) };
        let end = interpreter.end;
        let start = interpreter.start;
        if end >= head.len() {
            return Ok(());
        }
        head[end] = 0;
        // SAFETY: a string that ends within the buffer.
        file = unsafe { File::open(AT_FDCWD, head[start..].as_ptr(), 0) }?;
    }
    Ok(())
}

/// Judges a file that is no script, by its first bytes for one.
fn program(known: Option<Known<'_>>, open: &File, head: &[u8]) -> Result<(), Refusal> {
    let Some(stat) = open.stat() else { return Ok(()) };
    open.privileges(&stat)?;
    match elf(head, |table, at| open.read(table, at) == table.len()) {
        // The name is looked at only to tell the dynamic linker itself, which the gate may well run under.
        Some(Refusal::Static) if open.is_linker() => Ok(()),
        Some(refusal) => Err(refusal),
        None => {
            if let Some(known) = known.filter(|_| head.starts_with(b"\x7fELF") && !open.has_capabilities()) {
                known.add(&stat, lp_vfs::clock::now().sec);
            }
            Ok(())
        }
    }
}

/// The interpreter's path and the argument's in the first line of a `#!` file, as ranges in `head` (the kernel's rules: blanks
/// before and after the path are skipped, the rest of the line is one argument, without blanks at its end).
pub fn interpreter_of(head: &[u8]) -> Option<(core::ops::Range<usize>, core::ops::Range<usize>)> {
    let blank = |byte: &u8| *byte == b' ' || *byte == b'\t';
    let line = head.get(2..head.len().min(256))?;
    let end = line.iter().position(|byte| *byte == b'\n' || *byte == 0).unwrap_or(line.len());
    let line = &line[..end];
    let end = line.len() - line.iter().rev().take_while(|byte| blank(byte)).count();
    let start = line.iter().take_while(|byte| blank(byte)).count();
    let path = line.get(start..end)?;
    if path.is_empty() {
        return None;
    }
    let path_end = start + path.iter().position(blank).unwrap_or(path.len());
    let argument = path_end + line[path_end..end].iter().take_while(|byte| blank(byte)).count();
    Some((2 + start..2 + path_end, 2 + argument..2 + end))
}

/// Whether an ELF file can be covered, judged by its first bytes; `read` fills a buffer from an offset. `None`: it can, or it
/// is no ELF file for this kernel.
pub fn elf(head: &[u8], mut read: impl FnMut(&mut [u8], u64) -> bool) -> Option<Refusal> {
    const X86_64: u16 = 62;
    const I386: u16 = 3;
    const PT_INTERP: u32 = 3;
    let half = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?));
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    match (half(18)?, head.get(4)?) {
        (X86_64, 2) => {}
        (I386, _) | (X86_64, 1) => return Some(Refusal::Bits32),
        _ => return None,
    }
    let table_at = u64::from_le_bytes(head.get(32..40)?.try_into().ok()?);
    let (entry, count) = (half(54)? as usize, half(56)? as usize);
    if entry != 56 {
        return None;
    }
    for index in 0..count as u64 {
        let mut kind = [0u8; 4];
        let at = table_at.wrapping_add(index * 56);
        match head.get(at as usize..(at as usize).wrapping_add(4)) {
            Some(bytes) => kind.copy_from_slice(bytes),
            None if read(&mut kind, at) => {}
            None => return None,
        }
        if u32::from_le_bytes(kind) == PT_INTERP {
            return None;
        }
    }
    Some(Refusal::Static)
}

/// An open file, looked at and closed.
struct File(usize);

impl File {
    /// # Safety
    /// As [`host_file`].
    unsafe fn open(directory: isize, path: *const u8, flags: usize) -> Result<Option<File>, Refusal> {
        const AT_EMPTY_PATH: usize = lp_abi::linux::AT_EMPTY_PATH as usize;
        let how = (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) as usize;
        if flags & AT_EMPTY_PATH != 0 && !path.is_null() && crate::exec::is_empty(path) {
            return Ok(File::again(directory));
        }
        // SAFETY: the caller's promise; the file is not changed.
        match unsafe { lp_abi::syscall!(__NR_openat, directory, path, how) } {
            Ok(fd) => Ok(Some(File(fd))),
            Err(Errno::EACCES) => {
                // SAFETY: as above.
                let file =
                    unsafe { lp_abi::syscall!(__NR_openat, directory, path, O_PATH | O_CLOEXEC) }.map(File);
                match file.ok().and_then(|file| file.stat()) {
                    Some(stat) if stat.st_mode & 0o111 != 0 && stat.st_mode & 0o170_000 == 0o100_000 => {
                        Err(Refusal::Unreadable)
                    }
                    _ => Ok(None),
                }
            }
            Err(_) => Ok(None),
        }
    }

    /// Another descriptor for the file behind `fd`, so that closing it is ours to do.
    fn again(fd: isize) -> Option<File> {
        use lp_abi::linux::{__NR_fcntl, F_DUPFD_CLOEXEC};
        // SAFETY: makes a descriptor.
        unsafe { lp_abi::syscall!(__NR_fcntl, fd, F_DUPFD_CLOEXEC, 0) }.ok().map(File)
    }

    fn read(&self, to: &mut [u8], at: u64) -> usize {
        // SAFETY: the kernel writes within `to`.
        unsafe { lp_abi::syscall!(__NR_pread64, self.0, to.as_mut_ptr(), to.len(), at) }.unwrap_or(0)
    }

    fn stat(&self) -> Option<stat> {
        let mut stat = core::mem::MaybeUninit::<stat>::zeroed();
        // SAFETY: the kernel fills the record in; all zeros are one, too.
        unsafe {
            lp_abi::syscall!(__NR_fstat, self.0, stat.as_mut_ptr()).ok()?;
            Some(stat.assume_init())
        }
    }

    fn privileges(&self, stat: &stat) -> Result<(), Refusal> {
        let refusal = if stat.st_mode & S_ISUID != 0 && stat.st_uid != id(__NR_geteuid) {
            Refusal::SetUser
        } else if stat.st_mode & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP && stat.st_gid != id(__NR_getegid) {
            Refusal::SetGroup
        } else if id(__NR_geteuid) != 0 && self.has_capabilities() {
            Refusal::Capabilities
        } else {
            return Ok(());
        };
        // SAFETY: no effect.
        let ignored = unsafe { lp_abi::syscall!(__NR_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) };
        if ignored == Ok(1) { Ok(()) } else { Err(refusal) }
    }

    fn has_capabilities(&self) -> bool {
        let name = c"security.capability".as_ptr();
        // SAFETY: asks for the length only.
        unsafe { lp_abi::syscall!(__NR_fgetxattr, self.0, name, 0, 0) }.is_ok_and(|length| length > 0)
    }

    /// Whether this is a dynamic linker, which runs programs that it is told of: by its name, after symbolic links.
    fn is_linker(&self) -> bool {
        use lp_abi::linux::__NR_readlink;
        let mut link = *b"/proc/self/fd/\0\0\0\0\0\0\0\0";
        let mut digits = [0u8; 20];
        let digits = report::decimal(self.0, &mut digits);
        let Some(room) = link.get_mut(14..14 + digits.len()) else { return false };
        room.copy_from_slice(digits);
        let mut path = [0u8; 512];
        // SAFETY: the kernel reads the name and writes within `path`.
        let got = unsafe { lp_abi::syscall!(__NR_readlink, link.as_ptr(), path.as_mut_ptr(), path.len()) };
        let path = &path[..got.unwrap_or(0)];
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        name.starts_with(b"ld-") || name.starts_with(b"ld.so")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this value's own.
        let _ = unsafe { lp_abi::syscall!(__NR_close, self.0) };
    }
}

fn id(call: u32) -> u32 {
    // SAFETY: no effect.
    unsafe { lp_abi::syscall!(call) }.unwrap_or(0) as u32
}
