//! A dynamic linker that knows the processor, and starts programs that are executed by outlines.
//!
//! The system's dynamic linker asks the processor for its features some 70 times at each start of a program.
//! On a virtual machine every CPUID instruction leaves the machine, which takes 1 to 6 us; in all that is
//! most of a start. In the linker made here, `cpuid` instructions are replaced by jumps to code that finds
//! the processor's answers in a table, as they were when the table was made. What is not in the table is
//! asked.
//!
//! ```text
//! | linker's file, patched | headers | start | lookup, answers | thunks |
//!   its own segments         one segment: read, execute
//! ```
//!
//! The kernel enters it at `start`, which maps the program of an outline ([`lp_abi::outline`]) and goes on at
//! the linker's own entry.
//!
//! After the linker's file every offset equals the address, as in [`merge`](mod@crate::merge).

use std::collections::{BTreeMap, BTreeSet};
use std::mem::offset_of;

use iced_x86::code_asm::{CodeAssembler, *};
use iced_x86::{BlockEncoder, BlockEncoderOptions, Code, IcedError, Instruction, InstructionBlock};
use lp_abi::PAGE_SIZE;
use lp_abi::linux::{__NR_close, __NR_exit_group, __NR_mmap};
use lp_abi::outline::{Piece, Plan};

use crate::code::{self, Listing};
use crate::elf::{CodeRegion, Elf};
use crate::image::ObjectRefusal;
use crate::merge::{
    CUT_SHORT, HEADER, Input, PF_R, PF_X, PT_LOAD, PT_PHDR, Segment, Unfit, move_headers, put,
};
use crate::window::{self, JUMP};

/// Version of the output of [`linker`] for the same linker and answers.
pub const VERSION: u32 = 2;
/// The bytes of a `cpuid` instruction.
const CPUID: [u8; 2] = [0x0f, 0xa2];
/// Field of the file header: the entry point.
const E_ENTRY: usize = 24;
/// Fields of the file header about section headers: location, number and names.
const SECTIONS: [(usize, usize); 2] = [(40, 8), (60, 4)];
/// Subleaf of an answer in the table that does not depend on it.
const ANY: u32 = u32::MAX;
/// Bytes below the stack pointer that a function may use (System V ABI, the red zone).
const RED_ZONE: i32 = 128;
const AT_PHDR: i32 = 3;

/// What the processor answers to one question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    /// `eax` of the question.
    pub leaf: u32,
    /// `ecx` of the question, if the answer depends on it.
    pub subleaf: Option<u32>,
    /// `eax`, `ebx`, `ecx` and `edx` of the answer.
    pub registers: [u32; 4],
}

impl Answer {
    fn written(&self) -> Vec<u8> {
        let question = [self.leaf, self.subleaf.unwrap_or(ANY)];
        question.into_iter().chain(self.registers).flat_map(u32::to_le_bytes).collect()
    }
}

/// Creates the file from the system's dynamic linker.
///
/// # Errors
/// See [`Unfit`].
pub fn linker(linker: &[u8], answers: &[Answer]) -> Result<Vec<u8>, Unfit> {
    let elf = Elf::parse(linker).map_err(|why| Unfit::Refused(why.into()))?;
    let input = Input::read(linker)?;
    let headers = input.end().max(linker.len() as u64).next_multiple_of(PAGE_SIZE as u64);
    let code_at = headers + ((input.segments.len() + 1) * HEADER) as u64;
    let added = Added::new(&elf, code_at, answers)?;
    let mut file = linker.to_vec();
    file.resize((code_at as usize + added.code.len()).next_multiple_of(PAGE_SIZE), 0);
    put(&mut file, code_at, &added.code);
    for jump in &added.jumps {
        let at = input.offset_of(jump.start).ok_or(CUT_SHORT)? as usize;
        let room = &mut file[at..at + jump.bytes];
        room.fill(0xcc);
        room[0] = 0xe9;
        let distance = jump.thunk.wrapping_sub(jump.start + JUMP as u64) as i32;
        room[1..JUMP].copy_from_slice(&distance.to_le_bytes());
    }
    let mut segments = input.segments.clone();
    extend_data(&mut file, &mut segments)?;
    let bytes = file.len() as u64 - headers;
    let segment = Segment {
        kind: PT_LOAD,
        flags: PF_R | PF_X,
        offset: headers,
        address: headers,
        file_bytes: bytes,
        bytes,
        align: PAGE_SIZE as u64,
    };
    let last = segments.iter().rposition(|segment| segment.kind == PT_LOAD).ok_or(CUT_SHORT)?;
    segments.insert(last + 1, segment);
    let bytes = (segments.len() * HEADER) as u64;
    for own in segments.iter_mut().filter(|segment| segment.kind == PT_PHDR) {
        (own.offset, own.address, own.file_bytes, own.bytes) = (headers, headers, bytes, bytes);
    }
    move_headers(&mut file, headers, &segments);
    put(&mut file, E_ENTRY as u64, &added.entry.to_le_bytes());
    Ok(file)
}

