//! openat2(2) with `resolve` flags that limit the walk.
//!
//! Where the path lies in a mount, the file system walks it; where it lies on the host, the kernel does. A
//! path may lead from one to the other: into a mount by name or through a link of the host, and out of it by
//! `..` or an absolute link. The directory that confines the walk stays the same.

use lp_abi::linux::{
    RESOLVE_BENEATH, RESOLVE_CACHED, RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS,
    RESOLVE_NO_XDEV,
};
use lp_abi::{Errno, Fd, MAX_SYMLINKS, PATH_MAX, Result, UserPtr, UserSlice};
use lp_region::ucopy;
use lp_vfs::open::{self, Extended, Top};
use lp_vfs::root;
use lp_vfs::task::{Outside, Task};

use crate::high::calls::open_host::open_by_kernel;
use crate::high::calls::open_how::How;
use crate::high::calls::open_ours::open_ours;
use crate::high::fd::descriptor;
use crate::high::frame::at::{At, DOT, Which, buffer};
use crate::high::frame::handler::given;
use crate::high::route::hostlink::{self, Entered};
use crate::high::route::path::{is_base_ours, may_be_link, may_enter};
use crate::high::run::mounts::mounts;

/// The flags that limit a walk.
pub(crate) const WALKS: u32 = RESOLVE_NO_XDEV
    | RESOLVE_NO_MAGICLINKS
    | RESOLVE_NO_SYMLINKS
    | RESOLVE_BENEATH
    | RESOLVE_IN_ROOT
    | RESOLVE_CACHED;
const SCOPED: u32 = RESOLVE_BENEATH | RESOLVE_IN_ROOT;

/// An openat2(2) on its way.
struct Call<'a> {
    task: &'static Task<'static>,
    dirfd: Fd,
    limits: &'a Extended,
    how: How,
}

/// openat2(2) with flags of [`WALKS`].
#[cold]
pub(crate) fn open(task: &'static Task<'static>, at: At, limits: &Extended, how: UserSlice) -> isize {
    let call = Call { task, dirfd: at.dirfd, limits, how: How::extended(how) };
    let (from, absolute) = match start(at, limits.resolve) {
        Ok(start) => start,
        Err(errno) => return errno.to_ret(),
    };
    if absolute && limits.resolve & RESOLVE_BENEATH != 0 {
        return Errno::EXDEV.to_ret();
    }
    let absolute = absolute && limits.resolve & RESOLVE_IN_ROOT == 0;
    let is_rooted = root::of(task).is_some();
    let starts_in_mount = match absolute {
        true => is_rooted || mounts().are_whole(),
        false => is_base_ours(task, at.dirfd),
    };
    if starts_in_mount {
        return call.inside(from, None);
    }
    if !absolute && at.dirfd != Fd::CWD && descriptor::is_hidden(task, at.dirfd) {
        return Errno::EBADF.to_ret();
    }
    let last = call.how.last();
    // A host directory of a process whose root is in a mount is outside of it.
    if !is_rooted && (call.how.makes_behind_link() || may_enter(from)) {
        return match hostlink::into_mount_limited(Which::First, from, last, limits.resolve) {
            Some(entered) => call.enter(entered),
            None => open_by_kernel(task, at, &call.how),
        };
    }
    let done = open_by_kernel(task, at, &call.how);
    if !is_rooted
        && may_be_link(done)
        && let Some(entered) = hostlink::into_mount_limited(Which::First, from, last, limits.resolve)
    {
        return call.enter(entered);
    }
    done
}

/// Where a limited walk starts, and whether the path is absolute. With `RESOLVE_IN_ROOT`, an absolute path
/// starts from the directory.
///
/// # Errors
/// `EFAULT`; `ENOENT` if the path is empty.
pub(crate) fn start(at: At, resolve: u32) -> Result<(At, bool)> {
    let byte = |at: UserPtr| {
        // SAFETY: the gate's fault handler is installed.
        unsafe { ucopy::get(at.as_ptr()) }
    };
    let absolute = match byte(at.path)? {
        0 => return Err(Errno::ENOENT),
        first => first == b'/',
    };
    if !absolute || resolve & RESOLVE_IN_ROOT == 0 {
        return Ok((at, absolute));
    }
    let mut path = at.path;
    for _ in 0..PATH_MAX {
        match byte(path)? {
            b'/' => path = given(path.addr() + 1),
            0 => return Ok((At { path: DOT, ..at }, true)),
            _ => break,
        }
    }
    Ok((At { path, ..at }, true))
}

impl Call<'_> {
    /// Opens what a host path leads to that has entered a mount.
    fn enter(&self, entered: Entered) -> isize {
        if self.limits.resolve & RESOLVE_NO_XDEV != 0 {
            return Errno::EXDEV.to_ret();
        }
        self.inside(entered.at, Some(entered.top))
    }

    /// Opens a path in a mount. If a directory of the host confines the walk, the path begins with it, and
    /// `top` is its length.
    fn inside(&self, mut at: At, mut top: Option<usize>) -> isize {
        for _ in 0..MAX_SYMLINKS {
            let mut left = None;
            let done = {
                let confines = match top {
                    Some(length) => Top::Host(&buffer(Which::First)[..length]),
                    None => Top::Base,
                };
                let open = || open::openat2(self.task, at.dirfd, at.path, self.limits, confines);
                open_ours(self.task, &self.how, open, |outside| {
                    left = Some(outside);
                    Errno::ENOENT.to_ret()
                })
            };
            let Some(Outside::Rewritten(length)) = left else { return done };
            match self.again(length, top.unwrap_or(0)) {
                Ok(entered) if self.limits.resolve & RESOLVE_NO_XDEV != 0 => {
                    return self.enter(entered);
                }
                Ok(entered) => (at, top) = (entered.at, Some(entered.top)),
                Err(done) => return done,
            }
        }
        Errno::ELOOP.to_ret()
    }

    /// A path of `length` bytes has left a mount: where it enters one again, or the kernel's result.
    fn again(&self, length: usize, top: usize) -> core::result::Result<Entered, isize> {
        // SAFETY: the buffer belongs to the task, whose walk has ended; nobody writes it meanwhile.
        let text = unsafe { &(&*self.task.scratch.outside.get())[..=length] };
        let (last, resolve) = (self.how.last(), self.limits.resolve);
        let scoped = resolve & SCOPED != 0;
        let top = if scoped { top } else { 0 };
        if let Some(entered) = hostlink::into_mount_again(Which::First, &text[..length], top, last, resolve) {
            return Ok(entered);
        }
        if !scoped {
            return Err(open_by_kernel(self.task, At::text(text), &self.how));
        }
        let skip = text[top..length].iter().take_while(|byte| **byte == b'/').count();
        let rest = if top + skip == length { DOT } else { At::text(&text[top + skip..]).path };
        Err(open_by_kernel(self.task, At { dirfd: self.dirfd, path: rest }, &self.how))
    }
}
