//! Tools for handlers: decoded arguments, the calling task, results as `rax`.

use lp_abi::linux::{__NR_getpid, __NR_tgkill, SIGXFSZ, iovec};
use lp_abi::{Errno, Fd, Result, UserPtr, UserSlice};
use lp_region::sync::Ordering;
use lp_vfs::task::Task;

use crate::high::memory::resize;
use crate::low::dispatch::{AGAIN, RESTART};
use crate::low::thread::current;
use crate::low::thread::record::Thread;
use crate::low::tools::range::USER_END;

/// The argument registers that the handler has not decoded yet.
pub(crate) type Registers = core::array::IntoIter<usize, 6>;

/// A typed argument, decoded from one register, or from two for a [`UserSlice`].
pub(crate) trait Argument {
    /// Decodes the next register as the kernel does: narrow integers take the low bits.
    fn of(words: &mut Registers) -> Self;
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Argument for $type {
            #[inline(always)]
            fn of(words: &mut Registers) -> Self {
                words.next().unwrap_or(0) as $type
            }
        }
    )*};
}
integers!(i32 u32 i64 u64 usize isize);

impl<T> Argument for *const T {
    #[inline(always)]
    fn of(words: &mut Registers) -> Self {
        usize::of(words) as *const T
    }
}

impl<T> Argument for *mut T {
    #[inline(always)]
    fn of(words: &mut Registers) -> Self {
        usize::of(words) as *mut T
    }
}

impl Argument for Fd {
    #[inline(always)]
    fn of(words: &mut Registers) -> Self {
        Fd::new(i32::of(words))
    }
}

impl<T> Argument for UserPtr<T> {
    #[inline(always)]
    fn of(words: &mut Registers) -> Self {
        given(usize::of(words))
    }
}

macro_rules! slices {
    ($($type:ty)*) => {$(
        impl Argument for UserSlice<$type> {
            #[inline(always)]
            fn of(words: &mut Registers) -> Self {
                let start = usize::of(words);
                given_slice(start, usize::of(words))
            }
        }
    )*};
}
slices!(u8 u64);

impl Argument for UserSlice<iovec> {
    #[inline(always)]
    fn of(words: &mut Registers) -> Self {
        let start = usize::of(words);
        // The kernel's import_iovec takes an unsigned int.
        given_slice(start, u32::of(words) as usize)
    }
}

/// A pointer passed by the program, in a register or in memory.
#[inline(always)]
pub(crate) fn given<T>(address: usize) -> UserPtr<T> {
    // SAFETY: an argument of the program's. The handler for faults of the copy routines is installed before
    // any call is handled.
    unsafe { UserPtr::new(address as *const T) }
}

/// [`given`] for several elements.
#[inline(always)]
pub(crate) fn given_slice<T>(start: usize, len: usize) -> UserSlice<T> {
    // SAFETY: as in `given`.
    unsafe { UserSlice::new(start as *const T, len) }
}

/// The kernel's access_ok, for the smaller of the possible address spaces.
#[inline]
pub(crate) fn is_in_user_space<T>(slice: UserSlice<T>) -> bool {
    let end =
        slice.len().checked_mul(size_of::<T>()).and_then(|bytes| slice.start().addr().checked_add(bytes));
    end.is_some_and(|end| end <= USER_END)
}

