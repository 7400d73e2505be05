//! Loaded objects: the dynamic linker's list, and what their program headers say.

use core::ops::Range;

use lp_abi::image;
use lp_abi::linux::{__NR_close, __NR_stat, PROT_EXEC, PROT_READ, PROT_WRITE, stat};
use lp_abi::text::number;
use lp_vfs::load::ImageIds;

use crate::low::tools::{names, report};

/// One entry of the dynamic linker's list (`struct link_map`, the public part).
#[repr(C)]
pub struct LinkMap {
    pub(crate) base: usize,
    pub(crate) name: *const u8,
    pub(crate) dynamic: usize,
    pub(crate) next: *const LinkMap,
}

/// `struct r_debug`.
#[repr(C)]
struct Debug {
    version: i32,
    map: *const LinkMap,
}

/// An ELF program header.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Segment {
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    pub(crate) offset: u64,
    pub(crate) address: u64,
    physical: u64,
    pub(crate) file_bytes: u64,
    pub(crate) bytes: u64,
    pub(crate) align: u64,
}

impl Segment {
    /// The protection of its pages.
    pub(crate) fn protection(&self) -> u32 {
        let bit = |flag, protection| if self.flags & flag != 0 { protection } else { 0 };
        bit(PF_R, PROT_READ) | bit(PF_W, PROT_WRITE) | bit(PF_X, PROT_EXEC)
    }
}

pub(crate) const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
pub(crate) const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
const PT_PHDR: u32 = 6;
/// Flags of a segment: its pages may be executed, written, read.
pub(crate) const PF_X: u32 = 1;
pub(crate) const PF_W: u32 = 2;
const PF_R: u32 = 4;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_DEBUG: usize = 21;
const NT_GNU_BUILD_ID: u32 = 3;
/// Maximum number of segments examined.
pub(crate) const SEGMENTS: usize = 32;

/// The entries of the process's auxiliary vector that the gate uses.
#[derive(Clone, Copy, Default)]
pub(crate) struct Auxiliary {
    /// AT_PHDR.
    pub(crate) headers: usize,
    /// AT_PHNUM.
    pub(crate) header_count: usize,
    /// AT_BASE: where the dynamic linker is.
    pub(crate) linker: usize,
    /// AT_SYSINFO_EHDR.
    pub(crate) vdso: usize,
    /// AT_UID and the like.
    pub(crate) ids: ImageIds,
}

impl Auxiliary {
    /// # Safety
    /// `vector` must be the process's auxiliary vector.
    pub(crate) unsafe fn read(mut vector: *const [usize; 2]) -> Self {
        let mut found = Auxiliary::default();
        loop {
            // SAFETY: the vector ends with AT_NULL, at which the loop stops.
            let [kind, value] = unsafe { vector.read() };
            match kind {
                0 => return found,
                3 => found.headers = value,
                5 => found.header_count = value,
                7 => found.linker = value,
                11 => found.ids.uid = value as u32,
                12 => found.ids.euid = value as u32,
                13 => found.ids.gid = value as u32,
                14 => found.ids.egid = value as u32,
                33 => found.vdso = value,
                _ => {}
            }
            // SAFETY: this entry is not AT_NULL, so another follows.
            vector = unsafe { vector.add(1) };
        }
    }

