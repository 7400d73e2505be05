//! Fast paths of the most frequent calls, where one look at the descriptor's entry decides.
//!
//! [`crate::low::arrive::entry_quick`] calls these with a nonzero entry. `AGAIN` falls back to the call's
//! general handler. Vector registers are dead at their sites.

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

/// Writes handlers that have four arguments, the task and the entry, and give an answer or none.
macro_rules! quick {
    ($(fn $name:ident($b:ident $c:ident $d:ident $task:ident $entry:ident) = $answer:expr;)*) => {
        impl Quick for High {$(
            unsafe extern "sysv64" fn $name(
                _: usize, $b: usize, $c: usize, $d: usize, $task: &Task<'static>, $entry: u64,
            ) -> isize {
                match $answer {
                    Some(answer) => answer,
                    None => again(),
                }
            }
        )*}
    };
}

quick! {
    fn read(b c _d task entry) = read::read_quick::<true>(task, entry, given_slice(b, c)).map(|got| got as isize);
    fn write(b c _d task entry) = write::write_quick::<true>(task, entry, given_slice(b, c)).map(|done| done as isize);
    fn fstat(b _c _d task entry) = stat::fstat_quick(task, entry, given(b)).then_some(0);
    fn lseek(b c _d task entry) =
        lseek::quick(task, entry, b as i64, c as u32).map(|position| position as isize);
    fn pread64(b c d task entry) =
        read::pread_quick::<true>(task, entry, given_slice(b, c), d as i64).map(|got| got as isize);
    fn pwrite64(b c d task entry) =
        write::pwrite_quick::<true>(task, entry, given_slice(b, c), d as i64).map(|done| done as isize);
    fn newfstatat(_b c _d task entry) = stat::fstat_quick(task, entry, given(c)).then_some(0);
}
