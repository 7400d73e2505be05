//! Outlines of dynamic host programs, and of copies of programs in a mount ([`lp_abi::outline`]). Those of
//! large programs in a mount are in the high half.
//!
//! On most virtual machines the linker's questions to the processor are most of a program's start. The linker
//! of `lp_sites::linker` does not ask, but the kernel takes the linker that the program names. So it gets an
//! outline of the program that names ours. What cannot have an outline is executed as it is, and so is
//! everything where the processor answers at once.

use lp_abi::linux::{
    __NR_faccessat, __NR_fcntl, __NR_pread64, __NR_prlimit64, __NR_pwrite64, F_SETFD, RLIMIT_FSIZE,
};
use lp_abi::outline::{NAME, Plan, linker_name};
use lp_abi::text::Writer;
use lp_abi::{Fd, OwnedFd, PAGE_SIZE, Result};
use lp_region::ucopy;

use crate::low::exec::check::File;
use crate::low::exec::load::Executed;
use crate::low::object::layout::{Layout, Part, Parts};
use crate::low::thread::home;
use crate::low::thread::record::Thread;
use crate::low::tools::memfd;
use crate::low::tools::{names, status};

/// An outline to be executed once.
pub(crate) struct Outline {
    memfd: OwnedFd,
    /// The program, whose number the plan names.
    program: File,
}

impl Outline {
    /// An outline of a program, which gets the gate within the C library; `None` if it is to be executed as
    /// it is.
    ///
    /// # Safety
    /// The file's path must be NUL-terminated, or bad in a way that the kernel answers with `EFAULT`.
    pub(crate) unsafe fn of(thread: &Thread, file: Executed) -> Option<Outline> {
        if !home::settings().outlines_host() || lp_abi::sys::is_limited() || !may_write_a_page() {
            return None;
        }
        // A debugger stops the new image before the linker has run, and looks for the program's code then.
        if status::is_traced() {
            return None;
        }
        let mut name = Name::empty();
        // SAFETY: the caller guarantees the path.
        let (program, is_named) = unsafe { open(file, &mut name) }?;
        if !program.may_be_executed() {
            return None;
        }
        // SAFETY: the buffers belong to the running call, which uses them only for the environment, later.
        let (page, room) = unsafe { (&mut *thread.scratch[2].get(), &mut *thread.scratch[1].get()) };
        // SAFETY: the kernel writes within the page.
        let got = unsafe { lp_abi::syscall!(__NR_pread64, program.fd(), page.as_mut_ptr(), page.len(), 0) };
        if got != Ok(PAGE_SIZE) || !page.starts_with(b"\x7fELF") {
            return None;
        }
        let size = u64::try_from(program.stat()?.st_size).ok()?;
        let fd = program.fd().raw() as u32;
        let plan = Plan { fd, close: fd, ..plan() };
        convert(page, size, room, plan, &mut |start, bytes, map| map(Part { bytes, at: Some(start) }))?;
        if !is_named {
            name.set_by_file(program.fd(), room.first_chunk_mut()?)?;
        }
        let memfd = make(&name, page).ok()?;
        Some(Outline { memfd, program })
    }

    /// The memfd to execute. The new image gets the program's descriptor, and closes it.
    pub(crate) fn pass(&self) -> Fd {
        // SAFETY: the descriptor belongs to the gate.
        let _ = unsafe { lp_abi::syscall!(__NR_fcntl, self.program.fd(), F_SETFD, 0) };
        self.memfd.get()
    }
}

/// A plan for the linker, without files.
pub(crate) fn plan() -> Plan {
    Plan { magic: Plan::MAGIC, close: Plan::NONE, ..Plan::default() }
}

/// Makes `page`, the first of a program of `size` bytes, that of an outline of it. `None` if it cannot have
/// one.
pub(crate) fn convert(
    page: &mut [u8; PAGE_SIZE],
    size: u64,
    room: &mut [u8],
    plan: Plan,
    parts: &mut Parts<'_>,
) -> Option<()> {
    let mut layout = Layout::of(page)?;
    layout.interpreter(size)?;
    let path = linker_path(home::settings().library.get(), home::settings().linker, room)?;
    let path_at = Plan::AT.checked_sub(path.len())?;
    if layout.end() > path_at || !is_there(path) {
        return None;
    }
    layout.plan(plan, parts)?;
    layout.set_interpreter(path_at as u64, path.len() as u64);
    layout.leave_data();
    page[path_at..Plan::AT].copy_from_slice(path);
    Some(())
}