    /// The main program's segments.
    ///
    /// # Safety
    /// The vector must have been read from the process.
    pub(crate) unsafe fn segments(&self) -> &'static [Segment] {
        // SAFETY: AT_PHDR and AT_PHNUM describe headers that the kernel mapped.
        unsafe { core::slice::from_raw_parts(self.headers as *const Segment, self.header_count) }
    }

    /// The main program, and the dynamic linker under the name that the program gives it.
    ///
    /// # Safety
    /// The vector must have been read from the process.
    pub(crate) unsafe fn first_objects(&self) -> impl Iterator<Item = Object<'static>> + Clone {
        // SAFETY: the caller guarantees the process's vector; the kernel mapped both objects that it names.
        let (segments, linker) = unsafe { (self.segments(), segments_at(self.linker)) };
        let base = self.base();
        let name = self.linker_path();
        let program = Object { base, segments, name: &[] };
        let linker = linker.map(|segments| Object { base: self.linker, segments, name });
        [Some(program), linker].into_iter().flatten()
    }

    /// The path by which the program names the dynamic linker; empty if it has none.
    fn linker_path(&self) -> &'static [u8] {
        // SAFETY: the vector was read from the process, or has no headers.
        let named = unsafe { self.segments() }.iter().find(|segment| segment.kind == PT_INTERP);
        // SAFETY: PT_INTERP holds a NUL-terminated string.
        named.map_or(&b""[..], |at| unsafe {
            report::c_bytes(self.base().wrapping_add(at.address as usize) as *const u8)
        })
    }

    /// Closes the descriptor of the dynamic linker that the exec gave the image, if it gave it one.
    pub(crate) fn close_linker(&self) {
        let number = self.linker_path().strip_prefix(names::DESCRIPTORS).and_then(number);
        if let Some(number) = number {
            // SAFETY: the exec made the descriptor, and the kernel has mapped the linker.
            let _ = unsafe { lp_abi::syscall!(__NR_close, number) };
        }
    }

    /// The address to which the main program's addresses are relative.
    fn base(&self) -> usize {
        // SAFETY: the vector was read from the process, or has no headers.
        let segments = unsafe { self.segments() };
        let own = segments.iter().find(|segment| segment.kind == PT_PHDR);
        own.map_or(0, |segment| self.headers - segment.address as usize)
    }

    /// The objects of the dynamic linker's list; `None` if there is no list.
    ///
    /// # Safety
    /// The vector must have been read from the process, and the dynamic linker must have run.
    pub(crate) unsafe fn objects(&self) -> Option<impl Iterator<Item = Object<'static>> + Clone> {
        // SAFETY: the caller guarantees the process's vector and that the dynamic linker has run.
        let first = unsafe { self.list().as_ref() }?;
        // SAFETY: entries of the list stay mapped, and the last one's `next` is null.
        let maps = core::iter::successors(Some(first), |map| unsafe { map.next.as_ref() });
        // SAFETY: `map` is an entry of the list.
        Some(maps.filter_map(|map| unsafe { Object::of(map, self) }))
    }

    /// The first entry of the dynamic linker's list; null if there is none.
    ///
    /// # Safety
    /// The vector must have been read from the process, and the dynamic linker must have run.
    unsafe fn list(&self) -> *const LinkMap {
        // SAFETY: the caller guarantees the process's vector.
        let segments = unsafe { self.segments() };
        let base = self.base();
        // SAFETY: the program is mapped, and has a dynamic section or none.
        let debug = unsafe { tagged(segments, base, DT_DEBUG) }.filter(|debug| *debug != 0);
        // SAFETY: the dynamic linker has stored the address of its record, or has it under its own name.
        unsafe {
            let debug = debug.map(|debug| debug as *const Debug).or_else(|| self.linkers_record());
            debug.map_or(core::ptr::null(), |debug| (*debug).map)
        }
    }

    /// The dynamic linker's record, by its symbol. Some linkers (tcc's) leave no place in a program for the
    /// record's address, or one that is read-only.
    ///
    /// # Safety
    /// As for [`Auxiliary::list`].
    #[cold]
    #[inline(never)]
    unsafe fn linkers_record(&self) -> Option<*const Debug> {
        // SAFETY: the dynamic linker is mapped. Its strings follow its symbols.
        unsafe {
            let segments = segments_at(self.linker)?;
            // glibc before 2.35 makes these addresses; they are distances in the file.
            let address = |at: usize| if at < self.linker { self.linker + at } else { at };
            let symbols = address(tagged(segments, self.linker, DT_SYMTAB)?);
            let strings = address(tagged(segments, self.linker, DT_STRTAB)?);
            let all = core::slice::from_raw_parts(
                symbols as *const Symbol,
                (strings - symbols) / size_of::<Symbol>(),
            );
            all.iter().find_map(|symbol| {
                let value = self.linker + symbol.value as usize;
                match report::c_bytes((strings + symbol.name as usize) as *const u8) {
                    b"_r_debug" => Some(value as *const Debug),                 // glibc
                    b"_dl_debug_addr" => Some(*(value as *const *const Debug)), // musl
                    _ => None,
                }
            })
        }
    }
}

