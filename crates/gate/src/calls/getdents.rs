//! getdents64(2), getdents(2).

use lp_vfs::getdents;

use super::handler::{handlers, ret};
use crate::descriptor::file_or_return;

handlers! {
    /// getdents64(2).
    fn getdents64(task, fd: i32, to: *mut u8, size: u32) {
        file_or_return!(task, fd);
        ret(getdents::getdents64(task, fd, to, size as usize))
    }
}
