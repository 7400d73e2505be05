//! Placeholders: the kernel descriptors that stand behind descriptors of ours, so that numbers are the kernel's own.
//!
//! Each is a duplicate of the *base*, an `O_PATH` descriptor of an empty, sealed memfd kept at a high number: whatever
//! reaches the kernel with it gets `EBADF`, never data. Closing a descriptor of ours *parks* its placeholder when it can, and the
//! next open takes it back, so that a loop of the two makes no system call.
//!
//! A parked number is free to the program, so it must be the one that the kernel would give. Hence the *watermark*:
//! every number below it is in use or parked. It rises when the kernel gives out the lowest free number, falls when a
//! number below it is really closed, and only numbers below it are parked. The lowest parked number is therefore the
//! lowest free one. Before the kernel gives out a number itself, what is parked is closed ([`flush`]).
//!
//! All of it is kept in the process's slot: fork copies it as it copies the descriptors. Guarded by the table lock while
//! threads share the table.

use lp_abi::linux::{
    __NR_close, __NR_dup3, __NR_fcntl, __NR_memfd_create, __NR_open, F_ADD_SEALS, F_DUPFD, F_DUPFD_CLOEXEC,
    F_SEAL_GROW, F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_WRITE, MFD_ALLOW_SEALING, MFD_CLOEXEC, O_CLOEXEC, O_PATH,
};
use lp_abi::{Errno, Result};
use lp_region::layout::FDS;
use lp_region::sync::{AtomicU32, Ordering};
use lp_vfs::table;
use lp_vfs::task::Task;

use crate::entry_quick::QUICK_FDS;

/// Numbers below this can be parked.
const PARKABLE: i32 = 64;
/// How far below the region's descriptor the base may lie.
const BELOW: i32 = 16;
/// Word of `Process::spare`: the base's number plus one; 0 none yet.
const BASE: usize = 0;
/// Word of `Process::spare`: the watermark.
const WATERMARK: usize = 1;

fn base_word<'t>(task: &'t Task) -> &'t AtomicU32 {
    &task.process.spare[BASE]
}

fn watermark<'t>(task: &'t Task) -> &'t AtomicU32 {
    &task.process.spare[WATERMARK]
}

/// Holds the table lock while threads share the table.
struct Guard<'t>(Option<&'t Task<'static>>);

impl<'t> Guard<'t> {
    #[inline(always)]
    fn take(task: &'t Task<'static>) -> Self {
        // Relaxed: only this thread can have made others.
        if task.process.threads.load(Ordering::Relaxed) == 0 {
            return Guard(None);
        }
        task.process.table_lock.lock(task.lane_id, task);
        Guard(Some(task))
    }
}

impl Drop for Guard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(task) = self.0 {
            task.process.table_lock.unlock();
        }
    }
}

/// Whether `fd` is one of the gate's own: to the program it is closed.
#[inline(always)]
pub fn is_guarded(task: &Task, fd: i32) -> bool {
    is_regions(task.region.fd(), fd) || fd >= 0 && fd as u32 + 1 == base_word(task).load(Ordering::Relaxed)
}

/// Whether `fd` is that of the region, `region`, or that of the life file beside it.
#[inline(always)]
pub fn is_regions(region: i32, fd: i32) -> bool {
    fd.wrapping_sub(region) as u32 <= 1 && region >= 0
}

/// Whether one of the gate's own may be among the descriptors that have a short way; see [`crate::entry_quick`].
pub fn own_may_be_low(task: &Task) -> bool {
    task.region.fd() - BELOW < QUICK_FDS
}

/// The gate's own descriptors, in rising order.
pub fn guarded(task: &Task) -> impl Iterator<Item = u32> + use<> {
    let region = task.region.fd() as u32..task.region.fd() as u32 + 2;
    let base = base_word(task).load(Ordering::Relaxed).checked_sub(1);
    let is_below = |base: &u32| *base < region.start;
    let (low, high) = (base.filter(is_below), base.filter(|base| !is_below(base)));
    low.into_iter().chain(region).chain(high)
}

