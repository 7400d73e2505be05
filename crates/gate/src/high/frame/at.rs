//! Path arguments, their routes, and the thread's buffers for them.

use core::ffi::CStr;

use lp_abi::linux::{O_CREAT, O_EXCL, O_NOFOLLOW, O_PATH};
use lp_abi::{Errno, Fd, PATH_MAX, UserPtr};
use lp_region::ucopy;

use crate::high::frame::handler::thread;

/// A path argument: a directory's descriptor and a string of the program's, or one in a buffer of the gate's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct At {
    /// The directory from which a relative path starts, or `Fd::CWD`.
    pub dirfd: Fd,
    /// NUL-terminated.
    pub path: UserPtr,
}

impl At {
    /// A path relative to the working directory, as in calls without `at`.
    #[inline(always)]
    pub(crate) fn cwd(path: UserPtr) -> At {
        At { dirfd: Fd::CWD, path }
    }

    /// A NUL-terminated path in a buffer of the gate's, relative to the working directory.
    pub(crate) fn text(path: &[u8]) -> At {
        At::cwd(path_in(path))
    }
}

/// A NUL-terminated path in a buffer of the gate's.
pub(crate) fn path_in(path: &[u8]) -> UserPtr {
    // SAFETY: paths are only read, by the copy routines and the kernel. The thread's buffers and constants
    // remain valid; for memory that is gone a call gets `EFAULT` or other bytes.
    unsafe { UserPtr::new(path.as_ptr()) }
}

/// The empty path.
pub(crate) const EMPTY: UserPtr = constant(c"");
/// The working directory.
pub(crate) const DOT: UserPtr = constant(c".");

const fn constant(path: &'static CStr) -> UserPtr {
    // SAFETY: a constant, which calls only read.
    unsafe { UserPtr::new(path.as_ptr().cast()) }
}

/// Whether a call follows a symbolic link in the last component.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    /// Yes.
    Follow,
    /// No: the call is about the link.
    Link,
    /// No, even if slashes follow: the call makes, moves or removes the name. If it is a mount's, the kernel,
    /// which does not know it, would make it.
    Name,
}

impl Last {
    /// That of an open with these flags. One that makes what is behind a link follows it.
    pub(crate) fn of_open(flags: u32) -> Last {
        let makes = flags & (O_CREAT | O_PATH) == O_CREAT;
        match makes && flags & (O_EXCL | O_NOFOLLOW) != 0 {
            true => Last::Name,
            false if flags & O_NOFOLLOW != 0 => Last::Link,
            false => Last::Follow,
        }
    }

    /// Whether the link is followed.
    pub(crate) fn follows(self) -> bool {
        self == Last::Follow
    }
}

/// Selects one of a call's paths and its buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// The only one, or the first.
    First,
    /// The second.
    Second,
}

/// Where a path leads.
#[derive(Clone, Copy)]
pub(crate) enum Route {
    /// To the kernel, as far as can be told without asking it.
    Host,
    /// To the kernel, by another path than the program's.
    Elsewhere(At),
    /// To the file system, by this path. The file system may still find that it leads outside.
    Ours(At),
    /// A magic link to a descriptor of ours. The file's path, if it has a name that the caller finds, is for
    /// calls that need one: another file may have it by then.
    Itself(Fd, Option<At>),
    /// Nowhere: the call fails with this error.
    Bad(Errno),
}

impl Route {
    /// The route for a call that needs a path.
    pub(crate) fn by_name(self) -> Route {
        match self {
            Route::Itself(_, Some(named)) => Route::Ours(named),
            other => other,
        }
    }
}

/// The last component of a path, trailing slashes ignored: empty for the root directory.
pub(crate) fn last_component(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    path[..end].rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// [`last_component`] of a path, in the buffer of `which`.
pub(crate) fn copy_last_component(which: Which, at: At) -> &'static [u8] {
    let text = buffer(which);
    // SAFETY: the gate's fault handler is installed.
    let length = unsafe { ucopy::string(text, at.path.as_ptr()) }.unwrap_or(0);
    last_component(&text[..length])
}

/// The thread's buffer for the path `which`.
///
/// Only the running handler uses it, and holds one reference to it at a time.
#[allow(clippy::mut_from_ref)]
pub(crate) fn buffer(which: Which) -> &'static mut [u8; PATH_MAX] {
    // SAFETY: the buffers belong to the running handler; callers never hold two references to one.
    unsafe { &mut *thread().scratch[which as usize].get() }
}

/// The thread's third buffer, for intermediate results.
#[allow(clippy::mut_from_ref)]
pub(crate) fn spare_buffer() -> &'static mut [u8; PATH_MAX] {
    // SAFETY: the buffers belong to the running handler; callers never hold two references to one.
    unsafe { &mut *thread().scratch[2].get() }
}
