//! Calls on descriptors of a kind that no file of ours has, and that need nothing else from the gate.

use lp_abi::Fd;
use lp_abi::linux::*;

use crate::high::fd::placeholder;
use crate::high::fd::stand_in::stand_in_returns;
use crate::high::frame::handler::handlers;
use crate::low::dispatch::NOT_OURS;

/// Defines a handler for each call: the kernel's own, or its answer for a stand-in.
macro_rules! other_kinds {
    ($($name:ident: $nr:ident;)*) => {
        handlers! {
            $(
                #[doc = concat!(stringify!($name), "(2).")]
                fn $name(task, fd: Fd, b: usize, c: usize, d: usize, e: usize, f: usize) {
                    stand_in_returns!(task, fd, $nr, b, c, d, e, f);
                    NOT_OURS
                }
            )*
        }
    };
}

other_kinds! {
    listen: __NR_listen;
    shutdown: __NR_shutdown;
    setsockopt: __NR_setsockopt;
    getsockopt: __NR_getsockopt;
    timerfd_settime: __NR_timerfd_settime;
    timerfd_gettime: __NR_timerfd_gettime;
    inotify_rm_watch: __NR_inotify_rm_watch;
    epoll_wait: __NR_epoll_wait;
    epoll_pwait: __NR_epoll_pwait;
    epoll_pwait2: __NR_epoll_pwait2;
}

handlers! {
    /// signalfd(2), which makes a descriptor if it gets none.
    fn signalfd(task, fd: Fd, mask: usize, size: usize) {
        placeholder::flush(task);
        stand_in_returns!(task, fd, __NR_signalfd, mask, size);
        NOT_OURS
    }

    /// signalfd4(2).
    fn signalfd4(task, fd: Fd, mask: usize, size: usize, flags: usize) {
        placeholder::flush(task);
        stand_in_returns!(task, fd, __NR_signalfd4, mask, size, flags);
        NOT_OURS
    }
}
