//! A C library that contains the gate: one file that the loader maps in the library's place.
//!
//! A preloaded gate costs each process a search, four mappings and a scope for symbol lookup in the loader,
//! and new mappings over the library's text when it attaches. In the merged file the jumps to the thunks are
//! already in the text, and the gate is two additional segments of a library that is mapped anyway.
//!
//! ```text
//! | library's file, patched | headers, relocations, unwind tables | thunks | gate's code | gate's data |
//!   its own segments          one segment: read, execute                                  read, write
//! ```
//!
//! After the library's file every offset equals the address. The program headers move, because there is no
//! room for more of them in place; so do the relocations, to which the gate's are appended. The gate's
//! initialiser becomes the library's, and its thread-local storage the end of the library's.
//!
//! Unwinders in the program find functions by one sorted table, which gets the gate's functions and the
//! thunks as well. Debuggers find theirs in sections behind all this (`sections`).
//!
//! dlopen(3) and iconv_open(3) get a prologue that calls the gate: until a program loads something, the gate
//! need not see what the loader does, and the loader's own text is left alone.

mod sections;

use std::fmt;
use std::mem::offset_of;
use std::ops::Range;

use lp_abi::image::GatePage;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol};

use crate::elf::Elf;
use crate::image::{Analysis, ObjectRefusal, ThunkPlace, analyse_for};
use crate::thunk::Slots;
use crate::unwind::Tables;

/// Version of the output of [`merge`] for the same two files.
pub const VERSION: u32 = 4;
const PAGE: u64 = 4096;
/// Bytes that the kernel maps around a page at its first touch: the thunks and the start of the gate's code
/// are in one such block.
const AROUND: u64 = 64 << 10;
/// Space for prologues, and the size of one.
const PROLOGUES: u64 = 256;
const PROLOGUE: usize = 32;
/// Functions that load objects: for the program, and converters for itself. The first one must be there.
const LOADING: [&[u8]; 3] = [b"dlopen", b"dlmopen", b"iconv_open"];
/// The symbol of the [`GatePage`] in the gate's data.
const SLOTS: &[u8] = b"lp_slots";

pub(crate) const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
pub(crate) const PT_PHDR: u32 = 6;
const PT_TLS: u32 = 7;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
pub(crate) const PF_X: u32 = 1;
const PF_W: u32 = 2;
pub(crate) const PF_R: u32 = 4;
const DT_NULL: u64 = 0;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_INIT: u64 = 12;
const DT_JMPREL: u64 = 23;
const DT_RELR: u64 = 36;
const R_X86_64_RELATIVE: u64 = 8;
const R_X86_64_TPOFF64: u64 = 18;
/// Size of a program header and of a relocation.
pub(crate) const HEADER: usize = 56;
const RELOCATION: usize = 24;
/// Fields of the file header: location and number of the program headers.
const E_PHOFF: u64 = 32;
const E_PHNUM: u64 = 56;

