//! Processor features.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};

/// Whether AVX2 is usable: the processor supports it and the kernel saves its registers (Intel SDM vol. 1,
/// 14.3). Slow in a virtual machine, where `cpuid` traps to the monitor.
pub fn has_avx2() -> bool {
    const OSXSAVE_AND_AVX: u32 = 1 << 27 | 1 << 28;
    const AVX2: u32 = 1 << 5;
    const XMM_AND_YMM: u32 = 1 << 1 | 1 << 2;
    if cfg!(miri) {
        return false;
    }
    if __cpuid(0).eax < 7 || __cpuid(1).ecx & OSXSAVE_AND_AVX != OSXSAVE_AND_AVX {
        return false;
    }
    let kept: u32;
    // SAFETY: OSXSAVE says that the instruction exists; it reads a register.
    unsafe { asm!("xgetbv", in("ecx") 0, out("eax") kept, out("edx") _, options(nomem, nostack)) };
    kept & XMM_AND_YMM == XMM_AND_YMM && __cpuid_count(7, 0).ebx & AVX2 != 0
}
