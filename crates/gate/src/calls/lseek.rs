//! lseek(2).

use lp_vfs::lseek;
use lp_vfs::task::Task;

use super::handler::{handlers, ret};
use crate::descriptor::file_or_return;

handlers! {
    /// lseek(2).
    fn lseek(task, fd: i32, offset: i64, whence: u32) {
        match lseek::quick(task, fd, offset, whence) {
            Some(position) => position as isize,
            None => lseek_slow(task, fd, offset, whence),
        }
    }
}

#[inline(never)]
fn lseek_slow(task: &Task, fd: i32, offset: i64, whence: u32) -> isize {
    file_or_return!(task, fd);
    ret(lseek::lseek(task, fd, offset, whence))
}
