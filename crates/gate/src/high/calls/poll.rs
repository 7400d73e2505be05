//! poll(2), ppoll(2), select(2), pselect6(2), epoll_ctl(2).
//!
//! A file of ours is always readable and writable, like every file on tmpfs. The kernel polls the other
//! descriptors, without waiting if one of ours is ready.

use core::mem::offset_of;

use lp_abi::linux::{
    __NR_epoll_ctl, __NR_fcntl, __NR_poll, __NR_ppoll, __NR_pselect6, __NR_select, EPOLL_CTL_DEL, F_GETFD,
    POLLIN, POLLNVAL, POLLOUT, POLLRDNORM, POLLWRNORM, pollfd,
};
use lp_abi::{Errno, Fd, Result};
use lp_region::sync::Ordering;
use lp_region::ucopy;
use lp_vfs::ends;
use lp_vfs::task::Task;

use crate::high::calls::fcntl::is_open;
use crate::high::fd::descriptor;
use crate::high::fd::placeholder;
use crate::high::frame::handler::{handlers, kernel, ret};
use crate::high::frame::room::Room;
use crate::high::frame::timeout::Unused;
use crate::low::dispatch::NOT_OURS;
use crate::low::live::{deferred, signal};

/// A regular file's events (the kernel's DEFAULT_POLLMASK).
const READY: i16 = (POLLIN | POLLOUT | POLLRDNORM | POLLWRNORM) as i16;
/// Marks a descriptor of ours in the kernel's copy of an entry, whose `events` then hold the result. Other
/// negative numbers, which the kernel also skips, become -1 there.
const OURS: i32 = i32::MIN;
/// More entries than any limit on descriptors allows.
const MOST: usize = 1 << 20;

handlers! {
    /// poll(2).
    fn poll(task, fds: *mut pollfd, count: u32, timeout: i32) {
        if !any_polled(task, fds, count) {
            return NOT_OURS;
        }
        poll_slow(task, fds, count, [fds as usize, count as usize, timeout as usize, 0, 0, 0], __NR_poll)
    }

    /// ppoll(2).
    fn ppoll(task, fds: *mut pollfd, count: u32, timeout: usize, mask: usize, size: usize) {
        if !any_polled(task, fds, count) {
            return NOT_OURS;
        }
        poll_slow(task, fds, count, [fds as usize, count as usize, timeout, mask, size, 0], __NR_ppoll)
    }

    /// select(2).
    fn select(task, count: i32, read: *mut u64, write: *mut u64, except: *mut u64, timeout: usize) {
        let sets = [read, write, except];
        if !any_selected(task, count, sets) {
            return NOT_OURS;
        }
        select_slow(task, count, sets, [timeout, 0], __NR_select)
    }

    /// pselect6(2).
    fn pselect6(task, count: i32, read: *mut u64, write: *mut u64, except: *mut u64, timeout: usize, mask: usize) {
        let sets = [read, write, except];
        if !any_selected(task, count, sets) {
            return NOT_OURS;
        }
        select_slow(task, count, sets, [timeout, mask], __NR_pselect6)
    }

    /// epoll_ctl(2): files that are always ready cannot be watched.
    fn epoll_ctl(task, epoll: Fd, operation: i32, fd: Fd, event: usize) {
        if !descriptor::is_file(task, fd) && !descriptor::is_file(task, epoll) {
            return NOT_OURS;
        }
        // SAFETY: the copy routine handles bad pointers; an event is 12 packed bytes.
        if operation as u32 != EPOLL_CTL_DEL && unsafe { ucopy::get(event as *const [u8; 12]) }.is_err() {
            return Errno::EFAULT.to_ret();
        }
        match watch(task, epoll, fd) {
            // The kernel looks at what is to be watched first, also if it is told to watch itself.
            Errno::EINVAL => kernel!(__NR_epoll_ctl, fd, operation, fd, event),
            errno => errno.to_ret(),
        }
    }
}

