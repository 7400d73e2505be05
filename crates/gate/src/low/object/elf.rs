//! ELF files, read in place: the loader that a program asks for, and where it makes the loader look for
//! libraries.
//!
//! Our own code rather than the `object` crate, which takes a whole file as a slice or through a cache that
//! allocates. The gate neither allocates nor maps a program that it only examines: it reads the few headers
//! that it needs through [`Read`].
//!
//! Source: elf(5); ld.so(8) for how the loader uses the dynamic section.

use lp_abi::Fd;
use lp_abi::linux::__NR_pread64;

use crate::low::object::objects::Segment;

/// Reads from an offset of the file into a buffer and returns the number of bytes read.
pub(crate) type Read<'r> = &'r dyn Fn(&mut [u8], u64) -> usize;

/// A [`Read`] of a host descriptor; 0 on error.
pub(crate) fn read_file(fd: Fd, to: &mut [u8], at: u64) -> usize {
    // SAFETY: the kernel writes within `to`.
    unsafe { lp_abi::syscall!(__NR_pread64, fd, to.as_mut_ptr(), to.len(), at) }.unwrap_or(0)
}

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_TLS: u32 = 7;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;
const DT_DEPAUDIT: u64 = 0x6fff_fefb;
const DT_AUDIT: u64 = 0x6fff_fefc;
/// The dynamic linker of the System V ABI for x86-64.
const SYSTEM_LOADER: &[u8] = b"/lib64/ld-linux-x86-64.so.2";
/// The C library's name.
const LIBRARY: &[u8] = b"libc.so.6";
/// Bytes of a program header in a 64-bit file.
const HEADER: usize = size_of::<Segment>();
/// Entries of a dynamic section read at once.
const BATCH: usize = 16;
/// Longest path of a library or directory considered, in bytes.
const PATH: usize = 1024;

/// The loader (`PT_INTERP`) of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loader {
    /// The system's, at the path that the psABI gives it: its C library is known.
    System,
    /// The GNU C library's, which loads auditors before anything else: rtld-audit(7).
    Gnu,
    /// Another, such as musl's.
    Other,
    /// None: the program is static.
    Static,
}

impl Loader {
    /// Classifies a loader by its path.
    pub(crate) fn of(path: &[u8]) -> Loader {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        match name.starts_with(b"ld-linux") {
            _ if path == SYSTEM_LOADER => Loader::System,
            true => Loader::Gnu,
            false => Loader::Other,
        }
    }

    /// Whether it is the GNU C library's.
    pub(crate) fn is_gnu(self) -> bool {
        matches!(self, Loader::System | Loader::Gnu)
    }
}

/// An ELF file for x86-64.
pub(crate) struct Elf<'r> {
    /// Its first bytes.
    head: &'r [u8],
    headers_at: u64,
    count: u64,
    read: Read<'r>,
}

