//! Calls on host sockets that name a path of ours or carry descriptors of ours: bind(2), connect(2),
//! accept(2), getsockname(2), getpeername(2), sendto(2), recvfrom(2), sendmsg(2), sendmmsg(2), recvmsg(2),
//! recvmmsg(2).

use lp_abi::linux::*;
use lp_abi::{Errno, Fd, Result};
use lp_region::ucopy;
use lp_vfs::task::Task;

use crate::high::fd::stand_in::stand_in_returns;
use crate::high::fd::{placeholder, rights};
use crate::high::frame::handler::{handlers, kernel};
use crate::high::frame::message::{MOST, Message, STRIDE, messages};
use crate::high::frame::timeout::{SECOND, now};
use crate::high::special::address::Name;
use crate::high::special::{address, node};
use crate::low::dispatch::NOT_OURS;
use crate::low::live::deferred;
use crate::low::tools::close::close_number;

handlers! {
    /// bind(2).
    fn bind(task, fd: Fd, at: *const u8, length: u32) {
        stand_in_returns!(task, fd, __NR_bind, at, length);
        match address::bind(task, fd, at, length as usize) {
            Ok(Name::AsGiven) => NOT_OURS,
            Ok(Name::Outside(other)) => kernel!(__NR_bind, fd, other.pointer(), other.length),
            Ok(Name::Node(bound)) => {
                let done = kernel!(__NR_bind, fd, bound.address.pointer(), bound.address.length);
                if done < 0 { bound.undo(task) } else { bound.keep() }
                done
            }
            Err(errno) => errno.to_ret(),
        }
    }

    /// connect(2).
    fn connect(task, fd: Fd, at: *const u8, length: u32) {
        stand_in_returns!(task, fd, __NR_connect, at, length);
        let Some(target) = address::peer(task, at, length as usize) else { return NOT_OURS };
        let (name, length) = (target.address.pointer() as usize, target.address.length);
        target.result(blocking(__NR_connect, [fd.word(), name, length, 0, 0, 0]))
    }

    /// sendto(2).
    fn sendto(task, fd: Fd, data: usize, length: usize, flags: usize, at: *const u8, address_length: u32) {
        stand_in_returns!(task, fd, __NR_sendto, data, length, flags, at, address_length);
        let Some(target) = address::peer(task, at, address_length as usize) else { return NOT_OURS };
        let (name, name_length) = (target.address.pointer() as usize, target.address.length);
        target.result(blocking(__NR_sendto, [fd.word(), data, length, flags, name, name_length]))
    }

    /// getsockname(2).
    fn getsockname(task, fd: Fd, at: *mut u8, length: *mut u32) {
        stand_in_returns!(task, fd, __NR_getsockname, at, length);
        named(task, at, length, __NR_getsockname, [fd.word(), 1, 2, 0, 0, 0])
    }

    /// getpeername(2).
    fn getpeername(task, fd: Fd, at: *mut u8, length: *mut u32) {
        stand_in_returns!(task, fd, __NR_getpeername, at, length);
        named(task, at, length, __NR_getpeername, [fd.word(), 1, 2, 0, 0, 0])
    }

    /// accept(2).
    fn accept(task, fd: Fd, at: *mut u8, length: *mut u32) {
        placeholder::flush(task);
        stand_in_returns!(task, fd, __NR_accept, at, length);
        named(task, at, length, __NR_accept, [fd.word(), 1, 2, 0, 0, 0])
    }

    /// accept4(2).
    fn accept4(task, fd: Fd, at: *mut u8, length: *mut u32, flags: usize) {
        placeholder::flush(task);
        stand_in_returns!(task, fd, __NR_accept4, at, length, flags);
        named(task, at, length, __NR_accept4, [fd.word(), 1, 2, flags, 0, 0])
    }

    /// recvfrom(2).
    fn recvfrom(task, fd: Fd, data: usize, size: usize, flags: usize, at: *mut u8, length: *mut u32) {
        stand_in_returns!(task, fd, __NR_recvfrom, data, size, flags, at, length);
        named(task, at, length, __NR_recvfrom, [fd.word(), data, size, flags, 1, 2])
    }

    /// sendmsg(2).
    fn sendmsg(task, fd: Fd, message: *const Message, flags: usize) {
        stand_in_returns!(task, fd, __NR_sendmsg, message, flags);
        // SAFETY: the copy routine handles bad pointers; every bit pattern is a valid message.
        let Ok(given) = (unsafe { ucopy::get(message) }) else { return NOT_OURS };
        let mut changed = given;
        let target = address::peer(task, given.name as *const u8, given.name_length as usize);
        if let Some(target) = &target {
            changed.name = target.address.pointer() as usize;
            changed.name_length = target.address.length as u32;
        }
        let tokens = match rights::put_tokens(task, &mut changed) {
            Ok(tokens) => tokens,
            Err(errno) => return errno.to_ret(),
        };
        if target.is_none() && tokens.is_none() {
            return NOT_OURS;
        }
        let done = blocking(__NR_sendmsg, [fd.word(), &raw const changed as usize, flags, 0, 0, 0]);
        if let Some(tokens) = tokens {
            tokens.close();
        }
        target.map_or(done, |target| target.result(done))
    }

    /// sendmmsg(2): sends one by one if any message concerns us.
    fn sendmmsg(task, fd: Fd, vector: usize, count: u32, flags: usize) {
        stand_in_returns!(task, fd, __NR_sendmmsg, vector, count, flags);
        if !messages(vector, count.min(MOST)).any(|message| concerns(task, &message)) {
            return NOT_OURS;
        }
        send_each(fd, vector, count, flags)
    }

    /// recvmsg(2).
    fn recvmsg(task, fd: Fd, message: *mut Message, flags: usize) {
        stand_in_returns!(task, fd, __NR_recvmsg, message, flags);
        placeholder::flush(task);
        // SAFETY: the copy routine handles bad pointers; every bit pattern is a valid message.
        let Ok(given) = (unsafe { ucopy::get(message) }) else { return NOT_OURS };
        let translates = given.name != 0 && node::any(task);
        if given.control == 0 && !translates {
            return NOT_OURS;
        }
        receive(task, fd, message, &given, flags, translates)
    }

    /// recvmmsg(2): receives one by one if a message may bring descriptors or an address of ours.
    fn recvmmsg(task, fd: Fd, vector: usize, count: u32, flags: usize, timeout: *mut [i64; 2]) {
        stand_in_returns!(task, fd, __NR_recvmmsg, vector, count, flags, timeout);
        placeholder::flush(task);
        let translates = node::any(task);
        let concerns = |message: Message| message.control != 0 || translates && message.name != 0;
        if !messages(vector, count).any(concerns) {
            return NOT_OURS;
        }
        receive_each(fd, vector, count, flags, timeout)
    }
}

