//! getdents64(2), getdents(2).

use lp_abi::{Fd, Result, UserPtr, UserSlice};
use lp_region::ucopy;
use lp_vfs::getdents;
use lp_vfs::task::Task;

use crate::high::fd::descriptor::file_or_return;
use crate::high::fd::{descriptor, directory};
use crate::high::frame::handler::{given_slice, handlers, ret};

handlers! {
    /// getdents64(2).
    fn getdents64(task, fd: Fd, to: UserPtr, size: u32) {
        let to = given_slice(to.addr(), size as usize);
        if !descriptor::is_file(task, fd) && directory::is_one(fd) {
            return directory::getdents64(task, fd, to);
        }
        file_or_return!(task, fd);
        ret(getdents::getdents64(task, fd, to))
    }

    /// getdents(2), of a time when the type stood behind the name.
    fn getdents(task, fd: Fd, to: UserPtr, size: u32) {
        file_or_return!(task, fd);
        ret(old_style(task, fd, given_slice(to.addr(), size as usize)))
    }
}

/// Bytes before the name in `struct linux_dirent64`, and in `struct linux_dirent`.
const HEAD: [usize; 2] = [19, 18];

/// The records of getdents64, rewritten in place: the new ones are as long, for the byte of the type moves behind the NUL.
fn old_style(task: &Task, fd: Fd, to: UserSlice) -> Result<usize> {
    let got = getdents::getdents64(task, fd, to)?;
    let mut at = 0;
    while at + HEAD[0] < got {
        let record = to.skip(at).start().as_ptr();
        // SAFETY: the copy routine answers bad pointers; the name moves down by one, the copy goes upwards.
        unsafe {
            let length = ucopy::get(record.wrapping_add(16).cast::<u16>())? as usize;
            if length <= HEAD[0] {
                break;
            }
            let kind = ucopy::get(record.wrapping_add(18))?;
            let name = length - HEAD[0];
            for byte in 0..name {
                let moved = ucopy::get(record.wrapping_add(HEAD[0] + byte))?;
                ucopy::put(record.wrapping_add(HEAD[1] + byte), &moved)?;
            }
            ucopy::put(record.wrapping_add(length - 1), &kind)?;
            at += length;
        }
    }
    Ok(got)
}
