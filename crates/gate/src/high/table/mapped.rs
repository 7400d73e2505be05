//! The calls of a process in a user namespace other than the run's, or with a thread that has restricted
//! itself (landlock(7)): a dispatch table of its own, so that other processes pay nothing.
//!
//! A restricted thread's calls go to the handlers in [`held`](crate::high::table::held), where there are
//! some.
//!
//! The ids in the results of stat(2) and its kin become those of the namespace ([`lp_vfs::id_map`]). Which
//! map that is, is read before the process loses sight of it.

// Calls are patterns here, under the kernel's names.
#![allow(non_upper_case_globals)]

use core::arch::global_asm;

use lp_abi::linux::*;
use lp_region::process::CALLS_COUNTED;
use lp_region::sync::Ordering;
use lp_region::ucopy;
use lp_vfs::id_map::{self, IdKind};
use lp_vfs::landlock;
use lp_vfs::task::Task;

use crate::high::frame::handler::task;
use crate::high::memory::bus;
use crate::high::table::calls::CALLS;
use crate::high::table::held::HELD;
use crate::high::table::{count, holed};
use crate::low::dispatch::{NOT_OURS, Table, stub_table, to_handler};
use crate::low::thread::current;

global_asm!(
    ".pushsection .text.lp_mapped,\"ax\",@progbits",
    ".hidden lp_mapped",
    "lp_mapped:",
    ".cfi_startproc",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "mov edi, [rbp - 56]",
    "lea rsi, [rbp - 48]",
    "call {before}",
    to_handler!("mov r10, rax"),
    "call rax",
    "3:",
    "mov edi, [rbp - 56]",
    "mov rsi, rax",
    "lea rdx, [rbp - 48]",
    "call {after}",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_adjust_cfa_offset 8",
    "2:",
    "mov rax, {not_ours}",
    "jmp 3b",
    ".cfi_endproc",
    ".popsection",
    not_ours = const NOT_OURS,
    before = sym before,
    after = sym after,
);

stub_table! {
    /// The table of a process in a user namespace, or with a restricted thread.
    pub(crate) MAPPED "lp_table_mapped": "lp_mapped"
}

/// The table with the handler of a call.
pub(crate) fn table(task: Option<&Task>, nr: u32) -> &'static Table {
    match task {
        Some(task) if landlock::is_held(task) && HELD.handles(nr) => &HELD,
        _ => &CALLS,
    }
}

/// Before call `nr`. `words` holds its arguments in reverse order. Returns the address of the table with its
/// handler.
extern "sysv64" fn before(nr: u32, words: &[usize; 6]) -> usize {
    if bus::exist() {
        holed::touch(nr, words);
    }
    if matches!(
        nr,
        __NR_mount
            | __NR_umount2
            | __NR_move_mount
            | __NR_pivot_root
            | __NR_chroot
            | __NR_unshare
            | __NR_setns
            | __NR_fork
            | __NR_vfork
            | __NR_clone
            | __NR_clone3
            | __NR_execve
            | __NR_execveat
            | __NR_prctl
            | __NR_seccomp
    ) {
        id_map::settle(task().process);
    }
    table(Some(task()), nr).address()
}

/// After call `nr`, whose result it returns.
extern "sysv64" fn after(nr: u32, result: isize, words: &[usize; 6]) -> isize {
    let [f, e, d, c, b, a] = *words;
    // SAFETY: null or the calling thread's own record, and its task, which live as long as the thread. The
    // call may have been its last.
    let task = unsafe { current::thread().as_ref().and_then(|thread| thread.task.get().as_ref()) };
    let Some(task) = task else { return result };
    show(task, nr, result, [a, b, c, d, e, f]);
    // Relaxed: a process that misses a tracer looks again.
    if task.run.stats.load(Ordering::Relaxed) == CALLS_COUNTED {
        count::count(nr as usize, result);
    }
    result
}

/// Replaces the owners in the attributes that call `nr` has given the program, if they are those of an inode
/// of ours.
pub(crate) fn show(task: &Task, nr: u32, result: isize, words: [usize; 6]) {
    if result != 0 || !id_map::is_inside(task.process) {
        return;
    }
    match nr {
        __NR_stat | __NR_lstat | __NR_fstat => show_stat(task, words[1] as *mut stat),
        __NR_newfstatat => show_stat(task, words[2] as *mut stat),
        __NR_statx => show_statx(task, words[4] as *mut statx),
        _ => {}
    }
}

fn show_stat(task: &Task, to: *mut stat) {
    // SAFETY: the fields lie within the kernel's `stat`; the copy routines handle bad pointers.
    unsafe {
        if ucopy::get(&raw const (*to).st_dev).is_ok_and(|device| is_ours(task, device)) {
            replace(task, IdKind::User, &raw mut (*to).st_uid);
            replace(task, IdKind::Group, &raw mut (*to).st_gid);
        }
    }
}

fn show_statx(task: &Task, to: *mut statx) {
    // SAFETY: the fields lie within the kernel's `statx`; the copy routines handle bad pointers.
    unsafe {
        let device =
            [&raw const (*to).stx_dev_major, &raw const (*to).stx_dev_minor].map(|half| ucopy::get(half));
        if let [Ok(0), Ok(minor)] = device
            && is_ours(task, u64::from(minor & 0xff) | u64::from(minor & !0xff) << 12)
        {
            replace(task, IdKind::User, &raw mut (*to).stx_uid);
            replace(task, IdKind::Group, &raw mut (*to).stx_gid);
        }
    }
}

/// Whether a device number is that of one of the region's roots. The kernel's own do not reach them.
fn is_ours(task: &Task, device: u64) -> bool {
    device & !0xff == task.root_device & !0xff
}

/// Replaces an id in the program's memory.
///
/// # Safety
/// `field` is part of what the program gave the call for its result.
unsafe fn replace(task: &Task, kind: IdKind, field: *mut u32) {
    // SAFETY: the copy routines handle bad pointers; the caller answers for the field.
    unsafe {
        if let Ok(id) = ucopy::get(field) {
            let _ = ucopy::put(field, &id_map::shown(task.process, kind, id));
        }
    }
}
