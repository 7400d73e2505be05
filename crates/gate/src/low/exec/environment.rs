//! The environment of a new image: puts back the variables that attach removed.
//!
//! By how the gate is loaded ([`LoaderHook`]):
//! - within the C library: LD_LIBRARY_PATH, which the program does not set, and LIGHTPATH_GATE, which says
//!   so, come last.
//! - the same with an outline ([`crate::low::exec::outline`]): LIGHTPATH_GATE says so with the path that was
//!   executed.
//! - preloaded: LD_PRELOAD and LIGHTPATH_GATE come last. An LD_PRELOAD of the program's stays in place, and
//!   its value follows ours.
//! - as an auditor ([`crate::low::start::auditor`]): LD_AUDIT, GLIBC_TUNABLES and LIGHTPATH_GATE, which says
//!   so, come last. The loader uses all entries of these names.
//! - in a static program ([`crate::low::start::standalone`]): LIGHTPATH_GATE comes last, with the program's
//!   descriptor and the path that was executed.
//!
//! Attach finds and removes them again.

use core::cell::Cell;

use lp_abi::linux::__NR_faccessat;
use lp_abi::{Errno, Fd, Result, library};
use lp_region::ucopy;

use crate::High;
use crate::low::above::{Above, List};
use crate::low::exec::load::{LoaderHook, Named, Static};
use crate::low::exec::variables::{
    AUDIT, AUDITS, BY_DESCRIPTOR, BY_PATH, CONVERTERS, GATE, LIBRARY_PATH, MASK, NAMED, OUTLINE, PRELOAD,
    STATIC, WITHIN,
};
use crate::low::object::elf::Loader;
use crate::low::thread::home;
use crate::low::thread::record::Thread;
use lp_abi::text;

/// Reserves thread-local storage. With an auditor the loader lays the storage out before it knows the
/// libraries. Libraries that need theirs at a fixed offset share what is reserved here, and some 1,300 bytes
/// more.
const TUNABLES: &[u8] = b"GLIBC_TUNABLES=glibc.rtld.optional_static_tls=";
/// Bytes reserved besides those of libraries known to be needed. Small, because it is part of every thread's
/// stack.
const STORAGE: u64 = 2048;
/// Replaces the ending of the preload library's name in the name of the gate's file for static programs.
const STATIC_ENDING: &[u8] = b"-static.so";
const ENDING: &[u8] = b".so";
/// Longest value of the program's own LD_PRELOAD that is kept, in bytes. The kernel takes strings up to 128
/// KiB.
const OWN_PRELOAD: usize = 64 << 10;
/// Maximum number of variables; more than the kernel takes under any common stack limit.
const VARIABLES: usize = 1 << 20;

/// Writes to a buffer: pointers at its start, strings behind them.
struct VectorWriter {
    pointers: *mut usize,
    strings: *mut u8,
    end: *mut u8,
}

impl VectorWriter {
    fn pointer(&mut self, value: usize) {
        // SAFETY: `build` reserves room for every pointer that it writes.
        unsafe {
            self.pointers.write(value);
            self.pointers = self.pointers.add(1);
        }
    }

    fn text(&mut self, part: &[u8]) -> Result<()> {
        // SAFETY: the room is checked; the buffer belongs to the writer.
        unsafe {
            if self.end.offset_from(self.strings) < part.len() as isize {
                return Err(Errno::E2BIG);
            }
            self.strings.copy_from_nonoverlapping(part.as_ptr(), part.len());
            self.strings = self.strings.add(part.len());
        }
        Ok(())
    }

    /// Writes a string and returns its address.
    fn string(&mut self, parts: &[&[u8]]) -> Result<usize> {
        let start = self.strings as usize;
        for part in parts {
            self.text(part)?;
        }
        self.text(b"\0")?;
        Ok(start)
    }

    /// Like `string`, with the program's string `from` appended.
    fn with_program_text(&mut self, parts: &[&[u8]], from: *const u8) -> Result<usize> {
        let start = self.strings as usize;
        for part in parts {
            self.text(part)?;
        }
        self.program_text(from)?;
        self.text(b"\0")?;
        Ok(start)
    }

    /// Appends the program's string without its NUL.
    fn program_text(&mut self, from: *const u8) -> Result<()> {
        // SAFETY: the buffer belongs to the writer, and the copy routine handles bad pointers.
        unsafe {
            let room = self.end.offset_from(self.strings) as usize;
            let length = ucopy::string(core::slice::from_raw_parts_mut(self.strings, room), from)
                .map_err(|errno| if errno == Errno::ENAMETOOLONG { Errno::E2BIG } else { errno })?;
            self.strings = self.strings.add(length);
        }
        Ok(())
    }
}

