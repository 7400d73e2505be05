//! The calls of a thread that has restricted itself, landlock(7), whose usual handlers do not check that:
//! they are those of the most frequent calls.

use lp_abi::linux::*;

use crate::high::calls::{mkdir, open, rename};
use crate::low::dispatch::dispatch_table;

dispatch_table! {
    /// Handlers in the place of those in [`crate::high::table::calls::CALLS`].
    pub(crate) HELD "lp_table_held":
    __NR_open => open::open_checked,
    __NR_rename => rename::rename_checked,
    __NR_creat => open::creat_checked,
    __NR_unlink => mkdir::unlink_checked,
    __NR_openat => open::openat_checked,
    __NR_unlinkat => mkdir::unlinkat_checked,
    __NR_renameat => rename::renameat_checked,
    __NR_renameat2 => rename::renameat2_checked,
}