/// Why two objects cannot be merged.
#[derive(Debug)]
pub enum Unfit {
    /// The library cannot be patched.
    Refused(ObjectRefusal),
    /// It, or the gate, does not have the required layout.
    Layout(&'static str),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::Refused(why) => why.fmt(f),
            Unfit::Layout(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Unfit {}

/// Creates the file: `library` merged with `gate`, a shared object that needs no other.
///
/// # Errors
/// See [`Unfit`].
pub fn merge(library: &[u8], gate: &[u8]) -> Result<Vec<u8>, Unfit> {
    let elf = Elf::parse(library).map_err(|why| Unfit::Refused(why.into()))?;
    let (library, gate) = (Input::read(library)?, Input::read(gate)?);
    // The location of thunks does not change their length.
    let anywhere = ThunkPlace { delta: library.end() as i64, slots: Slots::Object(library.end()) };
    let first = analyse_for(&elf, anywhere).map_err(Unfit::Refused)?;
    let thunks = first.thunks.len() as u64;
    let unwinding = Unwinding::new(&library, &gate, &first)?;
    let layout = Layout::new(&library, &gate, thunks, &unwinding)?;
    let slots = layout.gate + slots_of(&gate)?;
    let place = ThunkPlace { delta: layout.thunks as i64, slots: Slots::Object(slots) };
    let analysis = analyse_for(&elf, place).map_err(Unfit::Refused)?;
    if let Some(site) = analysis.unpatchable() {
        return Err(Unfit::Refused(ObjectRefusal::Site(site)));
    }
    let mut file = library.file.to_vec();
    for segment in elf.segments.iter().filter(|segment| segment.executable) {
        let start = segment.offset as usize;
        let text = file.get_mut(start..start + segment.bytes.len()).ok_or(CUT_SHORT)?;
        analysis.write_jumps(segment.address, text);
    }
    file.resize(layout.end as usize, 0);
    put(&mut file, layout.thunks, &analysis.thunks);
    for segment in gate.loads() {
        let bytes = gate.file.get(segment.file()).ok_or(CUT_SHORT)?;
        put(&mut file, layout.gate + segment.address, bytes);
    }
    put(&mut file, layout.relocations, &layout.relocations_of(&library, &gate)?);
    put(&mut file, library.dynamic_at, &layout.dynamic_of(&library, &gate)?);
    layout.write_headers(&mut file, &library);
    let frames = unwinding.write(&mut file, &layout, &analysis)?;
    let before_load = slots + offset_of!(GatePage, before_load) as u64;
    write_prologues(&mut file, &library, layout.thunks + thunks, before_load)?;
    sections::append(&mut file, (&library, &gate), &layout, &analysis, &frames)?;
    Ok(file)
}

pub(crate) const CUT_SHORT: Unfit = Unfit::Layout("a file ends before what its headers announce");

pub(crate) fn put(file: &mut [u8], at: u64, bytes: &[u8]) {
    file[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
}

/// Location of the slots in the gate.
fn slots_of(gate: &Input<'_>) -> Result<u64, Unfit> {
    let elf =
        ElfFile64::<Endianness>::parse(gate.file).map_err(|_| Unfit::Layout("the gate is no ELF object"))?;
    let found = elf.dynamic_symbols().find(|symbol| symbol.name_bytes() == Ok(SLOTS));
    let fits = found.filter(|symbol| symbol.size() as usize == size_of::<GatePage>());
    fits.map(|symbol| symbol.address()).ok_or(Unfit::Layout("the gate has no slots"))
}

/// Redirects the symbols of [`LOADING`] to prologues at `at`, which call the address in the slot
/// `before_load`.
fn write_prologues(file: &mut [u8], library: &Input<'_>, mut at: u64, before_load: u64) -> Result<(), Unfit> {
    const SYMBOL: u64 = 24;
    const VALUE: u64 = 8;
    let table = library.tagged(DT_SYMTAB).and_then(|table| library.offset_of(table)).ok_or(CUT_SHORT)?;
    let elf =
        ElfFile64::<Endianness>::parse(library.file).map_err(|_| Unfit::Layout("its symbols are damaged"))?;
    let end = at + PROLOGUES;
    let mut loads = false;
    for symbol in elf.dynamic_symbols().filter(|symbol| symbol.is_definition()) {
        if !LOADING.iter().any(|name| symbol.name_bytes() == Ok(name)) {
            continue;
        }
        if at + PROLOGUE as u64 > end {
            return Err(Unfit::Layout("the library has more functions that load than there is room for"));
        }
        let distance =
            |target: u64, from: usize| (target.wrapping_sub(at + from as u64) as i32).to_le_bytes();
        let mut code = vec![0x57, 0x56, 0x52]; // push rdi; push rsi; push rdx
        code.extend([0xff, 0x15]); // call [before_load]
        code.extend(distance(before_load, code.len() + 4));
        code.extend([0x5a, 0x5e, 0x5f]); // pop rdx; pop rsi; pop rdi
        code.push(0xe9); // jmp
        code.extend(distance(symbol.address(), code.len() + 4));
        put(file, at, &code);
        put(file, table + symbol.index().0 as u64 * SYMBOL + VALUE, &at.to_le_bytes());
        at += PROLOGUE as u64;
        loads |= symbol.name_bytes() == Ok(LOADING[0]);
    }
    // Before glibc 2.34 dlopen is in a separate library.
    if loads { Ok(()) } else { Err(Unfit::Layout("the library does not load objects itself")) }
}

/// A program header.
#[derive(Clone, Copy)]
pub(crate) struct Segment {
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    pub(crate) offset: u64,
    pub(crate) address: u64,
    pub(crate) file_bytes: u64,
    pub(crate) bytes: u64,
    pub(crate) align: u64,
}

impl Segment {
    fn file(&self) -> Range<usize> {
        self.offset as usize..self.offset.saturating_add(self.file_bytes) as usize
    }

    /// Its representation in a file.
    fn written(&self) -> Vec<u8> {
        let Segment { kind, flags, offset, address, file_bytes, bytes, align } = *self;
        let words = [offset, address, address, file_bytes, bytes, align];
        let first = [kind, flags].into_iter().flat_map(u32::to_le_bytes);
        first.chain(words.into_iter().flat_map(u64::to_le_bytes)).collect()
    }
}

/// Writes program headers at `at`, and their location and number in the file header.
pub(crate) fn move_headers(file: &mut [u8], at: u64, segments: &[Segment]) {
    let written: Vec<u8> = segments.iter().flat_map(Segment::written).collect();
    put(file, at, &written);
    put(file, E_PHOFF, &at.to_le_bytes());
    put(file, E_PHNUM, &(segments.len() as u16).to_le_bytes());
}

/// An object to merge.
pub(crate) struct Input<'f> {
    file: &'f [u8],
    pub(crate) segments: Vec<Segment>,
    /// Offset of the dynamic section in the file.
    dynamic_at: u64,
    dynamic: Vec<[u64; 2]>,
}

impl<'f> Input<'f> {
    pub(crate) fn read(file: &'f [u8]) -> Result<Input<'f>, Unfit> {
        let damaged = |_| Unfit::Layout("its headers are damaged");
        let header = object::elf::FileHeader64::<Endianness>::parse(file).map_err(damaged)?;
        let endian = header.endian().map_err(damaged)?;
        let read = |segment: &object::elf::ProgramHeader64<Endianness>| Segment {
            kind: segment.p_type(endian),
            flags: segment.p_flags(endian),
            offset: segment.p_offset(endian),
            address: segment.p_vaddr(endian),
            file_bytes: segment.p_filesz(endian),
            bytes: segment.p_memsz(endian),
            align: segment.p_align(endian),
        };
        let segments: Vec<Segment> =
            header.program_headers(endian, file).map_err(damaged)?.iter().map(read).collect();
        let dynamic = segments.iter().find(|segment| segment.kind == PT_DYNAMIC);
        let dynamic = dynamic.ok_or(Unfit::Layout("it has no dynamic section"))?;
        let (words, _) = file.get(dynamic.file()).ok_or(CUT_SHORT)?.as_chunks::<8>();
        let (pairs, _) = words.as_chunks::<2>();
        let pair = |[tag, value]: &[[u8; 8]; 2]| [u64::from_le_bytes(*tag), u64::from_le_bytes(*value)];
        let (dynamic_at, dynamic) = (dynamic.offset, pairs.iter().map(pair).collect());
        Ok(Input { file, segments, dynamic_at, dynamic })
    }

    fn one(&self, kind: u32) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.kind == kind)
    }

    fn loads(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| segment.kind == PT_LOAD)
    }

    /// End of the object's memory.
    pub(crate) fn end(&self) -> u64 {
        self.loads().map(|segment| segment.address + segment.bytes).max().unwrap_or(0)
    }

    fn tagged(&self, tag: u64) -> Option<u64> {
        self.dynamic.iter().find(|[found, _]| *found == tag).map(|[_, value]| *value)
    }

    /// File offset of the byte mapped at `address`.
    pub(crate) fn offset_of(&self, address: u64) -> Option<u64> {
        let holds =
            |segment: &&Segment| (segment.address..segment.address + segment.file_bytes).contains(&address);
        self.loads().find(holds).map(|holder| holder.offset + address - holder.address)
    }

    fn relocations(&self) -> Result<&'f [u8], Unfit> {
        let (Some(at), Some(bytes)) = (self.tagged(DT_RELA), self.tagged(DT_RELASZ)) else {
            return Err(Unfit::Layout("it has no relocations"));
        };
        let start = self.offset_of(at).ok_or(CUT_SHORT)? as usize;
        self.file.get(start..start + bytes as usize).ok_or(CUT_SHORT)
    }
}

