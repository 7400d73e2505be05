//! write(2), pwrite64(2), writev(2), pwritev(2), pwritev2(2).

use lp_abi::linux::iovec;
use lp_abi::{Errno, Fd, UserSlice};
use lp_vfs::write;

use crate::high::calls::transfer::transfers;
use crate::high::fd::descriptor::file_or_return;
use crate::high::fd::device;
use crate::high::frame::handler::ret_written;

transfers!(write, ret_written: write pwrite64 pwrite writev pwritev pwritev2);
