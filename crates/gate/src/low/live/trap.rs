//! Calls at `syscall` instructions that cannot be patched: they leave no room for a jump, or the program
//! makes their code as it runs (a packed program).
//!
//! The kernel can send a thread SIGSYS in place of every call that it makes outside of one range of addresses
//! (syscall user dispatch: Documentation/admin-guide/syscall-user-dispatch.rst of the kernel). A process with
//! an object that cannot be patched has that switched on in all its threads. The range is the object that
//! contains the gate. At the first call at an instruction the signal's handler makes a thunk, like those of
//! site images, in pages of the gate's text, and so within the range; then, and whenever the instruction is
//! met again, it has the thread go on there. What the thunk leaves to the kernel it calls itself.
//!
//! The kernel switches it off in new threads and processes, which switch it on again before they run the
//! program's code, and by exec. SIGSYS is not blocked while the program's code runs, because the kernel would
//! then kill the process.

use core::arch::global_asm;
use core::mem::offset_of;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use lp_abi::image::{BACK_TO_SITE, GATE_PAGE, GatePage};
use lp_abi::linux::{
    __NR_exit, __NR_mmap, __NR_munmap, __NR_prctl, __NR_rt_sigreturn, MAP_ANONYMOUS, MAP_FIXED, MAP_PRIVATE,
    PROT_EXEC, PROT_READ, PROT_WRITE, SIG_UNBLOCK, SIGSYS,
};
use lp_abi::prctl::{PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, PR_SYS_DISPATCH_ON};
use lp_abi::sys::syscall6;

use crate::High;
use crate::low::above::Above;
use crate::low::live::signal::{self, Context, actions, bit, fault_action, kernel_action, set_mask};
use crate::low::thread::actions::KernelAction;
use crate::low::thread::pending::Info;
use crate::low::thread::{current, home, tls};
use crate::low::tools::{range, report};

/// Bytes for thunks.
const BYTES: usize = 64 << 10;

global_asm!(
    ".pushsection .text.lp_traps,\"ax\",@progbits",
    ".globl lp_traps",
    ".hidden lp_traps",
    ".balign 4096",
    "lp_traps:",
    ".fill {bytes}, 1, 0xcc",
    ".popsection",
    bytes = const BYTES,
);

unsafe extern "C" {
    static lp_traps: [Trap; COUNT];
}

/// Where calls are not trapped: the address, and the number of bytes. Both are 0 if none are trapped.
fn untrapped() -> [usize; 2] {
    // Relaxed: set while the process has one thread.
    home::untrapped().each_ref().map(|word| word.load(Ordering::Relaxed))
}

/// Switches the traps on for the process, except for calls within `own`, the object that contains the gate,
/// or the gate itself if that is not known. Returns whether they are on.
///
/// # Safety
/// The process must have one thread.
#[cold]
pub(crate) unsafe fn start(own: Option<Range<usize>>) -> bool {
    if home::traps() {
        return true;
    }
    // SAFETY: in the gate `current` is set, and the record is this thread's own.
    let thread = unsafe { &*current::thread() };
    High::join(thread);
    if thread.task.get().is_null() || !map() {
        return false;
    }
    let own = own.unwrap_or_else(gate);
    for (word, value) in home::untrapped().iter().zip([own.start, own.len()]) {
        word.store(value, Ordering::Relaxed); // Relaxed: the process has one thread.
    }
    let mut inherited = KernelAction::default();
    let installed = kernel_action(SIGSYS as usize, Some(&fault_action()), Some(&mut inherited));
    let is_programs = installed.is_ok() && inherited.handler != signal::lp_signal_address();
    if let Some(action) = actions().of(SIGSYS as usize).filter(|_| is_programs) {
        action.set(&inherited);
    }
    unblock();
    switch_on()
}

/// Gives the thunks memory in place of the text.
fn map() -> bool {
    let (protection, flags) = (PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED);
    let at = &raw const lp_traps;
    // SAFETY: the pages have nothing else in them, and nobody executes them yet.
    unsafe { lp_abi::syscall!(__NR_mmap, at, BYTES, protection, flags, usize::MAX, 0) }.is_ok()
}

/// The gate's file, up to the end of its text.
fn gate() -> Range<usize> {
    let (start, end): (usize, usize);
    // SAFETY: only computes addresses.
    unsafe {
        core::arch::asm!("lea {start}, [rip + __ehdr_start]", "lea {end}, [rip + etext]",
            start = out(reg) start, end = out(reg) end, options(nomem, nostack, preserves_flags));
    }
    start..end
}

