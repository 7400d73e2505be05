//! The target of a site's jump; [`lp_abi::image`] describes what it does.

use iced_x86::{BlockEncoder, BlockEncoderOptions, Decoder, DecoderOptions, Instruction, InstructionBlock};
use lp_abi::image::{BACK_TO_SITE, Fixup, GATE_PAGE, GatePage, QUICK_CALLS};

use crate::code::SYSCALL;
use crate::function::{Made, OneCall};

/// Alignment of thunks in bytes.
pub(crate) const ALIGN: usize = 16;
/// Bytes of a distance.
const DISTANCE: usize = 4;
/// `lea rsp, [rsp - 128]`: what is below may be in use.
const BEYOND_RED_ZONE: [u8; 5] = [0x48, 0x8d, 0x64, 0x24, 0x80];
/// `jo`, before its distance.
const JO: [u8; 2] = [0x0f, 0x80];

/// The entry through which a thunk enters the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateEntry {
    /// No vector register is live at the site.
    Plain,
    /// Vector registers are saved.
    Vector,
    /// As `Plain`, for one of [`lp_abi::image::QUICK_CALLS`], by its index.
    Quick(usize),
    /// As `Vector`, for exit(2) alone: the site's stack may be another thread's by now.
    Exit,
    /// As `Quick`, and no argument register is live after the site.
    QuickScratch(usize),
}

impl GateEntry {
    /// Offset of its slot in the [`GatePage`].
    pub fn slot(self) -> usize {
        match self {
            GateEntry::Plain => std::mem::offset_of!(GatePage, entry),
            GateEntry::Vector | GateEntry::Exit => std::mem::offset_of!(GatePage, entry_vector),
            GateEntry::Quick(index) => std::mem::offset_of!(GatePage, quick) + 8 * index,
            GateEntry::QuickScratch(index) => std::mem::offset_of!(GatePage, quick_scratch) + 8 * index,
        }
    }
}

/// How thunks find the gate's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slots {
    /// In the process's [`GatePage`], at its fixed address.
    Process,
    /// In the object itself, at this address.
    Object(u64),
}

/// The parts of a thunk.
pub struct Parts<'a> {
    /// Displaced instructions before the site.
    pub before: &'a [Instruction],
    /// Displaced instructions after it; `None` when the site's own `syscall` stays.
    pub behind: Option<&'a [Instruction]>,
    /// Address of the site's `syscall`.
    pub site: u64,
    /// The gate's entry.
    pub entry: GateEntry,
    /// Where its address is found.
    pub slots: Slots,
}

/// The parts of a thunk that stands for a function.
pub(crate) struct WholeParts<'a> {
    /// The function's first instructions, displaced.
    pub(crate) first: &'a [Instruction],
    /// What it does.
    pub(crate) does: OneCall,
    /// Where the gate's address is found.
    pub(crate) slots: Slots,
}

/// An assembled thunk.
pub struct Thunk {
    /// Its code.
    pub bytes: Vec<u8>,
    /// Offsets of distances that lead out of the thunks.
    pub fixups: Vec<u32>,
    /// What it does, in the order of its code.
    pub steps: Vec<Step>,
}

/// An instruction of a thunk, and the place in the object that it corresponds to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Where it starts in the thunk.
    pub offset: u32,
    /// How far the stack pointer is below the site's.
    pub below: u32,
    /// The instruction of the object that it replaces.
    pub replaces: u64,
}

/// A branch through memory, as the bits of its ModRM byte that tell it from others.
#[derive(Clone, Copy)]
enum Branch {
    Call = 2 << 3,
    Jump = 4 << 3,
}

/// Code being assembled at an address.
struct Writer {
    at: u64,
    thunk: Thunk,
    /// What the next instructions replace, and how far the stack pointer is below there.
    replaces: u64,
    below: u32,
}