/// Defines handlers: `fn name(task, fd: Fd, buf: *mut u8) { ... }`. Each body evaluates to `rax`.
macro_rules! handlers {
    ($($(#[$doc:meta])* fn $name:ident($task:ident $(, $arg:ident: $type:ty)* $(,)?) $body:block)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// Only dispatch tables may call it: the calling thread has a task, and the arguments are a
        /// program's.
        #[allow(unused_variables, unused_assignments, unused_mut)]
        pub(crate) unsafe extern "sysv64" fn $name(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
            let mut words = [a, b, c, d, e, f].into_iter();
            $(let $arg = <$type as $crate::high::frame::handler::Argument>::of(&mut words);)*
            let $task = $crate::high::frame::handler::task();
            $body
        }
    )*};
}
pub(crate) use handlers;

/// Makes the kernel's call `nr` from inside the gate; evaluates to `rax`.
macro_rules! kernel {
    ($nr:expr $(, $arg:expr)* $(,)?) => {{
        // SAFETY: the program asked for this call, with these arguments or equivalent ones.
        let done = unsafe { lp_abi::syscall!($nr $(, $arg)*) };
        $crate::high::frame::handler::thread().crossed.set(true);
        $crate::high::frame::handler::ret(done)
    }};
}
pub(crate) use kernel;

/// The calling thread's task.
#[inline(always)]
pub(crate) fn task() -> &'static Task<'static> {
    // SAFETY: a thread that runs handlers has a record and a task, which live as long as the thread.
    unsafe { &*(*current::thread()).task.get() }
}

/// The calling thread's record. Its buffers belong to the running handler.
#[inline(always)]
pub(crate) fn thread() -> &'static Thread {
    // SAFETY: a thread that runs handlers has a record, which lives as long as the thread; only its cells
    // change.
    unsafe { &*current::thread() }
}

/// A return value of a call.
pub(crate) trait ReturnValue {
    /// The value as `rax`.
    fn rax(self) -> isize;
}

impl ReturnValue for () {
    #[inline(always)]
    fn rax(self) -> isize {
        0
    }
}

macro_rules! values {
    ($($type:ty)*) => {$(
        impl ReturnValue for $type {
            #[inline(always)]
            fn rax(self) -> isize {
                self as isize
            }
        }
    )*};
}
values!(usize isize i32 u32 i64 u64);

impl ReturnValue for Fd {
    #[inline(always)]
    fn rax(self) -> isize {
        self.raw() as isize
    }
}

/// The result as `rax`.
#[inline(always)]
pub(crate) fn ret<T: ReturnValue>(result: Result<T>) -> isize {
    match result {
        Ok(value) => value.rax(),
        Err(errno) => errno.to_ret(),
    }
}

/// [`ret`] for a call that moves bytes between a file of ours and the program's memory.
#[inline(always)]
pub(crate) fn ret_moved(task: &Task, result: Result<usize>) -> isize {
    match result {
        Ok(bytes) => bytes as isize,
        Err(errno) => not_moved(task, errno),
    }
}

/// [`ret_moved`] for a call that may have grown a file.
#[inline(always)]
pub(crate) fn ret_written(task: &Task, result: Result<usize>) -> isize {
    if result.is_ok() {
        resize::written(task);
    }
    ret_moved(task, result)
}

/// Handles a failed move. If the memory is a mapping whose file another process has grown, maps the new pages
/// in and restarts the call. Sends the signal for exceeding `RLIMIT_FSIZE`.
#[cold]
#[inline(never)]
fn not_moved(task: &Task, errno: Errno) -> isize {
    match errno {
        Errno::EFAULT if resize::grown(task) => return AGAIN,
        Errno::EFBIG => exceeded_slow(task),
        _ => {}
    }
    errno.to_ret()
}

/// [`ret`] for a call that may exceed `RLIMIT_FSIZE`, for which the thread gets SIGXFSZ (setrlimit(2)).
#[inline(always)]
pub(crate) fn ret_limited<T: ReturnValue>(task: &Task, result: Result<T>) -> isize {
    if let Err(Errno::EFBIG) = result {
        exceeded_slow(task);
    }
    ret(result)
}

/// Makes a wait that a signal ended restart if the signal's handler has SA_RESTART.
pub(crate) fn interruptible(done: isize) -> isize {
    if done == Errno::EINTR.to_ret() { RESTART } else { done }
}

/// Sends the thread SIGXFSZ if it has a limit.
#[cold]
pub(crate) fn exceeded_slow(task: &Task) {
    // Relaxed: the process's own word.
    if task.process.fsize_limit.load(Ordering::Relaxed) != u64::MAX {
        let pid = kernel!(__NR_getpid);
        kernel!(__NR_tgkill, pid, thread().tid.get(), SIGXFSZ);
    }
}

/// Whether `rax` is this error.
pub(crate) fn failed_with(rax: isize, errno: Errno) -> bool {
    rax == errno.to_ret()
}
