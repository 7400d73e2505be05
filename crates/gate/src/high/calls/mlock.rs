//! mlock(2), mlock2(2), mlockall(2), munlockall(2), mseal(2).
//!
//! The region is one mapping, most of it a hole that locking would fill. So mlockall(2) locks each mapping of
//! the process but the gate's sparse ones.

use lp_abi::linux::*;
use lp_abi::{Errno, PAGE_SIZE, Result};
use lp_vfs::task::Task;

use crate::high::frame::handler::{handlers, kernel, ret};
use crate::high::memory::{fill, holes, kept};
use crate::high::run::own;
use crate::low::dispatch::NOT_OURS;
use crate::low::tools::range::USER_END;
use crate::low::tools::status;

handlers! {
    /// mlock(2).
    fn mlock(task, address: usize, length: usize) {
        own::refused(address, length).unwrap_or_else(|| {
            kept::asked();
            holes::touch(task, address, length);
            NOT_OURS
        })
    }

    /// mlock2(2).
    fn mlock2(task, address: usize, length: usize, flags: u32) {
        own::refused(address, length).unwrap_or_else(|| {
            kept::asked();
            if flags & MLOCK_ONFAULT == 0 {
                holes::touch(task, address, length);
            }
            NOT_OURS
        })
    }

    /// mlockall(2).
    fn mlockall(task, flags: u32) {
        let known = MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT;
        let populates = flags & MCL_ONFAULT == 0;
        kept::asked();
        let done = match flags & !known != 0 || flags & MCL_CURRENT == 0 || status::is_filtered() {
            true => kernel!(__NR_mlockall, flags),
            false => lock_all(task, flags, populates),
        };
        if done == 0 {
            fill::set_locks_all(flags & MCL_FUTURE != 0 && populates);
        }
        done
    }

    /// munlockall(2).
    fn munlockall(_task) {
        fill::set_locks_all(false);
        NOT_OURS
    }

    /// mseal(2): what is sealed cannot be mapped anew, so holes get their pages before.
    fn mseal(task, address: usize, length: usize, flags: usize) {
        if flags == 0 && address.is_multiple_of(PAGE_SIZE) {
            holes::touch(task, address, length);
        }
        NOT_OURS
    }
}

/// mlockall(2) with `MCL_CURRENT`. The kernel refuses it before it locks anything, so this asks for the limit
/// first.
fn lock_all(task: &Task, flags: u32, populates: bool) -> isize {
    if !is_within_limit() {
        return Errno::ENOMEM.to_ret();
    }
    if populates {
        holes::touch(task, 0, usize::MAX);
    }
    let done = ret(each_mapping(&mut |mapping| lock(mapping, populates)));
    // Also ends the effect of an earlier MCL_FUTURE.
    match flags & !MCL_CURRENT {
        _ if done < 0 => done,
        0 | MCL_ONFAULT => 0,
        future => kernel!(__NR_mlockall, future),
    }
}

/// Whether the process may lock as much as it has mapped. Where it may lock nothing, the kernel says so.
fn is_within_limit() -> bool {
    let mut limits = [u64::MAX; 2];
    kernel!(__NR_prlimit64, 0, RLIMIT_MEMLOCK, 0, limits.as_mut_ptr());
    let [limit, _] = limits;
    if limit == 0 || limit == u64::MAX || status::may_lock_all() {
        return true;
    }
    let mut bytes = 0;
    let counted = each_mapping(&mut |mapping| {
        bytes += if is_lockable(mapping) { mapping.bytes as u64 } else { 0 };
        Ok(())
    });
    counted.is_err() || bytes <= limit
}

/// A line of /proc/self/maps.
#[derive(Clone, Copy)]
struct Mapping {
    start: usize,
    bytes: usize,
    is_readable: bool,
}

/// Whether mlockall(2) concerns a mapping. The kernel's own page beyond the program's addresses is listed too.
fn is_lockable(mapping: Mapping) -> bool {
    mapping.start < USER_END && !own::is_sparse(mapping.start)
}

/// Locks a mapping, and makes its pages present as far as they can be.
fn lock(mapping: Mapping, populates: bool) -> Result<()> {
    let Mapping { start, bytes, is_readable } = mapping;
    if !is_lockable(mapping) {
        return Ok(());
    }
    // SAFETY: changes no byte. The mapping may have gone meanwhile.
    unsafe { lp_abi::syscall!(__NR_mlock2, start, bytes, MLOCK_ONFAULT) }?;
    if populates && is_readable {
        // mlockall(2) ignores that a page cannot be made present.
        // SAFETY: changes no byte. The mapping may have gone meanwhile.
        let _ = unsafe { lp_abi::syscall!(__NR_mlock, start, bytes) };
    }
    Ok(())
}

/// Calls `visit` with each mapping of the process.
///
/// # Errors
/// Those of open(2) and of `visit`.
fn each_mapping(visit: &mut dyn FnMut(Mapping) -> Result<()>) -> Result<()> {
    // SAFETY: the path is NUL-terminated, and the open changes nothing.
    let fd = unsafe { lp_abi::syscall!(__NR_open, c"/proc/self/maps".as_ptr(), O_RDONLY | O_CLOEXEC) }?;
    let done = read_mappings(fd, visit);
    // SAFETY: the descriptor was opened above.
    let _ = unsafe { lp_abi::syscall!(__NR_close, fd) };
    done
}

fn read_mappings(fd: usize, visit: &mut dyn FnMut(Mapping) -> Result<()>) -> Result<()> {
    let mut room = [0u8; 1024];
    let mut line = Line::default();
    loop {
        // SAFETY: the kernel writes within `room`.
        let got = unsafe { lp_abi::syscall!(__NR_read, fd, room.as_mut_ptr(), room.len()) }?;
        if got == 0 {
            return Ok(());
        }
        for byte in &room[..got.min(room.len())] {
            if let Some(mapping) = line.take(*byte) {
                visit(mapping)?;
            }
        }
    }
}

/// The start of a line, as far as it has been read: `START-END PERMISSIONS`.
#[derive(Default)]
struct Line {
    /// Field that comes next, from 0.
    field: usize,
    numbers: [usize; 2],
    is_readable: bool,
}

impl Line {
    /// Takes the next byte; the mapping at the end of a line.
    fn take(&mut self, byte: u8) -> Option<Mapping> {
        match (self.field, byte) {
            (_, b'\n') => {
                let Line { numbers: [start, end], is_readable, .. } = core::mem::take(self);
                return Some(Mapping { start, bytes: end.saturating_sub(start), is_readable });
            }
            (0, b'-') | (1.., b' ') => self.field += 1,
            (0 | 1, _) => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0) as usize;
                self.numbers[self.field] = self.numbers[self.field] << 4 | digit;
            }
            (2, b'r') => self.is_readable = true,
            _ => {}
        }
        None
    }
}