/// Assembles a thunk at `at`.
///
/// # Errors
/// The encoder's error for an instruction that cannot reach its operand.
pub(crate) fn assemble(parts: &Parts<'_>, at: u64) -> Result<Thunk, String> {
    let mut code = Writer::new(at);
    code.displaced(parts.before)?;
    code.stands(0, parts.site);
    if parts.entry == GateEntry::Exit {
        code.through(Branch::Jump, parts.slots, parts.entry)?;
        return Ok(code.thunk);
    }
    code.call_gate(parts.slots, parts.entry, parts.site)?;
    match parts.behind {
        None => {
            code.branch(&JO, parts.site)?;
            code.branch(&[0xe9], parts.site + 2)?; // jmp
        }
        Some(behind) => {
            let to_copy = code.ahead(&JO);
            code.rest(parts, behind)?;
            code.distance_out(parts.site)?; // For unwinders.
            code.arrive(to_copy);
            code.stands(0, parts.site);
            code.instruction(&SYSCALL);
            code.rest(parts, behind)?;
        }
    }
    Ok(code.thunk)
}

/// Assembles a thunk at `at` that a function starts with.
///
/// # Errors
/// As of [`assemble`].
pub(crate) fn assemble_whole(parts: &WholeParts<'_>, at: u64) -> Result<Thunk, String> {
    let OneCall { made: Made { call, arguments, extends, .. }, condition, errno, ret } = parts.does;
    let last = parts.first.last().ok_or("a function without instructions")?;
    let mut code = Writer::new(at);
    code.stands(0, ret);
    if arguments > 3 {
        code.instruction(&[0x49, 0x89, 0xca]); // mov r10, rcx
    }
    code.branch(&[0x80, 0x3d], condition.byte.wrapping_sub(1))?; // cmp byte ptr [rip + condition], 0
    code.raw(&[0]);
    let otherwise = code.ahead(&[0x0f, if condition.is_set { 0x84 } else { 0x85 }]); // je or jne
    if extends {
        code.instruction(&[0x48, 0x63, 0xff]); // movsxd rdi, edi
    }
    code.instruction(&[0xb8]); // mov eax, number
    code.raw(&QUICK_CALLS[call].to_le_bytes());
    code.call_gate(parts.slots, GateEntry::QuickScratch(call), ret)?;
    let not_ours = code.ahead(&JO);
    code.instruction(&[0x48, 0x85, 0xc0]); // test rax, rax
    let failed = code.ahead(&[0x0f, 0x88]); // js
    code.instruction(&[0xc3]); // ret
    code.arrive(failed);
    code.branch(&[0x48, 0x8b, 0x0d], errno)?; // mov rcx, [rip + errno]
    code.instruction(&[0xf7, 0xd8]); // neg eax
    code.instruction(&[0x64, 0x89, 0x01]); // mov fs:[rcx], eax
    code.instruction(&[0x48, 0x83, 0xc8, 0xff]); // or rax, -1
    code.instruction(&[0xc3]); // ret
    // Unwinders find the caller two bytes behind this place, and look it up by the byte before that.
    // Debuggers may write a breakpoint there.
    code.distance_out(ret.wrapping_sub(1))?;
    code.arrive(otherwise);
    code.arrive(not_ours);
    code.stands(0, ret);
    if arguments > 3 {
        code.instruction(&[0x4c, 0x89, 0xd1]); // mov rcx, r10
    }
    code.displaced(parts.first)?;
    code.stands(0, last.next_ip());
    code.branch(&[0xe9], last.next_ip())?; // jmp
    Ok(code.thunk)
}

impl Writer {
    fn new(at: u64) -> Writer {
        let thunk = Thunk { bytes: Vec::new(), fixups: Vec::new(), steps: Vec::new() };
        Writer { at, thunk, replaces: 0, below: 0 }
    }

    /// The instructions that followed the site's, and the way back behind them.
    fn rest(&mut self, parts: &Parts<'_>, behind: &[Instruction]) -> Result<(), String> {
        self.displaced(behind)?;
        let next = behind.last().map_or(parts.site + 2, Instruction::next_ip);
        self.stands(0, next);
        self.branch(&[0xe9], next) // jmp
    }

    /// What the next instructions replace, with the stack pointer so far below.
    fn stands(&mut self, below: u32, replaces: u64) {
        (self.below, self.replaces) = (below, replaces);
    }

