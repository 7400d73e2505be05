//! write(2), pwrite64(2), writev(2), pwritev(2), pwritev2(2).

use lp_abi::linux::iovec;
use lp_abi::{Fd, UserSlice};
use lp_vfs::write;

use crate::high::fd::descriptor::file_or_return;
use crate::high::fd::device;
use crate::high::frame::handler::{handlers, ret_moved};

handlers! {
    /// write(2).
    fn write(task, fd: Fd, buf: UserSlice) {
        file_or_return!(task, fd, device::write(task, fd, buf));
        ret_moved(write::write(task, fd, buf))
    }

    /// pwrite64(2).
    fn pwrite64(task, fd: Fd, buf: UserSlice, offset: i64) {
        file_or_return!(task, fd, device::pwrite(task, fd, buf, offset));
        ret_moved(write::pwrite(task, fd, buf, offset))
    }

    /// writev(2).
    fn writev(task, fd: Fd, iov: UserSlice<iovec>) {
        file_or_return!(task, fd);
        ret_moved(write::writev(task, fd, iov))
    }

    /// pwritev(2).
    fn pwritev(task, fd: Fd, iov: UserSlice<iovec>, offset: i64) {
        file_or_return!(task, fd);
        if offset < 0 {
            return lp_abi::Errno::EINVAL.to_ret();
        }
        ret_moved(write::pwritev2(task, fd, iov, offset, 0))
    }

    /// pwritev2(2): at offset -1 it is writev with flags.
    fn pwritev2(task, fd: Fd, iov: UserSlice<iovec>, offset: i64, high: usize, flags: u32) {
        file_or_return!(task, fd);
        if offset < -1 {
            return lp_abi::Errno::EINVAL.to_ret();
        }
        ret_moved(write::pwritev2(task, fd, iov, offset, flags))
    }
}
