//! fork(2), vfork(2), clone(2), clone3(2), ptrace(2), exit(2), exit_group(2).
//!
//! By the kind of child:
//! - a thread (CLONE_THREAD): [`crate::low::arrive::entry`] makes the kernel's call and learns whether it
//!   failed. The thread's record is created at its first call.
//! - a copy, on the same stack (fork): the kernel's call is made here, and returns here twice.
//! - a copy, on a stack of its own: by [`crate::low::arrive::entry`], with one record for both sides.
//! - shares memory, parent waits (vfork, posix_spawn): by [`crate::low::arrive::entry`], with a record for
//!   the child.
//! - shares memory, parent continues, not a thread: like a thread. While such a process, or a thread, shares
//!   its creator's thread-local storage, both are without the gate ([`crate::low::thread::lend`]).

use core::cell::Cell;
use core::mem::offset_of;

use lp_abi::Errno;
use lp_abi::linux::{
    __NR_clone, __NR_clone3, __NR_exit, __NR_exit_group, __NR_vfork, CLONE_CLEAR_SIGHAND, CLONE_FILES,
    CLONE_FS, CLONE_NEWUSER, CLONE_PARENT_SETTID, CLONE_PIDFD, CLONE_SETTLS, CLONE_THREAD, CLONE_VFORK,
    CLONE_VM, SIG_BLOCK, SIG_SETMASK, SIGCHLD, clone_args,
};
use lp_abi::sys::{self, syscall6};
use lp_region::ucopy;

use crate::High;
use crate::low::above::Above;
use crate::low::dispatch::{AGAIN, MAKE_THREAD, NOT_OURS, SHARE_MEMORY};
use crate::low::live::deferred;
use crate::low::live::signal::{self, set_mask};
use crate::low::live::trap;
use crate::low::thread::current;
use crate::low::thread::home;
use crate::low::thread::lend;
use crate::low::thread::pool;
use crate::low::thread::record::Thread;
use crate::low::thread::tls;
use crate::low::tools::{range, status};

/// The calling thread's record.
fn current() -> &'static Thread {
    // SAFETY: in the gate `current` is set, and the record lives as long as the thread.
    unsafe { &*current::thread() }
}

/// A process is about to be created, which may execute a program. Its creator finds out for it whether a
/// debugger traces them: to look up a new process in /proc costs more than to read about it.
fn before_process() {
    if home::settings().outlines_host() && !sys::is_limited() {
        status::is_traced();
    }
}

/// fork(2).
pub(crate) unsafe extern "sysv64" fn fork(
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
) -> isize {
    before_process();
    let thread = current();
    thread.makes_plain_child();
    // fork(2) as clone(2), which can say where the child's id goes.
    thread.set_share_call([__NR_clone as usize, SIGCHLD as usize, 0, 0]);
    copy_here([0, 0])
}

/// vfork(2).
pub(crate) unsafe extern "sysv64" fn vfork(
    first: usize,
    second: usize,
    third: usize,
    _: usize,
    _: usize,
    _: usize,
) -> isize {
    before_process();
    let thread = current();
    thread.set_share_call([__NR_vfork as usize, first, second, third]);
    thread.share_given.set([first, second, third]);
    thread.makes_plain_child();
    share(ChildStack::Parents)
}

/// clone(2).
pub(crate) unsafe extern "sysv64" fn clone(
    flags: usize,
    stack: usize,
    parent_tid: usize,
    child_tid: usize,
    tls: usize,
    _: usize,
) -> isize {
    let arguments = [flags, stack, parent_tid, child_tid, tls, 0];
    make(
        __NR_clone,
        arguments,
        flags as u64,
        if stack == 0 { ChildStack::Parents } else { ChildStack::Own(stack) },
    )
}

/// clone3(2).
pub(crate) unsafe extern "sysv64" fn clone3(
    arguments: usize,
    size: usize,
    third: usize,
    _: usize,
    _: usize,
    _: usize,
) -> isize {
    if size < size_of::<[u64; 8]>() {
        return NOT_OURS; // The kernel returns the error.
    }
    // SAFETY: the copy routine handles bad pointers; the record is words.
    let Ok(words) = (unsafe { ucopy::get(arguments as *const [u64; 8]) }) else {
        return Errno::EFAULT.to_ret();
    };
    let flags = words[offset_of!(clone_args, flags) / 8];
    let [stack, bytes] =
        [offset_of!(clone_args, stack), offset_of!(clone_args, stack_size)].map(|at| words[at / 8]);
    let top = stack.wrapping_add(bytes) as usize;
    let stack = if stack == 0 { ChildStack::Parents } else { ChildStack::Own(top) };
    make(__NR_clone3, [arguments, size, third, 0, 0, 0], flags, stack)
}