    /// The first bytes of an instruction, or all. Each is a step, because unwinders get the place in the
    /// object as a distance from it.
    fn instruction(&mut self, bytes: &[u8]) {
        let offset = self.thunk.bytes.len() as u32;
        self.thunk.steps.push(Step { offset, below: self.below, replaces: self.replaces });
        self.raw(bytes);
    }

    /// A branch to a later place in the thunk: returns where its distance is, for [`Writer::arrive`].
    fn ahead(&mut self, opcode: &[u8]) -> usize {
        self.instruction(opcode);
        let at = self.thunk.bytes.len();
        self.raw(&[0; DISTANCE]);
        at
    }

    /// Has the branch whose distance is at `at` lead here.
    fn arrive(&mut self, at: usize) {
        let distance = (self.thunk.bytes.len() - at - DISTANCE) as u32;
        self.thunk.bytes[at..at + DISTANCE].copy_from_slice(&distance.to_le_bytes());
    }

    fn here(&self) -> u64 {
        self.at.wrapping_add(self.thunk.bytes.len() as u64)
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.thunk.bytes.extend_from_slice(bytes);
    }

    /// Calls the gate below the red zone, in place of what is at `replaces`. What follows is [`JO`].
    fn call_gate(&mut self, slots: Slots, entry: GateEntry, replaces: u64) -> Result<(), String> {
        self.instruction(&BEYOND_RED_ZONE);
        self.stands(128, replaces);
        self.through(Branch::Call, slots, entry)?;
        self.instruction(&BACK_TO_SITE[..BACK_TO_SITE.len() - JO.len()]);
        self.stands(0, replaces);
        Ok(())
    }

    /// `call [slot]` or `jmp [slot]`.
    fn through(&mut self, branch: Branch, slots: Slots, entry: GateEntry) -> Result<(), String> {
        match slots {
            Slots::Process => {
                self.instruction(&[0xff, branch as u8 | 4, 0x25]);
                self.raw(&((GATE_PAGE + entry.slot()) as u32).to_le_bytes());
            }
            Slots::Object(at) => {
                self.instruction(&[0xff, branch as u8 | 5]);
                let distance = self.distance(at + entry.slot() as u64)?;
                self.raw(&distance.to_le_bytes());
            }
        }
        Ok(())
    }

    /// The distance to `target` from the end of the next four bytes.
    fn distance(&self, target: u64) -> Result<i32, String> {
        let distance = target.wrapping_sub(self.here() + 4) as i64;
        i32::try_from(distance).map_err(|_| format!("{target:#x} is out of reach"))
    }

    /// An instruction that ends with the distance to `target`, outside of the thunks, or contains it.
    fn branch(&mut self, opcode: &[u8], target: u64) -> Result<(), String> {
        self.instruction(opcode);
        self.distance_out(target)
    }

    /// The distance to `target`, outside of the thunks.
    fn distance_out(&mut self, target: u64) -> Result<(), String> {
        let distance = self.distance(target)?;
        self.thunk.fixups.push(self.thunk.bytes.len() as u32);
        self.raw(&distance.to_le_bytes());
        Ok(())
    }

    fn displaced(&mut self, instructions: &[Instruction]) -> Result<(), String> {
        if instructions.is_empty() {
            return Ok(());
        }
        let start = self.here();
        let block = InstructionBlock::new(instructions, start);
        let encoded =
            BlockEncoder::encode(64, block, BlockEncoderOptions::NONE).map_err(|error| error.to_string())?;
        let mut decoder = Decoder::with_ip(64, &encoded.code_buffer, start, DecoderOptions::NONE);
        for original in instructions {
            let offset = self.thunk.bytes.len() + decoder.position();
            self.thunk.steps.push(Step { offset: offset as u32, below: 0, replaces: original.ip() });
            let instruction = decoder.decode();
            if instruction.is_ip_rel_memory_operand() {
                let place = decoder.get_constant_offsets(&instruction).displacement_offset();
                self.thunk.fixups.push((offset + place) as u32);
            }
        }
        self.raw(&encoded.code_buffer);
        Ok(())
    }
}

/// The fixup for an offset in the thunk pages.
pub fn fixup(offset: usize) -> Fixup {
    Fixup { at: offset as u32 | Fixup::IN_THUNK }
}
