//! Reads an ELF file as far as its code is concerned.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, SymbolKind};

use crate::frames::{self, Frames};

const PT_LOAD: u32 = 1;
const PF_X: u32 = 1;

/// Why a file is not an object that can have sites.
#[derive(Debug)]
pub enum NotAnObject {
    /// It is not ELF for x86-64, or damaged.
    Format(String),
    /// It has no executable segment.
    NoCode,
}

impl fmt::Display for NotAnObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotAnObject::Format(what) => write!(f, "not an x86-64 ELF object: {what}"),
            NotAnObject::NoCode => f.write_str("no executable segment"),
        }
    }
}

impl std::error::Error for NotAnObject {}

/// A loadable segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// Address, relative to the object's base.
    pub address: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Contents.
    pub bytes: &'a [u8],
    /// Whether it is executable.
    pub executable: bool,
}

/// A parsed ELF object.
pub struct Elf<'a> {
    /// The file.
    pub file: &'a [u8],
    /// Its loadable segments.
    pub segments: Vec<Segment<'a>>,
    /// The executable segment (of several, the largest).
    pub text: Segment<'a>,
    /// Whether addresses are absolute (ET_EXEC).
    pub fixed: bool,
    /// DT_SONAME, or empty.
    pub soname: String,
    /// Whether it is a C library, recognised by the function that starts every program; musl's has no
    /// DT_SONAME.
    pub starts_programs: bool,
    /// Its entry point.
    pub entry: u64,
    /// Its build-id, if it has one.
    pub build_id: Option<Vec<u8>>,
    /// Known functions and parts of functions, sorted, without overlaps.
    pub functions: Vec<Range<u64>>,
    /// Executable sections (or executable segments, without section headers), sorted.
    pub code: Vec<Range<u64>>,
    /// Addresses of code that may be entered other than by a branch: symbols, landing pads.
    pub entries: BTreeSet<u64>,
    /// The same, from pointers in data. One to a system call itself, of code that is written by hand, tells a
    /// signal's handler what it has interrupted.
    pub pointers: BTreeSet<u64>,
    /// Addresses of the functions that other objects may call.
    pub exports: BTreeSet<u64>,
}

impl<'a> Elf<'a> {
    /// Reads an object.
    ///
    /// # Errors
    /// See [`NotAnObject`].
    pub fn parse(file: &'a [u8]) -> Result<Self, NotAnObject> {
        let format = |error: object::Error| NotAnObject::Format(error.to_string());
        let elf = ElfFile64::<Endianness>::parse(file).map_err(format)?;
        let header = elf.elf_header();
        let endian = elf.endian();
        if header.e_machine(endian) != object::elf::EM_X86_64 {
            return Err(NotAnObject::Format("another machine".into()));
        }
        let mut segments = Vec::new();
        for segment in elf.elf_program_headers() {
            if segment.p_type(endian) == PT_LOAD {
                segments.push(Segment {
                    address: segment.p_vaddr(endian),
                    offset: segment.p_offset(endian),
                    bytes: segment.data(endian, file).unwrap_or_default(),
                    executable: segment.p_flags(endian) & PF_X != 0,
                });
            }
        }
        let text =
            segments.iter().filter(|segment| segment.executable).max_by_key(|segment| segment.bytes.len());
        let text = *text.ok_or(NotAnObject::NoCode)?;
        let mut this = Elf {
            file,
            segments,
            text,
            fixed: header.e_type(endian) == object::elf::ET_EXEC,
            soname: String::new(),
            starts_programs: false,
            entry: elf.entry(),
            build_id: build_id(&elf),
            functions: Vec::new(),
            code: Vec::new(),
            entries: BTreeSet::new(),
            pointers: BTreeSet::new(),
            exports: BTreeSet::new(),
        };
        this.read_dynamic(&elf);
        this.read_sections(&elf);
        this.read_functions(&elf);
        Ok(this)
    }

    /// Whether UPX has packed it: a part of its own header follows the program headers (`l_info` in UPX's
    /// conf/linux headers, with this magic).
    pub fn is_packed(&self) -> bool {
        const MAGIC: &[u8] = b"UPX!";
        const HEADERS: usize = 1024;
        self.file[..self.file.len().min(HEADERS)].windows(MAGIC.len()).any(|bytes| bytes == MAGIC)
    }