/// ptrace(2): the process is a debugger, or gets one.
pub(crate) unsafe extern "sysv64" fn ptrace(
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
) -> isize {
    status::may_be_traced_at_any_time();
    NOT_OURS
}

/// exit(2): the thread's end.
pub(crate) unsafe extern "sysv64" fn exit(
    status: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
) -> isize {
    let thread = current();
    if !thread.parent.get().is_null() {
        // A child that shares memory ends; its parent takes the record back.
        return end(__NR_exit, status);
    }
    leave()
}

/// Ends the thread with the call being handled, after the handlers of signals deferred so far.
fn leave() -> isize {
    let thread = current();
    block_signals();
    if deferred::interrupted() {
        return AGAIN;
    }
    High::thread_exit(thread);
    current::leave();
    trap::before_end();
    pool::leave(core::ptr::from_ref(thread).cast_mut());
    NOT_OURS
}

/// Ends the process by call `nr`. The call is made here, so that signals are deferred until its end, which
/// never comes: no handler may run once the process has released its slot in the region.
fn end(nr: u32, status: usize) -> isize {
    High::process_exit(current());
    // SAFETY: the program's own call; it takes no pointers.
    unsafe { syscall6(nr, status, 0, 0, 0, 0, 0) }
}

/// munmap(2) of anything but a file of ours.
pub(crate) unsafe extern "sysv64" fn munmap(
    address: usize,
    length: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
) -> isize {
    if unmaps_stack(address, length) { leave() } else { NOT_OURS }
}

/// Whether unmapping this range removes the stack on which the running thread makes the call. A caller that
/// does so (musl, when a detached thread ends) makes one more call, exit, at a site that is not patched: with
/// the stack it has unmapped the thread's storage, where the gate's entry finds the thread's record. As far
/// as the gate can see, this is the thread's end.
pub(crate) fn unmaps_stack(address: usize, length: usize) -> bool {
    range::unmaps(address, length, programs_stack())
}

/// The stack pointer of the program, or one further down on the same stack.
fn programs_stack() -> usize {
    let stack: usize;
    // SAFETY: only reads a register.
    unsafe { core::arch::asm!("mov {}, rsp", out(reg) stack, options(nomem, nostack, preserves_flags)) };
    let own = &current().stack;
    if own.holds(stack) { own.entered_from() } else { stack }
}

/// exit_group(2).
pub(crate) unsafe extern "sysv64" fn exit_group(
    status: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
) -> isize {
    end(__NR_exit_group, status)
}

#[derive(Clone, Copy, PartialEq)]
enum ChildStack {
    Parents,
    /// Its top.
    Own(usize),
}

fn make(nr: u32, arguments: [usize; 6], flags: u64, stack: ChildStack) -> isize {
    let has = |flag: u32| flags & u64::from(flag) != 0;
    let thread = current();
    if has(CLONE_PIDFD) {
        High::before_descriptor(thread);
    }
    if has(CLONE_VM) && (!has(CLONE_VFORK) || has(CLONE_THREAD)) {
        if !has(CLONE_SETTLS) {
            lend::lend(thread);
        }
        return make_thread(stack);
    }
    before_process();
    let [first, second, third, fourth, fifth, _] = arguments;
    thread.share_given.set([first, second, third]);
    thread.set_share_call([nr as usize, first, second, third]);
    thread.clears_handlers.set(nr == __NR_clone3 && flags & CLONE_CLEAR_SIGHAND != 0);
    thread.enters_namespace.set(has(CLONE_NEWUSER));
    if has(CLONE_NEWUSER) {
        High::before_namespace(thread);
        // The kernel's create_user_ns; it finds contradicting flags first.
        if !has(CLONE_FS) && High::is_rooted(thread) {
            return Errno::EPERM.to_ret();
        }
    }
    thread.shares_directories.set(has(CLONE_FS));
    if has(CLONE_FS) {
        // A process that has not joined the run would not learn that another works in a mount.
        High::join(thread);
    }
    thread.shares_table.set(has(CLONE_FILES) && High::may_share_table(thread));
    if has(CLONE_FILES)
        && !thread.shares_table.get()
        && let Err(errno) = drop_flag(thread, CLONE_FILES)
    {
        return errno.to_ret();
    }
    // A child that runs while its parent waits may be given storage that is no thread's: Chromium gives it
    // zeros. It would lack the gate's words, so the child uses its parent's.
    if has(CLONE_VM)
        && has(CLONE_SETTLS)
        && !tls::is_by_gs()
        && let Err(errno) = drop_flag(thread, CLONE_SETTLS)
    {
        return errno.to_ret();
    }
    match stack {
        _ if has(CLONE_VM) => share(stack),
        ChildStack::Parents => copy_here([fourth, fifth]),
        ChildStack::Own(_) => copy_elsewhere(),
    }
}

