//! sendfile(2), splice(2), tee(2), vmsplice(2), copy_file_range(2).

use lp_abi::linux::SPLICE_F_NONBLOCK;
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::sync::Ordering;
use lp_region::ucopy;
use lp_vfs::task::Task;
use lp_vfs::{copy, ends};

use crate::high::calls::fcntl::is_open;
use crate::high::fd::descriptor;
use crate::high::frame::handler::{exceeded_slow, given_slice, handlers, interruptible, ret, ret_limited};
use crate::high::memory::resize;
use crate::low::dispatch::NOT_OURS;

handlers! {
    /// sendfile(2).
    fn sendfile(task, out: Fd, input: Fd, offset: UserPtr<i64>, count: usize) {
        if !descriptor::is_file(task, input) && !descriptor::is_file(task, out) {
            return NOT_OURS;
        }
        // SAFETY: the copy routine handles bad pointers.
        if !offset.is_null() && unsafe { ucopy::get(offset.as_ptr()) }.is_err() {
            return Errno::EFAULT.to_ret();
        }
        // The kernel looks at the target last.
        if descriptor::is_file(task, input) {
            let out = if is_open(task, out) { out } else { Fd::NONE };
            return moved(task, out, count, |count| copy::sendfile(task, out, input, offset, count));
        }
        match either(task, input, out) {
            Ok(true) => moved(task, out, count, |count| copy::sendfile(task, out, input, offset, count)),
            Ok(false) => NOT_OURS,
            Err(errno) => errno.to_ret(),
        }
    }

    /// splice(2).
    fn splice(task, input: Fd, off_in: UserPtr<i64>, out: Fd, off_out: UserPtr<i64>, count: usize, flags: u32) {
        // The kernel looks at the descriptors after that.
        if count == 0 || flags & !SPLICE_FLAGS != 0 {
            return NOT_OURS;
        }
        match either(task, input, out) {
            Ok(true) => {
                let mut flags = flags;
                moved(task, out, count, |count| {
                    let done = copy::splice(task, input, off_in, out, off_out, count, flags);
                    // Wait for a pipe only once.
                    flags |= SPLICE_F_NONBLOCK;
                    done
                })
            }
            Ok(false) => NOT_OURS,
            Err(errno) => errno.to_ret(),
        }
    }

    /// copy_file_range(2) between file systems: the kernel's own in-memory ones also fail with `EXDEV`.
    fn copy_file_range(task, input: Fd, off_in: UserPtr<i64>, out: Fd, off_out: UserPtr<i64>, count: usize, flags: u32) {
        match either(task, input, out) {
            Ok(true) if descriptor::is_file(task, input) && descriptor::is_file(task, out) => {
                ret_copied(task, copy::copy_file_range(task, input, off_in, out, off_out, count, flags))
            }
            Ok(true) => ends::copy_between_systems(task, (input, off_in), (out, off_out), flags).to_ret(),
            Ok(false) => NOT_OURS,
            Err(errno) => errno.to_ret(),
        }
    }

    /// tee(2): between pipes only.
    fn tee(task, input: Fd, out: Fd, count: usize, flags: u32) {
        // The kernel looks at the descriptors after that.
        if count == 0 || flags & !SPLICE_FLAGS != 0 {
            return NOT_OURS;
        }
        match either(task, input, out) {
            Ok(true) => ends::tee(task, input, out).to_ret(),
            Ok(false) => NOT_OURS,
            Err(errno) => errno.to_ret(),
        }
    }

    /// vmsplice(2): to and from pipes only.
    fn vmsplice(task, fd: Fd, vector: usize, count: usize, flags: u32) {
        if !descriptor::is_file(task, fd) {
            return NOT_OURS;
        }
        if flags & !SPLICE_FLAGS != 0 {
            return Errno::EINVAL.to_ret();
        }
        ret(ends::vmsplice(task, fd, given_slice(vector, count)))
    }
}

/// The result of a call that, like `splice_from_pipe`, moves content in steps until one fails. After a short
/// result into a file under `RLIMIT_FSIZE` the call is therefore repeated; the signal is then sent, and the
/// result counts what was moved before.
fn moved(task: &Task, out: Fd, count: usize, mut call: impl FnMut(usize) -> Result<usize>) -> isize {
    let mut done = call(count);
    if let Ok(bytes @ 1..) = done
        && bytes < count
        // Relaxed: the process's own word.
        && task.process.fsize_limit.load(Ordering::Relaxed) != u64::MAX
        && descriptor::is_file(task, out)
    {
        match call(count - bytes) {
            Ok(more) => done = Ok(bytes + more),
            Err(Errno::EFBIG) => exceeded_slow(task),
            Err(_) => {}
        }
    }
    ret_copied(task, done)
}

/// The result of a call that may wait and may have grown a file.
fn ret_copied(task: &Task, done: Result<usize>) -> isize {
    if done.is_ok() {
        resize::written(task);
    }
    interruptible(ret_limited(task, done))
}

/// All `SPLICE_F_*` flags.
const SPLICE_FLAGS: u32 = 15;

/// Whether one of two descriptors is ours.
///
/// # Errors
/// `EBADF` if one is and the other is closed.
fn either(task: &Task, input: Fd, out: Fd) -> Result<bool> {
    if !descriptor::is_file(task, input) && !descriptor::is_file(task, out) {
        return Ok(false);
    }
    if is_open(task, input) && is_open(task, out) { Ok(true) } else { Err(Errno::EBADF) }
}
