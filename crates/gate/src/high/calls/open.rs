//! open(2), openat(2), openat2(2), creat(2).

use lp_abi::linux::{
    __NR_openat, __NR_openat2, O_CLOEXEC, O_CREAT, O_NOFOLLOW, O_PATH, O_TMPFILE, O_TRUNC, O_WRONLY, open_how,
};
use lp_abi::{Errno, Fd, Result, UserPtr, UserSlice};
use lp_region::sync::Ordering;
use lp_region::{InodeRef, ucopy};
use lp_vfs::file;
use lp_vfs::open::{self, Opened};
use lp_vfs::table::{self, entry};
use lp_vfs::task::{Outside, Place, Task};
use lp_vfs::watch::{self, Touched};

use crate::high::fd::{device, directory, placeholder};
use crate::high::frame::at::{At, Last, Route, Which};
use crate::high::frame::handler::{handlers, ret};
use crate::high::route::hostlink;
use crate::high::route::path::{leave, may_be_link, route, route_outside};
use crate::high::run::mount_table;
use crate::high::special::node;
use crate::high::watch::shadow_fd;
use crate::low::dispatch::RESTART;
use crate::low::live::deferred;

handlers! {
    /// open(2).
    fn open(task, path: UserPtr, flags: u32, mode: u32) {
        open_at(task, At::cwd(path), &How::plain(flags, mode))
    }

    /// openat(2).
    fn openat(task, dirfd: Fd, path: UserPtr, flags: u32, mode: u32) {
        open_at(task, At { dirfd, path }, &How::plain(flags, mode))
    }

    /// creat(2).
    fn creat(task, path: UserPtr, mode: u32) {
        open_at(task, At::cwd(path), &How::plain(O_CREAT | O_WRONLY | O_TRUNC, mode))
    }

    /// openat2(2).
    fn openat2(task, dirfd: Fd, path: UserPtr, how: UserSlice) {
        open_at(task, At { dirfd, path }, &How::extended(how))
    }
}

/// How a file is to be opened.
struct How {
    flags: u32,
    mode: u32,
    /// openat2's own argument.
    given: Option<UserSlice>,
}

impl How {
    #[inline(always)]
    fn plain(flags: u32, mode: u32) -> How {
        How { flags, mode, given: None }
    }

    /// openat2's argument; whoever makes the call checks it.
    #[cold]
    fn extended(given: UserSlice) -> How {
        let flags = if given.len() < size_of::<open_how>() {
            0
        } else {
            // SAFETY: the copy routine answers bad pointers; every bit pattern is an `open_how`.
            unsafe { ucopy::get(given.start().cast::<open_how>().as_ptr()) }.map_or(0, |how| how.flags)
        };
        How { flags: flags as u32, mode: 0, given: Some(given) }
    }

    /// Opens `at` in the file system.
    #[inline(always)]
    fn open(&self, task: &Task, at: At) -> Result<Place<Opened>> {
        match self.given {
            None => open::openat(task, at.dirfd, at.path, self.flags, self.mode),
            Some(given) => open::openat2(task, at.dirfd, at.path, given),
        }
    }

    fn last(&self) -> Last {
        if self.flags & O_NOFOLLOW != 0 { Last::Link } else { Last::Follow }
    }
}

#[inline]
fn open_at(task: &'static Task<'static>, at: At, how: &How) -> isize {
    match route(task, Which::First, at, how.last()) {
        Route::Ours(inside) => {
            // As in the kernel, the number comes first: without one nothing is created.
            let number = match placeholder::allocate(task, 0) {
                Ok(number) => number,
                Err(errno) => return errno.to_ret(),
            };
            match how.open(task, inside) {
                Ok(Place::Inside(Opened::File(file))) => install(task, number, file, how.flags),
                other => not_a_file(task, at, how, number, other),
            }
        }
        Route::Host => open_host(task, at, how),
        Route::Elsewhere(at) => open_host(task, at, how),
        Route::Nameless(fd) => reopen(task, fd, how),
        Route::Bad(errno) => errno.to_ret(),
    }
}

#[inline(always)]
fn install(task: &'static Task<'static>, number: Fd, opened: lp_region::FileId, flags: u32) -> isize {
    let cloexec = if flags & O_CLOEXEC != 0 { entry::CLOEXEC } else { 0 };
    match table::install(task, number, opened, cloexec) {
        Ok(()) => number.raw() as isize,
        Err(errno) => {
            file::discard(task, opened);
            placeholder::release(task, number);
            errno.to_ret()
        }
    }
}

/// What becomes of an open that gave no file of ours: `number` is not needed.
#[cold]
fn not_a_file(
    task: &'static Task<'static>,
    at: At,
    how: &How,
    number: Fd,
    answer: Result<Place<Opened>>,
) -> isize {
    let number = match answer {
        Ok(Place::Inside(opened @ (Opened::Watched(_) | Opened::WatchedCut(_)))) => {
            return install_watched(task, number, opened, how.flags);
        }
        _ => number,
    };
    placeholder::release(task, number);
    match answer {
        Ok(Place::Inside(Opened::HostNode(found))) => node::open(task, &found),
        Ok(Place::Outside(outside)) => open_outside(task, at, outside, how),
        Err(errno) => errno.to_ret(),
        Ok(Place::Inside(Opened::File(file) | Opened::Watched(file) | Opened::WatchedCut(file))) => {
            file::discard(task, file);
            Errno::EIO.to_ret()
        }
    }
}