/// Removes a flag from the call. `CLONE_FILES`, because the child's slot has its own table, which must agree
/// with the kernel's about what is ours.
fn drop_flag(thread: &Thread, flag: u32) -> lp_abi::Result<()> {
    let flag = u64::from(flag);
    let [number, flags, ..] = thread.share_call.each_ref().map(Cell::get);
    if number == __NR_clone as usize {
        thread.share_call[1].set(flags & !(flag as usize));
        return Ok(());
    }
    copy_clone_args(thread)?;
    let flags = &thread.clone_args[offset_of!(clone_args, flags) / 8];
    flags.set(flags.get() & !flag);
    Ok(())
}

/// Makes clone3(2) read the thread's own copy of its argument record from here on.
///
/// # Errors
/// `EFAULT`; `E2BIG` for a record larger than the known one, as in the kernel.
fn copy_clone_args(thread: &Thread) -> lp_abi::Result<()> {
    let [_, given, size, _] = thread.share_call.each_ref().map(Cell::get);
    let to = thread.clone_args.as_ptr().cast_mut();
    if given != to as usize {
        if size > size_of_val(&thread.clone_args) {
            return Err(Errno::E2BIG);
        }
        // SAFETY: the copy routine handles bad pointers; `size` fits the copy.
        unsafe { ucopy::copy(to.cast(), given as *const u8, size) }?;
        thread.share_call[1].set(to as usize);
    }
    Ok(())
}

/// Makes the kernel write the child's id to `to` as it creates the child. Returns whether it will.
fn announce(thread: &Thread, to: *mut u32) -> bool {
    let set = CLONE_PARENT_SETTID as usize;
    let flags = offset_of!(clone_args, flags) / 8;
    let number = thread.share_call[0].get() as u32;
    // A limited process makes exactly the call that the program made.
    if sys::is_limited() {
        return false;
    }
    if number == __NR_vfork {
        let as_vfork = (CLONE_VM | CLONE_VFORK | SIGCHLD) as usize;
        thread.set_share_call([__NR_clone as usize, as_vfork | set, 0, to as usize]);
    } else if number == __NR_clone {
        // The parent's id and the pidfd use the same pointer.
        if thread.share_call[1].get() & (set | CLONE_PIDFD as usize) != 0 {
            return false;
        }
        thread.share_call[1].set(thread.share_call[1].get() | set);
        thread.share_call[3].set(to as usize);
    } else {
        if copy_clone_args(thread).is_err() || thread.clone_args[flags].get() & set as u64 != 0 {
            return false;
        }
        thread.clone_args[flags].set(thread.clone_args[flags].get() | set as u64);
        thread.clone_args[offset_of!(clone_args, parent_tid) / 8].set(to as u64);
    }
    true
}

/// A thread, which the entry creates. Where the words are found by gs, the new thread uses its creator's
/// until it switches to others; no signal handler may run before that.
fn make_thread(stack: ChildStack) -> isize {
    let thread = current();
    if tls::is_by_gs() {
        thread.share_mask.set(block_signals());
        if deferred::interrupted() {
            return AGAIN;
        }
    }
    let top = if let ChildStack::Own(top) = stack { top } else { 0 };
    High::before_thread(thread, top);
    thread.own_stack.set(u64::from(stack != ChildStack::Parents));
    MAKE_THREAD
}

/// The creator's side; `result` is the kernel's.
pub(crate) extern "sysv64" fn after_thread(result: isize) {
    let thread = current();
    if result < 0 {
        High::thread_not_made(thread);
    }
    if tls::is_by_gs() {
        set_mask(SIG_SETMASK, thread.share_mask.get());
    }
}

