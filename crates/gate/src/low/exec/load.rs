//! How the gate is loaded into the image of an exec.

use lp_abi::Fd;

/// How the loader of the new image loads the gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LoaderHook {
    /// With the program's libraries, before they are initialised.
    Preload,
    /// As part of the C library (`lp_sites::merge`), which the loader finds instead of the system's.
    Within,
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
    /// The directory's descriptor and the path under which it is executed: the program's pointers, or valid
    /// ones.
    pub(crate) directory: Fd,
    pub(crate) path: *const u8,
}