/// The error for watching a file of ours, or watching with one.
fn watch(task: &Task, epoll: Fd, fd: Fd) -> Errno {
    let open = |fd| is_open(task, fd) && ends::opened(task, fd).is_ok();
    match descriptor::is_file(task, fd) {
        _ if !open(epoll) || !open(fd) => Errno::EBADF,
        true => Errno::EPERM,
        false => Errno::EINVAL,
    }
}

/// Whether the process ever had a descriptor of ours.
#[inline(always)]
fn has_any(task: &Task) -> bool {
    task.process.fd_limit.load(Ordering::Relaxed) != 0 // Relaxed: the process's own word.
}

fn any_polled(task: &Task, fds: *mut pollfd, count: u32) -> bool {
    if !has_any(task) || count as usize > MOST {
        return false;
    }
    (0..count as usize)
        .any(|at| matches!(entry(fds, at), Ok(entry) if descriptor::is_file(task, Fd::new(entry.fd))))
}

fn entry(fds: *mut pollfd, at: usize) -> Result<pollfd> {
    // SAFETY: the copy routine handles bad pointers; every bit pattern is a valid entry.
    unsafe { ucopy::get(fds.wrapping_add(at)) }
}

/// The entries for the kernel: a copy in which ours are negative, so that the kernel skips them.
struct Masked {
    room: Room,
    count: usize,
}

impl Masked {
    /// Memory for `count` entries.
    fn new(count: usize) -> Result<Masked> {
        Ok(Masked { room: Room::new(count * size_of::<pollfd>())?, count })
    }

    fn entries(&mut self) -> &mut [pollfd] {
        // SAFETY: the memory holds `count` entries, for which any bit pattern is valid.
        unsafe { core::slice::from_raw_parts_mut(self.room.start().cast(), self.count) }
    }
}

/// Polls the other entries in the kernel and answers for ours. Like the kernel, writes only `revents` of the
/// program's array, because another thread may poll with the same array.
#[cold]
fn poll_slow(task: &Task, fds: *mut pollfd, count: u32, mut arguments: [usize; 6], nr: u32) -> isize {
    let mut masked = match Masked::new(count as usize) {
        Ok(masked) => masked,
        Err(_) => return Errno::ENOMEM.to_ret(),
    };
    let mut ready = 0;
    for (at, to) in masked.entries().iter_mut().enumerate() {
        let Ok(entry) = entry(fds, at) else { return Errno::EFAULT.to_ret() };
        *to = pollfd { fd: entry.fd.max(-1), revents: 0, ..entry };
        if descriptor::is_file(task, Fd::new(entry.fd)) {
            let answer = if descriptor::is_path(task, Fd::new(entry.fd)) {
                POLLNVAL as i16
            } else {
                entry.events & READY
            };
            *to = pollfd { fd: OURS, events: answer, revents: 0 };
            ready += usize::from(answer != 0);
        }
    }
    arguments[0] = masked.room.start() as usize;
    let done = wait(nr, arguments, ready != 0);
    if done < 0 && done != Errno::EINTR.to_ret() {
        return done;
    }
    for (at, from) in masked.entries().iter().enumerate() {
        let answer = if from.fd == OURS { from.events } else { from.revents };
        let to = fds.wrapping_byte_add(at * size_of::<pollfd>() + offset_of!(pollfd, revents)).cast();
        // SAFETY: the copy routine handles bad pointers.
        if unsafe { ucopy::put::<i16>(to, &answer) }.is_err() {
            return Errno::EFAULT.to_ret();
        }
    }
    // If something of ours is ready, that takes precedence over a signal.
    if ready != 0 { done.max(0) + ready as isize } else { done }
}

