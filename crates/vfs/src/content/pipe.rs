//! Kernel pipes as one end of splice(2) and sendfile(2): waiting for them, and moving bytes without waiting.
//!
//! All waiting is done by one poll(2), which signals interrupt as [`Task::blocking`] says. Moving bytes never
//! waits, because a pipe's slots run out before its bytes do, and because a file's lock may be held
//! meanwhile. It uses `RWF_NOWAIT`, which pipes support since Linux 6.4 and FIFOs do not.

use core::cell::Cell;

use lp_abi::ioctl::FIONREAD;
use lp_abi::linux::{
    __NR_close, __NR_fcntl, __NR_ioctl, __NR_open, __NR_poll, __NR_preadv2, __NR_pwritev2, __NR_read,
    __NR_splice, __NR_write, F_GETFL, F_GETPIPE_SZ, O_ACCMODE, O_CLOEXEC, O_NONBLOCK, O_RDONLY, O_WRONLY,
    POLLIN, POLLOUT, RWF_NOWAIT, SPLICE_F_NONBLOCK, iovec, pollfd,
};
use lp_abi::{Errno, Fd, PAGE_SIZE, Result, UserSlice};

use crate::caller::task::Task;
use crate::content::source::Source;

/// The end of a pipe that a descriptor is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PipeEnd {
    /// Bytes come out of it.
    Read,
    /// Bytes go into it.
    Write,
}

/// Whether a call waits for a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PipeWait {
    /// Yes, until it is ready.
    Blocks,
    /// No: `EAGAIN` if it is not ready.
    Never,
}

/// A descriptor of a pipe.
#[derive(Clone, Copy)]
pub(crate) struct Pipe {
    fd: Fd,
    end: PipeEnd,
    wait: PipeWait,
    /// `O_NONBLOCK`, or 0.
    nonblock: u32,
}

impl Pipe {
    /// The pipe of `fd`, as splice(2) treats it: `O_NONBLOCK` counts as well as the call's flag (do_splice).
    ///
    /// # Errors
    /// `EBADF` if it is not open as this end.
    pub(crate) fn new(fd: Fd, end: PipeEnd, wait: PipeWait) -> Result<Pipe> {
        // SAFETY: F_GETFL takes no pointers.
        let flags = unsafe { lp_abi::syscall!(__NR_fcntl, fd, F_GETFL) }? as u32;
        let wrong = if end == PipeEnd::Read { O_WRONLY } else { O_RDONLY };
        if flags & O_ACCMODE == wrong {
            return Err(Errno::EBADF);
        }
        let nonblock = flags & O_NONBLOCK;
        let wait = if nonblock != 0 { PipeWait::Never } else { wait };
        Ok(Pipe { fd, end, wait, nonblock })
    }

    /// Whether a call waits for it.
    pub(crate) fn waits(self) -> bool {
        self.wait == PipeWait::Blocks
    }

    /// Waits until a byte can be moved or the other end is gone. Returns whether a byte can be moved.
    ///
    /// # Errors
    /// `EAGAIN` if it must not wait; `EINTR`.
    pub(crate) fn ready(self, task: &Task) -> Result<bool> {
        let events = if self.end == PipeEnd::Read { POLLIN } else { POLLOUT } as i16;
        let mut asked = pollfd { fd: self.fd.raw(), events, revents: 0 };
        let timeout = if self.wait == PipeWait::Blocks { -1isize } else { 0 };
        let arguments = [&raw mut asked as usize, 1, timeout as usize, 0, 0, 0];
        // SAFETY: the kernel writes the one entry, which outlives the call.
        match unsafe { (task.blocking)(__NR_poll, arguments) }? {
            0 if self.end == PipeEnd::Read => self.has_writers().map(|()| false),
            0 => Err(Errno::EAGAIN),
            _ => Ok(asked.revents & events != 0),
        }
    }

    /// For an empty pipe: `EAGAIN` if it has writers. poll(2) does not report their absence in a FIFO that
    /// never had one. A read that does not wait does, and to an address without memory it moves nothing.
    fn has_writers(self) -> Result<()> {
        if self.nonblock == 0 {
            return Err(Errno::EAGAIN);
        }
        // SAFETY: the kernel finds no memory to write to.
        match unsafe { lp_abi::syscall!(__NR_read, self.fd, 0, 1) } {
            Ok(_) => Ok(()),
            // What has arrived since is there when it is asked for again.
            Err(_) => Err(Errno::EAGAIN),
        }
    }

    /// Waits for space without moving anything, as splice(2) does before it looks at the file (the kernel's
    /// wait_for_space).
    ///
    /// # Errors
    /// `EPIPE`, with `SIGPIPE`, if nobody reads; `EAGAIN`; `EINTR`.
    pub(crate) fn wait_for_space(self, task: &Task) -> Result<()> {
        // The kernel finds nothing to move beyond the end of the region.
        let mut beyond = i64::MAX - PAGE_SIZE as i64;
        let flags = if self.waits() { 0 } else { SPLICE_F_NONBLOCK as usize };
        let region = task.region.fd().word();
        let arguments = [region, &raw mut beyond as usize, self.fd.word(), 0, 1, flags];
        // SAFETY: the kernel reads and writes the offset, which outlives the call.
        match unsafe { (task.blocking)(__NR_splice, arguments) } {
            Err(errno @ (Errno::EPIPE | Errno::EAGAIN | Errno::EINTR)) => Err(errno),
            _ => Ok(()),
        }
    }

