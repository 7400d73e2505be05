//! Determines which system call a site makes: the possible values of `eax` there.

use std::collections::{BTreeSet, HashSet};

use iced_x86::{Code, FlowControl, Instruction, InstructionInfoFactory, OpAccess, OpKind, Register};

use crate::code::Listing;

/// Steps back before a search gives up.
const STEPS: usize = 4096;

/// The numbers that a site can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Number {
    /// One of these, on every path.
    Known(BTreeSet<u32>),
    /// It comes from elsewhere, such as the argument of syscall(2)'s wrapper.
    Dynamic,
}

impl Number {
    /// Whether the gate must see the call.
    pub fn is_needed(&self) -> bool {
        match self {
            Number::Known(numbers) => numbers.iter().any(|nr| lp_abi::gated::is_gated(*nr)),
            Number::Dynamic => true,
        }
    }

    /// Whether it is `nr` and nothing else.
    pub fn is(&self, nr: u32) -> bool {
        matches!(self, Number::Known(numbers) if numbers.len() == 1 && numbers.contains(&nr))
    }
}

/// Traces back from the instruction at `index` along all paths. `entered` are places that are reached in ways
/// that the listing does not show.
pub(crate) fn at_site(listing: &Listing, index: usize, entered: &BTreeSet<u64>) -> Number {
    match values(listing, index, Register::RAX, entered) {
        Some(numbers) if !numbers.is_empty() => Number::Known(numbers),
        _ => Number::Dynamic,
    }
}

/// The constants that `register` can hold before the instruction at `index`; `None` if other values are
/// possible.
fn values(
    listing: &Listing,
    index: usize,
    register: Register,
    entered: &BTreeSet<u64>,
) -> Option<BTreeSet<u32>> {
    let mut found = BTreeSet::new();
    let mut seen = HashSet::new();
    let mut work = vec![(index, register)];
    let mut factory = InstructionInfoFactory::new();
    while let Some((index, register)) = work.pop() {
        if !seen.insert((index, register)) {
            continue;
        }
        if seen.len() > STEPS {
            return None;
        }
        for before in predecessors(listing, index, entered)? {
            match effect(listing, before, register, &mut factory, entered) {
                Effect::None => work.push((before, register)),
                Effect::Copies(other) => work.push((before, other)),
                Effect::Sets(values) => found.extend(values),
                Effect::Unknown => return None,
            }
        }
    }
    Some(found)
}

/// The instructions that can precede the one at `index`; `None` if it can also be entered in other ways.
fn predecessors(listing: &Listing, index: usize, entered: &BTreeSet<u64>) -> Option<Vec<usize>> {
    let address = listing.instructions[index].ip();
    if entered.contains(&address) {
        return None;
    }
    let mut all: Vec<usize> = listing.branches.get(&address).cloned().unwrap_or_default();
    match index.checked_sub(1) {
        None => return None,
        Some(before) if listing.falls_through(before) => all.push(before),
        Some(_) => {}
    }
    Some(all)
}

enum Effect {
    None,
    Copies(Register),
    Sets(BTreeSet<u32>),
    Unknown,
}

fn effect(
    listing: &Listing,
    index: usize,
    register: Register,
    factory: &mut InstructionInfoFactory,
    entered: &BTreeSet<u64>,
) -> Effect {
    let instruction = &listing.instructions[index];
    if instruction.code() == Code::INVALID || instruction.code() == Code::Syscall && register == Register::RAX
    {
        return Effect::Unknown;
    }
    if is_call(instruction) {
        return if is_kept_by_calls(register) { Effect::None } else { Effect::Unknown };
    }
    let info = factory.info(instruction);
    let writes = info.used_registers().iter().any(|used| {
        used.register().full_register() == register
            && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead)
    });
    if !writes {
        return Effect::None;
    }
    let one = |value: u64| Effect::Sets(BTreeSet::from([value as u32]));
    let written = instruction.op0_register();
    match instruction.code() {
        Code::Mov_r32_imm32 | Code::Mov_rm32_imm32 | Code::Mov_r64_imm64 | Code::Mov_rm64_imm32 => {
            one(instruction.immediate(1))
        }
        Code::Xor_r32_rm32
        | Code::Xor_rm32_r32
        | Code::Xor_r64_rm64
        | Code::Xor_rm64_r64
        | Code::Sub_r32_rm32
        | Code::Sub_rm32_r32
            if instruction.op1_kind() == OpKind::Register && instruction.op1_register() == written =>
        {
            one(0)
        }
        Code::Mov_r32_rm32 | Code::Mov_rm32_r32 | Code::Mov_r64_rm64 | Code::Mov_rm64_r64
            if instruction.op1_kind() == OpKind::Register =>
        {
            Effect::Copies(instruction.op1_register().full_register())
        }
        Code::Mov_r8_imm8 | Code::Mov_rm8_imm8 if written == Register::AL && register == Register::RAX => {
            // The rest of the register keeps its previous value.
            let low = instruction.immediate(1) as u32 & 0xff;
            match values(listing, index, register, entered) {
                Some(values) => Effect::Sets(values.iter().map(|value| value & !0xff | low).collect()),
                None => Effect::Unknown,
            }
        }
        Code::Pop_r64 | Code::Pop_rm64 => {
            match index.checked_sub(1).map(|before| listing.instructions[before]) {
                Some(push) if matches!(push.code(), Code::Pushq_imm8 | Code::Pushq_imm32) => {
                    one(push.immediate(0))
                }
                _ => Effect::Unknown,
            }
        }
        _ => Effect::Unknown,
    }
}

fn is_call(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
        && instruction.code() != Code::Syscall
}

fn is_kept_by_calls(register: Register) -> bool {
    matches!(
        register,
        Register::RBX | Register::RBP | Register::R12 | Register::R13 | Register::R14 | Register::R15
    )
}
