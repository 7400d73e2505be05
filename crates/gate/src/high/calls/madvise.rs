//! madvise(2) and process_madvise(2).

use lp_abi::linux::*;
use lp_abi::{Errno, Fd, MAX_RW_COUNT, PAGE_SIZE, Result};
use lp_region::ucopy;
use lp_vfs::fallocate;
use lp_vfs::task::Task;

use crate::high::frame::handler::{given_slice, handlers, is_in_user_space, kernel, ret};
use crate::high::frame::message::MOST;
use crate::high::memory::areas::{self, Area, Sharing};
use crate::high::memory::written::{self, After};
use crate::high::memory::{holes, kept, missing};
use crate::high::run::own;
use crate::high::run::own::end_of;
use crate::low::dispatch::NOT_OURS;

handlers! {
    /// madvise(2): advice that changes a file is carried out here, with the rights of the file's descriptor.
    fn madvise(task, address: usize, length: usize, advice: u32) {
        advise(task, address, length, advice)
    }

    /// process_madvise(2): on the caller's own memory it takes the same advice (Linux 6.13); on another
    /// process's only such that changes nothing.
    fn process_madvise(task, pidfd: Fd, vector: usize, count: usize, advice: u32, flags: u32) {
        if flags != 0 || !is_own_memory(pidfd) || !is_vector(vector, count) {
            return NOT_OURS;
        }
        advise_each(task, vector, count, advice)
    }
}

/// madvise(2).
fn advise(task: &Task, address: usize, length: usize, advice: u32) -> isize {
    if let Some(refused) = own::refused(address, length) {
        return refused;
    }
    if areas::is_empty() || !address.is_multiple_of(PAGE_SIZE) {
        return NOT_OURS;
    }
    if matches!(advice, MADV_POPULATE_READ | MADV_POPULATE_WRITE) {
        holes::touch(task, address, length);
    }
    let carry_out: fn(&Task, usize, usize) -> isize = match advice {
        MADV_REMOVE => remove,
        MADV_GUARD_INSTALL => guard,
        MADV_DONTFORK => |_, start, end| inherit(start, end, MADV_DONTFORK),
        MADV_DOFORK => |_, start, end| inherit(start, end, MADV_DOFORK),
        _ => return NOT_OURS,
    };
    end_of(address, length).map_or(NOT_OURS, |end| carry_out(task, address, end))
}

/// Whether a descriptor names a process with the caller's memory, of which the kernel takes any advice.
fn is_own_memory(pidfd: Fd) -> bool {
    // SAFETY: advice on no memory.
    unsafe { lp_abi::syscall!(__NR_process_madvise, pidfd, 0, 0, MADV_GUARD_INSTALL, 0) }.is_ok()
}

/// Whether the kernel would take a vector of ranges (`import_iovec`).
fn is_vector(vector: usize, count: usize) -> bool {
    let is_taken = |(start, length): (usize, usize)| {
        isize::try_from(length).is_ok() && is_in_user_space::<u8>(given_slice(start, length))
    };
    count <= MOST as usize && (0..count).all(|index| element(vector, index).is_ok_and(is_taken))
}

/// Address and length of one range of a vector.
fn element(vector: usize, index: usize) -> Result<(usize, usize)> {
    let at = vector.wrapping_add(index * size_of::<iovec>()) as *const [usize; 2];
    // SAFETY: the copy routine handles bad pointers; every bit pattern is a valid element.
    unsafe { ucopy::get(at) }.map(|[start, length]| (start, length))
}

/// Gives the advice on one range after the other. Returns the bytes before the one that failed, or its error.
#[cold]
fn advise_each(task: &Task, vector: usize, count: usize, advice: u32) -> isize {
    let mut advised = 0;
    for index in 0..count {
        let Ok((start, length)) = element(vector, index) else { return Errno::EFAULT.to_ret() };
        let length = length.min(MAX_RW_COUNT - advised);
        let done = match advise(task, start, length, advice) {
            NOT_OURS => kernel!(__NR_madvise, start, length, advice),
            done => done,
        };
        if done < 0 {
            return if advised == 0 { done } else { advised as isize };
        }
        advised += length;
    }
    advised as isize
}

/// `MADV_GUARD_INSTALL`: the kernel never finishes it where pages are protected (`written.rs`). Holes get
/// pages first, because a fault beside a guard would map over it.
#[cold]
fn guard(task: &Task, start: usize, end: usize) -> isize {
    let mut list = areas::list();
    kept::asked();
    let _ = holes::give_pages(task, &mut list, start, end); // At worst, a guard goes with its hole.
    written::within(task, &mut list, start, end, After::Stays);
    list.each(start, end, &mut |area| {
        area.cut(start, end).iter().for_each(|part| missing::unwatch(task, part));
    });
    let done = kernel!(__NR_madvise, start, end - start, MADV_GUARD_INSTALL);
    list.each(start, end, &mut |area| {
        area.cut(start, end).iter().for_each(|part| missing::watch(task, part));
    });
    done
}

/// `MADV_DONTFORK` and `MADV_DOFORK`: whether a child of fork(2) gets the mappings.
#[cold]
fn inherit(start: usize, end: usize, advice: u32) -> isize {
    let mut list = areas::list();
    if list.find(start, end).is_none() {
        return NOT_OURS;
    }
    if let Err(errno) = list.reserve() {
        return errno.to_ret();
    }
    let done = kernel!(__NR_madvise, start, end - start, advice);
    // The kernel goes on behind a gap.
    if done == 0 || done == Errno::ENOMEM.to_ret() {
        list.split(start, end);
        list.each(start, end, &mut |area| area.is_left_out = advice == MADV_DONTFORK);
    }
    done
}

/// `MADV_REMOVE`: makes a hole in each file mapped within `start..end`. Goes on behind a gap, like the
/// kernel.
#[cold]
fn remove(task: &Task, start: usize, end: usize) -> isize {
    let mut list = areas::list();
    let (mut at, mut result) = (start, 0);
    while at < end {
        let area = list.find(at, end).map(|area| *area);
        let next = area.map_or(end, |area| area.start.max(at));
        if at < next {
            match kernel!(__NR_madvise, at, next - at, MADV_REMOVE) {
                done if done == Errno::ENOMEM.to_ret() => result = done,
                done if done < 0 => return done,
                _ => {}
            }
            at = next;
            continue;
        }
        let Some(area) = area else { break };
        let done = punch(task, &area, at, end.min(area.end));
        if done < 0 {
            return done;
        }
        at = area.end;
    }
    result
}

fn punch(task: &Task, area: &Area, from: usize, to: usize) -> isize {
    // The kernel knows what is locked: it refuses this advice too, which leaves contents alone.
    let done = kernel!(__NR_madvise, from, to - from, MADV_COLD);
    if done == Errno::EINVAL.to_ret() {
        return done;
    }
    if area.sharing != Sharing::Shared {
        return Errno::EACCES.to_ret();
    }
    let offset = area.offset + (from - area.start) as u64;
    ret(fallocate::punch_mapped(task, area.of, offset, (to - from) as u64))
}
