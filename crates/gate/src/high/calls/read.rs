//! read(2), pread64(2), readv(2), preadv(2), preadv2(2).

use lp_abi::linux::iovec;
use lp_vfs::read;

use crate::high::fd::descriptor::file_or_return;
use crate::high::fd::device;
use crate::high::frame::handler::{handlers, ret_moved};

handlers! {
    /// read(2).
    fn read(task, fd: i32, buf: *mut u8, count: usize) {
        file_or_return!(task, fd, device::read(task, fd, buf, count));
        ret_moved(read::read(task, fd, buf, count))
    }

    /// pread64(2).
    fn pread64(task, fd: i32, buf: *mut u8, count: usize, offset: i64) {
        file_or_return!(task, fd, device::pread(task, fd, buf, count, offset));
        ret_moved(read::pread(task, fd, buf, count, offset))
    }

    /// readv(2).
    fn readv(task, fd: i32, iov: *const iovec, count: usize) {
        file_or_return!(task, fd);
        ret_moved(read::readv(task, fd, iov, count))
    }

    /// preadv(2).
    fn preadv(task, fd: i32, iov: *const iovec, count: usize, offset: i64) {
        file_or_return!(task, fd);
        if offset < 0 {
            return lp_abi::Errno::EINVAL.to_ret();
        }
        ret_moved(read::preadv2(task, fd, iov, count, offset, 0))
    }

    /// preadv2(2). At offset -1 it is readv with flags.
    fn preadv2(task, fd: i32, iov: *const iovec, count: usize, offset: i64, high: usize, flags: u32) {
        file_or_return!(task, fd);
        if offset < -1 {
            return lp_abi::Errno::EINVAL.to_ret();
        }
        ret_moved(read::preadv2(task, fd, iov, count, offset, flags))
    }
}
