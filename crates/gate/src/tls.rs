//! The thread-local words of the gate: initial-exec, 32 bytes, reached by one load.

use core::arch::{asm, global_asm};

use crate::thread::Thread;

global_asm!(
    ".pushsection .tbss.lp_tls,\"awT\",@nobits",
    ".balign 16",
    ".globl lp_tls",
    ".hidden lp_tls",
    ".type lp_tls, @object",
    ".size lp_tls, 32",
    "lp_tls:",
    ".zero 32",
    ".popsection",
);

/// Offset of the pointer to the thread's record; null before its first call.
pub(crate) const CURRENT: usize = 0;
/// Offset of the 32-bit mark that the thread is in the gate, so that signal handlers must wait.
pub(crate) const IN_GATE: usize = 8;
/// Offset of the 32-bit mark that one waits.
pub(crate) const DEFERRED: usize = 12;
/// Offset of a copy of the record's pointer to the task, for those who have no time for the record.
pub(crate) const TASK: usize = 16;
/// Offset of a copy of the task's pointer to its table of descriptors. Null where there is no task, and then `TASK` means
/// nothing.
pub(crate) const TABLE: usize = 24;

macro_rules! tls_read {
    ($name:ident, $offset:expr, $type:ty, $modifier:literal, $size:literal, $what:literal) => {
        #[doc = concat!("Reads ", $what, ".")]
        #[inline(always)]
        pub(crate) fn $name() -> $type {
            let value: $type;
            // SAFETY: the word is this thread's own; the dynamic linker has set up its storage before any code runs.
            unsafe {
                asm!("mov {at}, qword ptr [rip + lp_tls@GOTTPOFF]",
                     concat!("mov {value", $modifier, "}, ", $size, " ptr fs:[{at} + {offset}]"),
                     at = out(reg) _, value = out(reg) value, offset = const $offset,
                     options(nostack, preserves_flags, readonly));
            }
            value
        }
    };
}

macro_rules! tls_write {
    ($name:ident, $offset:expr, $type:ty, $modifier:literal, $size:literal, $what:literal) => {
        #[doc = concat!("Writes ", $what, ".")]
        #[inline(always)]
        pub(crate) fn $name(value: $type) {
            // SAFETY: as for reading.
            unsafe {
                asm!("mov {at}, qword ptr [rip + lp_tls@GOTTPOFF]",
                     concat!("mov ", $size, " ptr fs:[{at} + {offset}], {value", $modifier, "}"),
                     at = out(reg) _, value = in(reg) value, offset = const $offset,
                     options(nostack, preserves_flags));
            }
        }
    };
}

tls_read!(pointer, CURRENT, usize, "", "qword", "the address of the thread's record");
tls_write!(set_pointer, CURRENT, usize, "", "qword", "the address of the thread's record");
tls_write!(set_task, TASK, usize, "", "qword", "the address of the thread's task");
tls_write!(set_table, TABLE, usize, "", "qword", "the address of the task's table of descriptors");
tls_read!(in_gate, IN_GATE, u32, ":e", "dword", "the mark that the thread is in the gate");
tls_write!(set_in_gate, IN_GATE, u32, ":e", "dword", "the mark that the thread is in the gate");
tls_read!(deferred, DEFERRED, u32, ":e", "dword", "the mark that a signal waits");
tls_write!(set_deferred, DEFERRED, u32, ":e", "dword", "the mark that a signal waits");

/// The calling thread's record: like `current`. Null before the thread's first call through the gate; never in a handler
/// of the dispatch table.
#[inline(always)]
pub fn current() -> *mut Thread {
    pointer() as *mut Thread
}

pub(crate) fn set_current(thread: *mut Thread) {
    set_pointer(thread as usize);
    refresh();
}

/// Takes over what the record of the calling thread says: after its task has changed.
pub(crate) fn refresh() {
    // SAFETY: null, or the thread's own record; and null or its task, which lives as long as the record.
    let task = unsafe { current().as_ref().and_then(|thread| thread.task.as_ref()) };
    set_task(task.map_or(0, |task| core::ptr::from_ref(task) as usize));
    set_table(task.map_or(0, |task| core::ptr::from_ref(task.table) as usize));
}