/// The lowest free number at or above `min`, with a placeholder on it and nothing in the table yet.
///
/// # Errors
/// `EMFILE`, `EINVAL` as fcntl(2) gives for `F_DUPFD`; `EMFILE` as well past the numbers that can be ours.
#[inline]
pub fn allocate(task: &'static Task<'static>, min: u32) -> Result<i32> {
    let guard = Guard::take(task);
    // Relaxed, here and below: guarded by the lock or by there being one thread.
    let parked = task.process.parked.load(Ordering::Relaxed);
    let usable = if min == 0 { parked } else { parked & u64::MAX.checked_shl(min).unwrap_or(0) };
    if usable == 0 {
        drop(guard);
        return allocate_slow(task, min);
    }
    let number = usable.trailing_zeros();
    task.process.parked.store(parked & !(1 << number), Ordering::Relaxed);
    task.table[number as usize].store(0, Ordering::Relaxed);
    Ok(number as i32)
}

#[cold]
fn allocate_slow(task: &'static Task<'static>, min: u32) -> Result<i32> {
    let base = base(task)?;
    // SAFETY: a new descriptor of ours.
    let number = unsafe { lp_abi::syscall!(__NR_fcntl, base, F_DUPFD, min) }?;
    if number >= FDS {
        close_number(number as i32);
        return Err(Errno::EMFILE);
    }
    let _guard = Guard::take(task);
    let mark = watermark(task).load(Ordering::Relaxed);
    if min <= mark && mark <= number as u32 {
        watermark(task).store(number as u32 + 1, Ordering::Relaxed);
    }
    Ok(number as i32)
}

/// Puts a placeholder on number `fd`, over whatever the kernel has there, as dup2 does.
///
/// # Errors
/// `EBADF` past the limits.
#[cold]
pub fn place(task: &'static Task<'static>, fd: i32) -> Result<()> {
    if fd as u32 as usize >= FDS {
        return Err(Errno::EBADF);
    }
    let _guard = Guard::take(task);
    let parked = task.process.parked.load(Ordering::Relaxed);
    if fd < PARKABLE && parked & 1 << fd != 0 {
        task.process.parked.store(parked & !(1 << fd), Ordering::Relaxed);
        task.table[fd as usize].store(0, Ordering::Relaxed);
        return Ok(());
    }
    let base = base(task)?;
    // SAFETY: the program asked for this number to be replaced.
    unsafe { lp_abi::syscall!(__NR_dup3, base, fd, 0) }.map(drop)
}

/// The placeholder on `fd`, whose table word is gone, is not needed: parks or closes it.
#[inline]
pub fn release(task: &'static Task<'static>, fd: i32) {
    let _guard = Guard::take(task);
    if fd < PARKABLE && (fd as u32) < watermark(task).load(Ordering::Relaxed) {
        table::park(task, fd);
        let parked = task.process.parked.load(Ordering::Relaxed);
        task.process.parked.store(parked | 1 << fd, Ordering::Relaxed);
    } else {
        close_slow(task, fd);
    }
}

#[cold]
fn close_slow(task: &Task, fd: i32) {
    close_number(fd);
    lower(task, fd as u32);
}

fn lower(task: &Task, number: u32) {
    if number < watermark(task).load(Ordering::Relaxed) {
        watermark(task).store(number, Ordering::Relaxed);
    }
}

/// The program closes the host's descriptor `fd`, or the kernel has taken it away: what is parked above it is not the
/// lowest free number any more.
#[inline]
pub fn host_closes(task: &'static Task<'static>, fd: i32) {
    if (fd as u32) < watermark(task).load(Ordering::Relaxed) {
        host_closes_slow(task, fd as u32);
    }
}

#[cold]
fn host_closes_slow(task: &'static Task<'static>, fd: u32) {
    let _guard = Guard::take(task);
    flush_from(task, fd);
    lower(task, fd);
}

/// Closes what is parked: the kernel is about to give out a number.
#[inline(always)]
pub fn flush(task: &'static Task<'static>) {
    if task.process.parked.load(Ordering::Relaxed) != 0 {
        flush_slow(task);
    }
}

