//! [`Thread`]: what the gate keeps for each thread of the process.

use core::cell::{Cell, UnsafeCell};
use core::mem::MaybeUninit;

use lp_region::process::Process;
use lp_vfs::task::Task;

use crate::low::thread::actions::Actions;
use crate::low::thread::pending::{Deferred, Notes};
use crate::low::thread::tls;

/// A thread's record: private to the process, like `task_struct`. Made at the thread's first call through the
/// gate.
///
/// Its own thread alone touches it, through shared references: the task that lies within is borrowed while
/// fields change, so fields are cells. A child that shares memory with its parent until it execs (vfork,
/// posix_spawn) runs on the parent's thread-local storage, so it is given a record of its own for that time;
/// see [`crate::low::live::process`].
#[repr(C)]
pub struct Thread {
    /// The record for a child that is about to start on this thread's memory. Read by the entry.
    pub(crate) child: Cell<*mut Thread>,
    /// Where the entry returns to, kept here while parent and child use the same stack.
    pub(crate) return_to: Cell<usize>,
    /// In a child's record: its parent's; else null.
    pub parent: Cell<*const Thread>,
    /// Nonzero when the child that is made starts on a stack of its own: in the child's record if it shares
    /// memory with its parent, else in its maker's.
    pub(crate) own_stack: Cell<u64>,
    /// Nonzero while a child is made from a site on a small stack: both sides use the stack in their record
    /// meanwhile.
    pub(crate) switched: Cell<u64>,
    /// The call that makes a child as the kernel gets it: number and three arguments; and those that the
    /// program gave.
    pub(crate) share_call: [Cell<usize>; 4],
    pub(crate) share_given: Cell<[usize; 3]>,
    /// Whether the child that is made shares the kernel's table of descriptors.
    pub(crate) shares_table: Cell<bool>,
    /// Credentials of the thread's own, once it has some; the memory stays with the record.
    pub(crate) credentials: Cell<*mut Process>,
    /// The record of clone3(2) that the kernel gets in the place of the program's.
    pub(crate) clone_args: [Cell<u64>; 16],
    /// The signal mask to go back to once `current` is right on both sides.
    pub(crate) share_mask: Cell<u64>,
    /// Next record in the list of unused ones.
    pub(crate) next: Cell<*mut Thread>,
    /// The actions of signals: the process's, or the child's own.
    pub(crate) actions: Cell<*const Actions>,
    /// The kernel's thread id.
    pub tid: Cell<u32>,
    /// In a limited process, the number of the call that is being answered; see
    /// [`crate::high::table::limited`].
    pub(crate) limited_to: Cell<u32>,
    /// Set when the running handler makes the kernel's call; see [`crate::high::table::count`].
    pub crossed: Cell<bool>,
    /// The task by which the thread makes calls on the file system; null until the high half has put one into
    /// `task_room` (or elsewhere), and always in a process without a region.
    pub task: Cell<*mut Task<'static>>,
    /// Signals whose handlers wait for the end of the call.
    pub(crate) deferred: Deferred,
    /// Where a fault was that may have been mended by another thread; see [`above::fault`].
    pub(crate) unclear_fault: Cell<usize>,
    /// What the thread's last refused exec was told with; see [`crate::low::exec::check`].
    pub(crate) refused: Cell<u64>,
    /// The process slot of the child that a fork under way will make.
    pub forked: Cell<u32>,
    /// The words of a thread of a static program; see [`tls`].
    pub(crate) words: tls::Words,
    /// Where [`Self::task`] may live. Not touched by the low half.
    pub task_room: UnsafeCell<MaybeUninit<Task<'static>>>,
    /// Room for a new environment; see [`crate::low::exec::environment`].
    pub(crate) exec: crate::low::thread::room::Room,
    /// Room for the arguments of a script's interpreter.
    pub(crate) arguments: crate::low::thread::room::Room,
    /// [`Self::actions`] of a child that shares memory.
    pub(crate) own_actions: Actions,
    /// Three path buffers for handlers. Not touched by the low half, but for [`crate::low::exec::run`].
    pub scratch: [UnsafeCell<[u8; 4096]>; 3],
    /// What is known of the signals in [`Self::deferred`].
    pub(crate) notes: Notes,
    /// The stack on which calls of objects with small stacks run.
    pub(crate) stack: Stack,
}

/// Bytes of [`Thread::stack`].
pub(crate) const STACK: usize = 64 << 10;

/// A stack. Touched only where it is used.
#[repr(C, align(16))]
pub(crate) struct Stack(UnsafeCell<MaybeUninit<[u8; STACK]>>);

impl Thread {
    /// Sets the call that makes a child: its number and three arguments.
    pub(crate) fn set_share_call(&self, call: [usize; 4]) {
        for (to, word) in self.share_call.iter().zip(call) {
            to.set(word);
        }
    }

    /// Bytes of the fields that every process touches.
    pub(crate) const HEAD: usize =
        core::mem::offset_of!(Thread, task_room) + core::mem::offset_of!(Task<'static>, prefixes);
}
