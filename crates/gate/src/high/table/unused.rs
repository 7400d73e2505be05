//! A child of fork(2) that has made no call yet.
//!
//! Most of what a child costs when it only ends is that it touches the pages of its table, of the open files
//! and of the inodes, which are its own mappings of the region and fault anew. All that such a child holds,
//! its parent held too when it was made. So it leaves its slot to its parent, which has the pages at hand,
//! and settles it when it waits ([`crate::high::calls::wait`]); until then the slot is that of a dead
//! process, and whoever meets what it names finds that out.
//!
//! Until its first call its calls go through the table [`UNUSED`], and calls on low descriptors take the long
//! way there. So other calls pay nothing.

use core::arch::global_asm;

use lp_abi::linux::{__NR_exit_group, __NR_getppid, SA_NOCLDWAIT, SIGCHLD};
use lp_abi::sys::syscall6;
use lp_region::sync::Ordering;
use lp_vfs::boot;
use lp_vfs::task::Task;

use crate::high::frame::handler::task;
use crate::high::life::left;
use crate::high::memory::areas;
use crate::high::table::calls::CALLS;
use crate::low::cover::patch;
use crate::low::dispatch::{AGAIN, stub_table};
use crate::low::thread::actions::IGNORE;
use crate::low::thread::record::Thread;
use crate::low::thread::{current, tls};

global_asm!(
    ".pushsection .text.startup.lp_unused,\"ax\",@progbits",
    ".hidden lp_unused",
    "lp_unused:",
    ".cfi_startproc",
    "mov edi, [rbp - 56]",
    "mov rsi, [rbp - 8]",
    "jmp {first_call}",
    ".cfi_endproc",
    ".popsection",
    first_call = sym first_call,
);

stub_table! {
    /// The table of a child that has made no call.
    UNUSED "lp_table_unused": "lp_unused"
}

/// The parent is about to fork: its child will know it by its id.
pub(crate) fn before_fork(thread: &Thread, task: &Task) {
    thread.forked_by.set(task.process.pid.load(Ordering::Relaxed)); // Relaxed: the process's own.
}

/// The child begins. A table that does more than answer calls sees all of them.
pub(crate) fn begin() {
    if patch::change_table(&CALLS, &UNUSED) {
        tls::set_quick_fds(0);
    }
}

/// Answers the first call, `number`, by having it made again, or ends the process with `status`.
extern "sysv64" fn first_call(number: usize, status: usize) -> isize {
    // SAFETY: in the gate `current` is set, and the record is this thread's own.
    let thread = unsafe { &*current::thread() };
    if number == __NR_exit_group as usize && is_waited_for(thread) && leave() {
        // SAFETY: the program's own call; it takes no pointers.
        return unsafe { syscall6(__NR_exit_group, status, 0, 0, 0, 0, 0) };
    }
    patch::change_table(&UNUSED, &CALLS);
    current::refresh();
    AGAIN
}

/// Whether the process's maker is alive and will be told of its end.
fn is_waited_for(thread: &Thread) -> bool {
    // SAFETY: the thread's actions are valid as long as the thread.
    let action = unsafe { &*thread.actions.get() }.of(SIGCHLD as usize);
    let keeps = action.map(|action| action.get());
    let keeps = keeps.is_some_and(|of| of.handler != IGNORE && of.flags & u64::from(SA_NOCLDWAIT) == 0);
    // SAFETY: getppid(2) takes no pointers. A parent in another pid namespace is shown as 0.
    let parent = unsafe { lp_abi::syscall!(__NR_getppid) }.unwrap_or(0);
    keeps && parent != 0 && parent as u32 == thread.forked_by.get()
}

/// Leaves the slot to the parent, if that is possible.
fn leave() -> bool {
    let task = task();
    // What the program has written through mappings is the child's to record.
    let leaves = areas::is_empty() && boot::leave_to_parent(task);
    if leaves {
        left::left(task);
    }
    leaves
}
