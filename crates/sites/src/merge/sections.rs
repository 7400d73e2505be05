//! What debuggers and profilers read of the merged file: sections, symbols and unwind tables of the gate and
//! the thunks. None of it is in memory.

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ObjectSymbol};

use super::{CUT_SHORT, Input, Layout, PAGE, PT_GNU_EH_FRAME, Unfit};
use crate::image::Analysis;

/// Fields of the file header: location, number and names of the section headers.
const E_SHOFF: usize = 40;
const E_SHNUM: usize = 60;
const E_SHSTRNDX: usize = 62;
const HEADER: usize = 64;
const SYMBOL: usize = 24;
const SHT_PROGBITS: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
/// `SHF_ALLOC | SHF_EXECINSTR`.
const CODE: u64 = 6;
/// `STB_LOCAL` and `STT_FUNC`.
const LOCAL_FUNCTION: u8 = 2;

/// A section header.
#[derive(Clone, Copy)]
struct Section {
    name: u32,
    kind: u32,
    flags: u64,
    address: u64,
    offset: u64,
    bytes: u64,
    link: u32,
    info: u32,
    align: u64,
    entry: u64,
}

impl Section {
    fn read(raw: &[u8]) -> Section {
        let word = |at| u32::from_le_bytes(std::array::from_fn(|index| raw[at + index]));
        let long = |at| u64::from_le_bytes(std::array::from_fn(|index| raw[at + index]));
        Section {
            name: word(0),
            kind: word(4),
            flags: long(8),
            address: long(16),
            offset: long(24),
            bytes: long(32),
            link: word(40),
            info: word(44),
            align: long(48),
            entry: long(56),
        }
    }

    fn written(&self) -> Vec<u8> {
        let Section { name, kind, flags, address, offset, bytes, link, info, align, entry } = *self;
        let mut raw = [name, kind].map(u32::to_le_bytes).concat();
        raw.extend([flags, address, offset, bytes].map(u64::to_le_bytes).concat());
        raw.extend([link, info].map(u32::to_le_bytes).concat());
        raw.extend([align, entry].map(u64::to_le_bytes).concat());
        raw
    }
}

/// The end of the file.
struct Tail<'f> {
    file: &'f mut Vec<u8>,
    sections: Vec<Section>,
    names: Vec<u8>,
}

/// Appends the sections to the file, unless the library has none. `frames` is the `.debug_frame`.
pub(super) fn append(
    file: &mut Vec<u8>,
    (library, gate): (&Input<'_>, &Input<'_>),
    layout: &Layout,
    analysis: &Analysis,
    frames: &[u8],
) -> Result<(), Unfit> {
    let Some((sections, names_at)) = sections_of(library.file) else { return Ok(()) };
    let names = sections[names_at];
    let names = library.file.get(names.offset as usize..(names.offset + names.bytes) as usize);
    let mut tail = Tail { file, sections, names: names.ok_or(CUT_SHORT)?.to_vec() };
    tail.move_table(library, layout);
    let code = tail.code(".text.lightpath", layout.thunks, layout.data);
    tail.add(".debug_frame", SHT_PROGBITS, frames);
    if !tail.sections.iter().any(|section| section.kind == SHT_SYMTAB) {
        let (symbols, strings, first_global) = symbols(library, gate, layout, analysis, code)?;
        let table = tail.add(".symtab", SHT_SYMTAB, &symbols);
        let strings = tail.add(".strtab", SHT_STRTAB, &strings);
        let table = &mut tail.sections[table as usize];
        (table.link, table.info, table.entry) = (u32::from(strings), first_global, SYMBOL as u64);
    }
    tail.finish(names_at);
    Ok(())
}

/// The sections of a file, and the index of the one with their names.
fn sections_of(file: &[u8]) -> Option<(Vec<Section>, usize)> {
    let offset = u64::from_le_bytes(file.get(E_SHOFF..E_SHOFF + 8)?.try_into().ok()?) as usize;
    let half = |at: usize| Some(u16::from_le_bytes(file.get(at..at + 2)?.try_into().ok()?) as usize);
    let (count, names) = (half(E_SHNUM)?, half(E_SHSTRNDX)?);
    let raw = file.get(offset..offset.checked_add(count * HEADER)?)?;
    let sections: Vec<Section> = raw.chunks_exact(HEADER).map(Section::read).collect();
    (0 < names && names < count).then_some((sections, names))
}