/// What unwinders need to know.
struct Unwinding<'f> {
    /// The library's table, and its address.
    header: &'f [u8],
    header_at: u64,
    gate: Tables,
    table_bytes: u64,
    frames_bytes: u64,
}

impl<'f> Unwinding<'f> {
    /// Reads both objects' tables. The lengths of the result's do not depend on where they are.
    fn new(library: &Input<'f>, gate: &Input<'_>, analysis: &Analysis) -> Result<Unwinding<'f>, Unfit> {
        const OTHER: Unfit = Unfit::Layout("it has unwind tables of another kind");
        let table = library.one(PT_GNU_EH_FRAME).ok_or(OTHER)?;
        let header = library.file.get(table.file()).ok_or(CUT_SHORT)?;
        let elf = ElfFile64::<Endianness>::parse(gate.file).map_err(|_| OTHER)?;
        let section = elf.section_by_name(".eh_frame").ok_or(OTHER)?;
        let frames = section.data().map_err(|_| CUT_SHORT)?;
        let gate = Tables::read(frames, section.address()).ok_or(OTHER)?;
        let mut thunks = Tables::of_thunks(&analysis.patches);
        let added = gate.functions() + thunks.functions();
        Ok(Unwinding {
            header,
            header_at: table.address,
            gate,
            table_bytes: Tables::header_bytes(header, added).ok_or(OTHER)? as u64,
            frames_bytes: thunks.write_eh_frame(0).len() as u64,
        })
    }

    /// Writes what is in memory, and returns the `.debug_frame`.
    fn write(self, file: &mut [u8], layout: &Layout, analysis: &Analysis) -> Result<Vec<u8>, Unfit> {
        let mut all = Tables::of_thunks(&analysis.patches);
        put(file, layout.frames, &all.write_eh_frame(layout.frames));
        all.append(self.gate.moved(layout.gate));
        let table = all.write_header(layout.table, self.header, self.header_at).ok_or(CUT_SHORT)?;
        put(file, layout.table, &table);
        Ok(all.write_debug_frame())
    }
}

