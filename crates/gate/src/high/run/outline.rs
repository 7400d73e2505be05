//! Outlines of large programs: memfds that the kernel executes in a program's place, and that hold its
//! headers only.
//!
//! To copy a program of many megabytes takes longer than to run it. The kernel needs little of it: the
//! headers, from which it lays out the address space, and the loader's name. An outline has the headers and
//! holes for the rest. As for programs of the host ([`crate::low::exec::outline`]), it names the linker that
//! maps the program itself, with the region's pages in its plan. Where that linker is not used, or the plan
//! has too many pieces, it names the gate's own file: that maps the program's pages over the holes, loads the
//! program's loader and goes on there ([`crate::low::start::standalone`]).
//!
//! The process's record of what it executes keeps the pages, from before the outline is made, and opening the
//! file for writing fails with `ETXTBSY` meanwhile.

use core::ffi::CStr;

use lp_abi::linux::{
    __NR_faccessat2, __NR_mmap, __NR_munmap, __NR_pwrite64, AT_EACCESS, MAP_PRIVATE, PROT_EXEC, PROT_READ,
};
use lp_abi::outline::Plan;
use lp_abi::text::number;
use lp_abi::{Errno, Fd, OwnedFd, PAGE_SIZE, Result};
use lp_region::records::Inode;
use lp_region::sync::{AtomicU64, Ordering};
use lp_region::{InodeRef, ProcessId, Region, Spot};
use lp_vfs::task::Task;
use lp_vfs::{below, executed, mapping};

use crate::high::frame::at::spare_buffer;
use crate::high::frame::content::read_at;
use crate::high::run::{image, mounts};
use crate::low::exec::environment;
use crate::low::exec::load::{LoaderHook, Named};
use crate::low::exec::outline::{convert, may_write_a_page, plan};
use crate::low::object::layout::{Layout, Part};
use crate::low::thread::home;
use crate::low::tools::memfd;
use crate::low::tools::{names, status};

/// Size from which on a program gets an outline. To copy a smaller one costs less than what its starts would
/// cost more.
const LARGE: u64 = 4 << 20;
/// Pieces of a program that are mapped: the kernel limits the number of mappings.
const PIECES: u32 = 1024;

/// Whether programs of this size get outlines.
pub(crate) fn is_large(inode: &Inode) -> bool {
    inode.size.load(Ordering::Relaxed) >= LARGE // Relaxed: one word.
}

/// A memfd with the outline of the dynamic program that the process is about to execute, as its record says,
/// close-on-exec, and how the gate gets into it; `None` if the program must be copied. `load` is how the gate
/// would get into the copy, and `named` the name that is executed. The caller has the inode pinned.
pub(crate) fn of_program(
    task: &Task,
    program: InodeRef,
    name: &CStr,
    load: LoaderHook,
    named: Named,
) -> Option<(Fd, LoaderHook)> {
    let inode = task.region.inode(program.id);
    // A debugger stops the new image before the gate has run, and looks for the program's headers and its
    // loader then.
    let is_plain = !lp_abi::sys::is_limited() && may_execute_pages(task.region) && !status::is_traced();
    if !is_large(inode) || !is_plain {
        return None;
    }
    below::complete(task, inode).ok()?;
    let size = inode.size.load(Ordering::Relaxed); // Relaxed: one word.
    let page = spare_buffer();
    if read_at(task, inode, page, 0) != Ok(PAGE_SIZE) {
        return None;
    }
    let range = Layout::of(page)?.interpreter(size)?;
    let mut loader = [0u8; names::ROOM];
    let loader = loader.get_mut(..range.end.checked_sub(range.start)? as usize)?;
    if read_at(task, inode, loader, range.start) != Ok(loader.len()) || !is_on_host(loader) {
        return None;
    }
    let is_planned = load == LoaderHook::Within && home::settings().linker != 0 && may_write_a_page();
    if is_planned && let Some(memfd) = planned(task, size, name) {
        return Some((memfd, LoaderHook::Outline(named)));
    }
    entered(task, (program, size), name).map(|memfd| (memfd, load))
}

/// The outline for the linker that maps a program itself.
fn planned(task: &Task, size: u64, name: &CStr) -> Option<Fd> {
    let (page, mut room) = (spare_buffer(), [0u8; names::ROOM]);
    let plan = Plan { fd: task.region.fd().raw() as u32, ..plan() };
    convert(page, size, &mut room, plan, &mut |start, bytes, map| {
        let found = executed::pieces(task.region, task.process_id, (start, bytes), &mut |piece| {
            let part = Part { bytes: piece.bytes as u64, at: piece.region.map(|at| at as u64) };
            map(part).ok_or(Errno::E2BIG)
        });
        (found == Ok(true)).then_some(())
    })?;
    make(&[(page, 0)], name).ok()
}

