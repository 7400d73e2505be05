//! mprotect(2) and pkey_mprotect(2) on files of ours.

use lp_abi::linux::{__NR_mprotect, __NR_pkey_mprotect, PROT_EXEC, PROT_WRITE};
use lp_abi::{Errno, PAGE_SIZE};
use lp_vfs::task::Task;

use crate::high::frame::handler::{handlers, kernel};
use crate::high::memory::areas::{self, LockedAreas, Sharing};
use crate::high::memory::missing;
use crate::high::memory::written::{self, After};
use crate::high::run::own;
use crate::high::run::own::end_of;
use crate::low::dispatch::NOT_OURS;

handlers! {
    /// mprotect(2): a mapping of a descriptor without write access must not become writable, and one of a
    /// file in a `noexec` mount must not become executable.
    fn mprotect(task, address: usize, length: usize, protection: usize) {
        protect(task, address, length, protection, &|at, bytes| kernel!(__NR_mprotect, at, bytes, protection))
    }

    /// pkey_mprotect(2): as mprotect(2).
    fn pkey_mprotect(task, address: usize, length: usize, protection: usize, key: i32) {
        let call = |at, bytes| kernel!(__NR_pkey_mprotect, at, bytes, protection, key);
        protect(task, address, length, protection, &call)
    }
}

/// The call that changes so many bytes from an address on.
type Call<'a> = &'a dyn Fn(usize, usize) -> isize;

/// mprotect(2) by `call`.
fn protect(task: &Task, address: usize, length: usize, protection: usize, call: Call) -> isize {
    if let Some(refused) = own::refused(address, length) {
        return refused;
    }
    if areas::is_empty() || !address.is_multiple_of(PAGE_SIZE) {
        return NOT_OURS;
    }
    let Some(end) = end_of(address, length) else { return NOT_OURS };
    protect_slow(task, address, end, protection, call)
}

#[cold]
fn protect_slow(task: &Task, address: usize, mut end: usize, protection: usize, call: Call) -> isize {
    let mut list = areas::list();
    if list.find(address, end).is_none() {
        return NOT_OURS;
    }
    // The kernel changes what comes before a mapping that it must not change.
    let whole = end;
    list.each(address, whole, &mut |area| {
        let writes = area.sharing == Sharing::SharedReadOnly && protection as u32 & PROT_WRITE != 0;
        if writes || !area.may_execute && protection as u32 & PROT_EXEC != 0 {
            end = end.min(area.start.max(address));
        }
    });
    if end == address {
        return Errno::EACCES.to_ret();
    }
    if let Err(errno) = list.reserve() {
        return errno.to_ret();
    }
    written::within(task, &mut list, address, end, After::Stays);
    let done = call(address, end - address);
    let reached = match done {
        0 => end,
        done if done == Errno::ENOMEM.to_ret() || done == Errno::EACCES.to_ret() => {
            reached(&mut list, address, end, call)
        }
        _ => address,
    };
    if reached > address {
        list.split(address, reached);
        list.each(address, reached, &mut |area| {
            let was_told = missing::is_told(area);
            area.protection = protection as u32;
            if missing::is_told(area) && !was_told {
                missing::watch(task, area);
            }
        });
    }
    if done == 0 && end < whole { Errno::EACCES.to_ret() } else { done }
}

/// How far the kernel came before it failed: it changes one mapping after the other, up to a gap or to one
/// that it must not change. Those that it has changed can be changed once more.
#[cold]
fn reached(list: &mut LockedAreas, start: usize, end: usize, call: Call) -> usize {
    let mut at = start;
    while at < end {
        let next = match list.find(at, end) {
            Some(area) if area.start > at => area.start,
            Some(area) => area.end.min(end),
            None => break, // What is behind the last area is not ours.
        };
        if call(at, next - at) != 0 {
            break;
        }
        at = next;
    }
    at
}
