//! The dynamic linker (`PT_INTERP`) of a program that is executed while the root directory is in a mount, or
//! where a mount has another linker than the host.
//!
//! The kernel looks that path up from its own root directory, where another linker may be, or none. So it
//! gets a copy of the program in which the path is that of a descriptor: of a copy of the linker that a
//! lookup from the process's root directory finds. The gate closes the descriptor in the new image
//! ([`crate::low::object::objects::Auxiliary::close_linker`]).

use lp_abi::linux::{__NR_fcntl, F_SETFD};
use lp_abi::text::Writer;
use lp_abi::{Errno, Fd, PATH_MAX, Result};
use lp_vfs::task::{Place, Task};
use lp_vfs::walk::{self, Follow, Found};
use lp_vfs::{exec, pin, root};

use crate::high::frame::at::{At, Last, Route, Which};
use crate::high::route::libraries;
use crate::high::route::path::route;
use crate::high::run::image::{self, Change};
use crate::low::object::elf::Elf;
use crate::low::tools::close::close_number;
use crate::low::tools::names;

/// The linker for a program.
pub(crate) struct Interpreter {
    /// Its copy, which the new image inherits. The caller closes it if the exec fails.
    pub(crate) fd: Fd,
    /// The change in the program.
    pub(crate) change: Change,
}

/// The linker of a dynamic program; `None` if the kernel finds it.
///
/// # Errors
/// Those of execve(2).
pub(crate) fn of(task: &'static Task<'static>, program: &Elf<'_>) -> Result<Option<Interpreter>> {
    let has_root = root::of(task).is_some();
    if !has_root && !libraries::defaults_are_covered() {
        return Ok(None);
    }
    let mut path = [0u8; PATH_MAX];
    let Some((at, room)) = program.interpreter(&mut path) else { return Ok(None) };
    let given = At::text(&path);
    let inside = match route(task, Which::Second, given, Last::Follow) {
        Route::Ours(inside) if has_root || libraries::differs(task, inside, given) => inside,
        _ if has_root => return Err(Errno::ENOENT),
        _ => return Ok(None),
    };
    let Place::Inside(found) = walk::inode(task, inside.dirfd, inside.path, Follow::Link)? else {
        return Err(Errno::ENOENT);
    };
    let pin = pin::hold(task, pin::slot::SECOND, found.inode)?;
    let fd = copy(task, &found);
    drop(pin);
    let fd = fd?;
    match change(fd, at, room) {
        Some(change) => Ok(Some(Interpreter { fd, change })),
        None => {
            close_number(fd);
            Err(Errno::ENOEXEC)
        }
    }
}

/// A copy of a linker, which the next image inherits.
fn copy(task: &'static Task<'static>, found: &Found) -> Result<Fd> {
    exec::check(task, found)?;
    let fd = image::of_program(task, found.inode, c"ld.so", None)?;
    // SAFETY: the descriptor was just made. A child that another thread makes meanwhile inherits it.
    let _ = unsafe { lp_abi::syscall!(__NR_fcntl, fd, F_SETFD, 0) };
    Ok(fd)
}

/// The change of a program whose path of the linker is at `at` and `room` bytes long: the descriptor's path.
/// `None` if there is no room.
fn change(fd: Fd, at: u64, room: usize) -> Option<Change> {
    let mut change = Change { at, bytes: [0; Change::ROOM], length: room.min(Change::ROOM) };
    let mut text = Writer::new(&mut change.bytes[..room.min(Change::ROOM)]);
    text.push(names::DESCRIPTORS);
    text.push_decimal(fd.raw() as u64);
    text.finish()?;
    Some(change)
}
