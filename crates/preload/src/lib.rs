//! The preload library: the gate as a shared object that needs no other and exports only what the loader
//! requires of an auditor.
#![no_std]

mod memory;

use lp_gate::objects::LinkMap;
use lp_gate::auditor;

core::arch::global_asm!(
    ".pushsection .text.startup.lp_init,\"ax\",@progbits",
    ".globl lp_init",
    ".hidden lp_init",
    "lp_init:",
    "jmp {start}",
    ".popsection",
    start = sym lp_gate::attach::lp_gate_start,
);

// The stack is the one that the kernel set up, and becomes the program's. The registers must be zero, as the
// kernel leaves them.
core::arch::global_asm!(
    ".pushsection .text.lp_standalone,\"ax\",@progbits",
    ".globl lp_standalone",
    ".hidden lp_standalone",
    "lp_standalone:",
    "mov rbx, rsp",
    "and rsp, -16",
    "call {relocate}",
    "mov rdi, rbx",
    "call {start}",
    "mov rsp, rbx",
    "push rax",
    "xor eax, eax",
    "xor ebx, ebx",
    "xor ecx, ecx",
    "xor edx, edx",
    "xor esi, esi",
    "xor edi, edi",
    "xor ebp, ebp",
    "xor r8d, r8d",
    "xor r9d, r9d",
    "xor r10d, r10d",
    "xor r11d, r11d",
    "xor r12d, r12d",
    "xor r13d, r13d",
    "xor r14d, r14d",
    "xor r15d, r15d",
    "ret",
    ".popsection",
    relocate = sym lp_gate::standalone::relocate,
    start = sym lp_gate::standalone::start,
);

/// rtld-audit(7): see [`auditor`].
#[unsafe(no_mangle)]
pub extern "C" fn la_version(offered: u32) -> u32 {
    auditor::version(offered)
}

/// rtld-audit(7).
///
/// # Safety
/// Called by the loader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objopen(map: *mut LinkMap, namespace: isize, cookie: *const usize) -> u32 {
    // SAFETY: the loader calls it, with what rtld-audit(7) says.
    unsafe { auditor::open(map, namespace, cookie) }
}

/// Nothing in the gate panics. If it did, ending the process would be better than going on.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    lp_gate::report::refuse(&[b"internal error in the gate"])
}
