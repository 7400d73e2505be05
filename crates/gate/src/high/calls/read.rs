//! read(2), pread64(2), readv(2), preadv(2), preadv2(2).

use lp_abi::linux::iovec;
use lp_abi::{Errno, Fd, UserSlice};
use lp_vfs::read;

use crate::high::calls::transfer::transfers;
use crate::high::fd::descriptor::file_or_return;
use crate::high::fd::device;
use crate::high::frame::handler::ret_moved;

transfers!(read, ret_moved: read pread64 pread readv preadv preadv2);