/// The environment that a program passes to a new image, and what it tells the loader.
pub(crate) struct Environment {
    envp: *const usize,
    /// The number of variables.
    count: usize,
    /// The program's own LD_PRELOAD, or 0. The first one, which getenv(3) finds.
    preload: usize,
    /// LD_LIBRARY_PATH, or 0. The last one, which the loader uses.
    library_path: usize,
    /// Whether LD_AUDIT is set.
    audits: bool,
    /// Whether GCONV_PATH is set.
    names_converters: bool,
    /// Whether the directories where the loader looks by itself differ from the host's.
    defaults_differ: bool,
    /// The group to take before the exec ([`privileges::Group`](super::privileges::Group)).
    pub(crate) group: Cell<Option<u32>>,
}

impl Environment {
    /// Scans the `envp` of the program of `thread`, which may be null.
    ///
    /// # Errors
    /// `EFAULT` for a bad pointer in it; `E2BIG`.
    pub(crate) fn survey(thread: &Thread, envp: usize) -> Result<Environment> {
        let envp = envp as *const usize;
        let defaults_differ = High::defaults_differ(thread);
        let mut found = Environment {
            envp,
            count: 0,
            preload: 0,
            library_path: 0,
            audits: false,
            names_converters: false,
            defaults_differ,
            group: Cell::new(None),
        };
        if envp.is_null() {
            return Ok(found);
        }
        for index in 0..VARIABLES {
            // SAFETY: the copy routine handles bad pointers.
            let variable = unsafe { ucopy::get(envp.add(index)) }?;
            if variable == 0 {
                found.count = index;
                return Ok(found);
            }
            match kind_of(variable)? {
                Variable::Preload if found.preload == 0 => found.preload = variable,
                Variable::LibraryPath => found.library_path = variable,
                Variable::Audit => found.audits = true,
                Variable::Converters => found.names_converters = true,
                _ => {}
            }
        }
        Err(Errno::E2BIG)
    }

    /// Whether a directory where the loader looks by itself is in a mount, and has other names there than on
    /// the host.
    pub(crate) fn defaults_differ(&self) -> bool {
        self.defaults_differ
    }

    /// Whether the gate must be loaded as an auditor: the loader looks in a mount, or preloads a library that
    /// must be its first.
    pub(crate) fn wants_auditor(&self, thread: &Thread) -> bool {
        let leads = |variable: usize, name: &[u8], list| {
            variable != 0 && High::list_leads_into_mount(thread, list, (variable + name.len()) as *const u8)
        };
        self.defaults_differ
            || leads(self.library_path, LIBRARY_PATH, List::Directories)
            || leads(self.preload, PRELOAD, List::Libraries)
            || self.preloads_first_library()
    }

    fn preloads_first_library(&self) -> bool {
        if self.preload == 0 {
            return false;
        }
        let mut room = [0u8; lp_abi::PATH_MAX];
        // SAFETY: the copy routine handles bad pointers.
        let length = unsafe { ucopy::string(&mut room, (self.preload + PRELOAD.len()) as *const u8) };
        // One that is too long still has its first entry in the room.
        library::comes_first(library::first_of(&room[..length.unwrap_or(lp_abi::PATH_MAX)]))
    }

    /// How the gate is loaded into a program that names no paths itself.
    pub(crate) fn load(&self, thread: &Thread, loader: Loader) -> LoaderHook {
        // What else is preloaded, audited or searched for elsewhere must meet the C library that it would
        // meet without us. Converters in a mount must be found before the program loads anything itself.
        let is_plain = self.preload == 0 && self.library_path == 0 && !self.audits && !self.names_converters;
        match loader {
            Loader::System if is_plain && !home::settings().library.get().is_empty() => LoaderHook::Within,
            loader if loader.is_gnu() && self.wants_auditor(thread) => LoaderHook::Audit { storage: 0 },
            _ => LoaderHook::Preload,
        }
    }