/// Switches the traps on for the calling thread. Returns whether they are on.
fn switch_on() -> bool {
    let [start, bytes] = untrapped();
    switch(PR_SYS_DISPATCH_ON, start, bytes)
}

fn switch(to: u32, start: usize, bytes: usize) -> bool {
    // SAFETY: without a selector the call touches no memory.
    unsafe { lp_abi::syscall!(__NR_prctl, PR_SET_SYSCALL_USER_DISPATCH, to, start, bytes, 0) }.is_ok()
}

/// The calling thread makes its last call next, or has no stack for a signal any more.
pub(crate) fn before_end() {
    if home::traps() && !lp_abi::sys::is_limited() {
        switch(PR_SYS_DISPATCH_OFF, 0, 0);
    }
}

/// A new process begins, or one in its parent's memory. One that is limited may not make the call.
pub(crate) fn after_fork_child() {
    if home::traps() && !lp_abi::sys::is_limited() {
        switch_on();
    }
}

/// A signal's handler ends, or the program's begins, maybe under a mask with which the thread has waited: the
/// calls there need SIGSYS. A limited process may not make the call.
pub(crate) fn unblock() {
    if !lp_abi::sys::is_limited() {
        set_mask(SIG_UNBLOCK, bit(SIGSYS));
    }
}

/// The signals of a mask that the program may not block.
pub(crate) fn kept_open(mask: u64) -> u64 {
    if home::traps() { mask & bit(SIGSYS) } else { 0 }
}

/// Whether a SIGSYS stands for a call.
pub(crate) fn is_call(info: &Info) -> bool {
    /// Of si_code, in asm-generic/siginfo.h.
    const SYS_USER_DISPATCH: i32 = 2;
    info[1] as i32 == SYS_USER_DISPATCH
}

/// Makes the interrupted thread go on with the call that a signal stands for. The registers are as at the
/// `syscall`, except that rip is behind it.
pub(crate) fn answer(context: &Context) {
    let next = context.instruction();
    let number = context.result() as usize;
    if number == __NR_rt_sigreturn as usize {
        context.set_instruction(signal::restorer());
        return;
    }
    if tls::in_gate() != 0 {
        // The vdso, on behalf of the gate.
        let [a, b, c, d, e, f] = context.arguments();
        // SAFETY: the interrupted code's own call.
        context.set_result(unsafe { syscall6(number as u32, a, b, c, d, e, f) });
        return;
    }
    if number == __NR_exit as usize {
        // The stack may be another thread's by now: see `lp_abi::image`.
        // SAFETY: the home is mapped, and its page constant.
        context.set_instruction(unsafe { (*home::home()).page.entry_vector });
        return;
    }
    // SAFETY: `start` has mapped the thunks, which consist of atomics.
    let thunks = unsafe { &lp_traps };
    let mut probes = (first_probe(next)..).take(COUNT).map(|index| &thunks[index % COUNT]);
    // musl has a place where a thread unmaps its stack, which `process::munmap` finds out by its own.
    let unmaps_stack = number == __NR_munmap as usize && {
        let [address, length, ..] = context.arguments();
        range::unmaps(address, length, context.stack())
    };
    let entry = if unmaps_stack { offset_of!(GatePage, entry) } else { offset_of!(GatePage, entry_vector) };
    match probes.find_map(|thunk| thunk.of(next, entry)) {
        Some(thunk) => context.set_instruction(thunk),
        None => report::refuse(&[b"the program makes system calls at too many places"]),
    }
}

/// Moves a thread that a signal has interrupted in a thunk to its site, before the handler runs:
/// pthread_cancel(3) looks there, and unwinders do not know the thunks.
pub(crate) fn leave_for_site(context: &Context) {
    let Some((thunk, offset)) = thunk_at(context.instruction()) else { return };
    let next = thunk.next();
    let (at, below) = match offset {
        0 | Trap::COPY => (next - SYSCALL, 0),
        Trap::CALL => (next - SYSCALL, RED_ZONE),
        // Answered, unless the overflow flag says something else.
        Trap::BACK if !context.overflows() => (next, RED_ZONE),
        Trap::BRANCH if !context.overflows() => (next, 0),
        Trap::ANSWERED | Trap::CALLED => (next, 0),
        _ => return,
    };
    context.set_instruction(at);
    context.set_stack(context.stack() + below);
}

/// The `syscall` of the site whose thunk the gate returns to at `back`.
pub(crate) fn site_of(back: usize) -> Option<usize> {
    thunk_at(back).map(|(thunk, _)| thunk.next() - SYSCALL)
}