/// Makes the kernel's call. If a signal ends it that the call's own mask admits but the program's does not,
/// the signal must be delivered under the call's mask. If something is ready, nothing is waited for, no signal
/// is considered and the mask does not matter.
fn wait(nr: u32, mut arguments: [usize; 6], is_ready: bool) -> isize {
    let (at_once, mut unused) = ([0i64; 2], None);
    if is_ready {
        let timeout = &mut arguments[if nr == __NR_poll || nr == __NR_ppoll { 2 } else { 4 }];
        if nr != __NR_poll {
            unused = match Unused::new(nr, *timeout) {
                Ok(unused) => unused,
                Err(errno) => return errno.to_ret(),
            };
        }
        *timeout = if nr == __NR_poll { 0 } else { &raw const at_once as usize };
    }
    let mask = match mask_of(nr, &arguments) {
        Ok(mask) => mask,
        Err(errno) => return errno.to_ret(),
    };
    if is_ready {
        arguments[if nr == __NR_ppoll { 3 } else { 5 }] = 0;
    }
    let masks = mask.filter(|_| !is_ready).map(|mask| (mask, signal::mask()));
    if deferred::interrupted() {
        return Errno::EINTR.to_ret(); // The mask may not have been the program's.
    }
    // SAFETY: the program's own call, possibly with copies of its sets.
    let done = ret(unsafe { deferred::blocking_syscall(nr, arguments) });
    if let Some(unused) = unused {
        unused.put();
    }
    if let Some((mask, own)) = masks.filter(|_| deferred::interrupted() && done == Errno::EINTR.to_ret()) {
        deferred::ended_under(mask, own);
    }
    done
}

/// The mask that the program asks the kernel to set during the wait.
fn mask_of(nr: u32, arguments: &[usize; 6]) -> Result<Option<u64>> {
    let [at, size] = if nr == __NR_ppoll {
        [arguments[3], arguments[4]]
    } else if nr == __NR_pselect6 && arguments[5] != 0 {
        // SAFETY: the copy routine handles bad pointers.
        unsafe { ucopy::get(arguments[5] as *const [usize; 2]) }?
    } else {
        [0; 2]
    };
    match (at, size) {
        (0, _) => Ok(None),
        // SAFETY: the copy routine handles bad pointers.
        (at, 8) => unsafe { ucopy::get(at as *const u64) }.map(Some),
        _ => Err(Errno::EINVAL),
    }
}

/// Size of the kernel's smallest table of descriptors, which bounds what it reads of a set.
const SMALLEST_TABLE: u32 = 64;

fn words(count: i32) -> usize {
    (count.max(0) as usize).min(MOST).div_ceil(64)
}

/// The words of each set in which descriptors of ours may be.
fn covered(task: &Task, count: i32) -> usize {
    // Relaxed: the process's own word.
    words(count.min(task.process.fd_limit.load(Ordering::Relaxed).max(SMALLEST_TABLE) as i32))
}

fn any_selected(task: &'static Task<'static>, count: i32, sets: [*mut u64; 3]) -> bool {
    if !has_any(task) || count < 0 {
        return false;
    }
    close_parked(task, count, sets);
    sets.into_iter().filter(|set| !set.is_null()).any(|set| {
        (0..covered(task, count))
            .any(|at| matches!(word(set, at, count), Ok(bits) if ours(task, at, bits) != 0))
    })
}

/// Closes parked placeholders if a set names one: select(2) fails with `EBADF` for a closed number, and the
/// kernel would report a placeholder as ready.
fn close_parked(task: &'static Task<'static>, count: i32, sets: [*mut u64; 3]) {
    // Relaxed: a number that another thread closes meanwhile may count as open. Word 0 has all that are
    // parked.
    let parked = task.process.parked.load(Ordering::Relaxed);
    let is_named = |set: *mut u64| matches!(word(set, 0, count), Ok(bits) if bits & parked != 0);
    if parked != 0 && sets.into_iter().any(|set| !set.is_null() && is_named(set)) {
        placeholder::flush(task);
    }
}

/// Word `at` of a set, without bits beyond the count.
fn word(set: *mut u64, at: usize, count: i32) -> Result<u64> {
    // SAFETY: the copy routine handles bad pointers.
    let bits = unsafe { ucopy::get(set.wrapping_add(at)) }?;
    let left = count as usize - at * 64;
    Ok(if left < 64 { bits & ((1 << left) - 1) } else { bits })
}