/// The outline with which the kernel enters the gate.
fn entered(task: &Task, (program, size): (InodeRef, u64), name: &CStr) -> Option<Fd> {
    let page = spare_buffer();
    let mut pieces = 0;
    mapping::pieces(task, program, 0, size as usize, 0, &mut |_| {
        pieces += 1;
        Ok(())
    })
    .ok()?;
    if pieces > PIECES || read_at(task, task.region.inode(program.id), page, 0) != Ok(PAGE_SIZE) {
        return None;
    }
    let mut room = [0u8; names::ROOM];
    let gate = environment::static_gate(&mut room)?;
    let end = size.next_multiple_of(PAGE_SIZE as u64);
    Layout::of(page)?.set_interpreter(end, gate.len() as u64);
    make(&[(page, 0), (gate, end)], name).ok()
}

/// Whether the loader's path, NUL-terminated, is absolute and not in a mount other than the root directory,
/// and the kernel would execute it.
fn is_on_host(loader: &[u8]) -> bool {
    const X_OK: u32 = 1;
    let Ok(path) = CStr::from_bytes_with_nul(loader) else { return false };
    let in_mount = || !mounts::mounts().are_whole() && mounts::mounts().holds(path.to_bytes());
    let is_ours = !path.to_bytes().starts_with(b"/") || in_mount();
    // SAFETY: the path is NUL-terminated; faccessat2(2) changes nothing.
    !is_ours && unsafe { lp_abi::syscall!(__NR_faccessat2, Fd::CWD, path.as_ptr(), X_OK, AT_EACCESS) }.is_ok()
}

/// Whether the region's pages may be mapped for execution: not if its file is on a file system without.
fn may_execute_pages(region: Region) -> bool {
    // SAFETY: a mapping of its own, which nothing uses.
    unsafe {
        let mapped =
            lp_abi::syscall!(__NR_mmap, 0, PAGE_SIZE, PROT_READ | PROT_EXEC, MAP_PRIVATE, region.fd(), 0);
        mapped.and_then(|at| lp_abi::syscall!(__NR_munmap, at, PAGE_SIZE)).is_ok()
    }
}

/// Makes the memfd, of bytes and their offsets.
fn make(parts: &[(&[u8], u64)], name: &CStr) -> Result<Fd> {
    // SAFETY: `name` is NUL-terminated.
    let made = unsafe { memfd::executable(name.as_ptr().cast()) }?;
    for (bytes, at) in parts {
        // SAFETY: the kernel reads `bytes`.
        unsafe { lp_abi::syscall!(__NR_pwrite64, made.get(), bytes.as_ptr(), bytes.len(), *at) }?;
    }
    Ok(made.keep())
}

/// Keeps the pages of the program that the process executes while an exec names another in its record: the
/// exec may fail. Returns what [`release`] is to release then.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn keep(task: &Task, exe: Spot) -> Result<Option<InodeRef>> {
    let is_outlined = exe.inode != InodeRef::NONE && is_large(task.region.inode(exe.inode.id));
    if is_outlined {
        executed::keep(task, exe)?;
    }
    Ok(is_outlined.then_some(exe.inode))
}

/// What this image executes: the process's record names another program during an exec.
static EXECUTED: AtomicU64 = AtomicU64::new(0);

/// Records it, at attach.
pub(crate) fn set_executed(task: &Task) {
    // Relaxed, here and below: written while there is one thread, and the process's own word.
    EXECUTED.store(task.process.exe.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// What this image executes; none on the host.
pub(crate) fn executed() -> Spot {
    Spot::from_word(EXECUTED.load(Ordering::Relaxed))
}

/// A child is about to be created in `child`, which has a copy of the process's record. It executes what this
/// image does, whatever another thread is about to execute, and keeps its pages.
pub(crate) fn executed_by(task: &Task, child: ProcessId) {
    let executed = EXECUTED.load(Ordering::Relaxed);
    // Release: as in `fork`, for who scans the records.
    task.region.process(child).exe.store(executed, Ordering::Release);
}

/// The exec has failed, and the record names the program again.
pub(crate) fn release(task: &Task, kept: Option<InodeRef>) {
    if let Some(of) = kept {
        mapping::end(task, of, PAGE_SIZE);
    }
}

/// A copy of the program of a mount that the process executes by an outline.
pub(crate) fn copy_of_own(task: &Task) -> Option<OwnedFd> {
    let program = executed().inode;
    let is_outlined = || home::settings().is_outlined || is_large(task.region.inode(program.id));
    if program == InodeRef::NONE || !is_outlined() {
        return None;
    }
    image::copied(task, program, c"lightpath-program").ok()
}

/// The region and the process's slot in it, from the value of LIGHTPATH_GATE. The process has not attached
/// yet: the caller unmaps the region.
pub(crate) fn slot_of(gate: &[u8]) -> Option<(Region<'static>, ProcessId)> {
    let mut parts = gate.split(|byte| *byte == b':').map_while(number);
    let (fd, process, length) = (parts.next()?, parts.next()?, parts.next()?);
    // SAFETY: the gate that executed this image had the region mapped, and wrote its length.
    let region = unsafe { Region::attach(Fd::new(fd as i32), length) }.ok()?;
    Some((region, ProcessId(process as u32)))
}