/// The layout of the result: addresses relative to the object's base, which are also file offsets.
struct Layout {
    headers: u64,
    header_count: usize,
    relocations: u64,
    /// The table for unwinders, and what of the thunks it leads to.
    table: u64,
    table_bytes: u64,
    frames: u64,
    thunks: u64,
    gate: u64,
    /// Start of the gate's data.
    data: u64,
    /// The end of all segments.
    end: u64,
    /// Location of the gate's thread-local storage in the library's, and size and alignment of the whole.
    storage: u64,
    storage_bytes: u64,
    storage_align: u64,
}

impl Layout {
    fn new(
        library: &Input<'_>,
        gate: &Input<'_>,
        thunks_bytes: u64,
        unwinding: &Unwinding<'_>,
    ) -> Result<Layout, Unfit> {
        let layout = |what| Err(Unfit::Layout(what));
        if library.tagged(DT_INIT).is_some() {
            return layout("the library has an initialiser of its own");
        }
        if gate.tagged(DT_JMPREL).is_some() || gate.tagged(DT_RELR).is_some() {
            return layout("the gate has relocations of another kind");
        }
        let (Some(storage), Some(gate_storage)) = (library.one(PT_TLS), gate.one(PT_TLS)) else {
            return layout("one of the two has no thread-local storage");
        };
        if gate_storage.file_bytes != 0 {
            return layout("the gate has thread-local storage that is not zero");
        }
        let mut segments = gate.loads();
        let (Some(code), Some(data), None) = (segments.next(), segments.next(), segments.next()) else {
            return layout("the gate has other segments than one of code and one of data");
        };
        if code.address != 0 || code.flags & PF_X == 0 || data.flags & PF_W == 0 || data.address % PAGE != 0 {
            return layout("the gate's segments are not of code and data");
        }
        let header_count = library.segments.len() + 2;
        let headers = library.end().max(library.file.len() as u64).next_multiple_of(PAGE);
        let relocations = headers + (header_count * HEADER) as u64;
        let relocated = library.relocations()?.len() + gate.relocations()?.len();
        let table = (relocations + relocated as u64).next_multiple_of(8);
        let frames = (table + unwinding.table_bytes).next_multiple_of(8);
        let thunks = (frames + unwinding.frames_bytes).next_multiple_of(AROUND);
        let at = (thunks + thunks_bytes + PROLOGUES).next_multiple_of(PAGE);
        let storage_at = storage.bytes.next_multiple_of(gate_storage.align.max(1));
        Ok(Layout {
            headers,
            header_count,
            relocations,
            table,
            table_bytes: unwinding.table_bytes,
            frames,
            thunks,
            gate: at,
            data: at + data.address,
            end: (at + gate.end()).next_multiple_of(PAGE),
            storage: storage_at,
            storage_bytes: storage_at + gate_storage.bytes,
            storage_align: storage.align.max(gate_storage.align),
        })
    }

