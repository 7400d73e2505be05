//! io_submit(2). An operation on a file of ours is made here, before the call returns, as the kernel does for
//! files in memory. Its completion is the kernel's, so that io_getevents(2), an eventfd and the ring that
//! programs read themselves work: the program's control block is submitted with an operation on a device that
//! has the same result.

use core::ffi::CStr;

use lp_abi::linux::{__NR_close, __NR_io_submit, __NR_openat, AT_FDCWD, O_CLOEXEC, O_RDWR, iovec};
use lp_abi::{Errno, Fd, Result};
use lp_region::ucopy;
use lp_vfs::task::Task;

use crate::high::calls::{fsync, read, write};
use crate::high::fd::descriptor;
use crate::high::frame::handler::{handlers, kernel, ret};
use crate::low::dispatch::{AGAIN, NOT_OURS, RESTART};

/// `struct iocb` of linux/aio_abi.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct ControlBlock {
    data: u64,
    key: u32,
    rw_flags: u32,
    operation: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

/// `IOCB_CMD_*` of linux/aio_abi.h.
const PREAD: u16 = 0;
const PWRITE: u16 = 1;
const FSYNC: u16 = 2;
const FDSYNC: u16 = 3;
const POLL: u16 = 5;
const PREADV: u16 = 7;
const PWRITEV: u16 = 8;
/// `IOCB_FLAG_RESFD`: an eventfd is told.
const RESFD: u32 = 1;

/// An address where programs have no memory.
const NOWHERE: u64 = 4096;

handlers! {
    /// io_submit(2).
    fn io_submit(task, context: usize, count: i64, blocks: *const *mut ControlBlock) {
        let mut listed = (0..count).map_while(|index| block(blocks, index).ok());
        if !listed.any(|(_, block)| is_listed(task, block.fd())) {
            return NOT_OURS;
        }
        // The context, before anything happens.
        let checked = kernel!(__NR_io_submit, context, 0, blocks);
        if checked < 0 {
            return checked;
        }
        for index in 0..count {
            let done = match block(blocks, index) {
                Ok((at, block)) => submit(task, context, at, &block),
                Err(errno) => errno.to_ret(),
            };
            if done != 1 {
                return if index == 0 { done } else { index as isize };
            }
        }
        count as isize
    }
}

impl ControlBlock {
    fn fd(&self) -> Fd {
        Fd::new(self.fd as i32)
    }
}

/// The address of a control block, and the block.
fn block(blocks: *const *mut ControlBlock, index: i64) -> Result<(*mut ControlBlock, ControlBlock)> {
    // SAFETY: the copy routine handles bad pointers; every bit pattern is an address, or a block.
    unsafe {
        let at = ucopy::get(blocks.wrapping_offset(index as isize))?;
        Ok((at, ucopy::get(at)?))
    }
}

fn is_listed(task: &Task, fd: Fd) -> bool {
    descriptor::is_file(task, fd) || descriptor::is_hidden(task, fd)
}

/// Submits one block: 1, or the error of the call.
fn submit(task: &Task, context: usize, at: *mut ControlBlock, block: &ControlBlock) -> isize {
    if descriptor::is_hidden(task, block.fd()) {
        return Errno::EBADF.to_ret();
    }
    if !descriptor::is_file(task, block.fd()) {
        return kernel!(__NR_io_submit, context, 1, &raw const at);
    }
    let is_known = matches!(block.operation, PREAD | PWRITE | FSYNC | FDSYNC | POLL | PREADV | PWRITEV);
    let tells_file = block.flags & RESFD != 0 && descriptor::is_file(task, Fd::new(block.event_fd as i32));
    if !is_known || tells_file || block.reserved != 0 || (block.bytes as i64) < 0 {
        return Errno::EINVAL.to_ret();
    }
    if block.operation == POLL {
        // Ready for the same as a device without a poll operation.
        return submit_instead(context, at, block, c"/dev/null", |device| ControlBlock {
            fd: device,
            ..*block
        });
    }
    let done = operate(block);
    if done == AGAIN || done == RESTART {
        return done;
    }
    // An operation on a device with that result.
    let (path, operation, bytes) = match Errno::from_ret(done) {
        Ok(bytes) => (c"/dev/null", PWRITE, bytes as u64),
        Err(Errno::EFAULT) => (c"/dev/zero", PREAD, 1),
        Err(Errno::ENOSPC) => (c"/dev/full", PWRITE, 1),
        // A directory has no operations of this kind.
        Err(Errno::EISDIR) => return Errno::EINVAL.to_ret(),
        Err(errno) => return errno.to_ret(),
    };
    submit_instead(context, at, block, path, |device| ControlBlock {
        operation,
        fd: device,
        buffer: NOWHERE,
        bytes,
        offset: 0,
        rw_flags: 0,
        ..*block
    })
}

/// Makes the operation.
fn operate(block: &ControlBlock) -> isize {
    let fd = block.fd().word();
    if matches!(block.operation, FSYNC | FDSYNC) {
        let is_plain = block.buffer == 0 && block.offset == 0 && block.bytes == 0 && block.rw_flags == 0;
        // SAFETY: the handler of the same call, with the program's arguments.
        return if is_plain { unsafe { fsync::fsync(fd, 0, 0, 0, 0, 0) } } else { Errno::EINVAL.to_ret() };
    }
    if block.offset < 0 {
        return Errno::EINVAL.to_ret();
    }
    let piece = iovec { iov_base: block.buffer as *mut _, iov_len: block.bytes };
    let (vector, count) = match block.operation {
        PREAD | PWRITE => (&raw const piece as usize, 1),
        _ => (block.buffer as usize, block.bytes as usize),
    };
    let (offset, flags) = (block.offset as usize, block.rw_flags as usize);
    // SAFETY: as above.
    unsafe {
        match block.operation {
            PREAD | PREADV => read::preadv2(fd, vector, count, offset, 0, flags),
            _ => write::pwritev2(fd, vector, count, offset, 0, flags),
        }
    }
}

/// Submits a block with an operation on a device in the place of its own.
fn submit_instead(
    context: usize,
    at: *mut ControlBlock,
    block: &ControlBlock,
    path: &CStr,
    instead: impl FnOnce(u32) -> ControlBlock,
) -> isize {
    // SAFETY: the path is NUL-terminated, and the descriptor is closed again.
    let opened = unsafe { lp_abi::syscall!(__NR_openat, AT_FDCWD, path.as_ptr(), O_RDWR | O_CLOEXEC) };
    let Ok(device) = opened else { return Errno::EAGAIN.to_ret() };
    // SAFETY: the copy routine handles bad pointers.
    let put = |value: &ControlBlock| unsafe { ucopy::put(at, value) };
    let done = match put(&instead(device as u32)) {
        Ok(()) => kernel!(__NR_io_submit, context, 1, &raw const at),
        Err(errno) => errno.to_ret(),
    };
    // The kernel has set the key.
    let restored = put(&ControlBlock { key: 0, ..*block });
    // SAFETY: as above.
    let _ = unsafe { lp_abi::syscall!(__NR_close, device) };
    if done < 0 { done } else { ret(restored.map(|()| done)) }
}
