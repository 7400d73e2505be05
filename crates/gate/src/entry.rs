//! The entry: where thunks arrive.
//!
//! A thunk calls it with the registers of a system call (`rax` the number, `rdi rsi rdx r10 r8 r9` the arguments), the
//! stack already below the site's red zone. Like the kernel it may change `rax`, `rcx`, `r11` and the flags, nothing
//! else. It returns with the overflow flag clear and the result in `rax`, or with it set and every register as it came:
//! then the thunk goes on at the site's own `syscall`. (`call`, `ret`, `lea`, `mov` and `leave` leave flags alone.)
//!
//! Sites that make one of the calls that programs make most enter by [`crate::entry_quick`].
//!
//! # Whose stack
//! A C library's functions are called on stacks with room for what they call, and the gate uses that. Other objects may
//! make calls on small stacks (a goroutine's has a few hundred bytes left there): their entry changes to the thread's own
//! stack in its record, and saves vector registers on that too.
//!
//! # A child that shares memory
//! vfork(2) and clone(2) with CLONE_VM|CLONE_VFORK give the child the parent's memory, thread-local storage and perhaps
//! stack, and stop the parent until the child execs or exits. `current` must then be another record for the child. The
//! kernel's call is made here: what the parent needs afterwards is in its record ([`Thread::child`],
//! [`Thread::return_to`]), and the address of that record in `xmm15`, the one place that the kernel keeps and the child
//! cannot write. (These calls are made in functions for which `xmm15` is free.) Signals are blocked meanwhile, by
//! [`crate::process`], and unblocked by both sides when `current` is right again.

use core::arch::global_asm;
use core::mem::offset_of;

use crate::dispatch::AGAIN;
use crate::thread::Thread;
use crate::{deferred, process, thread, tls};
use lp_abi::image::GATE_PAGE;

/// Keeps the registers of a call below `rbp`, which was pushed and is the stack pointer: the frame that all entries make.
macro_rules! push_arguments {
    () => {
        "push rdi\npush rsi\npush rdx\npush r10\npush r8\npush r9\npush rax"
    };
}
/// The arguments again, from the frame.
macro_rules! load_arguments {
    () => {
        "mov rdi, [rbp - 8]\nmov rsi, [rbp - 16]\nmov rdx, [rbp - 24]\nmov r10, [rbp - 32]\nmov r8, [rbp - 40]\nmov r9, [rbp - 48]"
    };
}
pub(crate) use {load_arguments, push_arguments};

