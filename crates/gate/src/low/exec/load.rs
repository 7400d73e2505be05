//! How the gate is loaded into the image of an exec.

use lp_abi::Fd;
use lp_abi::linux::AT_EMPTY_PATH;

/// How the loader of the new image loads the gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LoaderHook {
    /// With the program's libraries, before they are initialised.
    Preload,
    /// As part of the C library (`lp_sites::merge`), which the loader finds instead of the system's.
    Within,
    /// The same, with the program executed by an outline ([`crate::low::exec::outline`]).
    Outline(Named),
    /// Before the loader looks for any library ([`crate::low::start::auditor`]), because it would look in a
    /// mount.
    Audit {
        /// Bytes of thread-local storage of the libraries that the program needs.
        storage: u64,
    },
    /// By itself: it starts the program ([`crate::low::start::standalone`]).
    Static(Static),
}

/// A static program to be executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Static {
    /// Its descriptor, open for reading.
    pub(crate) fd: Fd,
    /// How it is executed.
    pub(crate) named: Named,
}

/// The directory's descriptor and the path under which a program is executed: the program's pointers, or
/// valid ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    pub(crate) directory: Fd,
    pub(crate) path: *const u8,
}

/// What the kernel is given to execute, as in execveat(2): the program's pointer, or a valid one.
#[derive(Clone, Copy)]
pub(crate) struct Executed {
    pub(crate) directory: Fd,
    pub(crate) path: *const u8,
    pub(crate) flags: usize,
}

impl Executed {
    /// The file at a path, as in execve(2).
    pub(crate) fn path(path: *const u8) -> Executed {
        Executed { directory: Fd::CWD, path, flags: 0 }
    }

    /// The file behind a descriptor.
    pub(crate) fn descriptor(fd: Fd) -> Executed {
        Executed { directory: fd, path: c"".as_ptr().cast(), flags: AT_EMPTY_PATH as usize }
    }
}
