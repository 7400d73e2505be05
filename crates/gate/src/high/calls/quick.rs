//! Fast paths of the most frequent calls, where one look at the descriptor's entry decides.
//!
//! [`crate::low::arrive::entry_quick`] calls these with a nonzero entry. `AGAIN` falls back to the call's
//! general handler. Vector registers are dead at their sites.

use lp_abi::Fd;
use lp_vfs::task::Task;
use lp_vfs::{lseek, read, stat, write};

use crate::High;
use crate::high::frame::handler::{given, given_slice};
use crate::low::above::Quick;
use crate::low::dispatch::AGAIN;

/// `AGAIN`, not as a constant: the compiler would keep that in a register throughout the handler.
#[cold]
fn again() -> isize {
    let again;
    // SAFETY: loads a constant.
    unsafe {
        core::arch::asm!(
            "movabs {}, {again}",
            out(reg) again,
            again = const AGAIN,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    again
}

/// Makes a call's fast path beside other threads, or other users of a position, out of the way of the first.
#[cold]
#[inline(never)]
fn beside<T>(call: impl FnOnce() -> T) -> T {
    call()
}

/// Writes handlers that have the call's four arguments, the task and the entry, and give an answer or none.
macro_rules! quick {
    ($(fn $name:ident($a:ident $b:ident $c:ident $d:ident $task:ident $entry:ident) = $answer:expr;)*) => {
        impl Quick for High {$(
            unsafe extern "sysv64" fn $name(
                $a: usize, $b: usize, $c: usize, $d: usize, $task: &Task<'static>, $entry: u64,
            ) -> isize {
                match $answer {
                    Some(answer) => answer,
                    None => again(),
                }
            }
        )*}
    };
}

/// A descriptor, as the kernel takes it.
fn fd(argument: usize) -> Fd {
    Fd::new(argument as i32)
}

quick! {
    fn read(a b c _d task entry) = read::read_quick::<true>(task, entry, given_slice(b, c), move || {
        beside(move || read::read_quick_beside::<true>(task, fd(a), given_slice(b, c)))
    }).map(|got| got as isize);
    fn write(a b c _d task entry) = write::write_quick::<true>(task, entry, given_slice(b, c), move || {
        beside(move || write::write_quick_beside::<true>(task, fd(a), given_slice(b, c)))
    }).map(|done| done as isize);
    fn fstat(a b _c _d task entry) = stat::fstat_quick(task, entry, given(b), move || {
        beside(move || stat::fstat_quick_beside(task, fd(a), given(b)))
    }).then_some(0);
    fn lseek(a b c _d task entry) = lseek::quick(task, entry, b as i64, c as u32, move || {
        beside(move || lseek::quick_beside(task, fd(a), b as i64, c as u32))
    }).map(|position| position as isize);
    fn pread64(a b c d task entry) = read::pread_quick::<true>(task, entry, given_slice(b, c), d as i64, move || {
        beside(move || read::pread_quick_beside::<true>(task, fd(a), given_slice(b, c), d as i64))
    }).map(|got| got as isize);
    fn pwrite64(a b c d task entry) = write::pwrite_quick::<true>(task, entry, given_slice(b, c), d as i64, move || {
        beside(move || write::pwrite_quick_beside::<true>(task, fd(a), given_slice(b, c), d as i64))
    }).map(|done| done as isize);
    fn newfstatat(a _b c _d task entry) = stat::fstat_quick(task, entry, given(c), move || {
        beside(move || stat::fstat_quick_beside(task, fd(a), given(c)))
    }).then_some(0);
}