    /// Builds the environment for an exec by `thread`: the program's variables and ours. What it points to
    /// lives until the next call. The new image is told `named`, unless `load` tells it.
    ///
    /// # Errors
    /// `EFAULT` for a bad pointer in the program's environment; `E2BIG`; `ENOMEM`.
    pub(crate) fn build(&self, thread: &Thread, load: LoaderHook, named: Option<Named>) -> Result<Built> {
        let mut gate = [0u8; 64];
        let gate = match High::gate_value(thread, &mut gate) {
            0 => home::settings().gate.get(),
            length => &gate[..length.min(64)],
        };
        let (name, ours, kind) = match load {
            LoaderHook::Preload => (PRELOAD, home::settings().preload.get(), &b""[..]),
            LoaderHook::Within => (LIBRARY_PATH, home::settings().library.get(), WITHIN),
            LoaderHook::Outline(_) => (LIBRARY_PATH, home::settings().library.get(), OUTLINE),
            LoaderHook::Audit { .. } => (AUDIT, home::settings().preload.get(), AUDITS),
            LoaderHook::Static(_) => (&b""[..], &b""[..], STATIC),
        };
        let mut ending = [0u8; ENDING_ROOM];
        let (ending, path) = match (load, named) {
            (LoaderHook::Static(Static { fd, named }), _) => named.ending(&[kind], Some(fd), &mut ending),
            (LoaderHook::Outline(named), _) => named.ending(&[kind], None, &mut ending),
            (_, Some(named)) => named.ending(&[kind, NAMED], None, &mut ending),
            _ => (kind, NO_PATH),
        };
        let path_length = if path == NO_PATH { 0 } else { length_of(path)? };
        let own = if load == LoaderHook::Preload { self.preload } else { 0 };
        let pointers = (self.count + 5) * size_of::<usize>();
        let names = name.len() + 2 * (GATE.len() + ending.len() + path_length) + MASK.len() + TUNABLES.len();
        let strings = names + 2 * gate.len() + ours.len() + 33;
        let room = pointers + strings + if own == 0 { 0 } else { OWN_PRELOAD };
        let scratch = &thread.scratch[1..];
        let start = match room <= size_of_val(scratch) {
            true => scratch.as_ptr().cast_mut().cast::<u8>(),
            false => thread.exec.at_least(room)?,
        };
        let mut writer = VectorWriter {
            pointers: start.cast(),
            // SAFETY: `pointers` is within the room.
            strings: unsafe { start.add(pointers) },
            // SAFETY: `room` is the length of the memory.
            end: unsafe { start.add(room) },
        };
        let loads = match own {
            0 if name.is_empty() => 0,
            0 => writer.string(&[name, ours])?,
            own => writer.with_program_text(&[name, ours, b":"], (own + PRELOAD.len()) as *const u8)?,
        };
        let mut placed = false;
        for index in 0..self.count {
            // SAFETY: the copy routine handles bad pointers.
            let variable = unsafe { ucopy::get(self.envp.add(index)) }?;
            match kind_of(variable)? {
                Variable::Preload if own == 0 => writer.pointer(variable),
                Variable::Preload if !placed => {
                    placed = true;
                    writer.pointer(loads);
                }
                Variable::Preload | Variable::Gate => {}
                Variable::LibraryPath | Variable::Audit | Variable::Converters | Variable::Other => {
                    writer.pointer(variable)
                }
            }
        }
        if !placed && loads != 0 {
            writer.pointer(loads);
        }
        if let LoaderHook::Audit { storage } = load {
            let mut digits = [0u8; 20];
            let digits = text::decimal(storage.saturating_add(STORAGE), &mut digits);
            let tunables = writer.string(&[TUNABLES, digits])?;
            writer.pointer(tunables);
        }
        let with_mask = writer.with_program_text(&[GATE, MASK, gate, ending], path)?;
        let gate = writer.with_program_text(&[GATE, gate, ending], path)?;
        let gate_at = writer.pointers;
        writer.pointer(gate);
        // The gate must find an even number of variables to remove (`inherited::fill_gap`): a preload list of
        // the program's own stays, and an auditor has a variable more.
        if own != 0 || matches!(load, LoaderHook::Audit { .. }) {
            writer.pointer(gate);
        }
        writer.pointer(0);
        Ok(Built { vector: start.cast(), gate_at, with_mask })
    }
}

/// Bytes for what [`Named::ending`] writes.
const ENDING_ROOM: usize = WITHIN.len() + OUTLINE.len() + 10 + 1 + 1 + DESCRIPTORS.len() + 10 + 1;
/// Prefix by which the kernel names a program executed by a descriptor.
const DESCRIPTORS: &[u8] = b"/dev/fd/";

impl Named {
    /// The part of LIGHTPATH_GATE's value before the path: `kinds`, the program's descriptor if it is passed
    /// on, and what the path is; and the path.
    fn ending<'r>(
        &self,
        kinds: &[&[u8]],
        fd: Option<Fd>,
        room: &'r mut [u8; ENDING_ROOM],
    ) -> (&'r [u8], *const u8) {
        let mut text = text::Writer::new(&mut room[..]);
        kinds.iter().for_each(|kind| text.push(kind));
        if let Some(fd) = fd {
            text.push_decimal(fd.raw() as u64);
            text.push(b":");
        }
        // SAFETY: the copy routine handles bad pointers.
        let first = unsafe { ucopy::get(self.path) }.unwrap_or(b'/');
        text.push(&[if first == 0 { BY_DESCRIPTOR } else { BY_PATH }]);
        if self.directory != Fd::CWD && first != b'/' {
            text.push(DESCRIPTORS);
            text.push_decimal(self.directory.raw() as u64);
            text.push(if first == 0 { b"" } else { b"/" });
        }
        let length = text.finish().unwrap_or(0);
        (&room[..length], self.path)
    }
}