/// The value of an entry of an object's dynamic section.
///
/// # Safety
/// The object must be mapped at `base`.
unsafe fn tagged(segments: &[Segment], base: usize, tag: usize) -> Option<usize> {
    let dynamic = segments.iter().find(|segment| segment.kind == PT_DYNAMIC)?;
    let mut entry = base.wrapping_add(dynamic.address as usize) as *const [usize; 2];
    loop {
        // SAFETY: the dynamic section ends with DT_NULL, at which the loop stops.
        unsafe {
            match *entry {
                [0, _] => return None,
                [found, value] if found == tag => return Some(value),
                _ => entry = entry.add(1),
            }
        }
    }
}

/// A symbol of an ELF object.
#[repr(C)]
struct Symbol {
    name: u32,
    kind: [u8; 4],
    value: u64,
    bytes: u64,
}

/// An object in memory.
#[derive(Clone, Copy)]
pub(crate) struct Object<'a> {
    /// The address to which the object's addresses are relative.
    pub(crate) base: usize,
    pub(crate) segments: &'a [Segment],
    /// Its path; empty for the main program.
    pub(crate) name: &'a [u8],
}

impl Object<'static> {
    /// The object that `map` describes; `None` for the kernel's vdso.
    ///
    /// # Safety
    /// `map` must be an entry of the dynamic linker's list.
    pub(crate) unsafe fn of(map: &LinkMap, auxiliary: &Auxiliary) -> Option<Self> {
        if map.base != 0 && map.base == auxiliary.vdso {
            return None;
        }
        // SAFETY: `auxiliary` was read from the process whose list `map` is in.
        let program = unsafe { auxiliary.segments() };
        let is_program = program.iter().any(|segment| {
            segment.kind == PT_DYNAMIC && map.base.wrapping_add(segment.address as usize) == map.dynamic
        });
        // SAFETY: names in the list are NUL-terminated.
        let name = if map.name.is_null() { &[][..] } else { unsafe { report::c_bytes(map.name) } };
        if is_program {
            return Some(Object { base: map.base, segments: program, name: &[] });
        }
        // SAFETY: a shared object's first page is mapped at its base.
        let segments = unsafe { segments_at(map.base) }?;
        Some(Object { base: map.base, segments, name })
    }
}

/// The segments of the object at `base`; `None` if there is none.
///
/// # Safety
/// `base` must be 0 or the base of a loaded object whose first page is mapped there.
unsafe fn segments_at(base: usize) -> Option<&'static [Segment]> {
    let header = base as *const u8;
    // SAFETY: the object's first page contains its ELF header and program headers.
    unsafe {
        if base == 0 || header.cast::<[u8; 4]>().read_unaligned() != *b"\x7fELF" {
            return None;
        }
        let at = header.add(32).cast::<u64>().read_unaligned() as usize;
        let count = header.add(56).cast::<u16>().read_unaligned() as usize;
        Some(core::slice::from_raw_parts(header.add(at).cast::<Segment>(), count.min(SEGMENTS)))
    }
}