/// Opens what a path out of the mounts leads to: a file of the host, or by a magic link one of ours.
#[cold]
fn open_outside(task: &'static Task<'static>, at: At, outside: Outside, how: &How) -> isize {
    match route_outside(task, Which::First, at, how.last(), outside) {
        Route::Host => open_host(task, leave(task, at, outside), how),
        Route::Elsewhere(at) => open_host(task, at, how),
        Route::Nameless(fd) => reopen(task, fd, how),
        Route::Bad(errno) => errno.to_ret(),
        // Another link out of the mounts: round and round, or longer than anybody needs.
        Route::Ours(inside) => open_inside(task, inside, how, Errno::ELOOP.to_ret()),
    }
}

/// [`install`] of a file whose watchers are to be told.
fn install_watched(task: &'static Task<'static>, number: Fd, opened: Opened, flags: u32) -> isize {
    let (Opened::File(file) | Opened::Watched(file) | Opened::WatchedCut(file)) = opened else {
        return Errno::EIO.to_ret();
    };
    // Relaxed: immutable while the file is open.
    let inode = InodeRef::from_word(task.region.file(file).inode.load(Ordering::Relaxed)).id;
    let done = install(task, number, file, flags);
    if done >= 0 {
        shadow_fd::open(task, number, flags);
        if matches!(opened, Opened::WatchedCut(_)) {
            watch::touched_slow(task, inode, Touched::Modified);
        }
    }
    done
}

/// Opens a file of the host. What leads through a link into a mount fails there, and is opened here.
#[inline(never)]
fn open_host(task: &'static Task<'static>, at: At, how: &How) -> isize {
    placeholder::flush(task);
    let (nr, third, fourth) = match how.given {
        None => (__NR_openat, how.flags as usize, how.mode as usize),
        Some(given) => (__NR_openat2, given.start().addr(), given.len()),
    };
    let arguments = [at.dirfd.word(), at.path.addr(), third, fourth, 0, 0];
    // A FIFO or a terminal may keep it waiting.
    // SAFETY: the program's own call.
    let done = ret(unsafe { deferred::blocking_syscall(nr, arguments) });
    if done == Errno::EINTR.to_ret() {
        return RESTART;
    }
    if done >= 0 {
        note(task, Fd::new(done as i32), at, how.flags);
    }
    if !may_be_link(done) {
        return done;
    }
    match hostlink::into_mount(Which::First, at, how.last()) {
        Some(inside) => open_inside(task, inside, how, done),
        None => done,
    }
}

/// Opens what a link that was followed leads to in a mount; `beyond` is the answer if that leads out again.
fn open_inside(task: &'static Task<'static>, at: At, how: &How, beyond: isize) -> isize {
    let number = match placeholder::allocate(task, 0) {
        Ok(number) => number,
        Err(errno) => return errno.to_ret(),
    };
    match how.open(task, at) {
        Ok(Place::Inside(Opened::File(file))) => install(task, number, file, how.flags),
        Ok(Place::Outside(_)) => {
            placeholder::release(task, number);
            beyond
        }
        other => not_a_file(task, at, how, number, other),
    }
}

/// Keeps of a descriptor of the host's what calls on it must know.
fn note(task: &Task, fd: Fd, at: At, flags: u32) {
    let mut text = [0u8; 32];
    // SAFETY: the copy routine answers bad pointers.
    let length = unsafe { ucopy::string(&mut text, at.path.as_ptr()) }.unwrap_or(0);
    if let Some(table) = mount_table::of_path(&text[..length]) {
        mount_table::complete(task, fd, &text[..length], table);
    }
    directory::opened(fd, &text[..length]);
    device::opened(task, fd, &text[..length], flags);
}

/// Opens anew what descriptor `fd` names, which has no path: through /proc/self/fd.
#[cold]
fn reopen(task: &'static Task<'static>, fd: Fd, how: &How) -> isize {
    if how.flags & (O_TMPFILE & !lp_abi::linux::O_DIRECTORY) != 0 && how.flags & O_PATH == 0 {
        return Errno::ENOTDIR.to_ret();
    }
    let number = match placeholder::allocate(task, 0) {
        Ok(number) => number,
        Err(errno) => return errno.to_ret(),
    };
    match open::reopen(task, fd, how.flags) {
        Ok(Opened::File(file)) => install(task, number, file, how.flags),
        Ok(opened @ (Opened::Watched(_) | Opened::WatchedCut(_))) => {
            install_watched(task, number, opened, how.flags)
        }
        Ok(Opened::HostNode(found)) => {
            placeholder::release(task, number);
            node::open(task, &found)
        }
        Err(errno) => {
            placeholder::release(task, number);
            errno.to_ret()
        }
    }
}
