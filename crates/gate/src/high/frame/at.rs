//! Path arguments, whose they are, and the thread's buffers for them.

use core::ffi::CStr;

use lp_abi::{Errno, Fd, PATH_MAX, UserPtr};

use crate::high::frame::handler::thread;

/// A path argument: a directory's descriptor and a string of the program's, or one in a buffer of the gate's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct At {
    /// Directory that a relative path starts from, or `Fd::CWD`.
    pub dirfd: Fd,
    /// NUL-terminated.
    pub path: UserPtr,
}

impl At {
    /// A path relative to the working directory, as the calls without `at` take it.
    #[inline(always)]
    pub fn cwd(path: UserPtr) -> At {
        At { dirfd: Fd::CWD, path }
    }

    /// A path in a buffer of the gate's, a NUL behind it, relative to the working directory.
    pub fn text(path: &[u8]) -> At {
        At::cwd(path_in(path))
    }
}

/// A path in a buffer of the gate's, a NUL behind it.
pub fn path_in(path: &[u8]) -> UserPtr {
    // SAFETY: paths are only read, by the copy routines and the kernel: the thread's buffers and constants stay, and
    // of what is gone a call gets `EFAULT` or other bytes.
    unsafe { UserPtr::new(path.as_ptr()) }
}

/// The empty path.
pub const EMPTY: UserPtr = constant(c"");
/// The working directory.
pub const DOT: UserPtr = constant(c".");

const fn constant(path: &'static CStr) -> UserPtr {
    // SAFETY: constants, which calls only read.
    unsafe { UserPtr::new(path.as_ptr().cast()) }
}

/// Whether a call follows a link in the last component.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Last {
    /// It does.
    Follow,
    /// It works on the link.
    Link,
}

/// Which of a call's paths, and so which buffer is its.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The only one, or the first.
    First,
    /// The second.
    Second,
}

/// Whose a path is.
#[derive(Clone, Copy)]
pub enum Route {
    /// The kernel's, as far as one can tell without asking it.
    Host,
    /// The kernel's, by another path than the program's.
    Elsewhere(At),
    /// The file system is asked with this; it may still say that the path leads outside.
    Ours(At),
    /// A magic link to a descriptor of ours whose file has no name.
    Nameless(Fd),
    /// No path at all: the call fails with this.
    Bad(Errno),
}

/// The thread's buffer for the path `which`.
///
/// The handler that runs is its only user, and holds one reference to it at a time.
#[allow(clippy::mut_from_ref)]
pub fn buffer(which: Which) -> &'static mut [u8; PATH_MAX] {
    // SAFETY: the buffers are the running handler's; callers keep no two references to one.
    unsafe { &mut *thread().scratch[which as usize].get() }
}

/// The thread's third buffer, for what is put together on the way.
#[allow(clippy::mut_from_ref)]
pub fn spare_buffer() -> &'static mut [u8; PATH_MAX] {
    // SAFETY: as in `buffer`.
    unsafe { &mut *thread().scratch[2].get() }
}
