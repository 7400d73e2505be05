//! Functions that only make a system call, through others whose site serves many calls.
//!
//! Since glibc 2.41 read(2), write(2) and all others in which a thread can be cancelled call one function,
//! which makes the call at once if the process has a single thread (`nptl/cancellation.c`). Its site has the
//! number in a register and needs the longer entry. Here a function is followed from its start, as it would
//! run if its one decision went a certain way: if it then makes one call of [`QUICK_CALLS`] with its own
//! arguments, sets errno if that failed, and returns the result, a thunk can do the same by a shorter way.

use std::collections::BTreeMap;

use iced_x86::{
    Code, ConditionCode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};
use lp_abi::image::QUICK_CALLS;

use crate::elf::Elf;

/// Instructions after which a function is given up.
const STEPS: usize = 64;
/// How many arguments the calls of [`QUICK_CALLS`] have.
const ARGUMENTS: [usize; QUICK_CALLS.len()] = [3, 3, 2, 3, 4, 4, 4];
/// Registers that a function preserves.
const PRESERVED: [Register; 6] =
    [Register::RBX, Register::RBP, Register::R12, Register::R13, Register::R14, Register::R15];
/// Registers with a function's arguments, and with a system call's.
const OF_FUNCTION: [Register; 4] = [Register::RDI, Register::RSI, Register::RDX, Register::RCX];
const OF_CALL: [Register; 4] = [Register::RDI, Register::RSI, Register::RDX, Register::R10];

/// What such a function does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OneCall {
    /// The call.
    pub(crate) made: Made,
    /// When it makes it; otherwise it does something else.
    pub(crate) condition: Condition,
    /// Address of the word with the place of errno in thread-local storage.
    pub(crate) errno: u64,
    /// Address of the instruction by which it returns.
    pub(crate) ret: u64,
}

/// The system call that a function makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    /// Its index in [`QUICK_CALLS`].
    pub(crate) call: usize,
    /// How many arguments it has.
    pub(crate) arguments: usize,
    /// Whether the first one is a signed 32-bit number, and is extended.
    pub(crate) extends: bool,
    /// The site.
    pub(crate) site: u64,
}

/// A byte in the object's data: whether it must be other than 0, or 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) byte: u64,
    pub(crate) is_set: bool,
}

/// What the function at `start` does; `None` if that is not known to be one call.
pub(crate) fn one_call(elf: &Elf<'_>, start: u64) -> Option<OneCall> {
    [true, false].into_iter().find_map(|is_set| {
        let done = follow(elf, start, is_set, Outcome::Success)?;
        let failed = follow(elf, start, is_set, Outcome::Failure)?;
        let (made, byte, errno) = (done.made?, done.byte?, failed.errno?);
        let same = failed.made == Some(made) && failed.byte == Some(byte) && done.errno.is_none();
        let returned = (done.returned, failed.returned) == (Value::Result, Value::Constant(u64::MAX));
        let condition = Condition { byte, is_set };
        (same && returned).then_some(OneCall { made, condition, errno, ret: done.ret })
    })
}

/// How the system call ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Success,
    Failure,
}

/// What a register or a word of the stack holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    /// What the register held when the function was called.
    Initial(Register),
    /// The lower half of that, sign-extended.
    Extended(Register),
    Constant(u64),
    /// The stack pointer's first value plus this.
    Stack(i64),
    /// The word at an address of the object.
    Word(u64),
    /// The result of the system call.
    Result,
    /// Its lower half, negated.
    Errno,
    Unknown,
}

/// The last comparison.
#[derive(Clone, Copy)]
enum Compared {
    /// Of the result with the largest error: -4096 or -4095.
    Result(i64),
    /// Of a byte with 0.
    Byte(u64),
}

/// A function being followed, in the end what it did.
struct Run {
    registers: BTreeMap<Register, Value>,
    /// Words of the stack, by their distance from the stack pointer's first value.
    stack: BTreeMap<i64, Value>,
    compared: Option<Compared>,
    made: Option<Made>,
    byte: Option<u64>,
    errno: Option<u64>,
    returned: Value,
    ret: u64,
}