/// Makes the file hold the zeros that follow the linker's data in memory, up to the end of the page, which
/// the linker uses for its first allocations. The kernel clears memory behind the last segment only, and that
/// is another one now. What the file has there are section headers and what they describe, which nothing in
/// memory refers to.
fn extend_data(file: &mut [u8], segments: &mut [Segment]) -> Result<(), Unfit> {
    for segment in segments.iter_mut().filter(|segment| segment.kind == PT_LOAD) {
        if segment.bytes == segment.file_bytes {
            continue;
        }
        if segment.offset != segment.address {
            return Err(Unfit::Layout("the linker's data is elsewhere in the file than in memory"));
        }
        let start = segment.offset + segment.file_bytes;
        let end = (segment.offset + segment.bytes).next_multiple_of(PAGE_SIZE as u64);
        file.get_mut(start as usize..end as usize).ok_or(CUT_SHORT)?.fill(0);
        segment.file_bytes = segment.bytes;
    }
    for (at, bytes) in SECTIONS {
        file[at..at + bytes].fill(0);
    }
    Ok(())
}

/// A `cpuid` instruction with its surroundings, which a jump replaces.
struct Site<'l> {
    displaced: &'l [Instruction],
    /// The instruction itself, as an index of `displaced`; behind its end if it stays in place.
    asks: usize,
    /// Where the program goes on.
    next: u64,
}

/// A jump to be written over a site.
struct Jump {
    start: u64,
    bytes: usize,
    thunk: u64,
}

/// What is added to the linker.
struct Added {
    code: Vec<u8>,
    entry: u64,
    jumps: Vec<Jump>,
}

impl Added {
    fn new(elf: &Elf<'_>, at: u64, answers: &[Answer]) -> Result<Added, Unfit> {
        let refused = |why: IcedError| Unfit::Refused(ObjectRefusal::Encoding(at, why.to_string()));
        let own = elf.entry;
        let mut code = start(own).and_then(|mut start| start.assemble(at)).map_err(refused)?;
        let lookup = at + code.len() as u64;
        code.extend(look_up(answers).and_then(|mut code| code.assemble(lookup)).map_err(refused)?);
        let listings = listings(elf);
        let mut jumps = Vec::new();
        for site in sites(elf, &listings) {
            let thunk = at + code.len() as u64;
            // A site that cannot be moved asks the processor, as it always has.
            let Ok(moved) = thunk_of(&site, thunk, lookup) else { continue };
            let (Some(first), Some(last)) = (site.displaced.first(), site.displaced.last()) else { continue };
            code.extend(moved);
            jumps.push(Jump { start: first.ip(), bytes: (last.next_ip() - first.ip()) as usize, thunk });
        }
        Ok(Added { code, entry: at, jumps })
    }
}

/// The functions that ask, disassembled.
fn listings(elf: &Elf<'_>) -> Vec<Listing> {
    let regions: BTreeMap<u64, CodeRegion> = code::candidates(elf, CPUID)
        .into_iter()
        .filter_map(|candidate| elf.region(candidate))
        .map(|region| (region.range.start, region))
        .collect();
    regions.into_values().map(|region| Listing::new(elf, region)).collect()
}

