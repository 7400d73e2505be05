//! wait4(2), waitid(2): the kernel's call is made in the gate, so that what a dead child has left undone is
//! finished before its parent is told ([`Above::waited`]).
//!
//! A thread can be cancelled while it waits. pthread_cancel(3) sends it a signal of the C library's, whose
//! handler unwinds the thread's stack from the interrupted instruction, or compares that with the addresses
//! of its own site; code of the gate is good for neither. So [`lp_wait`] makes the call while every register
//! is as at the site, but for those that show where it is, and [`leave_for`] gives these back: the handler
//! finds the thread at the site, out of the gate. All other signals wait for the end of the call, as ever.

use core::arch::global_asm;

use lp_abi::Errno;
use lp_abi::image::BACK_TO_SITE;

use crate::High;
use crate::low::above::Above;
use crate::low::dispatch::AGAIN;
use crate::low::live::signal::{CANCEL, Context};
use crate::low::live::trap::{self, RED_ZONE, SYSCALL};
use crate::low::thread::current;
use crate::low::thread::tls;

global_asm!(
    ".pushsection .text.startup.lp_wait,\"ax\",@progbits",
    ".globl lp_wait, lp_wait_start, lp_wait_end, lp_wait_interrupted",
    ".hidden lp_wait, lp_wait_start, lp_wait_end, lp_wait_interrupted",
    ".balign 16",
    // The entry has kept the number and the arguments, and rbp is still the entry's.
    "lp_wait:",
    ".cfi_startproc",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "mov r10, [rbp - 32]",
    "mov rax, [rbp - 56]",
    "mov r11, [rip + lp_tls@GOTTPOFF]",
    "lp_wait_start:",
    "cmp dword ptr fs:[r11 + {deferred}], 0",
    "jne lp_wait_interrupted",
    "syscall",
    "lp_wait_end:",
    "mov rdi, rax",
    "lea rsi, [rbp - 56]",
    "call {after}",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_adjust_cfa_offset 8",
    "lp_wait_interrupted:",
    "mov rax, {not_begun}",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
    ".popsection",
    deferred = const tls::DEFERRED,
    not_begun = const AGAIN,
    after = sym after,
);

unsafe extern "sysv64" {
    /// The handler of both calls. The entry alone may call it.
    pub(crate) fn lp_wait(_: usize, _: usize, _: usize, _: usize, _: usize, _: usize) -> isize;
}

unsafe extern "C" {
    static lp_wait_start: u8;
    static lp_wait_end: u8;
    static lp_wait_interrupted: u8;
    /// Where the entry that saves vector registers has called the ordinary one.
    static lp_entry_vector_back: u8;
}

/// What the entry keeps of a call: its number, then the arguments, the last first.
type SavedCall = [usize; 7];

/// After the kernel's call.
extern "sysv64" fn after(result: isize, kept: &SavedCall) -> isize {
    let [number, f, e, d, c, b, a] = *kept;
    // SAFETY: in the gate current is set, and the record is this thread's own.
    let thread = unsafe { &*current::thread() };
    thread.crossed.set(true);
    High::waited(thread, number as u32, [a, b, c, d, e, f], result);
    result
}

/// Where a thread goes on that a signal has interrupted at `at` in [`lp_wait`] before the call has had an
/// effect.
pub(crate) fn resume_at(at: usize) -> Option<usize> {
    let waits = &raw const lp_wait_start as usize..&raw const lp_wait_end as usize;
    waits.contains(&at).then_some(&raw const lp_wait_interrupted as usize)
}

/// Has a signal that cancels find a thread that waits at its site: whether it does, and the handler may run
/// at once. Not if other signals wait for the end of the call, or if the site is none of a C library's.
pub(crate) fn leave_for(signal: usize, context: &Context) -> bool {
    if !CANCEL.contains(&signal) || tls::deferred() != 0 {
        return false;
    }
    let (start, end) = (&raw const lp_wait_start as usize, &raw const lp_wait_end as usize);
    let at = context.instruction();
    let failed = at == end && context.result() == Errno::EINTR.to_ret();
    if !(start..end).contains(&at) && !failed {
        return false;
    }
    let entered = context.frame();
    // SAFETY: in `lp_wait` rbp is the entry's frame, which has the number below.
    let (mut frame, number) = unsafe { (Frame::at(entered), *(entered as *const usize).sub(KEPT_BELOW)) };
    if frame.back == &raw const lp_entry_vector_back as usize {
        // SAFETY: the entry was called by the one that saves vector registers, which has a frame as well.
        frame = unsafe { Frame::at(frame.rbp) };
    }
    let Some(site) = trap::site_of(frame.back).or_else(|| site_of(frame.back)) else { return false };
    context.set_frame(frame.rbp);
    context.set_stack(frame.end + RED_ZONE);
    if failed {
        context.set_instruction(site + SYSCALL);
    } else {
        context.set_instruction(site);
        context.set_result(number as isize);
    }
    tls::set_in_gate(0);
    true
}

/// The start of an entry's frame.
struct Frame {
    /// The caller's rbp, and where the entry returns to.
    rbp: usize,
    back: usize,
    /// The stack pointer after that.
    end: usize,
}

impl Frame {
    /// # Safety
    /// `rbp` is that of an entry.
    unsafe fn at(rbp: usize) -> Frame {
        let frame = rbp as *const usize;
        // SAFETY: an entry's frame, by this function's contract.
        unsafe { Frame { rbp: *frame, back: *frame.add(1), end: frame.add(2) as usize } }
    }
}

/// Words from the number up to the entry's rbp.
const KEPT_BELOW: usize = 7;

/// Longest distance from a thunk's call to its own `syscall`.
const IN_THUNK: usize = 512;

/// The `syscall` of the site whose thunk continues at `back`; `None` if the thunk makes the call itself.
fn site_of(back: usize) -> Option<usize> {
    // SAFETY: `back` is the return address of a call in a thunk, and what follows it there is longer.
    unsafe {
        let code = *(back as *const [u8; BACK_TO_SITE.len()]);
        let distance = (back + BACK_TO_SITE.len()) as *const i32;
        if code != BACK_TO_SITE {
            return None;
        }
        let site = (distance.add(1) as usize).wrapping_add_signed(distance.read_unaligned() as isize);
        (site.wrapping_sub(back) >= IN_THUNK).then_some(site)
    }
}