/// Follows the function at `start` to its return.
fn follow(elf: &Elf<'_>, start: u64, is_set: bool, outcome: Outcome) -> Option<Run> {
    let mut run = Run {
        registers: BTreeMap::from([(Register::RSP, Value::Stack(0))]),
        stack: BTreeMap::new(),
        compared: None,
        made: None,
        byte: None,
        errno: None,
        returned: Value::Unknown,
        ret: 0,
    };
    let mut at = start;
    for _ in 0..STEPS {
        let bytes = elf.at(at).filter(|_| elf.is_code(at))?;
        let instruction = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
        at = match instruction.flow_control() {
            FlowControl::Next => {
                run.execute(&instruction)?;
                instruction.next_ip()
            }
            FlowControl::Call if instruction.code() == Code::Syscall => {
                run.call(&instruction)?;
                instruction.next_ip()
            }
            FlowControl::Call => {
                run.push(Value::Constant(instruction.next_ip()))?;
                instruction.near_branch_target()
            }
            FlowControl::UnconditionalBranch => instruction.near_branch_target(),
            FlowControl::ConditionalBranch => {
                if run.branches(instruction.condition_code(), is_set, outcome)? {
                    instruction.near_branch_target()
                } else {
                    instruction.next_ip()
                }
            }
            FlowControl::Return if instruction.op_count() == 0 && run.top()? == 0 => {
                let kept = PRESERVED.iter().all(|register| run.get(*register) == Value::Initial(*register));
                (run.returned, run.ret) = (run.get(Register::RAX), at);
                return kept.then_some(run);
            }
            FlowControl::Return if instruction.op_count() == 0 => {
                let Value::Constant(back) = run.pop()? else { return None };
                back
            }
            _ => return None,
        };
    }
    None
}

impl Run {
    fn get(&self, register: Register) -> Value {
        self.registers.get(&register).copied().unwrap_or(Value::Initial(register))
    }

    fn set(&mut self, register: Register, value: Value) {
        self.registers.insert(register.full_register(), value);
    }

    /// The distance of the stack pointer from its first value.
    fn top(&self) -> Option<i64> {
        match self.get(Register::RSP) {
            Value::Stack(top) => Some(top),
            _ => None,
        }
    }

    fn push(&mut self, value: Value) -> Option<()> {
        let top = self.top()? - 8;
        self.stack.insert(top, value);
        self.set(Register::RSP, Value::Stack(top));
        Some(())
    }

    fn pop(&mut self) -> Option<Value> {
        let top = self.top()?;
        self.set(Register::RSP, Value::Stack(top + 8));
        (top < 0).then(|| self.stack.get(&top).copied().unwrap_or(Value::Unknown))
    }

    /// The value of an operand that is read: all 64 bits, or the lower half if it has only that.
    fn operand(&self, instruction: &Instruction, index: u32) -> Value {
        match instruction.op_kind(index) {
            OpKind::Register if instruction.op_register(index).is_gpr64() => {
                self.get(instruction.op_register(index))
            }
            OpKind::Memory if instruction.memory_size().size() == 8 => self.word(instruction),
            OpKind::Register | OpKind::Memory => Value::Unknown,
            _ => Value::Constant(instruction.immediate(index)),
        }
    }

    /// The value of the word in memory.
    fn word(&self, instruction: &Instruction) -> Value {
        if instruction.segment_prefix() == Register::None && instruction.is_ip_rel_memory_operand() {
            return Value::Word(instruction.ip_rel_memory_address());
        }
        let found = self.place(instruction).and_then(|place| self.stack.get(&place));
        found.copied().unwrap_or(Value::Unknown)
    }

    /// The place on the stack that an operand in memory names.
    fn place(&self, instruction: &Instruction) -> Option<i64> {
        let is_plain = instruction.segment_prefix() == Register::None
            && instruction.memory_index() == Register::None
            && instruction.memory_base().is_gpr64();
        match self.get(instruction.memory_base()) {
            Value::Stack(base) if is_plain => {
                Some(base.wrapping_add(instruction.memory_displacement64() as i64))
            }
            _ => None,
        }
    }