/// The `cpuid` instructions that a jump can replace, without overlaps.
fn sites<'l>(elf: &Elf<'_>, listings: &'l [Listing]) -> Vec<Site<'l>> {
    let is_question = |instruction: &Instruction| instruction.code() == Code::Cpuid;
    let all: BTreeSet<u64> = listings
        .iter()
        .flat_map(|listing| listing.instructions.iter().filter(|at| is_question(at)).map(Instruction::ip))
        .collect();
    let mut targets = code::listed_targets(elf, listings, &all);
    targets.extend(code::branch_targets(elf, &all));
    let mut sites = Vec::new();
    for listing in listings {
        let mut taken = 0;
        for index in
            (0..listing.instructions.len()).filter(|index| is_question(&listing.instructions[*index]))
        {
            let Some(window) = window::choose(listing, index, &targets) else { continue };
            let range = window.range();
            // Another question in the window would be asked where it is moved to.
            let questions = listing.instructions[range.clone()].iter().filter(|at| is_question(at)).count();
            let is_alone = questions == usize::from(range.contains(&index));
            if range.start < taken || !is_alone {
                continue;
            }
            taken = range.end.max(index + 1);
            let next = listing.instructions[taken - 1].next_ip();
            sites.push(Site {
                displaced: &listing.instructions[range.clone()],
                asks: index - range.start,
                next,
            });
        }
    }
    sites
}

/// What replaces a site: the displaced instructions, with a call of the lookup for the question.
fn thunk_of(site: &Site<'_>, at: u64, lookup: u64) -> Result<Vec<u8>, IcedError> {
    let behind = site.displaced.get(site.asks + 1..).unwrap_or_default();
    let mut asks = CodeAssembler::new(64)?;
    asks.lea(rsp, ptr(rsp - RED_ZONE))?;
    asks.call(lookup)?;
    asks.lea(rsp, ptr(rsp + RED_ZONE))?;
    let mut back = CodeAssembler::new(64)?;
    back.jmp(site.next)?;
    let all: Vec<Instruction> = site.displaced[..site.asks]
        .iter()
        .chain(asks.instructions())
        .chain(behind)
        .chain(back.instructions())
        .copied()
        .collect();
    let block = InstructionBlock::new(&all, at);
    Ok(BlockEncoder::encode(64, block, BlockEncoderOptions::NONE)?.code_buffer)
}

/// The lookup: answers the question in `eax` and `ecx` as `cpuid` does, from the table behind it. Preserves
/// the flags.
fn look_up(answers: &[Answer]) -> Result<CodeAssembler, IcedError> {
    const BYTES: i32 = 24;
    let mut code = CodeAssembler::new(64)?;
    let (mut next, mut other, mut found) = (code.create_label(), code.create_label(), code.create_label());
    let (mut unknown, mut table) = (code.create_label(), code.create_label());
    code.pushfq()?;
    code.push(rsi)?;
    code.push(rdi)?;
    code.lea(rsi, ptr(table))?;
    code.mov(edi, answers.len() as i32)?;
    code.set_label(&mut next)?;
    code.sub(edi, 1)?;
    code.jl(unknown)?;
    code.cmp(eax, dword_ptr(rsi))?;
    code.jne(other)?;
    code.cmp(dword_ptr(rsi + 4), ANY as i32)?;
    code.je(found)?;
    code.cmp(ecx, dword_ptr(rsi + 4))?;
    code.je(found)?;
    code.set_label(&mut other)?;
    code.add(rsi, BYTES)?;
    code.jmp(next)?;
    code.set_label(&mut found)?;
    code.mov(eax, dword_ptr(rsi + 8))?;
    code.mov(ebx, dword_ptr(rsi + 12))?;
    code.mov(ecx, dword_ptr(rsi + 16))?;
    code.mov(edx, dword_ptr(rsi + 20))?;
    code.pop(rdi)?;
    code.pop(rsi)?;
    code.popfq()?;
    code.ret()?;
    code.set_label(&mut unknown)?;
    code.pop(rdi)?;
    code.pop(rsi)?;
    code.popfq()?;
    code.cpuid()?;
    code.ret()?;
    code.set_label(&mut table)?;
    code.db(&answers.iter().flat_map(Answer::written).collect::<Vec<_>>())?;
    Ok(code)
}

