//! The dynamic linker executed to look at a program, as ldd(1) does: `--verify`, `--list`, or
//! LD_TRACE_LOADED_OBJECTS in the environment. It opens that program before the gate starts.
//!
//! With that variable, a program in a mount that has an interpreter is executed itself: the linker then does
//! the same, and finds libraries in mounts. Otherwise it is given a copy.

use lp_abi::linux::{__NR_fcntl, F_SETFD};
use lp_abi::text::decimal;
use lp_abi::{Errno, Fd, Result};
use lp_region::ucopy;
use lp_vfs::task::{Place, Task};
use lp_vfs::walk::{self, Follow, Found};
use lp_vfs::{permission, pin};

use crate::high::calls::exec_arguments::{Arguments, Exec};
use crate::high::frame::at::{At, Last, Route, Which};
use crate::high::frame::content::read_at;
use crate::high::frame::handler::given;
use crate::high::route::path::route;
use crate::high::run::image;
use crate::low::exec::check;
use crate::low::object::elf::Loader;
use crate::low::tools::close::close_number;

/// Options of ld.so(8) with which it does not run the program.
const LOOKING: [&[u8]; 2] = [b"--verify", b"--list"];
/// Options that take the argument that follows.
const WITH_VALUE: [&[u8]; 7] = [
    b"--library-path",
    b"--glibc-hwcaps-prepend",
    b"--glibc-hwcaps-mask",
    b"--inhibit-rpath",
    b"--audit",
    b"--preload",
    b"--argv0",
];
const TRACE: &[u8] = b"LD_TRACE_LOADED_OBJECTS=";
/// Bytes of a string that are compared.
const HEAD: usize = 32;
/// Maximum number of strings that are looked at.
const STRINGS: usize = 1 << 16;

/// A program in a mount, pinned, that is to be executed in the linker's place.
pub(crate) struct Traced {
    pub(crate) path: At,
    pub(crate) found: Found,
    pub(crate) argv: usize,
}

/// The program that the host file `path` is to look at, if it is the linker and the program can be executed
/// itself.
pub(crate) fn traced(task: &'static Task<'static>, path: At, exec: &Exec) -> Option<Traced> {
    if is_linker(path) { traced_slow(task, exec) } else { None }
}

#[cold]
fn traced_slow(task: &'static Task<'static>, exec: &Exec) -> Option<Traced> {
    let Some((1, program)) = program(exec) else { return None };
    let path = At::cwd(given(program));
    let Route::Ours(inside) = route(task, Which::Second, path, Last::Follow) else { return None };
    let found = readable(task, inside).ok()?;
    let inode = task.region.inode(found.inode.id);
    let mut head = [0u8; 1024];
    let read = |to: &mut [u8], at: u64| read_at(task, inode, to, at).unwrap_or(0);
    let length = read(&mut head, 0);
    let has_interpreter = match check::elf(&head[..length], &read) {
        Ok(Some(loader)) => loader != Loader::Static,
        _ => false,
    };
    if !has_interpreter {
        pin::clear(task, pin::slot::FIRST);
        return None;
    }
    Some(Traced { path, found, argv: exec.argv + size_of::<usize>() })
}

/// What the linker is executed with instead.
pub(crate) struct Copied {
    pub(crate) argv: usize,
    /// The copy, which the new image inherits. The caller closes it if the exec fails.
    pub(crate) fd: Fd,
}

/// The arguments for the host file `path`, if it is the linker and is to look at a program in a mount.
pub(crate) fn with_copy(task: &'static Task<'static>, path: At, exec: &Exec) -> Option<Copied> {
    if is_linker(path) { with_copy_slow(task, exec) } else { None }
}

#[cold]
fn with_copy_slow(task: &'static Task<'static>, exec: &Exec) -> Option<Copied> {
    let (index, program) = program(exec)?;
    let at = At::cwd(given(program));
    let Route::Ours(inside) = route(task, Which::Second, at, Last::Follow) else { return None };
    let fd = copy(task, inside).ok()?;
    // SAFETY: the descriptor was just made. A child that another thread makes meanwhile inherits it.
    let _ = unsafe { lp_abi::syscall!(__NR_fcntl, fd, F_SETFD, 0) };
    let mut room = [0; 20];
    let number = decimal(fd.raw() as u64, &mut room);
    // SAFETY: the copy routine handles bad pointers.
    let first = unsafe { ucopy::get(exec.argv as *const usize) };
    let vector =
        first.and_then(|first| Arguments::of(exec)?.replace(index, &[b"/proc/self/fd/", number], first));
    if vector.is_err() {
        close_number(fd);
    }
    vector.ok().map(|argv| Copied { argv, fd })
}

/// Whether the last component of a path is a linker's name.
fn is_linker(path: At) -> bool {
    let mut text = [0u8; 64];
    // SAFETY: the copy routine handles bad pointers. Linkers have short paths.
    let Ok(length) = (unsafe { ucopy::string(&mut text, path.path.as_ptr()) }) else { return false };
    let name = text[..length].rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    name.starts_with(b"ld-linux") || name.starts_with(b"ld.so")
}

/// The pointers of a vector of the program's that ends with null, each with the start of its string.
fn strings(vector: usize) -> impl Iterator<Item = (usize, [u8; HEAD], usize)> {
    (0..STRINGS).map_while(move |index| {
        // SAFETY: the copy routine handles bad pointers.
        let at = unsafe { ucopy::get((vector as *const usize).wrapping_add(index)) }.ok()?;
        let mut head = [0; HEAD];
        // SAFETY: the copy routine handles bad pointers. A longer string leaves its start.
        let length = unsafe { ucopy::string(&mut head, at as *const u8) }.unwrap_or(HEAD);
        (at != 0).then_some((at, head, length))
    })
}

/// Position and address of the argument that names the program, if the linker is to look at it only.
fn program(exec: &Exec) -> Option<(usize, usize)> {
    let mut looks = strings(exec.envp).any(|(_, head, length)| head[..length].starts_with(TRACE));
    let mut arguments = strings(exec.argv).enumerate().skip(1);
    loop {
        let (index, (at, head, length)) = arguments.next()?;
        let text = &head[..length];
        if !text.starts_with(b"--") {
            return looks.then_some((index, at));
        }
        looks |= LOOKING.contains(&text);
        if WITH_VALUE.contains(&text) {
            arguments.next();
        }
    }
}

/// A memfd with the program that a path into a mount names.
fn copy(task: &'static Task<'static>, at: At) -> Result<Fd> {
    let found = readable(task, at)?;
    let fd = image::of_program(task, found.inode, c"program", None);
    pin::clear(task, pin::slot::FIRST);
    fd
}

/// What a path into a mount names, pinned, if it may be read.
fn readable(task: &'static Task<'static>, at: At) -> Result<Found> {
    let Place::Inside(found) = walk::inode(task, at.dirfd, at.path, Follow::Link)? else {
        return Err(Errno::ENOENT);
    };
    pin::inode(task, pin::slot::FIRST, found.inode)?;
    match permission::check(task, task.region.inode(found.inode.id), permission::READ) {
        Ok(()) => Ok(found),
        Err(errno) => {
            pin::clear(task, pin::slot::FIRST);
            Err(errno)
        }
    }
}
