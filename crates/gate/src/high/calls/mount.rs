//! mount(2), umount2(2).

use lp_abi::linux::*;
use lp_abi::{Errno, UserPtr};
use lp_vfs::mount::{self, MountArguments};
use lp_vfs::umount;

use crate::high::calls::refused::{concerns, mentions_mount};
use crate::high::calls::stat::is_empty;
use crate::high::frame::at::{At, Last};
use crate::high::frame::handler::{handlers, kernel};
use crate::high::route::path::one;

handlers! {
    /// mount(2). Nothing of ours can be mounted on the host.
    fn mount(task, source: UserPtr, path: UserPtr, kind: UserPtr, flags: usize, data: UserPtr) {
        let call = MountArguments { source, kind, flags: flags as u32, data };
        let ours = |at: At| mount::mount(task, at.dirfd, at.path, &call);
        let host = |at: At| {
            let from_ours = !source.is_null() && !is_empty(source) && concerns(task, At::cwd(source));
            if from_ours || mentions_mount(data) {
                return Errno::EPERM.to_ret();
            }
            kernel!(__NR_mount, source, at.path, kind, flags, data)
        };
        one(task, At::cwd(path), Last::Follow, ours, host)
    }

    /// umount2(2).
    fn umount2(task, path: UserPtr, flags: u32) {
        let last = if flags & UMOUNT_NOFOLLOW != 0 { Last::Link } else { Last::Follow };
        let ours = |at: At| umount::umount2(task, at.dirfd, at.path, flags);
        one(task, At::cwd(path), last, ours, |at| kernel!(__NR_umount2, at.path, flags))
    }
}
