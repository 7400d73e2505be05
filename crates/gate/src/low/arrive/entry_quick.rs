//! Entries of the most frequent calls, for sites in C libraries that make only that call.
//!
//! They are those of [`crate::low::arrive::entry`] without what is known in advance: the call needs no table,
//! and for a low descriptor one look at its table entry precedes saving anything. If the entry is 0, the
//! descriptor belongs to the kernel, so a program's calls on its other files cost almost nothing. Otherwise
//! the [`Quick`] handler gets the entry, which is read again after signals are deferred. Uncommon cases fall
//! back to the general entry, from the start or (`AGAIN`) with the frame built here.
//!
//! Each entry has two forms: one restores argument registers, the other is for sites after which they are
//! dead.

use core::arch::global_asm;
use core::mem::offset_of;

use lp_abi::image::{GATE_PAGE, GatePage, QUICK_CALLS};
use lp_abi::linux::AT_EMPTY_PATH;
use lp_region::layout::{FDS_APART, FDS_OF_A_LINE};

use crate::High;
use crate::low::above::{Above, Quick};
use crate::low::arrive::entry::{load_arguments, push_arguments};
use crate::low::arrive::unwind::unwind;
use crate::low::dispatch::AGAIN;
use crate::low::thread::record::Thread;
use crate::low::thread::tls;

/// Descriptors with a fast path: none of the gate's own may be among them.
pub(crate) const QUICK_FDS: i32 = FDS_APART as i32;

// Subtracting 3 overflows for a result of at most `AGAIN`; no other special value arrives here.
const _: () = assert!(AGAIN == isize::MIN + 2);

global_asm!(
    ".pushsection .text.startup.lp_entry,\"ax\",@progbits",
    // One entry. Calls on a descriptor start at `begin`. `fourth` says that the call has that argument,
    // `scratch` that it restores none: what the call does not take is not saved then.
    ".macro lp_begin fourth, scratch",
    "mov r11, [rip + lp_tls@GOTTPOFF]",
    "cmp rdi, fs:[r11 + {quick_fds}]",
    "jae lp_entry",
    "imul rcx, rdi, {entry_bytes}", // See `fd_place`. No slower than the load beside it.
    "add rcx, fs:[r11 + {table}]",
    "cmp qword ptr [rcx], 0",
    "je lp_entry_kernel",
    "push rbp",
    unwind!(pushed),
    "mov rbp, rsp",
    unwind!(framed),
    ".ifb \\scratch",
    push_arguments!(),
    ".else",
    "push rdi",
    "push rsi",
    "push rdx",
    ".ifb \\fourth",
    "sub rsp, 24",
    ".else",
    "push r10",
    "sub rsp, 16",
    ".endif",
    "push rax",
    ".endif",
    unwind!(kept),
    "and rsp, -16",
    "mov r8, fs:[r11 + {task}]",
    "mov dword ptr fs:[r11 + {in_gate}], 1",
    "mov r9, [rcx]", // Read again: from here on no signal handler closes it.
    ".ifnb \\fourth",
    "mov rcx, r10",
    ".endif",
    ".endm",
    ".macro lp_end",
    "cmp rax, 3",
    "jo lp_entry_again",
    "mov r11, [rip + lp_tls@GOTTPOFF]",
    "mov dword ptr fs:[r11 + {in_gate}], 0",
    "cmp dword ptr fs:[r11 + {deferred}], 0", // Clears the overflow flag, whatever the value.
    "jne lp_entry_deliver",
    ".endm",
    // fstat(2) as C libraries make it: newfstatat(2) with an empty path.
    ".macro lp_empty_path look",
    "cmp r10d, {empty_path}",
    "jne lp_entry",
    ".globl \\look",
    ".hidden \\look",
    "\\look:",
    "cmp byte ptr [rsi], 0", // A fault here falls back to the general entry: see `looks`.
    "jne lp_entry",
    ".endm",
    ".macro lp_enter name, before, fourth, scratch",
    ".balign 64",
    ".globl \\name",
    ".hidden \\name",
    "\\name:",
    ".cfi_startproc",
    unwind!(entered),
    ".ifnb \\before",
    "\\before \\name\\()_look",
    ".endif",
    "lp_begin \\fourth, \\scratch",
    ".endm",
    ".macro lp_quick name, handler, before, fourth",
    "lp_enter \\name, \\before, \\fourth",
    "call \\handler",
    "lp_end",
    load_arguments!(),
    "leave",
    unwind!(entered),
    "ret",
    ".cfi_endproc",
    "lp_enter \\name\\()_scratch, \\before, \\fourth, scratch",
    "call \\handler",
    "lp_end",
    "leave",
    unwind!(entered),
    "ret",
    ".cfi_endproc",
    ".endm",
    // The same for a traced run: the call is recorded before it ends.
    ".macro lp_recorded name, handler, before, fourth",
    "lp_enter \\name, \\before, \\fourth",
    "sub rsp, 16",
    "mov r10, fs:[r11 + {current}]",
    "mov qword ptr [rsp + 8], 0",
    "dec dword ptr [r10 + {untimed}]",
    "js 5f",
    "4:",
    "call \\handler",
    "cmp rax, 3",
    "jo lp_entry_again",
    "mov edi, [rbp - 56]",
    "mov rsi, rax",
    "mov rdx, [rsp + 8]",
    "lea rcx, [rbp - 48]",
    "call {record}",
    "lp_end",
    load_arguments!(),
    "leave",
    unwind!(entered),
    "ret",
    unwind!(kept),
    "5:",
    "rdtsc",
    "shl rdx, 32",
    "or rax, rdx",
    "mov [rsp + 8], rax",
    "mov rdx, [rbp - 24]",
    "jmp 4b",
    ".cfi_endproc",
    ".endm",
    // For a process that has not met a mount.
    ".balign 64",
    ".globl lp_entry_apart, lp_entry_kernel",
    ".hidden lp_entry_apart, lp_entry_kernel",
    "lp_entry_apart:",
    ".cfi_startproc",
    unwind!(entered),
    "cmp edi, dword ptr [{hidden}]",
    "jae lp_entry",
    "lp_entry_kernel:",
    "mov ecx, 0x7fffffff",
    "inc ecx", // Overflows.
    "ret",
    ".cfi_endproc",
    "lp_quick lp_quick_read, {read}",
    "lp_quick lp_quick_write, {write}",
    "lp_quick lp_quick_fstat, {fstat}",
    "lp_quick lp_quick_lseek, {lseek}",
    "lp_quick lp_quick_pread64, {pread64}, , fourth",
    "lp_quick lp_quick_pwrite64, {pwrite64}, , fourth",
    "lp_quick lp_quick_newfstatat, {newfstatat}, lp_empty_path, fourth",
    "lp_recorded lp_recorded_read, {read}",
    "lp_recorded lp_recorded_write, {write}",
    "lp_recorded lp_recorded_fstat, {fstat}",
    "lp_recorded lp_recorded_lseek, {lseek}",
    "lp_recorded lp_recorded_pread64, {pread64}, , fourth",
    "lp_recorded lp_recorded_pwrite64, {pwrite64}, , fourth",
    "lp_recorded lp_recorded_newfstatat, {newfstatat}, lp_empty_path, fourth",
    ".purgem lp_recorded",
    ".purgem lp_quick",
    ".purgem lp_empty_path",
    ".purgem lp_end",
    ".purgem lp_begin",
    ".popsection",
    hidden = const GATE_PAGE + offset_of!(GatePage, hidden),
    quick_fds = const tls::QUICK_FDS,
    entry_bytes = const FDS_OF_A_LINE * size_of::<u64>(),
    table = const tls::TABLE,
    task = const tls::TASK,
    in_gate = const tls::IN_GATE,
    deferred = const tls::DEFERRED,
    empty_path = const AT_EMPTY_PATH,
    current = const tls::CURRENT,
    untimed = const offset_of!(Thread, untimed),
    record = sym <High as Above>::record,
    read = sym <High as Quick>::read,
    write = sym <High as Quick>::write,
    fstat = sym <High as Quick>::fstat,
    lseek = sym <High as Quick>::lseek,
    pread64 = sym <High as Quick>::pread64,
    pwrite64 = sym <High as Quick>::pwrite64,
    newfstatat = sym <High as Quick>::newfstatat,
);

