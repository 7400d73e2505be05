//! The gate for static programs: the preload library with its thread words addressed by gs.
//!
//! In a static program fs and thread-local storage belong to the program, and no dynamic linker reserves
//! storage for the gate. There gs points to the words. The code is the same except for one byte of each
//! instruction that accesses them: the segment prefix.

use iced_x86::{Code, Decoder, DecoderOptions, Register};
use object::read::elf::{ElfFile64, FileHeader};
use object::{Endianness, Object, ObjectSection, RelocationFlags, SectionKind};

use crate::merge::Unfit;

const FS: u8 = 0x64;
const GS: u8 = 0x65;
/// Longest sequence of prefixes before an opcode.
const PREFIXES: usize = 14;
/// The relocations that the gate applies itself at start (`lp_gate::standalone`).
const RELATIVE: u32 = object::elf::R_X86_64_RELATIVE;
const STORAGE: u32 = object::elf::R_X86_64_TPOFF64;

/// Creates the file from the preload library.
///
/// # Errors
/// The library has code that is not understood, or needs more from its loader than there is.
pub fn by_gs(gate: &[u8]) -> Result<Vec<u8>, Unfit> {
    let elf = ElfFile64::<Endianness>::parse(gate).map_err(|_| Unfit::Layout("the gate is no ELF object"))?;
    if elf.elf_header().e_entry(elf.endian()) == 0 {
        return Err(Unfit::Layout("the gate has no entry point"));
    }
    for (_, relocation) in elf.dynamic_relocations().into_iter().flatten() {
        match relocation.flags() {
            RelocationFlags::Elf { r_type: RELATIVE | STORAGE } => {}
            _ => return Err(Unfit::Layout("the gate has relocations of another kind")),
        }
    }
    let mut file = gate.to_vec();
    for section in elf.sections().filter(|section| section.kind() == SectionKind::Text) {
        let (Some((start, bytes)), Ok(code)) = (section.file_range(), section.data()) else { continue };
        if bytes as usize != code.len() {
            return Err(Unfit::Layout("the gate's code is cut short"));
        }
        rewrite(code, &mut file[start as usize..][..code.len()])?;
    }
    Ok(file)
}

/// Makes the instructions of `code` that use fs use gs in `copy`.
fn rewrite(code: &[u8], copy: &mut [u8]) -> Result<(), Unfit> {
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    while decoder.can_decode() {
        let at = decoder.position();
        let instruction = decoder.decode();
        if instruction.code() == Code::INVALID {
            return Err(Unfit::Layout("the gate has code that cannot be disassembled"));
        }
        if instruction.segment_prefix() != Register::FS {
            continue;
        }
        // Of several segment prefixes the last one counts; padding repeats it.
        let prefixes = &mut copy[at..at + PREFIXES.min(instruction.len())];
        for prefix in prefixes.iter_mut().take_while(|byte| is_legacy_prefix(**byte)) {
            if *prefix == FS {
                *prefix = GS;
            }
        }
    }
    Ok(())
}

fn is_legacy_prefix(byte: u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | FS | GS | 0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_alone_changes() {
        // mov rcx, fs:[r11]; mov eax, 0x64646464; lock inc dword ptr fs:[rax]; mov rcx, gs:[r11]; ret
        let code = *b"\x64\x49\x8b\x0b\xb8\x64\x64\x64\x64\xf0\x64\xff\x00\x65\x49\x8b\x0b\xc3";
        let mut copy = code;
        rewrite(&code, &mut copy).unwrap();
        assert_eq!(copy, *b"\x65\x49\x8b\x0b\xb8\x64\x64\x64\x64\xf0\x65\xff\x00\x65\x49\x8b\x0b\xc3");
    }

    #[test]
    fn bytes_that_are_no_code_are_refused() {
        assert!(rewrite(&[0x06, 0x90], &mut [0x06, 0x90]).is_err());
        assert!(by_gs(b"no object").is_err());
    }
}
