//! Properties of one instruction: whether it serialises, whether it enters the kernel, and which memory it
//! touches.

use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
    UsedMemory,
};
use nix::libc::user_regs_struct;

/// The longest instruction, in bytes.
pub(crate) const LONGEST: usize = 15;

/// Why an instruction waits for, or orders, more than its own operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Serialising {
    /// A `lock` prefix, or `xchg` with memory, which locks without one.
    Locked,
    /// `mfence`, `lfence` or `sfence`.
    Fence,
    /// `cpuid`, `serialize` and similar.
    Whole,
}

/// A piece of memory that an instruction touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    pub address: u64,
    pub size: u64,
    pub reads: bool,
    pub writes: bool,
}

/// The instruction in `code`, at `address`.
pub(crate) fn instruction(code: &[u8], address: u64) -> Instruction {
    Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode()
}

/// Whether `instruction` serialises, and how.
pub(crate) fn serialising(instruction: &Instruction) -> Option<Serialising> {
    let memory = instruction.op0_kind() == OpKind::Memory || instruction.op1_kind() == OpKind::Memory;
    match instruction.mnemonic() {
        Mnemonic::Mfence | Mnemonic::Lfence | Mnemonic::Sfence => Some(Serialising::Fence),
        Mnemonic::Cpuid | Mnemonic::Serialize | Mnemonic::Iretq | Mnemonic::Iretd => Some(Serialising::Whole),
        Mnemonic::Xchg if memory => Some(Serialising::Locked),
        _ if instruction.has_lock_prefix() => Some(Serialising::Locked),
        _ => None,
    }
}

/// The memory that `instruction` touches when it is executed with `registers`. For a repeated string
/// instruction, the memory of its next iteration: single-stepping stops after each.
pub(crate) fn accesses(
    factory: &mut InstructionInfoFactory,
    instruction: &Instruction,
    registers: &user_regs_struct,
) -> Vec<Access> {
    let repeated = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    if repeated && instruction.is_string_instruction() && registers.rcx == 0 {
        return Vec::new();
    }
    let info = factory.info(instruction);
    info.used_memory().iter().filter_map(|memory| access(memory, instruction, registers)).collect()
}

fn access(memory: &UsedMemory, instruction: &Instruction, registers: &user_regs_struct) -> Option<Access> {
    let (reads, writes) = match memory.access() {
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write | OpAccess::CondWrite => (false, true),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
        _ => return None,
    };
    let address = memory.virtual_address(0, |register, _, _| value(register, registers))?;
    // For a repeated string instruction the library returns no size, because it depends on the count; one
    // iteration touches one element. An operand whose size depends on state (xsave) counts as one cache line.
    let size = match (memory.memory_size().size(), instruction.memory_size().size()) {
        (0, 0) => 64,
        (0, element) => element as u64,
        (size, _) => size as u64,
    };
    Some(Access { address, size, reads, writes })
}

/// A general or segment-base register's value, as `virtual_address` asks for it.
fn value(register: Register, registers: &user_regs_struct) -> Option<u64> {
    let full = match register {
        Register::FS => return Some(registers.fs_base),
        Register::GS => return Some(registers.gs_base),
        Register::CS | Register::DS | Register::ES | Register::SS => return Some(0),
        register => register.full_register(),
    };
    let whole = match full {
        Register::RAX => registers.rax,
        Register::RBX => registers.rbx,
        Register::RCX => registers.rcx,
        Register::RDX => registers.rdx,
        Register::RSI => registers.rsi,
        Register::RDI => registers.rdi,
        Register::RBP => registers.rbp,
        Register::RSP => registers.rsp,
        Register::R8 => registers.r8,
        Register::R9 => registers.r9,
        Register::R10 => registers.r10,
        Register::R11 => registers.r11,
        Register::R12 => registers.r12,
        Register::R13 => registers.r13,
        Register::R14 => registers.r14,
        Register::R15 => registers.r15,
        _ => return None,
    };
    Some(if register.size() == 4 { whole & 0xffff_ffff } else { whole })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All zero.
    fn registers() -> user_regs_struct {
        // SAFETY: the struct consists of integers, for which zero is a valid value.
        unsafe { std::mem::zeroed() }
    }

    fn touched(code: &[u8], registers: &user_regs_struct) -> Vec<Access> {
        accesses(&mut InstructionInfoFactory::new(), &instruction(code, 0x1000), registers)
    }

    #[test]
    fn locks_fences_and_plain_stores_are_told_apart() {
        let kind = |code: &[u8]| serialising(&instruction(code, 0));
        assert_eq!(kind(&[0xf0, 0x48, 0x0f, 0xb1, 0x0f]), Some(Serialising::Locked)); // lock cmpxchg %rcx,(%rdi)
        assert_eq!(kind(&[0x48, 0x87, 0x07]), Some(Serialising::Locked)); // xchg %rax,(%rdi)
        assert_eq!(kind(&[0x48, 0x93]), None); // xchg %rax,%rbx
        assert_eq!(kind(&[0x0f, 0xae, 0xf0]), Some(Serialising::Fence)); // mfence
        assert_eq!(kind(&[0x0f, 0xa2]), Some(Serialising::Whole)); // cpuid
        assert_eq!(kind(&[0x48, 0x89, 0x07]), None); // mov %rax,(%rdi)
    }

    #[test]
    fn addresses_come_from_the_registers() {
        let mut regs = registers();
        (regs.rdi, regs.rcx) = (0x5000, 3);
        // mov %rax,8(%rdi,%rcx,4)
        let store = touched(&[0x48, 0x89, 0x44, 0x8f, 0x08], &regs);
        assert_eq!(store, [Access { address: 0x5014, size: 8, reads: false, writes: true }]);
        regs.fs_base = 0x9000;
        // mov %fs:0x10,%rax
        let thread = touched(&[0x64, 0x48, 0x8b, 0x04, 0x25, 0x10, 0, 0, 0], &regs);
        assert_eq!(thread, [Access { address: 0x9010, size: 8, reads: true, writes: false }]);
    }

    #[test]
    fn a_string_copy_touches_what_its_next_round_does() {
        let mut regs = registers();
        (regs.rdi, regs.rsi, regs.rcx) = (0x5000, 0x6000, 2);
        let copy = touched(&[0xf3, 0xa4], &regs); // rep movsb
        assert!(copy.iter().any(|a| a.address == 0x5000 && a.writes && a.size == 1), "{copy:?}");
        assert!(copy.iter().any(|a| a.address == 0x6000 && a.reads && !a.writes), "{copy:?}");
        regs.rcx = 0;
        assert!(touched(&[0xf3, 0xa4], &regs).is_empty());
    }
}