/// The path of the linker with this number beside the C library in `directory`, NUL-terminated.
pub(crate) fn linker_path<'r>(directory: &[u8], number: u64, room: &'r mut [u8]) -> Option<&'r [u8]> {
    let mut path = Writer::new(room);
    path.push(directory);
    path.push(b"/");
    path.push(&linker_name(number));
    let length = path.finish()?;
    room.get(..=length)
}

/// Whether the kernel will find the linker: not in every root directory.
fn is_there(path: &[u8]) -> bool {
    // SAFETY: the path is NUL-terminated; access(2) changes nothing.
    unsafe { lp_abi::syscall!(__NR_faccessat, Fd::CWD, path.as_ptr(), 0) }.is_ok()
}

/// Whether the process may write a page to a file (RLIMIT_FSIZE).
pub(crate) fn may_write_a_page() -> bool {
    let mut limit = [0u64; 2];
    // SAFETY: the kernel writes the two words.
    let asked = unsafe {
        lp_abi::syscall!(__NR_prlimit64, 0, RLIMIT_FSIZE, core::ptr::null::<u8>(), limit.as_mut_ptr())
    };
    asked.is_ok() && limit[0] >= PAGE_SIZE as u64
}

/// Opens the program. Also whether `name`, its outline's, need not be looked up.
///
/// # Safety
/// The file's path must be NUL-terminated, or bad in a way that the kernel answers with `EFAULT`.
unsafe fn open(file: Executed, name: &mut Name) -> Option<(File, bool)> {
    // SAFETY: the caller guarantees the path.
    if unsafe { name.set_by_path(file.path) }.is_some()
        && let Some(program) = File::without_links(name.path())
    {
        return Some((program, true));
    }
    // SAFETY: the caller guarantees the path.
    let program = unsafe { File::open(file.directory, file.path, file.flags) }.ok()??;
    Some((program, false))
}

/// The name of an outline, which tells /proc/PID/exe's readers the program's path. It stays in one place, as
/// the program's stack may be small.
struct Name([u8; names::MEMFD_NAME + 1]);

impl Name {
    fn empty() -> Name {
        Name([0; names::MEMFD_NAME + 1])
    }

    fn set(&mut self, parts: &[&[u8]]) -> Option<()> {
        let mut text = Writer::new(&mut self.0[..]);
        parts.iter().for_each(|part| text.push(part));
        text.finish().map(drop)
    }

    /// By a path that is the program's own if no symbolic link is in it; `None` for other paths, and those
    /// that are too long.
    ///
    /// # Safety
    /// As for [`open`].
    unsafe fn set_by_path(&mut self, path: *const u8) -> Option<()> {
        let (kind, room) = self.0.split_at_mut(NAME.len());
        kind.copy_from_slice(NAME);
        // SAFETY: the copy routine handles bad pointers.
        let length = unsafe { ucopy::string(room, path) }.ok()?;
        let leads_elsewhere = |part: &[u8]| part.is_empty() || part == b"." || part == b"..";
        let is_plain = |path: &[u8]| !path.split(|byte| *byte == b'/').any(leads_elsewhere);
        room[..length].strip_prefix(b"/").filter(|path| is_plain(path)).map(drop)
    }

    /// By what the kernel says of an open file. `None` if it has no name, or one that is too long.
    fn set_by_file(&mut self, program: Fd, room: &mut [u8; names::ROOM]) -> Option<()> {
        // A copy of a program in a mount has the program's path as its name, by which the program finds
        // itself.
        if let Some(own) = names::of_memfd(program, room) {
            return self.set(&[own]);
        }
        let path = names::of_descriptor(program, room);
        if path.starts_with(names::NAMELESS) { None } else { self.set(&[NAME, path]) }
    }

    /// The program's path in a name by [`Name::set_by_path`], NUL-terminated.
    fn path(&self) -> &[u8] {
        &self.0[NAME.len()..]
    }
}

/// Makes the memfd with that page.
fn make(name: &Name, page: &[u8; PAGE_SIZE]) -> Result<OwnedFd> {
    // SAFETY: `name` is NUL-terminated, and the kernel reads the page.
    unsafe {
        let memfd = memfd::executable(name.0.as_ptr())?;
        lp_abi::syscall!(__NR_pwrite64, memfd.get(), page.as_ptr(), page.len(), 0)?;
        Ok(memfd)
    }
}