impl<'r> Elf<'r> {
    /// The file whose first bytes are `head`; `None` if this kernel would not execute it.
    pub(crate) fn new(head: &'r [u8], read: Read<'r>) -> Option<Elf<'r>> {
        let half = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?));
        let headers_at = u64::from_le_bytes(head.get(32..40)?.try_into().ok()?);
        let count = u64::from(half(56)?);
        (usize::from(half(54)?) == HEADER).then_some(Elf { head, headers_at, count, read })
    }

    fn segment(&self, index: u64) -> Option<Segment> {
        let mut bytes = [0u8; HEADER];
        let at = self.headers_at.wrapping_add(index * HEADER as u64);
        match self.head.get(at as usize..(at as usize).wrapping_add(HEADER)) {
            Some(head) => bytes.copy_from_slice(head),
            None if (self.read)(&mut bytes, at) == HEADER => {}
            None => return None,
        }
        // SAFETY: a record of integers, for which every bit pattern is valid; `bytes` holds a whole one.
        Some(unsafe { bytes.as_ptr().cast::<Segment>().read_unaligned() })
    }

    /// The first program header that `wanted` picks.
    fn find(&self, wanted: impl Fn(&Segment) -> bool) -> Option<Segment> {
        (0..self.count).map_while(|index| self.segment(index)).find(wanted)
    }

    /// The loader; `None` if there is none.
    ///
    /// # Errors
    /// A program header lies beyond the end of the file.
    pub(crate) fn loader(&self) -> Result<Option<Loader>, CutShort> {
        for index in 0..self.count {
            let segment = self.segment(index).ok_or(CutShort)?;
            if segment.kind != PT_INTERP {
                continue;
            }
            let mut path = [0u8; 256];
            let length = path.len().min(segment.file_bytes as usize);
            let got = (self.read)(&mut path[..length], segment.offset);
            let end = path[..got].iter().position(|byte| *byte == 0).unwrap_or(got);
            return Ok(Some(Loader::of(&path[..end])));
        }
        Ok(None)
    }

    /// Writes the loader's path to `to`, NUL-terminated, and returns its offset in the file and the bytes
    /// that it occupies there; `None` without a loader.
    pub(crate) fn interpreter(&self, to: &mut [u8; lp_abi::PATH_MAX]) -> Option<(u64, usize)> {
        let segment = self.find(|segment| segment.kind == PT_INTERP)?;
        let length = (segment.file_bytes as usize).min(to.len() - 1);
        let got = (self.read)(&mut to[..length], segment.offset);
        to[got] = 0;
        (got == length && length > 1).then_some((segment.offset, length))
    }

    /// Bytes of thread-local storage that the file needs in each thread.
    pub(crate) fn storage(&self) -> u64 {
        self.find(|segment| segment.kind == PT_TLS).map_or(0, |segment| segment.bytes)
    }

    /// Calls `each` with every directory that the file makes the loader search before its own (`DT_RPATH`,
    /// `DT_RUNPATH`), as written, until `each` returns true. Returns whether it did.
    pub(crate) fn directories(&self, each: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.strings(&|tag| matches!(tag, DT_RPATH | DT_RUNPATH), &mut |at| self.list(at, each))
    }

    /// The same for the libraries that it needs: names to search for, or paths if they contain slashes.
    pub(crate) fn needed(&self, each: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.strings(&|tag| tag == DT_NEEDED, &mut |at| {
            let mut room = [0u8; PATH];
            let got = (self.read)(&mut room, at);
            each(room[..got].split(|byte| *byte == 0).next().unwrap_or_default())
        })
    }

    /// Whether the file makes the loader look elsewhere than the system's configuration says: in directories,
    /// for libraries at paths, for auditors.
    pub(crate) fn has_paths(&self) -> bool {
        self.directories(&mut |_| true)
            || self.needed(&mut |name| name.contains(&b'/'))
            || self.strings(&|tag| matches!(tag, DT_AUDIT | DT_DEPAUDIT), &mut |_| true)
    }

    /// Whether it needs the C library itself, not only through another library.
    pub(crate) fn needs_c_library(&self) -> bool {
        self.needed(&mut |name| name == LIBRARY)
    }

    /// Calls `each` with the offset of the string of every dynamic entry whose tag is `wanted`.
    fn strings(&self, wanted: &dyn Fn(u64) -> bool, each: &mut dyn FnMut(u64) -> bool) -> bool {
        let Some(dynamic) = self.find(|segment| segment.kind == PT_DYNAMIC) else { return false };
        let Some(strings) = self.tagged(&dynamic, &|tag| tag == DT_STRTAB).and_then(|(address, _)| {
            let within =
                |at: &Segment| (at.address..at.address.saturating_add(at.file_bytes)).contains(&address);
            let holder = self.find(|segment| segment.kind == PT_LOAD && within(segment))?;
            Some(holder.offset.wrapping_add(address - holder.address))
        }) else {
            return false;
        };
        let mut rest = dynamic;
        while let Some((value, next)) = self.tagged(&rest, wanted) {
            if each(strings.wrapping_add(value)) {
                return true;
            }
            rest.offset = rest.offset.wrapping_add(next);
            rest.file_bytes -= next;
        }
        false
    }

    /// The first entry of a dynamic section whose tag is `wanted`: its value, and the offset of the next
    /// entry.
    fn tagged(&self, dynamic: &Segment, wanted: &dyn Fn(u64) -> bool) -> Option<(u64, u64)> {
        const ENTRY: usize = 16;
        let mut at = 0;
        while at < dynamic.file_bytes {
            let mut bytes = [0u8; BATCH * ENTRY];
            let length = bytes.len().min((dynamic.file_bytes - at) as usize);
            let got = (self.read)(&mut bytes[..length], dynamic.offset.wrapping_add(at));
            let (entries, _) = bytes[..got].as_chunks::<ENTRY>();
            if entries.is_empty() {
                return None;
            }
            for entry in entries {
                at += ENTRY as u64;
                let (words, _) = entry.as_chunks::<8>();
                match (u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])) {
                    (DT_NULL, _) => return None,
                    (tag, value) if wanted(tag) => return Some((value, at)),
                    _ => {}
                }
            }
        }
        None
    }

    /// Calls `each` with the parts of a colon-separated list. A part longer than a path is skipped.
    fn list(&self, mut at: u64, each: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let mut whole = true;
        loop {
            let mut room = [0u8; PATH];
            let got = (self.read)(&mut room, at);
            let text = &room[..got];
            let Some(end) = text.iter().position(|byte| matches!(*byte, 0 | b':')) else {
                if got < PATH {
                    return false;
                }
                at = at.wrapping_add(PATH as u64);
                whole = false;
                continue;
            };
            if whole && each(&text[..end]) {
                return true;
            }
            if text[end] == 0 {
                return false;
            }
            at = at.wrapping_add(end as u64 + 1);
            whole = true;
        }
    }
}

/// The file ends before what its header announces.
pub(crate) struct CutShort;
