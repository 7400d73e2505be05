//! name_to_handle_at(2), open_by_handle_at(2).

use lp_abi::linux::{__NR_name_to_handle_at, AT_SYMLINK_FOLLOW};
use lp_abi::{Errno, Fd, UserPtr};
use lp_vfs::handle;
use lp_vfs::task::{Place, Task};

use crate::high::calls::open_how::How;
use crate::high::calls::open_ours::open_ours;
use crate::high::fd::{descriptor, placeholder};
use crate::high::frame::at::{At, Last};
use crate::high::frame::handler::{handlers, kernel};
use crate::high::route::path::{is_base_ours, one};

handlers! {
    /// name_to_handle_at(2).
    fn name_to_handle_at(task, dirfd: Fd, path: UserPtr, handle: UserPtr, mount: UserPtr, flags: u32) {
        let last = if flags & AT_SYMLINK_FOLLOW != 0 { Last::Follow } else { Last::Link };
        let ours = |at: At| handle::name_to_handle_at(task, at.dirfd, at.path, (handle, mount), flags);
        let host = |at: At| {
            kernel!(__NR_name_to_handle_at, at.dirfd, at.path, handle.addr(), mount.addr(), flags)
        };
        one(task, At { dirfd, path }, last, ours, host)
    }

    /// open_by_handle_at(2). A handle of the host's is the kernel's.
    fn open_by_handle_at(task, mount: Fd, handle: UserPtr, flags: u32) {
        if !is_base_ours(task, mount) {
            placeholder::flush(task);
            return descriptor::other(task, mount);
        }
        open_handle(task, mount, handle, flags)
    }
}

fn open_handle(task: &'static Task<'static>, mount: Fd, handle: UserPtr, flags: u32) -> isize {
    let open = || handle::open_by_handle_at(task, mount, handle, flags).map(Place::Inside);
    open_ours(task, &How::plain(flags, 0), open, |_| Errno::ESTALE.to_ret())
}
