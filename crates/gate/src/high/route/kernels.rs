//! The kernel's own directories, /proc, /sys and /dev, in a run with a mount that is the root directory: they
//! are the host's. Paths lead back from them into the run by `..` and by links.

use lp_abi::linux::RESOLVE_NO_MAGICLINKS;
use lp_region::ucopy;
use lp_vfs::task::Task;

use crate::high::frame::at::{At, Last, Route, Which, buffer};
use crate::high::route::{absolute, hostlink, magic};
use crate::high::run::mounts::{MountPaths, mounts};

/// The route of a relative path from a host directory where a mount is the root directory: that directory is
/// one of the kernel's own, or was opened before the run.
#[cold]
pub(super) fn route_relative(
    task: Option<&Task>,
    mounts: &MountPaths,
    which: Which,
    at: At,
    last: Last,
) -> Route {
    let text = buffer(which);
    // SAFETY: the gate's fault handler is installed.
    let Ok(length) = (unsafe { ucopy::string(text, at.path.as_ptr()) }) else { return Route::Host };
    let is_number = text[..length].iter().all(u8::is_ascii_digit);
    let Some(length) = absolute::join(which, at.dirfd, length) else { return Route::Host };
    let text = &buffer(which)[..length];
    if absolute::is_crooked(text) || mounts.holds(text) {
        return hostlink::route_walked(task, which, at, last);
    }
    if is_number && text.starts_with(b"/proc/") {
        return magic::route(task, which, last, length);
    }
    if may_lead_out(text) { route_linked(which, at, last) } else { Route::Host }
}

/// Whether an absolute path of the kernel's own directories may lead out of them by a symbolic link. In /dev
/// any link may; in /proc those to directories (`root`, `cwd`), while those to files lead to the file that
/// the kernel knows; in /sys none.
pub(super) fn may_lead_out(path: &[u8]) -> bool {
    let mut names = path.split(|byte| *byte == b'/');
    path.starts_with(b"/dev/") || path.starts_with(b"/proc/") && names.any(is_directory_link)
}

/// Whether this is the name of a link of /proc to a directory.
fn is_directory_link(name: &[u8]) -> bool {
    matches!(name, b"root" | b"cwd")
}

/// The route of such a path where a mount is the root directory: links lead to what the run has there.
#[cold]
pub(super) fn route_linked(which: Which, at: At, last: Last) -> Route {
    let is_named = |path: &[u8]| path.split(|byte| *byte == b'/').any(is_directory_link);
    let text = buffer(which);
    // SAFETY: the gate's fault handler is installed.
    let length = unsafe { ucopy::string(text, at.path.as_ptr()) }.unwrap_or(0);
    // Links of /dev may lead through one of /proc to a file.
    let is_by_name = || is_named(&text[..length]) || !hostlink::meets(at, last, RESOLVE_NO_MAGICLINKS);
    match hostlink::meets_link(at, last) && is_by_name() {
        true => hostlink::by_links(which, at, last).map_or(Route::Host, Route::Ours),
        false => Route::Host,
    }
}

/// Whether a path names one of the kernel's own directories, which for calls that remove or move a name is an
/// entry of the run's root directory.
#[cold]
pub(crate) fn names_one(at: At) -> bool {
    let mut text = [0; 8];
    // SAFETY: the gate's fault handler is installed. A longer string is none of these.
    let length = unsafe { ucopy::string(&mut text, at.path.as_ptr()) };
    length.is_ok_and(|length| mounts().has_kernels(&text[..length]))
}