#[cold]
fn flush_slow(task: &'static Task<'static>) {
    let _guard = Guard::take(task);
    flush_from(task, 0);
}

/// Closes what is parked at or above `from`. The caller holds the guard.
fn flush_from(task: &Task, from: u32) {
    let parked = task.process.parked.load(Ordering::Relaxed);
    let mut close = parked & u64::MAX.checked_shl(from).unwrap_or(0);
    task.process.parked.store(parked & !close, Ordering::Relaxed);
    if close != 0 {
        lower(task, close.trailing_zeros());
    }
    while close != 0 {
        let number = close.trailing_zeros();
        task.table[number as usize].store(0, Ordering::Relaxed);
        close_number(number as i32);
        close &= close - 1;
    }
}

/// The parked placeholder on `fd`, if there is one, is really closed: the number is about to be the host's.
pub fn unpark(task: &'static Task<'static>, fd: i32) {
    if !(0..PARKABLE).contains(&fd) {
        return;
    }
    let _guard = Guard::take(task);
    let parked = task.process.parked.load(Ordering::Relaxed);
    if parked & 1 << fd != 0 {
        task.process.parked.store(parked & !(1 << fd), Ordering::Relaxed);
        task.table[fd as usize].store(0, Ordering::Relaxed);
        close_slow(task, fd);
    }
}

/// After exec: the base went with the old image, and so did descriptors that nobody told us of.
pub fn after_exec(task: &Task) {
    base_word(task).store(0, Ordering::Relaxed);
    watermark(task).store(0, Ordering::Relaxed);
}

/// A child's slot takes over what its copy of the descriptors has.
pub fn copy_to(task: &Task, child: &lp_region::process::Process) {
    child.parked.store(task.process.parked.load(Ordering::Relaxed), Ordering::Relaxed);
    for word in [BASE, WATERMARK] {
        child.spare[word].store(task.process.spare[word].load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Closes a kernel descriptor.
pub fn close_number(fd: i32) {
    // SAFETY: the number is the gate's own or the program asked for it to be closed.
    let _ = unsafe { lp_abi::syscall!(__NR_close, fd) };
}

/// The base's number; made at the first descriptor of ours.
fn base(task: &Task) -> Result<i32> {
    let word = base_word(task).load(Ordering::Relaxed);
    if word != 0 { Ok(word as i32 - 1) } else { make_base(task) }
}

/// An empty memfd that nothing can be written to: a name in /proc that leads to a placeholder leads there.
#[cold]
fn make_base(task: &Task) -> Result<i32> {
    let name = c"lightpath-placeholder".as_ptr();
    // SAFETY: the name is NUL-terminated; the call makes a descriptor.
    let memfd = unsafe { lp_abi::syscall!(__NR_memfd_create, name, MFD_CLOEXEC | MFD_ALLOW_SEALING) }? as i32;
    let seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    // SAFETY: the descriptor is the gate's own.
    let _ = unsafe { lp_abi::syscall!(__NR_fcntl, memfd, F_ADD_SEALS, seals) };
    let mut path = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0";
    crate::text::decimal(memfd as u64, &mut path[14..]);
    // SAFETY: `path` is NUL-terminated; the call makes a descriptor.
    let low = unsafe { lp_abi::syscall!(__NR_open, path.as_ptr(), O_PATH | O_CLOEXEC) };
    close_number(memfd);
    let low = low? as i32;
    let region = task.region.fd();
    // Beside the region, out of the program's way; closed by exec, for the new image makes its own.
    let high = [region + 2, region - BELOW, QUICK_FDS, 0].into_iter().find_map(|min| {
        // SAFETY: as above.
        unsafe { lp_abi::syscall!(__NR_fcntl, low, F_DUPFD_CLOEXEC, min.max(0)) }.ok()
    });
    close_number(low);
    let base = high.ok_or(Errno::EMFILE)? as i32;
    base_word(task).store(base as u32 + 1, Ordering::Relaxed);
    if base < QUICK_FDS {
        crate::patch::take_long_way();
    }
    Ok(base)
}
