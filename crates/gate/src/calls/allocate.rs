//! Calls that make descriptors of the host's: what is parked is really closed first, so that the kernel gives out the
//! number that the program expects.

use lp_abi::Errno;

use super::handler::handlers;
use crate::dispatch::NOT_OURS;
use crate::{device, own_descriptor, placeholder};

handlers! {
    /// pipe(2), socket(2), epoll_create1(2) and the many like them.
    fn makes_descriptor(task) {
        placeholder::flush(task);
        NOT_OURS
    }

    /// pidfd_getfd(2): nobody gets a descriptor of a life file.
    fn pidfd_getfd(task, pidfd: i32, target: i32, flags: u32) {
        if own_descriptor::is_target(task.region, pidfd, target) {
            return Errno::EBADF.to_ret();
        }
        placeholder::flush(task);
        NOT_OURS
    }

    /// io_uring_setup(2): what a ring does to descriptors is not seen.
    fn io_uring_setup(task) {
        device::distrust(task);
        placeholder::flush(task);
        NOT_OURS
    }
}
