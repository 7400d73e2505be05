//! io_submit(2). An operation on a file of ours is made here, before the call returns, as the kernel does for
//! files in memory. Its completion is the kernel's, so that io_getevents(2), an eventfd and the ring that
//! programs read themselves work: the program's control block is submitted with an operation on a descriptor
//! of the kernel's that has the same result ([`Stand`]).

use core::ffi::CStr;

use lp_abi::linux::{
    __NR_close, __NR_io_submit, __NR_memfd_create, __NR_openat, __NR_openat2, AT_FDCWD, MFD_CLOEXEC,
    O_CLOEXEC, O_RDWR, iovec, open_how,
};
use lp_abi::{Errno, Fd, Result};
use lp_region::sync::Ordering;
use lp_region::ucopy;
use lp_vfs::task::Task;
use lp_vfs::{read, write};

use crate::high::calls::fsync;
use crate::high::fd::descriptor;
use crate::high::frame::handler::{exceeded_slow, given_slice, handlers, kernel, ret};
use crate::high::memory::{holes, resize};
use crate::low::dispatch::{AGAIN, NOT_OURS, RESTART};

/// `struct iocb` of linux/aio_abi.h.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ControlBlock {
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
/// The kernel's MAX_NON_LFS: the end of files that were opened without `O_LARGEFILE`.
const SMALL: i64 = i32::MAX as i64;

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

/// Gives pages to the holes in the memory that io_submit(2) names.
pub(crate) fn touch_buffers(task: &Task, count: i64, blocks: *const *mut ControlBlock) {
    for index in 0..count {
        holes::touch(task, blocks.wrapping_offset(index as isize) as usize, size_of::<usize>());
        // SAFETY: the copy routine handles bad pointers; every bit pattern is an address.
        let Ok(at) = (unsafe { ucopy::get(blocks.wrapping_offset(index as isize)) }) else { return };
        holes::touch(task, at as usize, size_of::<ControlBlock>());
        // SAFETY: the same; every bit pattern is a block.
        let Ok(block) = (unsafe { ucopy::get(at) }) else { return };
        let (buffer, count) = (block.buffer as usize, block.bytes as usize);
        match block.operation {
            PREAD | PWRITE => holes::touch(task, buffer, count),
            PREADV | PWRITEV => holes::touch_vector(task, buffer, count),
            _ => {}
        }
    }
}

fn is_listed(task: &Task, fd: Fd) -> bool {
    descriptor::is_file(task, fd) || descriptor::is_hidden(task, fd)
}

/// Submits one block: 1, or the error of the call.
fn submit(task: &Task, context: usize, at: *mut ControlBlock, block: &ControlBlock) -> isize {
    let is_hidden = descriptor::is_hidden(task, block.fd());
    if !is_hidden && !descriptor::is_file(task, block.fd()) {
        return kernel!(__NR_io_submit, context, 1, &raw const at);
    }
    if block.reserved != 0 || (block.bytes as i64) < 0 {
        return Errno::EINVAL.to_ret();
    }
    let answer = ask_for_room(context);
    if is_hidden || descriptor::is_path(task, block.fd()) || answer != Errno::EBADF.to_ret() {
        return answer;
    }
    let is_known = matches!(block.operation, PREAD | PWRITE | FSYNC | FDSYNC | POLL | PREADV | PWRITEV);
    let tells_file = block.flags & RESFD != 0 && descriptor::is_file(task, Fd::new(block.event_fd as i32));
    if !is_known || tells_file {
        return Errno::EINVAL.to_ret();
    }
    if block.operation == POLL {
        // Ready for the same as a device without a poll operation.
        let Ok(device) = open(c"/dev/null") else { return Errno::EAGAIN.to_ret() };
        return submit_instead(
            context,
            at,
            block,
            device,
            &ControlBlock { fd: device.raw() as u32, ..*block },
        );
    }
    let done = operate(task, block);
    if done == AGAIN || done == RESTART {
        return done;
    }
    // A directory has no operations of this kind.
    if done == Errno::EISDIR.to_ret() {
        return Errno::EINVAL.to_ret();
    }
    let stand = match Stand::of(task, done) {
        Ok(Some(stand)) => stand,
        Ok(None) => return done,
        Err(_) => return Errno::EAGAIN.to_ret(),
    };
    let instead = ControlBlock {
        operation: stand.operation,
        fd: stand.fd.raw() as u32,
        buffer: NOWHERE,
        bytes: stand.bytes,
        offset: stand.offset,
        rw_flags: 0,
        ..*block
    };
    submit_instead(context, at, block, stand.fd, &instead)
}

/// Submits a block without a descriptor. The kernel reserves a place for its event before it looks, so it
/// says `EBADF` if there is room for one, and `EAGAIN` if not.
fn ask_for_room(context: usize) -> isize {
    // SAFETY: zeros are a valid block.
    let block: ControlBlock = unsafe { core::mem::zeroed() };
    let block = ControlBlock { fd: u32::MAX, ..block };
    let at = &raw const block;
    kernel!(__NR_io_submit, context, 1, &raw const at)
}

