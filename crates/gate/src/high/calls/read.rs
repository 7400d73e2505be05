//! read(2), pread64(2), readv(2), preadv(2), preadv2(2).

use lp_abi::linux::iovec;
use lp_abi::{Fd, UserSlice};
use lp_vfs::read;

use crate::high::fd::descriptor::file_or_return;
use crate::high::fd::device;
use crate::high::frame::handler::{handlers, ret_moved};

handlers! {
    /// read(2).
    fn read(task, fd: Fd, buf: UserSlice) {
        file_or_return!(task, fd, device::read(task, fd, buf));
        ret_moved(read::read(task, fd, buf))
    }

    /// pread64(2).
    fn pread64(task, fd: Fd, buf: UserSlice, offset: i64) {
        file_or_return!(task, fd, device::pread(task, fd, buf, offset));
        ret_moved(read::pread(task, fd, buf, offset))
    }

    /// readv(2).
    fn readv(task, fd: Fd, iov: UserSlice<iovec>) {
        file_or_return!(task, fd);
        ret_moved(read::readv(task, fd, iov))
    }

    /// preadv(2).
    fn preadv(task, fd: Fd, iov: UserSlice<iovec>, offset: i64) {
        file_or_return!(task, fd);
        if offset < 0 {
            return lp_abi::Errno::EINVAL.to_ret();
        }
        ret_moved(read::preadv2(task, fd, iov, offset, 0))
    }

    /// preadv2(2): at offset -1 it is readv with flags.
    fn preadv2(task, fd: Fd, iov: UserSlice<iovec>, offset: i64, high: usize, flags: u32) {
        file_or_return!(task, fd);
        if offset < -1 {
            return lp_abi::Errno::EINVAL.to_ret();
        }
        ret_moved(read::preadv2(task, fd, iov, offset, flags))
    }
}
