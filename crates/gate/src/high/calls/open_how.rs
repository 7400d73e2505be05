//! The arguments of an open.

use lp_abi::linux::open_how;
use lp_abi::{Result, UserSlice};
use lp_region::ucopy;
use lp_vfs::open::{self, Opened, Top};
use lp_vfs::task::{Place, Task};

use crate::high::frame::at::{At, Last};
use crate::high::route::hostlink;

/// Arguments of an open.
pub(super) struct How {
    pub(super) flags: u32,
    pub(super) mode: u32,
    pub(super) given: Given,
}

/// The `open_how` of an open.
#[derive(Clone, Copy)]
pub(super) enum Given {
    /// There is none.
    Nothing,
    /// That of openat2(2).
    How(UserSlice),
    /// One for the file system only, of a thread that has restricted itself.
    Held(UserSlice),
}

impl How {
    #[inline(always)]
    pub(super) fn plain(flags: u32, mode: u32) -> How {
        How { flags, mode, given: Given::Nothing }
    }

    /// openat2's argument. The callee that makes the call validates it.
    #[cold]
    pub(super) fn extended(given: UserSlice) -> How {
        let (flags, _) = flags_of(given.start().addr(), given.len());
        How { flags, mode: 0, given: Given::How(given) }
    }

    /// Opens `at` in the file system.
    #[inline(always)]
    pub(super) fn open(&self, task: &Task, at: At) -> Result<Place<Opened>> {
        match self.given {
            Given::Nothing => open::openat(task, at.dirfd, at.path, self.flags, self.mode),
            Given::How(given) | Given::Held(given) => open_extended(task, at, given),
        }
    }

    /// [`hostlink::makes_behind_link`].
    pub(super) fn makes_behind_link(&self) -> bool {
        hostlink::makes_behind_link(self.flags)
    }

    pub(super) fn last(&self) -> Last {
        Last::of_open(self.flags)
    }
}

/// openat2(2) in the file system, from the directory of the path.
#[cold]
#[inline(never)]
fn open_extended(task: &Task, at: At, given: UserSlice) -> Result<Place<Opened>> {
    open::openat2(task, at.dirfd, at.path, &open::read_how(given)?, Top::Base)
}

/// The flags and the `RESOLVE_*` flags in a `struct open_how` of the program's; 0 if it is too short or
/// cannot be read.
pub(crate) fn flags_of(how: usize, length: usize) -> (u32, u32) {
    if length < size_of::<open_how>() {
        return (0, 0);
    }
    // SAFETY: the copy routine handles bad pointers; every bit pattern is a valid `open_how`.
    unsafe { ucopy::get(how as *const open_how) }.map_or((0, 0), |how| (how.flags as u32, how.resolve as u32))
}