/// An operation on a descriptor of the kernel's.
struct Stand {
    fd: Fd,
    operation: u16,
    bytes: u64,
    offset: i64,
}

impl Stand {
    /// The operation that has this result; `None` for an error that no operation is known to have.
    ///
    /// # Errors
    /// Those of the calls that make a descriptor.
    fn of(task: &Task, result: isize) -> Result<Option<Stand>> {
        let device =
            |path, operation, bytes| open(path).map(|fd| Some(Stand { fd, operation, bytes, offset: 0 }));
        match Errno::from_ret(result) {
            Ok(bytes) => device(c"/dev/null", PWRITE, bytes as u64),
            Err(Errno::EFAULT) => device(c"/dev/zero", PREAD, 1),
            Err(Errno::ENOSPC) => device(c"/dev/full", PWRITE, 1),
            Err(Errno::EFBIG) => match small_file() {
                // The kernel sends SIGXFSZ if the process has a limit, which begins here at the latest.
                Ok(fd) => Ok(Some(Stand { fd, operation: PWRITE, bytes: 1, offset: end_of_files(task) })),
                Err(errno) => {
                    exceeded_slow(task);
                    Err(errno)
                }
            },
            Err(_) => Ok(None),
        }
    }
}

/// Where no byte can be written, neither to a [`small_file`] nor under the process's limit.
fn end_of_files(task: &Task) -> i64 {
    // Relaxed: the process's own word.
    match task.process.fsize_limit.load(Ordering::Relaxed) {
        u64::MAX => SMALL,
        limit => (limit as i64).max(SMALL),
    }
}

/// A memfd that may not be larger than [`SMALL`]: only openat2(2) opens one without `O_LARGEFILE`.
fn small_file() -> Result<Fd> {
    let how = open_how { flags: u64::from(O_RDWR | O_CLOEXEC), mode: 0, resolve: 0 };
    // SAFETY: the name and the path are NUL-terminated; the calls only make descriptors, and the first is
    // closed again.
    unsafe {
        let large = lp_abi::syscall!(__NR_memfd_create, c"lightpath".as_ptr(), MFD_CLOEXEC)?;
        let path = Fd::new(large as i32).link();
        let size = size_of::<open_how>();
        let small = lp_abi::syscall!(__NR_openat2, AT_FDCWD, path.as_ptr(), &raw const how, size);
        let _ = lp_abi::syscall!(__NR_close, large);
        small.map(|fd| Fd::new(fd as i32))
    }
}

fn open(path: &CStr) -> Result<Fd> {
    // SAFETY: the path is NUL-terminated; the call only makes a descriptor.
    let opened = unsafe { lp_abi::syscall!(__NR_openat, AT_FDCWD, path.as_ptr(), O_RDWR | O_CLOEXEC) };
    opened.map(|fd| Fd::new(fd as i32))
}

/// Makes the operation. The signal for a limit that is exceeded comes with the completion.
fn operate(task: &Task, block: &ControlBlock) -> isize {
    let fd = block.fd();
    if matches!(block.operation, FSYNC | FDSYNC) {
        if block.buffer != 0 || block.offset != 0 || block.bytes != 0 || block.rw_flags != 0 {
            return Errno::EINVAL.to_ret();
        }
        // SAFETY: the handler of the same call, with the program's arguments.
        return unsafe { fsync::fsync(fd.word(), 0, 0, 0, 0, 0) };
    }
    if block.offset < 0 {
        return Errno::EINVAL.to_ret();
    }
    let piece = iovec { iov_base: block.buffer as *mut _, iov_len: block.bytes };
    let vector = match block.operation {
        PREAD | PWRITE => given_slice(&raw const piece as usize, 1),
        _ => given_slice(block.buffer as usize, block.bytes as usize),
    };
    let done = match block.operation {
        PREAD | PREADV => read::preadv2(task, fd, vector, block.offset, block.rw_flags),
        _ => write::pwritev2(task, fd, vector, block.offset, block.rw_flags),
    };
    match done {
        Err(Errno::EFAULT) if resize::grown(task) => AGAIN,
        done => {
            if done.is_ok() {
                resize::written(task);
            }
            ret(done)
        }
    }
}

/// Submits a block with the operation of another in the place of its own, and closes `fd`, which that one
/// uses.
fn submit_instead(
    context: usize,
    at: *mut ControlBlock,
    block: &ControlBlock,
    fd: Fd,
    instead: &ControlBlock,
) -> isize {
    // SAFETY: the copy routine handles bad pointers.
    let put = |value: &ControlBlock| unsafe { ucopy::put(at, value) };
    let done = match put(instead) {
        Ok(()) => kernel!(__NR_io_submit, context, 1, &raw const at),
        Err(errno) => errno.to_ret(),
    };
    // The kernel has set the key.
    let restored = put(&ControlBlock { key: 0, ..*block });
    // SAFETY: the descriptor is the gate's own.
    let _ = unsafe { lp_abi::syscall!(__NR_close, fd) };
    if done < 0 { done } else { ret(restored.map(|()| done)) }
}
