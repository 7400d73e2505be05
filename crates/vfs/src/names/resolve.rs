//! Walks from a path, of callers that are generic over the limits of the walk.

use lp_abi::{Fd, Result, UserPtr};

use crate::caller::task::{Place, Task};
use crate::names::limits::{Free, Limited, Limits};
use crate::names::walk::{self, Ended, Follow, Found, limited};

/// A walk within limits.
pub(crate) trait Resolve: Limits {
    /// The inode that a path names: [`walk::inode`].
    ///
    /// # Errors
    /// Those of [`walk::inode`] and of openat2(2).
    fn inode(self, task: &Task<'_>, dirfd: Fd, path: UserPtr, follow: Follow) -> Result<Place<Found>>;
    /// Where a path ends: [`walk::end`].
    ///
    /// # Errors
    /// Those of [`walk::end`] and of openat2(2).
    fn end<'t>(
        self,
        task: &'t Task<'_>,
        dirfd: Fd,
        path: UserPtr,
        follow: Follow,
    ) -> Result<Place<Ended<'t>>>;
}

impl Resolve for Free {
    #[inline(always)]
    fn inode(self, task: &Task<'_>, dirfd: Fd, path: UserPtr, follow: Follow) -> Result<Place<Found>> {
        walk::inode(task, dirfd, path, follow)
    }

    #[inline(always)]
    fn end<'t>(
        self,
        task: &'t Task<'_>,
        dirfd: Fd,
        path: UserPtr,
        follow: Follow,
    ) -> Result<Place<Ended<'t>>> {
        walk::end(task, dirfd, path, follow)
    }
}

impl Resolve for Limited<'_> {
    fn inode(self, task: &Task<'_>, dirfd: Fd, path: UserPtr, follow: Follow) -> Result<Place<Found>> {
        limited::inode(task, dirfd, path, follow, self)
    }

    fn end<'t>(
        self,
        task: &'t Task<'_>,
        dirfd: Fd,
        path: UserPtr,
        follow: Follow,
    ) -> Result<Place<Ended<'t>>> {
        limited::end(task, dirfd, path, follow, self)
    }
}
