//! Chooses the instructions at a site that a jump replaces.

use std::collections::BTreeSet;
use std::ops::Range;

use iced_x86::{Code, FlowControl, Instruction, InstructionInfoFactory, OpAccess, Register};

use crate::code::Listing;

/// Bytes of `jmp rel32`.
pub(crate) const JUMP: usize = 5;

/// Instructions to displace, as indices in the listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    /// Those before the site: the site's own `syscall` stays and makes the kernel's call.
    Before(Range<usize>),
    /// Instructions around the site, including the `syscall`: the thunk makes the kernel's call. Used only if
    /// there is no room before the site, because unwinders do not know addresses in a thunk.
    Around(Range<usize>),
}

impl Window {
    /// The indices.
    pub(crate) fn range(&self) -> Range<usize> {
        match self {
            Window::Before(range) | Window::Around(range) => range.clone(),
        }
    }
}

/// Chooses the window for the site at `index`; `None` if there is none. `targets` are all jump targets near
/// sites.
pub(crate) fn choose(listing: &Listing, index: usize, targets: &BTreeSet<u64>) -> Option<Window> {
    let free = |address: u64| !targets.contains(&address) && !listing.branches.contains_key(&address);
    let all = &listing.instructions;
    // Backwards, as long as nothing jumps past the first displaced instruction.
    let mut first = index;
    let mut bytes = 0;
    while bytes < JUMP && first > 0 && free(all[first].ip()) && can_move(&all[first - 1]) {
        first -= 1;
        bytes += all[first].len();
    }
    if bytes >= JUMP {
        return Some(Window::Before(first..index));
    }
    bytes += all[index].len();
    let mut end = index + 1;
    while bytes < JUMP {
        let next = all.get(end).filter(|next| can_move(next) && free(next.ip()))?;
        bytes += next.len();
        end += 1;
    }
    Some(Window::Around(first..end))
}

/// The number of instructions at the start of a function that a jump to its thunk displaces; `None` if they
/// cannot be moved, or if a jump may lead between them.
pub(crate) fn at_start(listing: &Listing, targets: &BTreeSet<u64>) -> Option<usize> {
    let mut bytes = 0;
    for (index, instruction) in listing.instructions.iter().enumerate() {
        let at = instruction.ip();
        let is_entered = targets.contains(&at) || listing.branches.contains_key(&at);
        if index > 0 && is_entered || !can_move(instruction) {
            return None;
        }
        bytes += instruction.len();
        if bytes >= JUMP {
            return Some(index + 1);
        }
    }
    None
}

/// Whether an instruction has the same effect at another address (after its operand is corrected), and the
/// next one follows it.
fn can_move(instruction: &Instruction) -> bool {
    instruction.flow_control() == FlowControl::Next && instruction.code() != Code::INVALID
}

/// Registers that a system call preserves and the gate may clobber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RegisterClass {
    /// xmm0-15: free at calls and returns, except for results.
    Vectors,
    /// Those of a system call's arguments. A function's arguments count as read by it.
    Arguments,
}

/// Argument registers, of system calls and of functions.
const ARGUMENTS: [Register; 7] =
    [Register::RDI, Register::RSI, Register::RDX, Register::R10, Register::R8, Register::R9, Register::RCX];

impl RegisterClass {
    /// A register's bit in a set; none if it is of another class.
    fn bit(self, register: Register) -> Option<u32> {
        let full = register.full_register();
        let index = match self {
            RegisterClass::Vectors if full.is_vector_register() => full as u32 - Register::ZMM0 as u32,
            RegisterClass::Arguments => ARGUMENTS.iter().position(|argument| *argument == full)? as u32,
            RegisterClass::Vectors => return None,
        };
        Some(1 << index)
    }

    /// Registers considered written at the site itself: `rcx`, which the kernel changes.
    fn at_site(self) -> u32 {
        match self {
            RegisterClass::Vectors => 0,
            RegisterClass::Arguments => self.bit(Register::RCX).unwrap_or(0),
        }
    }

    /// Whether a function that is called with only `written` newly set may read a value from before the site.
    fn is_read_by_call(self, written: u32) -> bool {
        self == RegisterClass::Arguments && written.count_ones() < ARGUMENTS.len() as u32
    }
}

/// Whether a register of the class may be live across the site: then the gate must preserve it. Follows the
/// listing from the site on, and treats what it cannot follow as the end.
pub(crate) fn live(class: RegisterClass, listing: &Listing, index: usize) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let mut work = vec![(index + 1, class.at_site())];
    let mut seen = std::collections::HashSet::new();
    while let Some((mut at, mut written)) = work.pop() {
        while let Some(instruction) = listing.instructions.get(at) {
            if !seen.insert((at, written)) || seen.len() > 20_000 {
                break;
            }
            if reads_unwritten(class, instruction, &mut factory, &mut written) {
                return true;
            }
            match instruction.flow_control() {
                FlowControl::Next => {}
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch => {
                    let target = listing.index(instruction.near_branch_target());
                    if target.is_none() && class.is_read_by_call(written) {
                        return true;
                    }
                    work.extend(target.map(|target| (target, written)));
                    if instruction.flow_control() == FlowControl::UnconditionalBranch {
                        break;
                    }
                }
                FlowControl::Return => break,
                _ if class.is_read_by_call(written) => return true,
                _ => break,
            }
            at += 1;
        }
    }
    false
}

/// Whether the instruction reads a register of the class that is not in the set `written`; adds what it
/// writes to the set.
fn reads_unwritten(
    class: RegisterClass,
    instruction: &Instruction,
    factory: &mut InstructionInfoFactory,
    written: &mut u32,
) -> bool {
    // A register combined with itself: the result depends on nothing.
    let zeroes = matches!(
        instruction.code(),
        Code::Pxor_xmm_xmmm128
            | Code::Xorps_xmm_xmmm128
            | Code::Xorpd_xmm_xmmm128
            | Code::Xor_r32_rm32
            | Code::Xor_rm32_r32
    ) && instruction.op0_register() == instruction.op1_register();
    let mut writes = 0;
    for used in factory.info(instruction).used_registers() {
        let Some(bit) = class.bit(used.register()) else { continue };
        let reads = !matches!(used.access(), OpAccess::Write | OpAccess::CondWrite | OpAccess::NoMemAccess);
        if reads && !zeroes && *written & bit == 0 {
            return true;
        }
        if used.access() != OpAccess::CondWrite {
            writes |= bit;
        }
    }
    *written |= writes;
    false
}