/// Receives messages one by one. Like the kernel's do_recvmmsg, looks at the timeout between messages only.
#[cold]
fn receive_each(fd: Fd, vector: usize, count: u32, flags: usize, timeout: *mut [i64; 2]) -> isize {
    let end = match deadline(timeout) {
        Ok(end) => end,
        Err(errno) => return errno.to_ret(),
    };
    let mut received = 0;
    let mut how = flags & !(WAIT_FOR_ONE);
    while received < count as usize {
        let at = vector.wrapping_add(received * STRIDE);
        // SAFETY: the calling thread has a task, and the arguments are the program's.
        let done = match unsafe { recvmsg(fd.word(), at, how, 0, 0, 0) } {
            NOT_OURS => blocking(__NR_recvmsg, [fd.word(), at, how, 0, 0, 0]),
            done => done,
        };
        let done = store_length(at, done);
        if done < 0 {
            return if received == 0 { done } else { received as isize };
        }
        received += 1;
        if flags & WAIT_FOR_ONE != 0 {
            how |= DONT_WAIT;
        }
        let Some(end) = end else { continue };
        let left = (end - now()).max(0);
        // SAFETY: the copy routine handles bad pointers.
        let told = unsafe { ucopy::put(timeout, &[left / SECOND, left % SECOND]) };
        if told.is_err() || left == 0 {
            break;
        }
    }
    received as isize
}

/// `MSG_WAITFORONE` and `MSG_DONTWAIT`.
const WAIT_FOR_ONE: usize = 0x10000;
const DONT_WAIT: usize = 0x40;

/// When a timeout ends, in nanoseconds of [`now`]; `None` if there is none.
///
/// # Errors
/// `EFAULT`; `EINVAL` if it is not a time.
fn deadline(timeout: *mut [i64; 2]) -> Result<Option<i64>> {
    if timeout.is_null() {
        return Ok(None);
    }
    // SAFETY: the copy routine handles bad pointers.
    let [seconds, rest] = unsafe { ucopy::get(timeout.cast_const()) }?;
    if seconds < 0 || !(0..SECOND).contains(&rest) {
        return Err(Errno::EINVAL);
    }
    Ok(Some(now().saturating_add(seconds.saturating_mul(SECOND).saturating_add(rest))))
}

/// Where the length of a message stands in its `struct mmsghdr`.
const SENT: usize = size_of::<Message>();