global_asm!(
    ".pushsection .text.startup.lp_entry,\"ax\",@progbits",
    ".globl lp_entry, lp_entry_vector, lp_entry_deliver, lp_entry_again",
    ".hidden lp_entry, lp_entry_vector, lp_entry_deliver, lp_entry_again",
    // Vector registers, to and from 256 bytes that are made below an aligned stack pointer.
    ".macro lp_save_vectors",
    "sub rsp, 256",
    ".irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movaps [rsp + 16 * \\i], xmm\\i",
    ".endr",
    ".endm",
    ".macro lp_load_vectors",
    ".irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movaps xmm\\i, [rsp + 16 * \\i]",
    ".endr",
    ".endm",
    // Objects that may hold values in vector registers at their sites.
    ".balign 64",
    "lp_entry_vector:",
    // These go on in the child, on a stack that must not hold anything of ours.
    "cmp eax, {nr_clone}",
    "je 3f",
    "cmp eax, {nr_vfork}",
    "je 3f",
    "cmp eax, {nr_clone3}",
    "je 3f",
    "push rbp",
    "mov rbp, rsp",
    "mov r11, [rip + lp_tls@GOTTPOFF]",
    "mov rcx, fs:[r11 + {current}]",
    "test rcx, rcx",
    "jz 4f",
    "1:",
    "lea r11, [rcx + {stack}]",
    "mov rcx, rsp",
    "sub rcx, r11",
    "cmp rcx, {stack_bytes}",
    "jb 2f", // A signal's handler that was put off runs on it already.
    "lea rsp, [r11 + {stack_bytes}]",
    "2:",
    "and rsp, -16",
    "lp_save_vectors",
    "call lp_entry",
    "lp_load_vectors",
    "leave",
    "ret",
    // The same for calls that make a child: the frame is on the site's stack, what is called runs on the thread's own.
    "3:",
    "push rbp",
    "mov rbp, rsp",
    push_arguments!(),
    "mov r11, [rip + lp_tls@GOTTPOFF]",
    "mov rcx, fs:[r11 + {current}]",
    "test rcx, rcx",
    "jz 6f",
    "mov qword ptr [rcx + {switched}], 0",
    "lea r10, [rcx + {stack}]",
    "mov r8, rsp",
    "sub r8, r10",
    "cmp r8, {stack_bytes}",
    "jb 6f",
    "mov qword ptr [rcx + {switched}], 1",
    "lea rsp, [r10 + {stack_bytes}]",
    "6:",
    "and rsp, -16",
    "mov r8, [rbp - 40]",
    "mov r10, [rbp - 32]",
    "jmp 8f",
    // The thread's first call: its record is made on a stack for the purpose.
    "4:",
    push_arguments!(),
    "mov eax, {nr_mmap}",
    "xor edi, edi",
    "mov esi, {stack_bytes}",
    "mov edx, {protection}",
    "mov r10d, {flags}",
    "mov r8, -1",
    "xor r9d, r9d",
    "syscall",
    "test rax, rax",
    "js 5f",
    "lea rsp, [rax + {stack_bytes} - 16]",
    "mov [rsp], rax",
    "lp_save_vectors",
    "call {start_slow}",
    "lp_load_vectors",
    "mov rdi, [rsp + 256]",
    "lea rsp, [rbp - 56]",
    "mov esi, {stack_bytes}",
    "mov eax, {nr_munmap}",
    "syscall",
    "pop rax",
    "pop r9",
    "pop r8",
    "pop r10",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "mov r11, [rip + lp_tls@GOTTPOFF]",
    "mov rcx, fs:[r11 + {current}]",
    "jmp 1b",
    "5:",
    "ud2", // No memory for a stack: nothing can go on.
    ".purgem lp_save_vectors",
    ".purgem lp_load_vectors",
    ".balign 64",
    "lp_entry:",
    "push rbp",
    "mov rbp, rsp",
    push_arguments!(),
    "and rsp, -16",
    "8:",
    "mov r11, [rip + lp_tls@GOTTPOFF]",
    "cmp qword ptr fs:[r11 + {current}], 0",
    "je 50f",
    "10:",
    "mov dword ptr fs:[r11 + {in_gate}], 1",
    "cmp eax, 512",
    "jae 40f",
    "mov eax, eax",
    "mov rcx, r10",
    "mov r10, [{calls}]",
    "movsxd rax, dword ptr [r10 + 4 * rax]",
    "test eax, eax",
    "jz 40f",
    "add rax, r10",
    "call rax",
    "20:",
    "mov r11, [rip + lp_tls@GOTTPOFF]",
    "mov dword ptr fs:[r11 + {in_gate}], 0",
    "cmp dword ptr fs:[r11 + {deferred}], 0",
    "jne 60f",
    "30:",
    load_arguments!(),
    "cmp rax, 3", // Overflows for NOT_OURS, SHARE_MEMORY and AGAIN, nothing else that arrives here.
    "jo 70f",
    "leave",
    "ret",
    "40:",
    "mov rax, {not_ours}",
    "jmp 20b",
    // The thread's first call.
    "50:",
    "call {start_slow}",
    load_arguments!(),
    "mov rax, [rbp - 56]",
    "mov r11, [rip + lp_tls@GOTTPOFF]",
    "jmp 10b",
    // A signal waits.
    "60:",
    "lp_entry_deliver:",
    "mov rdi, rax",
    "call {deliver}",
    "mov rcx, {again}",
    "cmp rax, rcx",
    "jne 30b",
    // The handler, with the arguments in the frame.
    "lp_entry_again:",
    load_arguments!(),
    "mov rax, [rbp - 56]",
    "mov r11, [rip + lp_tls@GOTTPOFF]",
    "jmp 10b",
    // Not ours, a child that shares memory, or the same once more.
    "70:",
    "test al, 2",
    "jnz lp_entry_again",
    "mov rcx, rax",
    "test al, 1",
    "mov rax, [rbp - 56]",
    "jnz 80f",
    "cmp rcx, 2",
    "leave",
    "ret",
    "80:",
    "leave",
    "mov r11, [rip + lp_tls@GOTTPOFF]",
    "mov rcx, fs:[r11 + {current}]",
    "pop qword ptr [rcx + {return_to}]",
    "movq xmm15, rcx",
    "mov r11, [rip + lp_tls@GOTTPOFF]",
    "mov rcx, [rcx + {child}]",
    "mov fs:[r11 + {current}], rcx",
    "mov qword ptr fs:[r11 + {table}], 0", // Both sides put theirs there.
    "syscall",
    "test rax, rax",
    "jz 90f",
    "movq rcx, xmm15",
    "mov r11, [rip + lp_tls@GOTTPOFF]",
    "mov dword ptr fs:[r11 + {in_gate}], 1",
    "mov fs:[r11 + {current}], rcx",
    "push qword ptr [rcx + {return_to}]",
    "push rbp",
    "mov rbp, rsp",
    push_arguments!(),
    "cmp qword ptr [rcx + {switched}], 0",
    "je 92f",
    "lea rsp, [rcx + {stack} + {stack_bytes}]",
    "92:",
    "and rsp, -16",
    "mov rdi, rax",
    "call {share_parent}",
    "mov rax, [rbp - 56]",
    "jmp 20b",
    // The child, on the parent's stack or its own.
    "90:",
    "movq rcx, xmm15",
    "mov r11, [rip + lp_tls@GOTTPOFF]",
    "mov dword ptr fs:[r11 + {in_gate}], 1",
    "mov r11, fs:[r11 + {current}]",
    "cmp qword ptr [r11 + {own_stack}], 0",
    "je 91f",
    "lea rsp, [rsp - 128]",
    "91:",
    "push qword ptr [rcx + {return_to}]",
    "push rbp",
    "mov rbp, rsp",
    push_arguments!(),
    "cmp qword ptr [rcx + {switched}], 0",
    "je 93f",
    "lea rsp, [r11 + {stack} + {stack_bytes}]",
    "93:",
    "and rsp, -16",
    "call {share_child}",
    "xor eax, eax",
    "jmp 20b",
    ".popsection",
    nr_clone = const lp_abi::linux::__NR_clone,
    nr_vfork = const lp_abi::linux::__NR_vfork,
    nr_clone3 = const lp_abi::linux::__NR_clone3,
    current = const tls::CURRENT,
    in_gate = const tls::IN_GATE,
    deferred = const tls::DEFERRED,
    calls = const GATE_PAGE + offset_of!(lp_abi::image::GatePage, table),
    table = const tls::TABLE,
    not_ours = const crate::dispatch::NOT_OURS,
    again = const AGAIN,
    return_to = const offset_of!(Thread, return_to),
    child = const offset_of!(Thread, child),
    own_stack = const offset_of!(Thread, own_stack),
    switched = const offset_of!(Thread, switched),
    stack = const offset_of!(Thread, stack),
    stack_bytes = const crate::thread::STACK,
    nr_mmap = const lp_abi::linux::__NR_mmap,
    nr_munmap = const lp_abi::linux::__NR_munmap,
    protection = const lp_abi::linux::PROT_READ | lp_abi::linux::PROT_WRITE,
    flags = const lp_abi::linux::MAP_PRIVATE | lp_abi::linux::MAP_ANONYMOUS | lp_abi::linux::MAP_NORESERVE,
    start_slow = sym thread::start_slow,
    deliver = sym deferred::deliver,
    share_parent = sym process::share_parent,
    share_child = sym process::share_child,
);

unsafe extern "C" {
    /// The entry for C libraries. Not callable from Rust.
    pub(crate) static lp_entry: u8;
    /// The entry for other objects. Not callable from Rust.
    pub(crate) static lp_entry_vector: u8;
}
