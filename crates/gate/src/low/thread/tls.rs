//! The gate's thread-local words: initial-exec, 40 bytes, reached by one load.
//!
//! In a static program all thread-local storage belongs to the program. The gate's file for those programs
//! (`lp_sites::by_gs`) uses gs instead of fs in every instruction that reaches the words. The base of gs
//! points to a thread's [`Words`]: those in its record, or [`NOBODY`] while it has none. A new thread
//! inherits its creator's base until [`crate::low::arrive::entry`] points it at `NOBODY`.

use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::sync::atomic::{AtomicUsize, Ordering};

use lp_abi::linux::__NR_arch_prctl;

global_asm!(
    ".pushsection .tbss.lp_tls,\"awT\",@nobits",
    ".balign 16",
    ".globl lp_tls",
    ".hidden lp_tls",
    ".type lp_tls, @object",
    ".size lp_tls, 40",
    "lp_tls:",
    ".zero 40",
    ".popsection",
);

/// Offset of the pointer to the thread's record; null before its first call.
pub(crate) const CURRENT: usize = 0;
/// Offset of the 32-bit mark that the thread is in the gate, which makes signal handlers wait.
pub(crate) const IN_GATE: usize = 8;
/// Offset of the 32-bit mark that a signal handler waits.
pub(crate) const DEFERRED: usize = 12;
/// Offset of a copy of the record's pointer to the task, so that fast paths skip one load.
pub(crate) const TASK: usize = 16;
/// Offset of a copy of the task's pointer to its descriptor table.
pub(crate) const TABLE: usize = 24;
/// Offset of the number of descriptors with a fast path. 0 if there is no task; `TASK` and `TABLE` are then
/// meaningless.
pub(crate) const QUICK_FDS: usize = 32;

macro_rules! tls_read {
    ($name:ident, $offset:expr, $type:ty, $modifier:literal, $size:literal, $what:literal) => {
        #[doc = concat!("Reads ", $what, ".")]
        #[inline(always)]
        pub(crate) fn $name() -> $type {
            let value: $type;
            // SAFETY: the word is this thread's own; the dynamic linker sets up its storage before any code
            // runs.
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
            // SAFETY: the word is this thread's own; the dynamic linker sets up its storage before any code
            // runs.
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
tls_write!(set_quick_fds, QUICK_FDS, usize, "", "qword", "the number of descriptors with a fast path");
tls_read!(in_gate, IN_GATE, u32, ":e", "dword", "the mark that the thread is in the gate");
tls_write!(set_in_gate, IN_GATE, u32, ":e", "dword", "the mark that the thread is in the gate");
tls_read!(deferred, DEFERRED, u32, ":e", "dword", "the mark that a signal waits");
tls_write!(set_deferred, DEFERRED, u32, ":e", "dword", "the mark that a signal waits");

/// The words of a thread of a static program, at the base of its gs.
#[repr(C, align(16))]
pub(crate) struct Words {
    /// Its own address, which the first word of a thread's block also holds under fs.
    pub(crate) own: AtomicUsize,
    spare: usize,
    /// The words that `lp_tls` names elsewhere.
    pub(crate) words: UnsafeCell<[usize; 5]>,
}

// SAFETY: only its own thread accesses a thread's words. Threads without a record write zeros over zeros in
// `NOBODY`.
unsafe impl Sync for Words {}

/// Replaces the offset of `lp_tls` from the base of fs.
pub(crate) const IN_WORDS: usize = offset_of!(Words, words);

/// The words of threads that have no record: zeros.
#[unsafe(no_mangle)]
pub(crate) static NOBODY: Words =
    Words { own: AtomicUsize::new(0), spare: 0, words: UnsafeCell::new([0; 5]) };

/// Nonzero if the processor has WRGSBASE and the kernel allows it, according to AT_HWCAP2.
pub(crate) static HAS_WRGSBASE: AtomicUsize = AtomicUsize::new(0);
/// `HWCAP2_FSGSBASE` of asm/hwcap2.h.
const HWCAP2_FSGSBASE: usize = 1 << 1;
/// `ARCH_SET_GS` of asm/prctl.h.
pub(crate) const ARCH_SET_GS: usize = 0x1001;

// lp_point_gs: points gs at the address in rcx. Changes rax, rcx and r11 only.
global_asm!(
    ".pushsection .text.lp_point_gs,\"ax\",@progbits",
    ".globl lp_point_gs",
    ".hidden lp_point_gs",
    "lp_point_gs:",
    ".cfi_startproc",
    "cmp qword ptr [rip + {has_wrgsbase}], 0",
    "je 2f",
    "wrgsbase rcx",
    "ret",
    "2:",
    "push rdi",
    ".cfi_adjust_cfa_offset 8",
    "push rsi",
    ".cfi_adjust_cfa_offset 8",
    "mov edi, {set_gs}",
    "mov rsi, rcx",
    "mov eax, {nr_arch_prctl}",
    "syscall",
    "pop rsi",
    ".cfi_adjust_cfa_offset -8",
    "pop rdi",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
    ".popsection",
    has_wrgsbase = sym HAS_WRGSBASE,
    set_gs = const ARCH_SET_GS,
    nr_arch_prctl = const __NR_arch_prctl,
);

/// Switches this process to finding its words by gs. Called once, before anything reads them. `hwcap2` is the
/// kernel's AT_HWCAP2.
pub(crate) fn start_by_gs(hwcap2: usize) {
    // Relaxed, both: the process has one thread.
    HAS_WRGSBASE.store(hwcap2 & HWCAP2_FSGSBASE, Ordering::Relaxed);
    NOBODY.own.store(&raw const NOBODY as usize, Ordering::Relaxed);
    point(&NOBODY);
}

/// Whether the words are found by gs, because the program is a static one.
pub(crate) fn is_by_gs() -> bool {
    NOBODY.own.load(Ordering::Relaxed) != 0 // Relaxed: set while there was one thread.
}

/// Points gs of the calling thread at `words`.
pub(crate) fn point(words: &Words) {
    // SAFETY: in a static program gs belongs to the gate; the words live as long as gs points at them.
    unsafe {
        asm!("call lp_point_gs", inout("rcx") words => _, out("rax") _, out("r11") _);
    }
}