    /// Executes an instruction that only computes or moves.
    fn execute(&mut self, instruction: &Instruction) -> Option<()> {
        let target = instruction.op0_register();
        let whole = instruction.op0_kind() == OpKind::Register && (target.is_gpr64() || target.is_gpr32());
        match instruction.mnemonic() {
            Mnemonic::Endbr64 | Mnemonic::Nop => {}
            Mnemonic::Push => self.push(self.operand(instruction, 0))?,
            Mnemonic::Pop if whole => {
                let value = self.pop()?;
                self.set(target, value);
            }
            Mnemonic::Mov if whole => {
                let value = match self.operand(instruction, 1) {
                    Value::Constant(value) if target.is_gpr32() => Value::Constant(value & 0xffff_ffff),
                    _ if target.is_gpr32() => Value::Unknown,
                    value => value,
                };
                self.set(target, value);
            }
            Mnemonic::Mov => self.store(instruction)?,
            Mnemonic::Movsxd if whole && target.is_gpr64() && instruction.op1_kind() == OpKind::Register => {
                let from = instruction.op1_register().full_register();
                let value = match self.get(from) {
                    Value::Initial(register) => Value::Extended(register),
                    _ => Value::Unknown,
                };
                self.set(target, value);
            }
            Mnemonic::Xor if whole && instruction.op1_register() == target => {
                self.set(target, Value::Constant(0));
                self.compared = None;
            }
            Mnemonic::Add | Mnemonic::Sub if target == Register::RSP => {
                let Value::Constant(by) = self.operand(instruction, 1) else { return None };
                if by % 8 != 0 {
                    return None;
                }
                let by = if instruction.mnemonic() == Mnemonic::Sub { -(by as i64) } else { by as i64 };
                self.set(Register::RSP, Value::Stack(self.top()? + by));
                self.compared = None;
            }
            Mnemonic::Neg if target == Register::EAX => {
                let value =
                    if self.get(Register::RAX) == Value::Result { Value::Errno } else { Value::Unknown };
                self.set(target, value);
                self.compared = None;
            }
            Mnemonic::Or if whole && target.is_gpr64() => {
                let all = self.operand(instruction, 1) == Value::Constant(u64::MAX);
                self.set(target, if all { Value::Constant(u64::MAX) } else { Value::Unknown });
                self.compared = None;
            }
            Mnemonic::Cmp => self.compared = Some(self.comparison(instruction)?),
            _ => return None,
        }
        Some(())
    }

    /// A store to memory: of a word to the function's own stack, or of errno.
    fn store(&mut self, instruction: &Instruction) -> Option<()> {
        if instruction.segment_prefix() == Register::FS {
            let is_errno = instruction.op1_kind() == OpKind::Register
                && instruction.op1_register() == Register::EAX
                && self.get(Register::RAX) == Value::Errno
                && instruction.memory_index() == Register::None
                && instruction.memory_displacement64() == 0;
            let Value::Word(place) = self.get(instruction.memory_base()) else { return None };
            return (is_errno && self.errno.replace(place).is_none()).then_some(());
        }
        let place = self.place(instruction).filter(|place| *place < 0 && place % 8 == 0)?;
        if instruction.memory_size().size() != 8 {
            return None;
        }
        self.stack.insert(place, self.operand(instruction, 1));
        Some(())
    }

    /// A comparison that a branch may depend on.
    fn comparison(&self, instruction: &Instruction) -> Option<Compared> {
        match instruction.code() {
            Code::Cmp_rm8_imm8
                if instruction.immediate(1) == 0
                    && instruction.segment_prefix() == Register::None
                    && instruction.is_ip_rel_memory_operand() =>
            {
                Some(Compared::Byte(instruction.ip_rel_memory_address()))
            }
            Code::Cmp_RAX_imm32 | Code::Cmp_rm64_imm32
                if instruction.op0_register() == Register::RAX
                    && self.get(Register::RAX) == Value::Result =>
            {
                Some(Compared::Result(instruction.immediate(1) as i64))
            }
            _ => None,
        }
    }

    /// Whether a branch is taken.
    fn branches(&mut self, on: ConditionCode, is_set: bool, outcome: Outcome) -> Option<bool> {
        match (self.compared?, on) {
            (Compared::Byte(byte), ConditionCode::e | ConditionCode::ne) => {
                let only = self.byte.replace(byte).is_none_or(|other| other == byte);
                only.then_some((on == ConditionCode::ne) == is_set)
            }
            // The kernel's errors are -4095 to -1 (syscall(2)).
            (Compared::Result(-4096), ConditionCode::a) | (Compared::Result(-4095), ConditionCode::ae) => {
                Some(outcome == Outcome::Failure)
            }
            (Compared::Result(-4096), ConditionCode::be) | (Compared::Result(-4095), ConditionCode::b) => {
                Some(outcome == Outcome::Success)
            }
            _ => None,
        }
    }

    /// Makes the system call.
    fn call(&mut self, instruction: &Instruction) -> Option<()> {
        let Value::Constant(number) = self.get(Register::RAX) else { return None };
        let call = QUICK_CALLS.iter().position(|quick| u64::from(*quick) == number)?;
        let arguments = ARGUMENTS[call];
        let extends = self.get(Register::RDI) == Value::Extended(Register::RDI);
        let is_own = |index: usize| {
            self.get(OF_CALL[index]) == Value::Initial(OF_FUNCTION[index]) || index == 0 && extends
        };
        let made = Made { call, arguments, extends, site: instruction.ip() };
        if !(0..arguments).all(is_own) || self.made.replace(made).is_some() {
            return None;
        }
        self.set(Register::RAX, Value::Result);
        self.set(Register::RCX, Value::Unknown);
        self.set(Register::R11, Value::Unknown);
        self.compared = None;
        Some(())
    }
}
