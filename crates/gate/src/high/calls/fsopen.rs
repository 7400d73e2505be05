//! fsopen(2), fsconfig(2), fsmount(2). The contexts, and the file systems that come of them, are the kernel's
//! until move_mount(2) puts one into a mount ([`crate::high::fd::made`]).

use lp_abi::linux::{__NR_fsconfig, __NR_fsmount, __NR_fsopen, fsconfig_command};
use lp_abi::{Errno, Fd, UserPtr};
use lp_region::mount::SOURCE;
use lp_region::ucopy;

use crate::high::calls::refused::{concerns, mentions_mount, on_file};
use crate::high::fd::{descriptor, made, placeholder};
use crate::high::frame::at::At;
use crate::high::frame::handler::{handlers, kernel};
use crate::low::dispatch::NOT_OURS;

/// The commands whose value is a string or a path.
const TEXT: [u32; 3] = [
    fsconfig_command::FSCONFIG_SET_STRING as u32,
    fsconfig_command::FSCONFIG_SET_PATH as u32,
    fsconfig_command::FSCONFIG_SET_PATH_EMPTY as u32,
];

handlers! {
    /// fsopen(2).
    fn fsopen(task, name: UserPtr, flags: u32) {
        placeholder::flush(task);
        let done = kernel!(__NR_fsopen, name, flags);
        if done >= 0 {
            made::begun(Fd::new(done as i32), is_text(name, b"tmpfs"));
        }
        done
    }

    /// fsconfig(2): a value may be a path, or contain paths.
    fn fsconfig(task, fd: Fd, command: u32, key: UserPtr, value: UserPtr, extra: Fd) {
        if command == TEXT[0] && made::is_context(fd) {
            let done = kernel!(__NR_fsconfig, fd, command, key, value, extra);
            if done >= 0 && is_text(key, b"source") {
                let mut source = [0; SOURCE];
                // SAFETY: the copy routine handles bad pointers. A name that is too long is truncated.
                let length = unsafe { ucopy::string(&mut source, value.as_ptr()) }.unwrap_or(SOURCE - 1);
                made::named(fd, &source[..length]);
            }
            return done;
        }
        let names_ours = TEXT.contains(&command)
            && (concerns(task, At { dirfd: extra, path: value }) || mentions_mount(value));
        let is_fd = command == fsconfig_command::FSCONFIG_SET_FD as u32;
        if names_ours || is_fd && descriptor::is_listed(task, extra) {
            return Errno::EINVAL.to_ret();
        }
        on_file(task, fd, Errno::EINVAL).unwrap_or(NOT_OURS)
    }

    /// fsmount(2).
    fn fsmount(task, fd: Fd, flags: u32, attributes: u32) {
        if let Some(refused) = on_file(task, fd, Errno::EINVAL) {
            return refused;
        }
        placeholder::flush(task);
        let done = kernel!(__NR_fsmount, fd, flags, attributes);
        if done >= 0 {
            made::finished(fd, Fd::new(done as i32));
        }
        done
    }
}

/// Whether a string of the program's is this one.
fn is_text(given: UserPtr, text: &[u8]) -> bool {
    let mut room = [0; 16];
    // SAFETY: the copy routine handles bad pointers.
    unsafe { ucopy::string(&mut room, given.as_ptr()) }.is_ok_and(|length| room[..length] == *text)
}