/// The thunk that an address is in, and the offset there.
fn thunk_at(address: usize) -> Option<(&'static Trap, usize)> {
    let offset = address.checked_sub(&raw const lp_traps as usize).filter(|offset| *offset < BYTES)?;
    let (index, offset) = (offset / size_of::<Trap>(), offset % size_of::<Trap>());
    // SAFETY: only `start` has made addresses there known, after it has mapped the thunks.
    Some((unsafe { &lp_traps[index] }, offset))
}

/// A thunk. Its word [`Trap::TARGET`] is where it goes back to, and stored last.
#[repr(C)]
struct Trap([AtomicU64; Trap::WORDS]);

const COUNT: usize = BYTES / size_of::<Trap>();

/// Where the search for a call's thunk starts, modulo [`COUNT`].
fn first_probe(next: usize) -> usize {
    const PRIME: usize = 0x9e37_79b9_7f4a_7c15;
    next.wrapping_mul(PRIME) >> 32
}

impl Trap {
    const WORDS: usize = 8;
    /// The word that the jumps read.
    const TARGET: usize = 4;
    /// The word that is stored first: whose thunk this is.
    const CLAIM: usize = 7;
    /// Offsets of its instructions: the call of the gate, what the gate returns to, `jo`, the jump back to
    /// the program, the `syscall` and the other jump.
    const CALL: usize = 5;
    const BACK: usize = 12;
    const BRANCH: usize = 20;
    const ANSWERED: usize = 26;
    const COPY: usize = 44;
    const CALLED: usize = 46;

    /// Where the program goes on.
    fn next(&self) -> usize {
        // Relaxed: who looks at a thunk's code has gone on there, or was stopped there.
        self.0[Self::TARGET].load(Ordering::Relaxed) as usize
    }

    /// The address of this thunk, if it is that of the call which ends at `next`, or nobody's so far. `entry`
    /// is the offset of the gate's entry, which is always the same for one call.
    ///
    /// Threads that find a thunk unfinished store the same in it, so none waits for another.
    fn of(&self, next: usize, entry: usize) -> Option<usize> {
        let at = core::ptr::from_ref(self).addr();
        let wanted = next as u64;
        // PAIRS: the release below.
        if self.0[Self::TARGET].load(Ordering::Acquire) == wanted {
            return Some(at);
        }
        // Relaxed, both: the word stands alone.
        let claimed = self.0[Self::CLAIM].compare_exchange(0, wanted, Ordering::Relaxed, Ordering::Relaxed);
        if claimed.is_err_and(|by| by != wanted) {
            return None;
        }
        let code = Self::code(at, next, entry);
        for (index, word) in code.as_chunks::<8>().0.iter().enumerate() {
            if index != Self::TARGET && index != Self::CLAIM {
                self.0[index].store(u64::from_le_bytes(*word), Ordering::Relaxed); // Relaxed: see below.
            }
        }
        // PAIRS: the acquire above.
        self.0[Self::TARGET].store(wanted, Ordering::Release);
        Some(at)
    }

    /// The code of a thunk at `at`, with zeros where the target and the claim are.
    fn code(at: usize, next: usize, entry: usize) -> [u8; 8 * Self::WORDS] {
        let mut code = [0; 8 * Self::WORDS];
        let mut end = 0;
        let mut put = |bytes: &[u8]| {
            code[end..end + bytes.len()].copy_from_slice(bytes);
            end += bytes.len();
        };
        put(&[0x48, 0x8d, 0x64, 0x24, 0x80]); // lea rsp, [rsp - 128]
        put(&[0xff, 0x14, 0x25]); // call [entry]
        put(&((GATE_PAGE + entry) as u32).to_le_bytes());
        put(&BACK_TO_SITE); // lea rsp, [rsp + 128]; jo copy
        put(&18u32.to_le_bytes());
        put(&[0xff, 0x25, 0, 0, 0, 0]); // jmp [target]
        put(&[0; 8]); // target
        // The distance of the site from the copy, for unwinders, if it is one.
        let distance = (next - SYSCALL).wrapping_sub(at + Self::COPY) as isize;
        put(&i32::try_from(distance).unwrap_or(0).to_le_bytes());
        put(&[0x0f, 0x05]); // copy: syscall
        put(&[0xff, 0x25]); // jmp [target]
        put(&(-20i32).to_le_bytes());
        code
    }
}

/// Bytes of a `syscall` instruction.
pub(super) const SYSCALL: usize = 2;
/// Bytes that a thunk steps over.
pub(super) const RED_ZONE: usize = 128;

const _: () = assert!(size_of::<Trap>() == 64);
