//! The preload library: the gate as a shared object that needs no other and exports nothing.
#![no_std]

mod memory;

core::arch::global_asm!(
    ".pushsection .text.lp_init,\"ax\",@progbits",
    ".globl lp_init",
    ".hidden lp_init",
    "lp_init:",
    "jmp {start}",
    ".popsection",
    start = sym lp_gate::attach::lp_gate_start,
);

/// Nothing in the gate panics; should it, going on would be worse than the end of the process.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    lp_gate::report::refuse(&[b"internal error in the gate"])
}
