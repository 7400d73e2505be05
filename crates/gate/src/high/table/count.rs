//! Counting calls for `lightpath run --stats`: a dispatch table of its own, so that other runs pay nothing.
//!
//! Every entry of [`COUNTED`] is one stub, which calls the handler that [`crate::high::table::calls::CALLS`]
//! names and counts the outcome in the thread's lane. A call whose handler makes the kernel's call, with a
//! rewritten path or after closing a parked number, counts as the kernel's.

use core::arch::global_asm;

use lp_region::lane::{COUNTED_CALLS, MOVING_CALLS};
use lp_region::sync::{AtomicU32, Ordering};

use crate::low::dispatch::{AGAIN, MAKE_THREAD, NOT_OURS, SHARE_MEMORY, stub_table};
use crate::low::thread::current;

global_asm!(
    ".pushsection .text.lp_counted,\"ax\",@progbits",
    ".hidden lp_counted",
    "lp_counted:",
    ".cfi_startproc",
    // The entry has kept the number, and rbp is still the entry's.
    "mov r11d, [rbp - 56]",
    "lea r10, [rip + lp_table_calls]",
    "movsxd rax, dword ptr [r10 + 4 * r11]",
    "push r11",
    ".cfi_adjust_cfa_offset 8",
    "test eax, eax",
    "jz 2f",
    "add rax, r10",
    "call rax",
    "3:",
    "pop rdi",
    ".cfi_adjust_cfa_offset -8",
    "push rax",
    ".cfi_adjust_cfa_offset 8",
    "mov rsi, rax",
    "call {count}",
    "pop rax",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_adjust_cfa_offset 8",
    "2:",
    "mov rax, {not_ours}",
    "jmp 3b",
    ".cfi_endproc",
    ".popsection",
    not_ours = const NOT_OURS,
    count = sym count,
);

stub_table! {
    /// The table of a run with `--stats`.
    pub(crate) COUNTED "lp_table_counted": "lp_counted"
}

/// Counts one call by its result.
pub(crate) extern "sysv64" fn count(number: usize, result: isize) {
    // SAFETY: null or the calling thread's own record.
    let Some(thread) = (unsafe { current::thread().as_ref() }) else { return };
    let crossed = thread.crossed.replace(false);
    if number >= COUNTED_CALLS || result == AGAIN {
        return;
    }
    // SAFETY: null or the thread's own task, which lives as long as the thread.
    let Some(task) = (unsafe { thread.task.get().as_ref() }) else { return };
    // Relaxed: a counter that only this thread writes.
    let more = |counter: &AtomicU32| {
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    };
    if crossed || [NOT_OURS, SHARE_MEMORY, MAKE_THREAD].contains(&result) {
        more(&task.lane.passed[number]);
        return;
    }
    more(&task.lane.answered[number]);
    if let Some(place) = MOVING_CALLS.iter().position(|call| *call as usize == number) {
        let bytes = &task.lane.bytes[place];
        bytes.store(bytes.load(Ordering::Relaxed) + result.max(0) as u64, Ordering::Relaxed);
    }
}