    /// The object's bytes from `address` to the end of the segment.
    pub fn at(&self, address: u64) -> Option<&'a [u8]> {
        self.segments.iter().find_map(|segment| {
            let offset = address.checked_sub(segment.address)?;
            segment.bytes.get(usize::try_from(offset).ok()?..).filter(|bytes| !bytes.is_empty())
        })
    }

    /// Whether `address` is in an executable segment.
    pub fn is_code(&self, address: u64) -> bool {
        self.executable(address).is_some()
    }

    /// The executable segment that holds `address`.
    pub fn executable(&self, address: u64) -> Option<&Segment<'a>> {
        self.segments.iter().filter(|segment| segment.executable).find(|segment| {
            address.checked_sub(segment.address).is_some_and(|offset| offset < segment.bytes.len() as u64)
        })
    }

    /// The code between known places around `address`: the function, or the gap between two functions.
    pub fn region(&self, address: u64) -> Option<CodeRegion> {
        let code = self.code.iter().find(|code| code.contains(&address))?;
        let next = self.functions.partition_point(|function| function.start <= address);
        let before = self.functions[..next].last();
        if let Some(function) = before.filter(|function| function.contains(&address)) {
            return Some(CodeRegion { range: function.clone(), known: BoundsKnown::Function });
        }
        let start = before.map_or(code.start, |function| function.end.max(code.start));
        let end = self.functions.get(next).map_or(code.end, |function| function.start.min(code.end));
        Some(CodeRegion { range: start..end, known: BoundsKnown::Gap })
    }

    fn read_dynamic(&mut self, elf: &ElfFile64<'a, Endianness>) {
        let Some(section) = elf.section_by_name(".dynamic") else { return };
        let Ok(bytes) = section.data() else { return };
        let word = |chunk: &[u8]| u64::from_le_bytes(chunk.try_into().unwrap_or_default());
        let tags: Vec<(u64, u64)> =
            bytes.chunks_exact(16).map(|entry| (word(&entry[..8]), word(&entry[8..]))).collect();
        let tag = |wanted: u64| tags.iter().find(|(tag, _)| *tag == wanted).map(|(_, value)| *value);
        if let (Some(name), Some(strings)) = (tag(14), tag(5))
            && let Some(bytes) = self.at(strings.wrapping_add(name))
        {
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(0);
            self.soname = String::from_utf8_lossy(&bytes[..end]).into_owned();
        }
    }

    fn read_sections(&mut self, elf: &ElfFile64<'a, Endianness>) {
        // Without RELR relocations, the relocations with an addend name all addresses of a
        // position-independent object.
        let has_addresses = self.fixed || elf.section_by_name(".relr.dyn").is_some();
        for section in elf.sections() {
            let address = section.address();
            let flags = section.elf_section_header().sh_flags.get(elf.endian());
            let executable =
                self.executable(address).filter(|_| flags & u64::from(object::elf::SHF_EXECINSTR) != 0);
            if let Some(segment) = executable {
                let end = (address + section.size()).min(segment.address + segment.bytes.len() as u64);
                self.code.push(address..end);
            } else if has_addresses && flags & u64::from(object::elf::SHF_ALLOC) != 0 {
                self.read_pointers(section.data().unwrap_or_default());
            }
        }
        for (_, relocation) in elf.dynamic_relocations().into_iter().flatten() {
            let target = relocation.addend() as u64;
            if self.is_code(target) {
                self.pointers.insert(target);
            }
        }
        if self.code.is_empty() {
            let segments = self.segments.iter().filter(|segment| segment.executable);
            self.code.extend(
                segments.map(|segment| segment.address..segment.address + segment.bytes.len() as u64),
            );
        }
        self.code.sort_by_key(|code| code.start);
        self.entries.insert(self.entry);
    }

    /// Words in data that may be addresses of code: tables of absolute addresses, and words that RELR
    /// relocations cover.
    fn read_pointers(&mut self, bytes: &[u8]) {
        for word in bytes.chunks_exact(8) {
            let value = u64::from_le_bytes(word.try_into().unwrap_or_default());
            if self.is_code(value) {
                self.pointers.insert(value);
            }
        }
    }

    fn read_functions(&mut self, elf: &ElfFile64<'a, Endianness>) {
        let mut functions = Vec::new();
        self.starts_programs = elf
            .dynamic_symbols()
            .any(|symbol| symbol.is_definition() && symbol.name_bytes() == Ok(b"__libc_start_main"));
        let exported = elf.dynamic_symbols().filter(|symbol| symbol.is_definition());
        let exported = exported.filter(|symbol| symbol.kind() == SymbolKind::Text);
        self.exports.extend(exported.map(|symbol| symbol.address()));
        for symbol in elf.symbols().chain(elf.dynamic_symbols()) {
            if symbol.kind() == SymbolKind::Text && self.is_code(symbol.address()) {
                self.entries.insert(symbol.address());
                if symbol.size() > 0 {
                    functions.push(symbol.address()..symbol.address() + symbol.size());
                }
            }
        }
        if let Some(section) = elf.section_by_name(".eh_frame")
            && let Ok(bytes) = section.data()
        {
            let Frames { functions: framed, landings } =
                frames::parse(bytes, section.address(), |address| self.at(address));
            functions.extend(framed.into_iter().filter(|function| self.is_code(function.start)));
            self.entries.extend(landings);
        }
        functions.sort_by_key(|function| (function.start, std::cmp::Reverse(function.end)));
        // If two overlap, the one that starts first wins; the other's start is still an entry.
        for function in functions {
            self.entries.insert(function.start);
            match self.functions.last_mut() {
                Some(last) if function.start < last.end => last.end = last.end.max(function.end),
                _ => self.functions.push(function),
            }
        }
    }
}

/// The build-id that the gate finds in the mapped object, in a note segment. A section alone does not count.
fn build_id(elf: &ElfFile64<'_, Endianness>) -> Option<Vec<u8>> {
    let endian = elf.endian();
    elf.elf_program_headers().iter().find_map(|segment| {
        let mut notes = segment.notes(endian, elf.data()).ok()??;
        while let Ok(Some(note)) = notes.next() {
            let is_id = note.name() == object::elf::ELF_NOTE_GNU
                && note.n_type(endian) == object::elf::NT_GNU_BUILD_ID;
            if is_id && !note.desc().is_empty() {
                return Some(note.desc().to_vec());
            }
        }
        None
    })
}

/// Code that is disassembled in one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeRegion {
    /// Addresses.
    pub range: Range<u64>,
    /// How its start is known.
    pub known: BoundsKnown,
}

/// How a region's bounds are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundsKnown {
    /// From symbols or unwind tables.
    Function,
    /// Between two of those: padding, or code without a description.
    Gap,
}