unsafe extern "C" {
    /// The entry of calls on a descriptor in a process that has not met a mount. Not callable from Rust.
    pub(crate) static lp_entry_apart: u8;
    /// The entry of calls that the kernel answers. Not callable from Rust.
    pub(crate) fn lp_entry_kernel();
}

/// The instructions in the entries that read the program's memory. A fault there continues at
/// [`lp_entry`](crate::low::arrive::entry), as if nothing had been read.
pub(crate) fn looks() -> [usize; 3] {
    unsafe extern "C" {
        static lp_quick_newfstatat_look: u8;
        static lp_quick_newfstatat_scratch_look: u8;
        static lp_recorded_newfstatat_look: u8;
    }
    [
        &raw const lp_quick_newfstatat_look as usize,
        &raw const lp_quick_newfstatat_scratch_look as usize,
        &raw const lp_recorded_newfstatat_look as usize,
    ]
}

macro_rules! addresses {
    ($($name:ident)*) => {{
        unsafe extern "C" {
            $(static $name: u8;)*
        }
        [$(&raw const $name as usize),*]
    }};
}

/// The entries of a traced run, in the order of [`QUICK_CALLS`]. All restore registers.
pub(crate) fn recording_entries() -> [usize; QUICK_CALLS.len()] {
    addresses!(lp_recorded_read lp_recorded_write lp_recorded_fstat lp_recorded_lseek lp_recorded_pread64
        lp_recorded_pwrite64 lp_recorded_newfstatat)
}

/// The entries, in the order of [`QUICK_CALLS`]: those that restore registers, then those that do not.
pub(crate) fn entries() -> [[usize; QUICK_CALLS.len()]; 2] {
    [
        addresses!(lp_quick_read lp_quick_write lp_quick_fstat lp_quick_lseek lp_quick_pread64 lp_quick_pwrite64
            lp_quick_newfstatat),
        addresses!(lp_quick_read_scratch lp_quick_write_scratch lp_quick_fstat_scratch lp_quick_lseek_scratch
            lp_quick_pread64_scratch lp_quick_pwrite64_scratch lp_quick_newfstatat_scratch),
    ]
}