/// A child that is a copy and continues where the parent does. `rest` are the last arguments of clone(2).
fn copy_here(rest: [usize; 2]) -> isize {
    let thread = current();
    if let Err(errno) = High::before_fork(thread) {
        return errno.to_ret();
    }
    announce_child(thread);
    let [number, first, second, third] = thread.share_call.each_ref().map(Cell::get);
    let (nr, arguments) = (number as u32, [first, second, third, rest[0], rest[1], 0]);
    // SAFETY: the program's own call with its own arguments; both sides return here, each with its own
    // memory.
    let result = unsafe { deferred::fork(nr, arguments) };
    if result == 0 {
        become_copy(thread);
    } else {
        High::after_fork_parent(thread, result);
    }
    result
}

/// The child's side, in its own copy of the memory.
fn become_copy(thread: &Thread) {
    pool::after_fork_child();
    if thread.clears_handlers.get() {
        signal::clear();
    }
    trap::after_fork_child();
    High::after_fork_child(thread);
}

fn announce_child(thread: &Thread) {
    if High::announce_child(thread).is_some_and(|to| !announce(thread, to)) {
        High::make_unannounced(thread);
    }
}

/// A child that is a copy and starts on its own stack. Each side has its copy of one record.
fn copy_elsewhere() -> isize {
    let thread = current();
    let mask = block_signals();
    if deferred::interrupted() {
        return AGAIN;
    }
    if let Err(errno) = High::before_fork(thread) {
        set_mask(SIG_SETMASK, mask);
        return errno.to_ret();
    }
    announce_child(thread);
    thread.child.set(core::ptr::from_ref(thread).cast_mut());
    thread.own_stack.set(1);
    thread.share_mask.set(mask);
    SHARE_MEMORY
}

/// A child that shares memory until it execs or exits.
fn share(stack: ChildStack) -> isize {
    let thread = current();
    let mask = block_signals();
    if deferred::interrupted() {
        return AGAIN;
    }
    let Some(child) = pool::take() else {
        set_mask(SIG_SETMASK, mask);
        return Errno::ENOMEM.to_ret();
    };
    // SAFETY: the new record belongs to this thread alone; the parent's actions are valid.
    let child = unsafe {
        (*child).own_actions.copy(&*thread.actions.get());
        (*child).actions.set(&raw const (*child).own_actions);
        (*child).parent.set(thread);
        (*child).own_stack.set(u64::from(stack != ChildStack::Parents));
        &*child
    };
    if let Err(errno) = High::before_vfork(thread, child) {
        pool::give_back(core::ptr::from_ref(child).cast_mut());
        set_mask(SIG_SETMASK, mask);
        return errno.to_ret();
    }
    announce_child(thread);
    thread.child.set(core::ptr::from_ref(child).cast_mut());
    thread.share_mask.set(mask);
    SHARE_MEMORY
}

/// The parent's side, after the child has execed or exited or could not be created.
pub(crate) extern "sysv64" fn share_parent(result: isize) {
    current::refresh();
    tls::set_deferred(0); // A child that died in the gate has left its mark in the shared storage.
    let thread = current();
    after_share(thread, result);
    thread.switched.set(0);
    set_mask(SIG_SETMASK, thread.share_mask.get());
}

/// The child's side, before its first instruction.
pub(crate) extern "sysv64" fn share_child() {
    let thread = current();
    if thread.parent.get().is_null() {
        let mask = thread.share_mask.get();
        thread.child.set(core::ptr::null_mut());
        thread.own_stack.set(0);
        thread.switched.set(0);
        become_copy(thread);
        set_mask(SIG_SETMASK, mask);
        return;
    }
    thread.tid.set(pool::own_tid());
    // SAFETY: the parent waits, so its record stays valid.
    let parent = unsafe { &*thread.parent.get() };
    if parent.clears_handlers.get() {
        signal::clear();
    }
    trap::after_fork_child();
    High::after_vfork_child(thread);
    set_mask(SIG_SETMASK, parent.share_mask.get());
}

fn after_share(thread: &Thread, result: isize) {
    let child = thread.child.get();
    thread.child.set(core::ptr::null_mut());
    if core::ptr::eq(child, thread) {
        thread.own_stack.set(0);
        High::after_fork_parent(thread, result);
        return;
    }
    // SAFETY: the record is the parent's again: the child is gone, or has its own memory.
    let child = unsafe { &*child };
    High::after_vfork_parent(thread, child, result);
    child.exec.release();
    child.arguments.release();
    pool::give_back(core::ptr::from_ref(child).cast_mut());
}

/// Blocks all signals and returns the previous mask.
fn block_signals() -> u64 {
    set_mask(SIG_BLOCK, u64::MAX)
}
