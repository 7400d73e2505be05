//! Code that is mapped later, by dlopen(3) or anything else that maps a file executable.

use lp_abi::linux::{__NR_mmap, MAP_ANONYMOUS, PROT_EXEC};
use lp_abi::refusal::Refusal;
use lp_abi::sys::syscall6;
use lp_abi::{Fd, PAGE_SIZE};

use crate::low::cover::build::{self, Ended, Source};
use crate::low::cover::loaded;
use crate::low::cover::loaded::Outcome;
use crate::low::cover::patch::Bundle;
use crate::low::dispatch::NOT_OURS;
use crate::low::live::trap;
use crate::low::object::elf::{Read, read_file};
use crate::low::object::objects;
use crate::low::object::objects::{Object, SEGMENTS, Segment};
use crate::low::thread::home;
use crate::low::tools::{names, status};

/// Longest set of notes searched for a build-id, in bytes.
const NOTES: usize = 1024;

/// mmap(2) of anything but a file of ours.
pub(crate) unsafe extern "sysv64" fn mmap(
    address: usize,
    length: usize,
    protection: usize,
    flags: usize,
    fd: usize,
    offset: usize,
) -> isize {
    if protection & PROT_EXEC as usize == 0 || flags & MAP_ANONYMOUS as usize != 0 {
        return NOT_OURS;
    }
    // SAFETY: the program's own call with its own arguments.
    let result = unsafe { syscall6(__NR_mmap, address, length, protection, flags, fd, offset) };
    if !(-4095..0).contains(&result) {
        // SAFETY: the kernel has just made this mapping of this file.
        unsafe {
            let fd = Fd::new(fd as i32);
            let read = |to: &mut [u8], at: u64| read_file(fd, to, at);
            let mut room = [0; names::ROOM];
            let name = names::of_descriptor(fd, &mut room);
            let build = || build::build(core::iter::once(Source::Path(name))).ended;
            mapped(
                &MappedFile { read: &read, name, shown: name, build: &build },
                result as usize,
                length,
                offset,
            );
        }
    }
    result
}

/// The file of a mapping.
pub(crate) struct MappedFile<'s> {
    pub(crate) read: Read<'s>,
    /// Its path, or [`names::NAMELESS`] if the kernel has none.
    pub(crate) name: &'s [u8],
    /// Its name for messages.
    pub(crate) shown: &'s [u8],
    /// Has its site image built.
    pub(crate) build: &'s dyn Fn() -> Ended,
}

/// Patches the object whose executable segment was just mapped from `offset` of a file, as `length` bytes at
/// `at`. Ignores files that are not ELF objects, and a part of a segment: what lies behind it is not the
/// object's.
///
/// # Safety
/// The mapping must be of the file, and nothing in it may run yet.
pub(crate) unsafe fn mapped(source: &MappedFile<'_>, at: usize, length: usize, offset: usize) {
    if home::settings().translates || home::traps() {
        return;
    }
    let mut head = Head::new();
    let Some(segments) = head.read(source.read) else { return };
    let text = segments.iter().find(|segment| {
        segment.kind == 1 && segment.flags & 1 != 0 && segment.offset as usize & !4095 == offset
    });
    let is_whole = |text: &&Segment| {
        text.file_bytes.saturating_add(text.address & 4095) <= length.next_multiple_of(PAGE_SIZE) as u64
    };
    let Some(text) = text.filter(is_whole) else { return };
    // Of several executable segments the dynamic linker maps the one with the highest address last.
    let is_last = segments
        .iter()
        .all(|segment| segment.kind != 1 || segment.flags & 1 == 0 || segment.address <= text.address);
    if !is_last {
        return;
    }
    let base = at.wrapping_sub(text.address as usize & !4095);
    let mut notes = [0u8; NOTES];
    let build_id = segments.iter().filter(|segment| segment.kind == 4).find_map(|note| {
        let room = notes.get_mut(..note.file_bytes as usize)?;
        let got = (source.read)(room, note.offset);
        objects::build_id(&room[..got]).map(lp_abi::image::key_of_build_id)
    });
    let object = Object { base, segments, name: source.name };
    // SAFETY: the settings' strings are NUL-terminated; the caller guarantees that the segment is mapped and
    // does not run.
    unsafe {
        let bundle = Bundle::open(home::settings().bundle.pointer());
        let cover = |bundle: Option<&Bundle>| loaded::cover_mapped(bundle, &object, source.shown, build_id);
        let mut outcome = cover(bundle.as_ref());
        drop(bundle);
        let mut ended = Ended::Itself;
        if matches!(outcome, Outcome::Unknown) {
            ended = (source.build)();
            if ended == Ended::NoneNeeded {
                return;
            }
            outcome = cover(Bundle::open(home::settings().bundle.pointer()).as_ref());
        }
        match outcome {
            Outcome::Covered => {}
            Outcome::Unknown => build::refuse(source.shown, ended),
            // Other threads would have to be told.
            Outcome::Trapped if status::is_alone() && trap::start(None) => {}
            Outcome::Trapped => loaded::refuse(source.shown, Refusal::Unpatchable.why()),
        }
    }
}

/// The start of a file: room for the program headers of an object.
struct Head([u64; (64 + SEGMENTS * 56) / 8]);

impl Head {
    const fn new() -> Self {
        Head([0; (64 + SEGMENTS * 56) / 8])
    }

    fn read(&mut self, read: Read<'_>) -> Option<&[Segment]> {
        // SAFETY: the slice covers exactly the words of the buffer, any bytes of which are valid.
        let bytes = unsafe {
            core::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast::<u8>(), size_of_val(&self.0))
        };
        let got = read(bytes, 0);
        let bytes = &bytes[..got];
        if !bytes.starts_with(b"\x7fELF\x02") {
            return None;
        }
        let at = u64::from_le_bytes(bytes.get(32..40)?.try_into().ok()?) as usize;
        let count = u16::from_le_bytes(bytes.get(56..58)?.try_into().ok()?) as usize;
        let table = bytes.get(at..at.checked_add(count.checked_mul(size_of::<Segment>())?)?)?;
        if !(table.as_ptr() as usize).is_multiple_of(align_of::<Segment>()) {
            return None;
        }
        // SAFETY: the table is aligned and long enough, and every bit pattern is a valid header.
        Some(unsafe { core::slice::from_raw_parts(table.as_ptr().cast(), count) })
    }
}
