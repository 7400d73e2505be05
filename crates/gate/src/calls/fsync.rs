//! fsync(2), fdatasync(2), syncfs(2), sync_file_range(2), readahead(2), posix_fadvise(2): nothing lies below memory.

use lp_abi::Errno;
use lp_abi::linux::{SYNC_FILE_RANGE_WAIT_AFTER, SYNC_FILE_RANGE_WAIT_BEFORE, SYNC_FILE_RANGE_WRITE};
use lp_vfs::fsync;

use super::handler::{handlers, ret};
use crate::descriptor::file_or_return;

handlers! {
    /// fsync(2), fdatasync(2).
    fn fsync(task, fd: i32) {
        file_or_return!(task, fd);
        ret(fsync::fsync(task, fd))
    }

    /// syncfs(2).
    fn syncfs(task, fd: i32) {
        file_or_return!(task, fd);
        ret(fsync::fsync(task, fd))
    }

    /// sync_file_range(2).
    fn sync_file_range(task, fd: i32, offset: i64, bytes: i64, flags: u32) {
        file_or_return!(task, fd);
        let known = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
        if flags & !known != 0 || offset < 0 || bytes < 0 || offset.checked_add(bytes).is_none() {
            return Errno::EINVAL.to_ret();
        }
        ret(fsync::fsync(task, fd))
    }

    /// readahead(2).
    fn readahead(task, fd: i32, offset: i64, count: usize) {
        file_or_return!(task, fd);
        ret(fsync::readahead(task, fd))
    }

    /// posix_fadvise(2).
    fn fadvise64(task, fd: i32, offset: i64, length: i64, advice: u32) {
        file_or_return!(task, fd);
        ret(fsync::fadvise(task, fd, length, advice))
    }
}