impl Tail<'_> {
    /// Makes the section of the table for unwinders the one in memory: profilers read it in the file.
    fn move_table(&mut self, library: &Input<'_>, layout: &Layout) {
        let Some(old) = library.one(PT_GNU_EH_FRAME) else { return };
        for section in self.sections.iter_mut().filter(|section| section.address == old.address) {
            (section.offset, section.address, section.bytes) =
                (layout.table, layout.table, layout.table_bytes);
        }
    }

    /// Adds a section of code that is in memory.
    fn code(&mut self, name: &str, start: u64, end: u64) -> u16 {
        let section = self.named(name, SHT_PROGBITS);
        let bytes = end - start;
        let flags = CODE;
        self.push(Section { flags, address: start, offset: start, bytes, align: 16, ..section })
    }

    /// Adds a section that is in the file only.
    fn add(&mut self, name: &str, kind: u32, contents: &[u8]) -> u16 {
        let section = self.named(name, kind);
        let offset = self.write(contents);
        self.push(Section { offset, bytes: contents.len() as u64, ..section })
    }

    fn named(&mut self, name: &str, kind: u32) -> Section {
        let at = self.names.len() as u32;
        self.names.extend(name.bytes().chain([0]));
        Section {
            name: at,
            kind,
            flags: 0,
            address: 0,
            offset: 0,
            bytes: 0,
            link: 0,
            info: 0,
            align: 8,
            entry: 0,
        }
    }

    fn push(&mut self, section: Section) -> u16 {
        self.sections.push(section);
        (self.sections.len() - 1) as u16
    }

    fn write(&mut self, contents: &[u8]) -> u64 {
        let offset = self.file.len().next_multiple_of(8);
        self.file.resize(offset, 0);
        self.file.extend(contents);
        offset as u64
    }

    /// Writes the names and the headers. The file ends with a page.
    fn finish(mut self, names_at: usize) {
        let names = std::mem::take(&mut self.names);
        let offset = self.write(&names);
        (self.sections[names_at].offset, self.sections[names_at].bytes) = (offset, names.len() as u64);
        let headers: Vec<u8> = self.sections.iter().flat_map(Section::written).collect();
        let offset = self.write(&headers);
        self.file[E_SHOFF..E_SHOFF + 8].copy_from_slice(&offset.to_le_bytes());
        self.file[E_SHNUM..E_SHNUM + 2].copy_from_slice(&(self.sections.len() as u16).to_le_bytes());
        self.file.resize(self.file.len().next_multiple_of(PAGE as usize), 0);
    }
}

/// A symbol table and its strings: the thunks, the gate's functions, and the library's exported symbols,
/// because some tools look no further than one table. Also the index of the first of the latter.
fn symbols(
    library: &Input<'_>,
    gate: &Input<'_>,
    layout: &Layout,
    analysis: &Analysis,
    code: u16,
) -> Result<(Vec<u8>, Vec<u8>, u32), Unfit> {
    let damaged = |_| Unfit::Layout("its symbols are damaged");
    let mut table = vec![0; SYMBOL];
    let mut strings = vec![0];
    let mut add = |name: &[u8], info: u8, section: u16, address: u64, bytes: u64| {
        table.extend((strings.len() as u32).to_le_bytes());
        table.extend([info, 0]);
        table.extend(section.to_le_bytes());
        table.extend([address, bytes].map(u64::to_le_bytes).concat());
        strings.extend(name);
        strings.push(0);
    };
    for patch in &analysis.patches {
        add(b"lp_thunk", LOCAL_FUNCTION, code, patch.thunk, patch.thunk_bytes);
    }
    let elf = ElfFile64::<Endianness>::parse(gate.file).map_err(damaged)?;
    let mut locals = 1 + analysis.patches.len() as u32;
    for symbol in elf.symbols().filter(|symbol| symbol.address() != 0) {
        let section = symbol.section_index().and_then(|index| elf.section_by_index(index).ok());
        if section.is_some_and(|section| section.kind() == object::SectionKind::Text) {
            let name = symbol.name_bytes().map_err(damaged)?;
            add(name, LOCAL_FUNCTION, code, layout.gate + symbol.address(), symbol.size());
            locals += 1;
        }
    }
    let elf = ElfFile64::<Endianness>::parse(library.file).map_err(damaged)?;
    for symbol in elf.dynamic_symbols().filter(|symbol| symbol.is_definition()) {
        let raw = symbol.elf_symbol();
        let name = symbol.name_bytes().map_err(damaged)?;
        add(name, raw.st_info, raw.st_shndx.get(Endianness::Little), symbol.address(), symbol.size());
    }
    Ok((table, strings, locals))
}
