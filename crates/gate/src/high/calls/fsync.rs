//! fsync(2), fdatasync(2), syncfs(2), msync(2), sync_file_range(2), readahead(2), posix_fadvise(2).

use lp_abi::linux::{
    __NR_msync, MS_SYNC, SYNC_FILE_RANGE_WAIT_AFTER, SYNC_FILE_RANGE_WAIT_BEFORE, SYNC_FILE_RANGE_WRITE,
};
use lp_abi::{Errno, Fd};
use lp_vfs::fsync::{self, Sync};

use crate::high::fd::descriptor::file_or_return;
use crate::high::frame::handler::{handlers, kernel, ret};
use crate::high::memory::areas::{self, Area, Sharing};
use crate::high::memory::written::{self, After};
use crate::low::dispatch::NOT_OURS;

handlers! {
    /// fsync(2).
    fn fsync(task, fd: Fd) {
        file_or_return!(task, fd);
        ret(fsync::fsync(task, fd, Sync::File))
    }

    /// fdatasync(2).
    fn fdatasync(task, fd: Fd) {
        file_or_return!(task, fd);
        ret(fsync::fsync(task, fd, Sync::Data))
    }

    /// msync(2): the kernel syncs the mapping's pages.
    fn msync(task, address: usize, length: usize, flags: u32) {
        if flags & MS_SYNC == 0 || areas::is_empty() {
            return NOT_OURS;
        }
        let done = kernel!(__NR_msync, address, length, flags);
        let end = address.saturating_add(length);
        let is_ours = |area: &mut Area| area.sharing == Sharing::Shared;
        let mut list = areas::list();
        if done < 0 || !list.find(address, end).is_some_and(is_ours) {
            return done;
        }
        written::within(task, &mut list, address, end, After::Synced);
        drop(list);
        ret(fsync::msync(task))
    }

    /// syncfs(2).
    fn syncfs(task, fd: Fd) {
        file_or_return!(task, fd);
        ret(fsync::fsync(task, fd, Sync::FileSystem))
    }

    /// sync_file_range(2).
    fn sync_file_range(task, fd: Fd, offset: i64, bytes: i64, flags: u32) {
        file_or_return!(task, fd);
        let known = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
        if let Err(errno) = fsync::sync_file_range(task, fd) {
            return errno.to_ret();
        }
        if flags & !known != 0 || offset < 0 || bytes < 0 || offset.checked_add(bytes).is_none() {
            return Errno::EINVAL.to_ret();
        }
        0
    }

    /// readahead(2).
    fn readahead(task, fd: Fd, offset: i64, count: usize) {
        file_or_return!(task, fd);
        ret(fsync::readahead(task, fd, count))
    }

    /// posix_fadvise(2).
    fn fadvise64(task, fd: Fd, offset: i64, length: i64, advice: u32) {
        file_or_return!(task, fd);
        ret(fsync::fadvise(task, fd, length, advice))
    }
}