/// What the kernel enters: maps the pieces of the outline's plan if the program has one, and goes on at the
/// linker's own entry, `own`, with the stack and the registers as the kernel made them.
fn start(own: u64) -> Result<CodeAssembler, IcedError> {
    let plan = |field: usize| rbx + (Plan::AT + field) as i32;
    let piece = |field: usize| r12 + field as i32;
    let mut code = CodeAssembler::new(64)?;
    let [mut variable, mut entry, mut found, mut next, mut failed, mut done] =
        std::array::from_fn(|_| code.create_label());
    // The auxiliary vector, behind the arguments and the environment.
    code.mov(rax, qword_ptr(rsp))?;
    code.lea(rsi, ptr(rsp + rax * 8 + 16))?;
    code.set_label(&mut variable)?;
    code.add(rsi, 8)?;
    code.cmp(qword_ptr(rsi - 8), 0)?;
    code.jne(variable)?;
    code.set_label(&mut entry)?;
    code.mov(rax, qword_ptr(rsi))?;
    code.cmp(rax, AT_PHDR)?;
    code.je(found)?;
    code.add(rsi, 16)?;
    code.test(rax, rax)?;
    code.jne(entry)?;
    code.jmp(done)?;
    // The plan, in the page of the program's headers.
    code.set_label(&mut found)?;
    code.mov(rbx, qword_ptr(rsi + 8))?;
    code.and(rbx, -(PAGE_SIZE as i32))?;
    code.mov(rax, Plan::MAGIC)?;
    code.cmp(qword_ptr(plan(offset_of!(Plan, magic))), rax)?;
    code.jne(done)?;
    code.mov(r14, rbx)?;
    code.sub(r14, qword_ptr(plan(offset_of!(Plan, first))))?;
    code.mov(r8d, dword_ptr(plan(offset_of!(Plan, fd))))?;
    code.mov(r13d, dword_ptr(plan(offset_of!(Plan, count))))?;
    code.mov(rbp, qword_ptr(plan(offset_of!(Plan, clear))))?;
    code.add(rbp, r14)?;
    code.mov(r15, qword_ptr(plan(offset_of!(Plan, clear_bytes))))?;
    code.lea(r12, ptr(rbx + Plan::PIECES_AT as i32))?;
    code.mov(ebx, dword_ptr(plan(offset_of!(Plan, close))))?;
    code.set_label(&mut next)?;
    code.mov(rdi, qword_ptr(piece(offset_of!(Piece, address))))?;
    code.add(rdi, r14)?;
    code.mov(rsi, qword_ptr(piece(offset_of!(Piece, bytes))))?;
    code.mov(edx, dword_ptr(piece(offset_of!(Piece, protection))))?;
    code.mov(r10d, dword_ptr(piece(offset_of!(Piece, flags))))?;
    code.mov(r9, qword_ptr(piece(offset_of!(Piece, offset))))?;
    code.mov(eax, __NR_mmap as i32)?;
    code.syscall()?;
    code.cmp(rax, rdi)?;
    code.jne(failed)?;
    code.add(r12, size_of::<Piece>() as i32)?;
    code.sub(r13d, 1)?;
    code.jne(next)?;
    code.mov(rdi, rbp)?;
    code.mov(rcx, r15)?;
    code.xor(eax, eax)?;
    code.rep().stosb()?;
    code.cmp(ebx, Plan::NONE as i32)?;
    code.je(done)?;
    code.mov(edi, ebx)?;
    code.mov(eax, __NR_close as i32)?;
    code.syscall()?;
    code.set_label(&mut done)?;
    for register in [ebx, ecx, edx, esi, edi, ebp, r8d, r9d, r10d, r11d, r12d, r13d, r14d, r15d, eax] {
        code.xor(register, register)?;
    }
    code.jmp(own)?;
    // No memory for the program's mappings. The kernel kills a program that it cannot map.
    code.set_label(&mut failed)?;
    code.mov(edi, KILLED)?;
    code.mov(eax, __NR_exit_group as i32)?;
    code.syscall()?;
    Ok(code)
}

/// Exit status of a program that could not be mapped: that of one which SIGKILL ended, in a shell.
const KILLED: i32 = 128 + 9;