    /// Writes the program headers at their new place with two more, and their location in the file header.
    fn write_headers(&self, file: &mut [u8], library: &Input<'_>) {
        let last = library.segments.iter().rposition(|segment| segment.kind == PT_LOAD);
        let load = |range: Range<u64>, flags| {
            let bytes = range.end - range.start;
            let (offset, address) = (range.start, range.start);
            Segment { kind: PT_LOAD, flags, offset, address, file_bytes: bytes, bytes, align: PAGE }
        };
        let mut all = Vec::new();
        for (index, segment) in library.segments.iter().enumerate() {
            let mut segment = *segment;
            match segment.kind {
                PT_PHDR => {
                    let bytes = (self.header_count * HEADER) as u64;
                    (segment.offset, segment.address) = (self.headers, self.headers);
                    (segment.file_bytes, segment.bytes) = (bytes, bytes);
                }
                PT_GNU_EH_FRAME => {
                    (segment.offset, segment.address) = (self.table, self.table);
                    (segment.file_bytes, segment.bytes) = (self.table_bytes, self.table_bytes);
                }
                PT_TLS => (segment.bytes, segment.align) = (self.storage_bytes, self.storage_align),
                _ => {}
            }
            all.push(segment);
            if Some(index) == last {
                all.push(load(self.headers..self.data, PF_R | PF_X));
                all.push(load(self.data..self.end, PF_R | PF_W));
            }
        }
        move_headers(file, self.headers, &all);
    }

    /// The relocations of both.
    fn relocations_of(&self, library: &Input<'_>, gate: &Input<'_>) -> Result<Vec<u8>, Unfit> {
        let mut all = library.relocations()?.to_vec();
        let (relocations, _) = gate.relocations()?.as_chunks::<RELOCATION>();
        for relocation in relocations {
            let (words, _) = relocation.as_chunks::<8>();
            let [place, info, addend] = [0, 1, 2].map(|index| u64::from_le_bytes(words[index]));
            let addend = match info {
                R_X86_64_RELATIVE => addend + self.gate,
                R_X86_64_TPOFF64 => addend + self.storage,
                _ => return Err(Unfit::Layout("the gate has a relocation of another kind")),
            };
            all.extend([place + self.gate, info, addend].into_iter().flat_map(u64::to_le_bytes));
        }
        Ok(all)
    }

    /// The library's dynamic section, with the new location of the relocations and the gate's initialiser.
    fn dynamic_of(&self, library: &Input<'_>, gate: &Input<'_>) -> Result<Vec<u8>, Unfit> {
        let init = gate.tagged(DT_INIT).ok_or(Unfit::Layout("the gate has no initialiser"))?;
        let bytes = library.relocations()?.len() + gate.relocations()?.len();
        let mut entries = library.dynamic.clone();
        for [tag, value] in &mut entries {
            match *tag {
                DT_RELA => *value = self.relocations,
                DT_RELASZ => *value = bytes as u64,
                _ => {}
            }
        }
        // The section ends with a null entry whatever is added.
        let spare = entries.iter().position(|[tag, _]| *tag == DT_NULL);
        let spare = spare.filter(|spare| spare + 1 < entries.len());
        entries[spare.ok_or(Unfit::Layout("its dynamic section has no spare entry"))?] =
            [DT_INIT, init + self.gate];
        Ok(entries.iter().flatten().flat_map(|word| word.to_le_bytes()).collect())
    }
}
