//! The target of a site's jump; [`lp_abi::image`] describes what it does.

use iced_x86::{BlockEncoder, BlockEncoderOptions, Decoder, DecoderOptions, Instruction, InstructionBlock};
use lp_abi::image::{BACK_TO_SITE, Fixup, GATE_PAGE, GatePage};

use crate::code::SYSCALL;

/// Alignment of thunks in bytes.
pub(crate) const ALIGN: usize = 16;
/// Bytes of a distance.
const DISTANCE: usize = 4;

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

/// An assembled thunk.
pub struct Thunk {
    /// Its code.
    pub bytes: Vec<u8>,
    /// Offsets of distances that lead out of the thunks.
    pub fixups: Vec<u32>,
    /// What it does, in the order of its code.
    pub steps: Vec<Step>,
}

/// Code of a thunk that corresponds to one place in the object.
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
}

/// Assembles a thunk at `at`.
///
/// # Errors
/// The encoder's error for an instruction that cannot reach its operand.
pub(crate) fn assemble(parts: &Parts<'_>, at: u64) -> Result<Thunk, String> {
    let empty = Thunk { bytes: Vec::new(), fixups: Vec::new(), steps: Vec::new() };
    let mut code = Writer { at, thunk: empty };
    code.displaced(parts.before)?;
    code.step(0, parts.site);
    if parts.entry == GateEntry::Exit {
        code.through(Branch::Jump, parts.slots, parts.entry)?;
        return Ok(code.thunk);
    }
    code.raw(&[0x48, 0x8d, 0x64, 0x24, 0x80]); // lea rsp, [rsp - 128]
    code.step(128, parts.site);
    code.through(Branch::Call, parts.slots, parts.entry)?;
    match parts.behind {
        None => {
            code.branch(&BACK_TO_SITE, parts.site)?;
            code.step(0, parts.site);
            code.branch(&[0xe9], parts.site + 2)?; // jmp
        }
        Some(behind) => {
            code.raw(&BACK_TO_SITE);
            let to_copy = code.thunk.bytes.len();
            code.raw(&[0; DISTANCE]);
            code.rest(parts, behind)?;
            code.distance_to_site(parts.site)?;
            let distance = (code.thunk.bytes.len() - to_copy - DISTANCE) as u32;
            code.thunk.bytes[to_copy..to_copy + DISTANCE].copy_from_slice(&distance.to_le_bytes());
            code.step(0, parts.site);
            code.raw(&SYSCALL);
            code.rest(parts, behind)?;
        }
    }
    Ok(code.thunk)
}

impl Writer {
    /// The instructions that followed the site's, and the way back behind them.
    fn rest(&mut self, parts: &Parts<'_>, behind: &[Instruction]) -> Result<(), String> {
        self.step(0, parts.site + 2);
        self.displaced(behind)?;
        let next = behind.last().map_or(parts.site + 2, Instruction::next_ip);
        self.step(0, next);
        self.branch(&[0xe9], next) // jmp
    }

    fn step(&mut self, below: u32, replaces: u64) {
        let offset = self.thunk.bytes.len() as u32;
        self.thunk.steps.push(Step { offset, below, replaces });
    }

    /// The distance of the site from the address after it: what unwinders need to know.
    fn distance_to_site(&mut self, site: u64) -> Result<(), String> {
        self.branch(&[], site)
    }

    fn here(&self) -> u64 {
        self.at.wrapping_add(self.thunk.bytes.len() as u64)
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.thunk.bytes.extend_from_slice(bytes);
    }

    /// `call [slot]` or `jmp [slot]`.
    fn through(&mut self, branch: Branch, slots: Slots, entry: GateEntry) -> Result<(), String> {
        match slots {
            Slots::Process => {
                self.raw(&[0xff, branch as u8 | 4, 0x25]);
                self.raw(&((GATE_PAGE + entry.slot()) as u32).to_le_bytes());
            }
            Slots::Object(at) => {
                self.raw(&[0xff, branch as u8 | 5]);
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

    fn branch(&mut self, opcode: &[u8], target: u64) -> Result<(), String> {
        self.raw(opcode);
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