impl Object<'_> {
    /// Its executable segments.
    pub(crate) fn code(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| segment.kind == PT_LOAD && segment.flags & PF_X != 0)
    }

    /// The largest of its executable segments.
    pub(crate) fn text(&self) -> Option<&Segment> {
        self.code().max_by_key(|segment| segment.file_bytes)
    }

    /// From the start of its first executable segment to the end of its last one.
    pub(crate) fn code_range(&self) -> Range<usize> {
        let at = |address: u64| self.base.wrapping_add(address as usize);
        let start = self.code().map(|segment| at(segment.address)).min();
        let end = self.code().map(|segment| at(segment.address + segment.bytes)).max();
        start.unwrap_or(0)..end.unwrap_or(0)
    }

    /// The bytes of a segment that come from the file.
    ///
    /// # Safety
    /// The object must stay mapped.
    pub(crate) unsafe fn bytes_of(&self, segment: &Segment) -> &[u8] {
        // SAFETY: the segment is mapped readable: without protection keys x86 has no execute-only pages.
        unsafe {
            let start = self.base.wrapping_add(segment.address as usize) as *const u8;
            core::slice::from_raw_parts(start, segment.file_bytes as usize)
        }
    }

    /// Whether `address` is in the object.
    pub(crate) fn contains(&self, address: usize) -> bool {
        self.segments.iter().any(|segment| {
            let start = self.base.wrapping_add(segment.address as usize);
            segment.kind == PT_LOAD && (start..start + segment.bytes as usize).contains(&address)
        })
    }

    /// The object's key in the bundle.
    ///
    /// # Safety
    /// The object must be mapped.
    pub(crate) unsafe fn key(&self) -> [u64; 2] {
        for note in self.segments.iter().filter(|segment| segment.kind == PT_NOTE) {
            let start = self.base.wrapping_add(note.address as usize) as *const u8;
            // SAFETY: notes are part of a mapped segment.
            let bytes = unsafe { core::slice::from_raw_parts(start, note.file_bytes as usize) };
            if let Some(id) = build_id(bytes) {
                return image::key_of_build_id(id);
            }
        }
        // SAFETY: the caller guarantees that the object is mapped.
        unsafe { self.key_without_build_id() }
    }

    /// # Safety
    /// The object must be mapped.
    #[cold]
    #[inline(never)]
    unsafe fn key_without_build_id(&self) -> [u64; 2] {
        let first = self.segments.iter().find(|segment| segment.kind == PT_LOAD);
        let Some(first) = first else { return [1, 0] };
        let start = self.base.wrapping_add(first.address as usize) as *const u8;
        // SAFETY: the first segment is mapped.
        let page = unsafe { core::slice::from_raw_parts(start, (first.file_bytes as usize).min(4096)) };
        let mut room = [0; names::ROOM];
        let name = if self.name.is_empty() { names::of_program(&mut room) } else { self.name };
        if name.starts_with(names::NAMELESS) {
            // SAFETY: the segment of the text is mapped.
            let text = self.text().map_or(&[][..], |text| unsafe { self.bytes_of(text) });
            return image::key_of_content(page, text);
        }
        image::key_of_bytes(page, identity(name))
    }
}

/// The build-id among the notes in `bytes`.
pub(crate) fn build_id(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let (name, length, kind) = (word(0)? as usize, word(4)? as usize, word(8)?);
        let at = 12 + name.next_multiple_of(4);
        let text = bytes.get(at..at.checked_add(length)?)?;
        if kind == NT_GNU_BUILD_ID && bytes.get(12..16) == Some(b"GNU\0") && !text.is_empty() {
            return Some(text);
        }
        bytes = bytes.get(at + length.next_multiple_of(4)..)?;
    }
}

/// Identifies the file at `name`, for objects without a build-id: device, inode, size, modification time.
pub(crate) fn identity(name: &[u8]) -> [u64; 4] {
    let mut path = [0u8; 1024];
    let Some(room) = path.get_mut(..name.len()).filter(|room| room.len() < 1024) else { return [0; 4] };
    room.copy_from_slice(name);
    let mut found = core::mem::MaybeUninit::<stat>::zeroed();
    // SAFETY: the kernel reads the NUL-terminated path and fills the record in; zeros are a valid record too.
    let found = unsafe {
        let _ = lp_abi::syscall!(__NR_stat, path.as_ptr(), found.as_mut_ptr());
        found.assume_init()
    };
    [found.st_dev, found.st_ino, found.st_size as u64, (found.st_mtime << 30) ^ found.st_mtime_nsec]
}