/// An empty path.
const NO_PATH: *const u8 = c"".as_ptr().cast();

/// Length of a path of the program's, in bytes. It is read in pieces, as the program's stack may be small.
fn length_of(path: *const u8) -> Result<usize> {
    let mut piece = [0u8; 256];
    let mut length = 0;
    while length < lp_abi::PATH_MAX {
        // SAFETY: the copy routine handles bad pointers.
        match unsafe { ucopy::string(&mut piece, path.wrapping_add(length)) } {
            Err(Errno::ENAMETOOLONG) => length += piece.len(),
            more => return more.map(|more| length + more),
        }
    }
    Err(Errno::ENAMETOOLONG)
}

/// Whether the new image's loader will find the gate: its files, which lie together, are not in every root
/// directory (chroot(2), a sandbox).
pub(crate) fn is_in_reach(load: LoaderHook) -> bool {
    let path = match load {
        LoaderHook::Within | LoaderHook::Outline(_) => home::settings().library.pointer(),
        LoaderHook::Static(_) | LoaderHook::Preload | LoaderHook::Audit { .. } => {
            home::settings().preload.pointer()
        }
    };
    // SAFETY: the path is NUL-terminated; access(2) changes nothing.
    unsafe { lp_abi::syscall!(__NR_faccessat, Fd::CWD, path, 0) }.is_ok()
}

/// The path of the gate's file for static programs, NUL-terminated, in `room`.
pub(crate) fn static_gate(room: &mut [u8]) -> Option<&[u8]> {
    let stem = home::settings().preload.get().strip_suffix(ENDING)?;
    let mut text = text::Writer::new(room);
    text.push(stem);
    text.push(STATIC_ENDING);
    let length = text.finish()?;
    room.get(..=length)
}

/// The environment of a new image, in the thread's memory.
pub(crate) struct Built {
    vector: *const usize,
    /// Position of LIGHTPATH_GATE in it.
    gate_at: *mut usize,
    /// The same variable with space for a mask.
    with_mask: usize,
}

impl Built {
    /// The vector for execve(2).
    pub(crate) fn vector(&self) -> *const usize {
        self.vector
    }

    /// Makes the new image set its signal mask.
    pub(crate) fn tell_mask(&self, mask: u64) {
        let digits = (self.with_mask + GATE.len() + 1) as *mut u8;
        for index in 0..16 {
            let digit = (mask >> (60 - 4 * index)) as usize & 15;
            // SAFETY: the string has space for 16 digits there, and belongs to this thread.
            unsafe { digits.add(index).write(b"0123456789abcdef"[digit]) };
        }
        // SAFETY: the vector belongs to this thread, and the string that replaces the entry lives as long.
        unsafe { self.gate_at.write(self.with_mask) };
    }
}

#[derive(PartialEq)]
enum Variable {
    Preload,
    LibraryPath,
    Audit,
    Converters,
    Gate,
    Other,
}

fn kind_of(variable: usize) -> Result<Variable> {
    if variable & 4095 <= 4096 - 8 {
        // SAFETY: the copy routine handles bad pointers; the eight bytes are on one page.
        let head = unsafe { ucopy::get(variable as *const [u8; 8]) }?;
        if [PRELOAD, LIBRARY_PATH, AUDIT, CONVERTERS, GATE].iter().all(|name| head[..] != name[..8]) {
            return Ok(Variable::Other);
        }
    }
    let mut head = [0u8; 24];
    // SAFETY: the copy routine handles bad pointers.
    if let Err(Errno::EFAULT) = unsafe { ucopy::string(&mut head, variable as *const u8) } {
        return Err(Errno::EFAULT);
    }
    Ok(match &head {
        head if head.starts_with(PRELOAD) => Variable::Preload,
        head if head.starts_with(LIBRARY_PATH) => Variable::LibraryPath,
        head if head.starts_with(AUDIT) => Variable::Audit,
        head if head.starts_with(CONVERTERS) => Variable::Converters,
        head if head.starts_with(GATE) => Variable::Gate,
        _ => Variable::Other,
    })
}
