//! [`Thread`]: what the gate keeps for each thread of the process.

use core::cell::{Cell, UnsafeCell};
use core::mem::MaybeUninit;

use lp_region::process::Process;
use lp_vfs::task::Task;

use crate::low::thread::actions::Actions;
use crate::low::thread::pending::{Deferred, Notes};
use crate::low::thread::tls;

/// A thread's record, like `task_struct`, private to the process. Created at the thread's first call through
/// the gate.
///
/// Only its own thread accesses it, through shared references: the task inside is borrowed while fields
/// change, so fields are cells. A child that shares memory with its parent until it execs (vfork,
/// posix_spawn) runs on the parent's thread-local storage, so it gets a record of its own for that time; see
/// [`crate::low::live::process`].
#[repr(C)]
pub(crate) struct Thread {
    /// The record for a child that is about to start on this thread's memory. The entry reads it.
    pub(crate) child: Cell<*mut Thread>,
    /// The entry's return address, kept here while parent and child use the same stack.
    pub(crate) return_to: Cell<usize>,
    /// In a child's record, its parent's; else null.
    pub parent: Cell<*const Thread>,
    /// Nonzero if the child being created starts on a stack of its own. Kept in the child's record if it
    /// shares memory with its parent, else in its creator's.
    pub(crate) own_stack: Cell<u64>,
    /// Nonzero while the thread lends its words ([`crate::low::thread::lend`]).
    pub(crate) lends_words: Cell<u64>,
    /// Nonzero while a site on a small stack creates a child. Both sides then use the stack in their record.
    pub(crate) switched: Cell<u64>,
    /// The call that creates a child: number and three arguments as the kernel gets them, then the program's
    /// own arguments.
    pub(crate) share_call: [Cell<usize>; 4],
    pub(crate) share_given: Cell<[usize; 3]>,
    /// Whether the child being created shares the kernel's descriptor table.
    pub(crate) shares_table: Cell<bool>,
    /// Whether it shares working directory, root directory and umask.
    pub(crate) shares_directories: Cell<bool>,
    /// Whether it is created in a user namespace of its own.
    pub(crate) enters_namespace: Cell<bool>,
    /// Whether it is created without handlers of signals.
    pub(crate) clears_handlers: Cell<bool>,
    /// The thread's own credentials, if it has some; the memory stays with the record.
    pub(crate) credentials: Cell<*mut Process>,
    /// The `clone_args` of clone3(2) that the kernel gets in place of the program's.
    pub(crate) clone_args: [Cell<u64>; 16],
    /// The signal mask to restore once `current` is right on both sides.
    pub(crate) share_mask: Cell<u64>,
    /// Next record in the list of unused ones.
    pub(crate) next: Cell<*mut Thread>,
    /// The record made before this one.
    pub(crate) older: Cell<*mut Thread>,
    /// Signal actions: the process's, or the child's own.
    pub(crate) actions: Cell<*const Actions>,
    /// The kernel's thread id.
    pub tid: Cell<u32>,
    /// In a limited process, the number of the call being answered; see [`crate::high::table::limited`].
    pub(crate) limited_to: Cell<u32>,
    /// Set when the running handler makes the kernel's call; see [`crate::high::table::count`].
    pub crossed: Cell<bool>,
    /// Calls until one is timed, less one; see [`crate::high::table::traced`].
    pub untimed: Cell<i32>,
    /// Whether the last host path that was not found had no symbolic link on the way: the next open may ask
    /// the kernel for files without links first.
    pub meets_no_links: Cell<bool>,
    /// A shadow's descriptor plus one, between its open and that of the file; see
    /// [`crate::high::watch::shadow_fd`].
    pub waited_shadow: Cell<u32>,
    /// The thread's task for calls on the file system. Null until the high half puts one into `task_room` (or
    /// elsewhere), and always in a process without a region.
    pub task: Cell<*mut Task<'static>>,
    /// Signals whose handlers wait for the end of the call.
    pub(crate) deferred: Deferred,
    /// Address of a fault that another thread may have resolved; see [`above::fault`].
    pub(crate) unclear_fault: Cell<usize>,
    /// The report about the thread's last refused exec; see [`crate::low::exec::check`].
    pub(crate) refused: Cell<u64>,
    /// The process slot for the child of the fork under way.
    pub forked: Cell<u32>,
    /// The id of the process that made this one by fork; see [`crate::high::table::unused`].
    pub forked_by: Cell<u32>,
    /// The thread-local words of a thread of a static program; see [`tls`].
    pub(crate) words: tls::Words,
    /// Storage for [`Self::task`]. The low half does not touch it.
    pub task_room: UnsafeCell<MaybeUninit<Task<'static>>>,
    /// Memory for a new environment; see [`crate::low::exec::environment`].
    pub(crate) exec: crate::low::thread::room::Room,
    /// Memory for the arguments of a script's interpreter.
    pub(crate) arguments: crate::low::thread::room::Room,
    /// [`Self::actions`] of a child that shares memory.
    pub(crate) own_actions: Actions,
    /// Three path buffers for handlers. Of the low half only [`crate::low::exec::run`] uses them.
    pub scratch: [UnsafeCell<[u8; 4096]>; 3],
    /// The siginfo of the signals in [`Self::deferred`].
    pub(crate) notes: Notes,
    /// The stack for calls from objects with small stacks.
    pub(crate) stack: Stack,
}

/// Bytes of [`Thread::stack`].
pub(crate) const STACK: usize = 64 << 10;

/// A stack. Its pages are touched only when used.
#[repr(C, align(16))]
pub(crate) struct Stack(UnsafeCell<MaybeUninit<[u8; STACK]>>);

impl Stack {
    /// The address behind it, where it begins.
    pub(crate) fn top(&self) -> usize {
        self.0.get() as usize + STACK
    }

    /// Where the entry for objects with small stacks has its frame on the program's stack, if it has taken
    /// the call under way to this one.
    pub(crate) fn entered_from(&self) -> usize {
        /// The flags and the vector registers; then come the return address and the frame of the entry for C
        /// libraries.
        const SAVED: usize = 16 + 256;
        // SAFETY: the words are within the stack. Its first frame stays until the call returns.
        unsafe { *((self.top() - SAVED) as *const usize).sub(2) }
    }

    /// Whether the caller runs on it.
    #[inline(always)]
    pub(crate) fn holds_caller(&self) -> bool {
        let here = 0u8;
        self.holds(&raw const here as usize)
    }

    /// Whether an address is in it.
    #[inline(always)]
    pub(crate) fn holds(&self, address: usize) -> bool {
        address.wrapping_sub(self.0.get() as usize) < STACK
    }
}

impl Thread {
    /// The child that is about to be made shares and enters nothing, as that of fork(2).
    pub(crate) fn makes_plain_child(&self) {
        let all =
            [&self.shares_table, &self.shares_directories, &self.enters_namespace, &self.clears_handlers];
        all.into_iter().for_each(|flag| flag.set(false));
    }

    /// Sets the call that creates a child: its number and three arguments.
    pub(crate) fn set_share_call(&self, call: [usize; 4]) {
        for (to, word) in self.share_call.iter().zip(call) {
            to.set(word);
        }
    }

    /// Bytes of the fields that every process touches.
    pub(crate) const HEAD: usize =
        core::mem::offset_of!(Thread, task_room) + core::mem::offset_of!(Task<'static>, prefixes);
}