/// Whether a message goes to a path of ours, or carries descriptors of ours or of the gate.
fn concerns(task: &Task, message: &Message) -> bool {
    address::names_ours(task, message.name as *const u8, message.name_length as usize)
        || rights::carries_ours(task, message)
}

#[cold]
fn send_each(fd: Fd, vector: usize, count: u32, flags: usize) -> isize {
    for index in 0..count.min(MOST) as usize {
        let at = vector.wrapping_add(index * STRIDE);
        // SAFETY: the calling thread has a task, and the arguments are the program's.
        let done = match unsafe { sendmsg(fd.word(), at, flags, 0, 0, 0) } {
            NOT_OURS => blocking(__NR_sendmsg, [fd.word(), at, flags, 0, 0, 0]),
            done => done,
        };
        let done = store_length(at, done);
        if done < 0 {
            return if index == 0 { done } else { index as isize };
        }
    }
    count.min(MOST) as isize
}

/// Stores the result of a call for one message of a vector, its length, in that message. Returns the result,
/// or `-EFAULT`.
fn store_length(message: usize, result: isize) -> isize {
    if result < 0 {
        return result;
    }
    // SAFETY: the copy routine handles bad pointers.
    match unsafe { ucopy::put((message + SENT) as *mut u32, &(result as u32)) } {
        Ok(()) => result,
        Err(errno) => errno.to_ret(),
    }
}

/// Makes a call that may wait.
fn blocking(nr: u32, arguments: [usize; 6]) -> isize {
    // SAFETY: the program's own call, with an equivalent address.
    unsafe { deferred::programs_syscall(nr, arguments) }
}

/// Makes a call that returns an address. In `arguments`, 1 and 2 stand for the buffer and for the pointer to
/// its length.
fn named(task: &Task, at: *mut u8, length: *mut u32, nr: u32, arguments: [usize; 6]) -> isize {
    if at.is_null() || !node::any(task) {
        return NOT_OURS;
    }
    // SAFETY: the copy routine handles bad pointers.
    let Ok(room) = (unsafe { ucopy::get(length) }) else { return NOT_OURS };
    if (room as i32) < 0 {
        return NOT_OURS;
    }
    let mut buffer = [0u8; 128];
    let mut got = buffer.len() as u32;
    let first = if nr == __NR_recvfrom { 4 } else { 1 };
    let mut arguments = arguments;
    arguments[first] = &raw mut buffer as usize;
    arguments[first + 1] = &raw mut got as usize;
    let done = blocking(nr, arguments);
    if done < 0 {
        return done;
    }
    let full = address::translate(task, &mut buffer, got as usize);
    match give(at, room as usize, &buffer, full, length) {
        Ok(()) => done,
        Err(errno) => {
            if nr == __NR_accept || nr == __NR_accept4 {
                close_number(Fd::new(done as i32));
            }
            errno.to_ret()
        }
    }
}

/// Returns an address to the program: as much as fits, and the full length.
fn give(at: *mut u8, room: usize, from: &[u8; 128], full: usize, length: *mut u32) -> Result<()> {
    // SAFETY: the copy routine handles bad pointers.
    unsafe {
        ucopy::copy(at, from.as_ptr(), full.min(room).min(from.len()))?;
        ucopy::put(length, &(full as u32))
    }
}

#[cold]
fn receive(
    task: &'static Task<'static>,
    fd: Fd,
    message: *mut Message,
    given: &Message,
    flags: usize,
    translates: bool,
) -> isize {
    let mut buffer = [0u8; 128];
    let mut changed = *given;
    if translates {
        if (given.name_length as i32) < 0 {
            return Errno::EINVAL.to_ret();
        }
        changed.name = &raw mut buffer as usize;
        changed.name_length = buffer.len() as u32;
    }
    let done = blocking(__NR_recvmsg, [fd.word(), &raw mut changed as usize, flags, 0, 0, 0]);
    if done < 0 {
        return done;
    }
    rights::take_tokens(task, &changed, flags as u32);
    if translates {
        let full = address::translate(task, &mut buffer, changed.name_length as usize);
        let copied = full.min(given.name_length as usize).min(buffer.len());
        // SAFETY: the copy routine handles bad pointers.
        let _ = unsafe { ucopy::copy(given.name as *mut u8, buffer.as_ptr(), copied) };
        changed.name = given.name;
        changed.name_length = full as u32;
    }
    // SAFETY: the copy routine handles bad pointers.
    match unsafe { ucopy::put(message, &changed) } {
        Ok(()) => done,
        Err(errno) => errno.to_ret(),
    }
}