/// The descriptors of ours among `bits`, word `at` of a set.
fn ours(task: &Task, at: usize, mut bits: u64) -> u64 {
    let mut found = 0;
    while bits != 0 {
        let bit = bits.trailing_zeros();
        if descriptor::is_file(task, Fd::new((at * 64) as i32 + bit as i32)) {
            found |= 1 << bit;
        }
        bits &= bits - 1;
    }
    found
}

/// The bits of one of the sets that are ours and ready: files always, also for exceptions if they were opened
/// with `O_PATH`.
fn ready_of(task: &Task, index: usize, at: usize, bits: u64) -> u64 {
    let mut mine = ours(task, at, bits);
    let mut files = if index < 2 { 0 } else { mine };
    while files != 0 {
        let bit = files.trailing_zeros();
        if !descriptor::is_path(task, Fd::new((at * 64) as i32 + bit as i32)) {
            mine &= !(1 << bit);
        }
        files &= files - 1;
    }
    mine
}

/// Those of `bits`, word `at` of a set, that the kernel has open.
fn open_ones(at: usize, bits: u64) -> u64 {
    let is_open = |bit: &usize| bits & 1 << bit != 0 && kernel!(__NR_fcntl, at * 64 + bit, F_GETFD) >= 0;
    (0..64).filter(is_open).fold(0, |found, bit| found | 1 << bit)
}

/// The kernel reads and writes no word of a set beyond its table of descriptors, whatever the count: other
/// memory of the program's, or none, may be there. How large the table is, only the kernel knows. So it gets
/// copies of what can be read, and words in which nothing of ours can be are stored only if it changes them.
#[cold]
fn select_slow(task: &Task, mut count: i32, sets: [*mut u64; 3], last: [usize; 2], nr: u32) -> isize {
    let (covered, most) = (covered(task, count), words(count));
    // Copies for the kernel: the read, write and exception sets without ours.
    let Ok(room) = Room::new(3 * most * size_of::<u64>()) else { return Errno::ENOMEM.to_ret() };
    let copy = |index: usize, at: usize| room.start().cast::<u64>().wrapping_add(index * most + at);
    let mut ready = 0;
    let mut arguments = [0, 0, 0, 0, last[0], last[1]];
    for (index, &set) in sets.iter().enumerate() {
        if set.is_null() {
            continue;
        }
        arguments[1 + index] = copy(index, 0) as usize;
        for at in 0..words(count) {
            let Ok(bits) = word(set, at, count) else {
                if at < covered {
                    return Errno::EFAULT.to_ret();
                }
                count = (at * 64) as i32;
                break;
            };
            let mine = ours(task, at, bits);
            ready += ready_of(task, index, at, bits).count_ones() as isize;
            // SAFETY: each copy holds `most` words.
            unsafe { copy(index, at).write(bits & !mine) };
        }
    }
    arguments[0] = count.min(MOST as i32) as usize;
    let done = wait(nr, arguments, ready != 0);
    if done < 0 && !(ready != 0 && done == Errno::EINTR.to_ret()) {
        return done;
    }
    for (index, &set) in sets.iter().enumerate() {
        for at in (0..words(count)).filter(|_| !set.is_null()) {
            let Ok(asked) = word(set, at, count) else { return Errno::EFAULT.to_ret() };
            let others = match done {
                // SAFETY: each copy holds `most` words, and the first loop has written this one.
                0.. => unsafe { copy(index, at).read() },
                _ if at < covered => 0,
                // The kernel has not told.
                _ => asked & !open_ones(at, asked),
            };
            let answer = others | ready_of(task, index, at, asked);
            // SAFETY: the copy routine handles bad pointers.
            let put = || unsafe { ucopy::put(set.wrapping_add(at), &answer) };
            if (at < covered || answer != asked) && put().is_err() {
                return Errno::EFAULT.to_ret();
            }
        }
    }
    done.max(0) + ready
}