    /// Maximum number of bytes of a file from an offset that fit: splice(2) uses a slot for each page of the
    /// file.
    ///
    /// # Errors
    /// Those of fcntl(2) and ioctl(2).
    pub(crate) fn room(self, offset: u64) -> Result<usize> {
        // SAFETY: F_GETPIPE_SZ takes no pointers.
        let size = unsafe { lp_abi::syscall!(__NR_fcntl, self.fd, F_GETPIPE_SZ) }?;
        let mut held = 0i32;
        // SAFETY: the kernel writes four bytes.
        unsafe { lp_abi::syscall!(__NR_ioctl, self.fd, FIONREAD, &raw mut held) }?;
        // A slot holds a page or less.
        let pages = (size / PAGE_SIZE).saturating_sub((held as usize).div_ceil(PAGE_SIZE)).max(1);
        Ok(pages * PAGE_SIZE - offset as usize % PAGE_SIZE)
    }

    /// Writes what fits without waiting.
    ///
    /// # Errors
    /// `EAGAIN` if nothing fits; `EPIPE`.
    pub(crate) fn put(self, task: &Task, from: *const u8, bytes: usize) -> Result<usize> {
        match now(__NR_pwritev2, self.fd, from.cast_mut(), bytes) {
            Err(Errno::EOPNOTSUPP) => {}
            done => return done,
        }
        let mut done = 0;
        while done < bytes {
            match self.put_page(task, from.wrapping_add(done), (bytes - done).min(PAGE_SIZE)) {
                Ok(moved) => done += moved,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Writes at most one page. It fits a pipe that is ready, unless another writer comes first; then the
    /// write waits.
    fn put_page(self, task: &Task, from: *const u8, bytes: usize) -> Result<usize> {
        Pipe { wait: PipeWait::Never, ..self }.ready(task)?;
        // SAFETY: the kernel reads the bytes, which the caller owns.
        unsafe { (task.blocking)(__NR_write, [self.fd.word(), from as usize, bytes, 0, 0, 0]) }
    }
}

/// preadv2(2) or pwritev2(2) of one buffer at the position, without waiting.
fn now(call: u32, fd: Fd, at: *mut u8, bytes: usize) -> Result<usize> {
    let buffer = iovec { iov_base: at.cast(), iov_len: bytes as u64 };
    // SAFETY: the kernel moves bytes from or to the buffer, which the caller owns.
    unsafe { lp_abi::syscall!(call, fd, &raw const buffer, 1, -1isize, -1isize, RWF_NOWAIT) }
}

/// A pipe's contents as the source of a write.
pub(crate) struct Drain<'c> {
    fd: Fd,
    by: By,
    /// The result of the last read: number of bytes, 0 for the end, or an error.
    pub last: &'c Cell<Result<usize>>,
}

/// The method of reading without waiting.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// With `RWF_NOWAIT`.
    Flag,
    /// Through its own open file description with `O_NONBLOCK`.
    Reopened,
}

impl<'c> Drain<'c> {
    /// Prepares to read from `pipe`.
    ///
    /// # Errors
    /// Those of open(2), if the pipe must be reopened.
    pub(crate) fn new(pipe: Pipe, last: &'c Cell<Result<usize>>) -> Result<Self> {
        // Probes without moving a byte: the address is invalid, and the flag is checked before it.
        if now(__NR_preadv2, pipe.fd, core::ptr::null_mut(), 1) != Err(Errno::EOPNOTSUPP) {
            return Ok(Drain { fd: pipe.fd, by: By::Flag, last });
        }
        let path = pipe.fd.link();
        let flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC;
        // SAFETY: the path is NUL-terminated.
        let fd = unsafe { lp_abi::syscall!(__NR_open, path.as_ptr(), flags, 0) }?;
        let fd = Fd::new(fd as i32);
        Ok(Drain { fd, by: By::Reopened, last })
    }
}

impl Drop for Drain<'_> {
    fn drop(&mut self) {
        if self.by == By::Reopened {
            // SAFETY: `new` opened the descriptor, and nothing else uses it.
            let _ = unsafe { lp_abi::syscall!(__NR_close, self.fd) };
        }
    }
}

impl Source for Drain<'_> {
    const IS_MEMORY: bool = false;

    unsafe fn fill(&mut self, pages: *mut u8, bytes: usize, _: (Fd, usize)) -> usize {
        let mut done = 0;
        while done < bytes {
            let (at, most) = (pages.wrapping_add(done), bytes - done);
            let got = match self.by {
                By::Flag => now(__NR_preadv2, self.fd, at, most),
                // SAFETY: the kernel writes within the pages, for which the caller of `fill` answers.
                By::Reopened => unsafe { lp_abi::syscall!(__NR_read, self.fd, at, most) },
            };
            self.last.set(got);
            match got {
                Ok(0) | Err(_) => break,
                Ok(got) => done += got,
            }
        }
        done
    }

    fn whole(&self) -> Option<UserSlice> {
        None
    }
}
