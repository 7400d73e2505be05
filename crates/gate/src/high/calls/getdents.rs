//! getdents64(2), getdents(2).

use lp_abi::{Fd, Result, UserPtr, UserSlice, dirent64};
use lp_region::ucopy;
use lp_vfs::getdents;
use lp_vfs::task::Task;

use crate::high::fd::descriptor::file_or_return;
use crate::high::fd::{descriptor, directory, parent};
use crate::high::frame::handler::{given_slice, handlers, ret};

handlers! {
    /// getdents64(2).
    fn getdents64(task, fd: Fd, to: UserPtr, size: u32) {
        let to = given_slice(to.addr(), length(size));
        if !descriptor::is_file(task, fd) && directory::is_one(fd) {
            return directory::getdents64(task, fd, to);
        }
        if !descriptor::is_file(task, fd) && parent::is_one(fd) {
            return parent::getdents64(task, fd, to);
        }
        file_or_return!(task, fd);
        ret(getdents::getdents64(task, fd, to))
    }

    /// getdents(2), the old call, whose records have the type after the name.
    fn getdents(task, fd: Fd, to: UserPtr, size: u32) {
        file_or_return!(task, fd);
        ret(old_style(task, fd, given_slice(to.addr(), length(size))))
    }
}

/// The kernel keeps the length in an `int`: what is negative there holds no record.
fn length(size: u32) -> usize {
    usize::try_from(size as i32).unwrap_or(0)
}

/// Offsets of the name in `struct linux_dirent64` and in `struct linux_dirent`.
const HEAD: [usize; 2] = [dirent64::NAME, dirent64::NAME - 1];

/// getdents64's records, rewritten in place. The new ones have the same length, because the type byte moves
/// behind the NUL.
fn old_style(task: &Task, fd: Fd, to: UserSlice) -> Result<usize> {
    let got = getdents::getdents64(task, fd, to)?;
    let mut at = 0;
    while at + HEAD[0] < got {
        let record = to.skip(at).start().as_ptr();
        // SAFETY: the copy routine handles bad pointers. The name moves down by one byte, and the copy
        // ascends.
        unsafe {
            let length = ucopy::get(record.wrapping_add(dirent64::LENGTH).cast::<u16>())? as usize;
            if length <= HEAD[0] {
                break;
            }
            let kind = ucopy::get(record.wrapping_add(dirent64::TYPE))?;
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
