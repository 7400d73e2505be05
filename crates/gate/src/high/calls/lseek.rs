//! lseek(2).

use lp_abi::Fd;
use lp_vfs::lseek;

use crate::high::fd::descriptor::file_or_return;
use crate::high::frame::handler::{handlers, ret};

handlers! {
    /// lseek(2).
    fn lseek(task, fd: Fd, offset: i64, whence: u32) {
        file_or_return!(task, fd);
        ret(lseek::lseek(task, fd, offset, whence))
    }
}
