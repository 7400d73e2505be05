//! madvise(2).

use lp_abi::linux::*;
use lp_abi::{Errno, PAGE_SIZE};
use lp_vfs::fallocate;
use lp_vfs::task::Task;

use crate::high::frame::handler::{handlers, kernel, ret};
use crate::high::memory::areas::{self, Area, Sharing};
use crate::high::memory::written::{self, After};
use crate::high::memory::{holes, missing};
use crate::high::run::own;
use crate::high::run::own::end_of;
use crate::low::dispatch::NOT_OURS;

handlers! {
    /// madvise(2): advice that changes a file is carried out here, with the rights of the file's descriptor.
    fn madvise(task, address: usize, length: usize, advice: u32) {
        if let Some(refused) = own::refused(address, length) {
            return refused;
        }
        if areas::is_empty() || !address.is_multiple_of(PAGE_SIZE) {
            return NOT_OURS;
        }
        if matches!(advice, MADV_POPULATE_READ | MADV_POPULATE_WRITE) {
            holes::touch(task, address, length);
        }
        let carry_out = match advice {
            MADV_REMOVE => remove,
            MADV_GUARD_INSTALL => guard,
            _ => return NOT_OURS,
        };
        end_of(address, length).map_or(NOT_OURS, |end| carry_out(task, address, end))
    }
}

/// `MADV_GUARD_INSTALL`: the kernel never finishes it where pages are protected (`written.rs`). Holes get
/// pages first, because a fault beside a guard would map over it.
#[cold]
fn guard(task: &Task, start: usize, end: usize) -> isize {
    let mut list = areas::list();
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
    let to = to.min(area.beyond);
    if from >= to {
        return 0;
    }
    let offset = area.offset + (from - area.start) as u64;
    ret(fallocate::punch_mapped(task, area.of, offset, (to - from) as u64))
}
