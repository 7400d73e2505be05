//! The calls that programs make most, where one look at the descriptor's entry decides.
//!
//! [`crate::entry`] comes here with an entry that is not 0, before it looks for the call's own handler. Whatever is not
//! the common case is that handler's.

use lp_abi::linux::{
    self, __NR_fstat, __NR_lseek, __NR_newfstatat, __NR_pread64, __NR_pwrite64, __NR_read, __NR_write,
};
use lp_vfs::task::Task;
use lp_vfs::{lseek, read, stat, write};

use crate::dispatch::Handler;

crate::dispatch_table! {
    /// The calls that the entry sends here if their descriptor's entry is not 0.
    QUICK "lp_table_quick":
    __NR_read => read,
    __NR_write => write,
    __NR_fstat => fstat,
    __NR_lseek => lseek,
    __NR_pread64 => pread64,
    __NR_pwrite64 => pwrite64,
    __NR_newfstatat => newfstatat,
}

/// Writes handlers that have four arguments, the task and the entry: an answer, or none for the call's own handler.
macro_rules! quick {
    ($($(#[$doc:meta])* fn $name:ident($a:ident $b:ident $c:ident $d:ident $task:ident $entry:ident) or $slow:path = $answer:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// For the entry only: the calling thread's task, the entry of descriptor `a`, and a program's arguments.
        unsafe extern "sysv64" fn $name($a: usize, $b: usize, $c: usize, $d: usize, $task: &Task<'static>, $entry: u64) -> isize {
            let slow: Handler = $slow;
            // SAFETY: as the entry calls it; these handlers have four arguments.
            $answer.unwrap_or_else(|| unsafe { slow($a, $b, $c, $d, 0, 0) })
        }
    )*};
}

quick! {
    /// read(2).
    fn read(a b c d task entry) or super::read::read =
        read::read_quick(task, entry, b as *mut u8, c).map(|got| got as isize);
    /// write(2).
    fn write(a b c d task entry) or super::write::write =
        write::write_quick(task, entry, b as *const u8, c).map(|done| done as isize);
    /// fstat(2).
    fn fstat(a b c d task entry) or super::stat::fstat =
        stat::fstat_quick(task, entry, b as *mut linux::stat).then_some(0);
    /// lseek(2).
    fn lseek(a b c d task entry) or super::lseek::lseek =
        lseek::quick(task, entry, b as i64, c as u32).map(|position| position as isize);
    /// pread64(2).
    fn pread64(a b c d task entry) or super::read::pread64 =
        read::pread_quick(task, entry, b as *mut u8, c, d as i64).map(|got| got as isize);
    /// pwrite64(2).
    fn pwrite64(a b c d task entry) or super::write::pwrite64 =
        write::pwrite_quick(task, entry, b as *const u8, c, d as i64).map(|done| done as isize);
    /// newfstatat(2) with `AT_EMPTY_PATH` and an empty path: glibc's fstat.
    fn newfstatat(a b c d task entry) or super::stat::newfstatat =
        stat::fstat_quick(task, entry, c as *mut linux::stat).then_some(0);
}
