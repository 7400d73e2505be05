//! How the gate comes into the image of an exec.

/// How the loader of the new image loads the gate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Load {
    /// With the program's libraries, before they are initialised.
    Preload,
    /// As a part of the C library (`lp_sites::merge`), which the loader finds instead of the system's.
    Within,
    /// Before it looks for any library ([`crate::low::start::auditor`]): it would look in a mount.
    Audit {
        /// Bytes of thread-local storage that libraries which the program needs take.
        storage: u64,
    },
    /// By itself, as it starts the program ([`crate::low::start::standalone`]).
    Static(Static),
}

/// A static program that is to be executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Static {
    /// Its descriptor, open for reading.
    pub(crate) fd: i32,
    /// The directory's descriptor and the path by which it is executed: the program's, or good.
    pub(crate) directory: i32,
    pub(crate) path: *const u8,
}
