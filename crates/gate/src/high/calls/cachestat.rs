//! cachestat(2).

use lp_abi::{Fd, UserPtr};
use lp_vfs::cachestat;

use crate::high::fd::descriptor::file_or_return;
use crate::high::frame::handler::{handlers, ret};

handlers! {
    /// cachestat(2).
    fn cachestat(task, fd: Fd, range: UserPtr<[u64; 2]>, to: UserPtr<[u64; 5]>, flags: u32) {
        file_or_return!(task, fd);
        ret(cachestat::cachestat(task, fd, range, to, flags))
    }
}
