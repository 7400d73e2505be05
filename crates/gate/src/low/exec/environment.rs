//! The environment of an image to come: what attach took out is put back.
//!
//! | the gate comes ([`Load`]) | variables of ours |
//! |---|---|
//! | within the C library | LD_LIBRARY_PATH, which the program does not set, and LIGHTPATH_GATE, which says so, come last |
//! | preloaded | LD_PRELOAD and LIGHTPATH_GATE come last; if the program sets LD_PRELOAD, that stays where it is, and its value follows ours |
//! | as an auditor ([`crate::low::start::auditor`]) | LD_AUDIT, GLIBC_TUNABLES and LIGHTPATH_GATE, which says so, come last: the loader takes all entries of those names |
//! | in a static program ([`crate::low::start::standalone`]) | LIGHTPATH_GATE comes last, with the program's descriptor and the path that was executed |
//!
//! Attach finds and drops them again.

use core::ffi::CStr;

use lp_abi::linux::{__NR_mmap, __NR_munmap, MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use lp_abi::{Errno, Result};
use lp_region::ucopy;

use crate::high::above;
use crate::high::route::libraries::List;
use crate::low::exec::check::Load;
use crate::low::object::elf::Loader;
use crate::low::thread::record::Thread;
use crate::low::thread::settings;
use crate::low::tools::{report, text};

const PRELOAD: &[u8] = b"LD_PRELOAD=";
const AUDIT: &[u8] = b"LD_AUDIT=";
const LIBRARY_PATH: &[u8] = b"LD_LIBRARY_PATH=";
const GATE: &[u8] = b"LIGHTPATH_GATE=";
/// Makes room for thread-local storage. With an auditor the loader lays the storage out before it knows the libraries:
/// those that want theirs at a fixed place in it share what is set apart here, and some 1,300 bytes more.
const TUNABLES: &[u8] = b"GLIBC_TUNABLES=glibc.rtld.optional_static_tls=";
/// Bytes set apart besides those of libraries that are known to be needed. Little: it is part of every thread's stack.
const STORAGE: u64 = 2048;
/// How it starts when the new image is to set its signal mask, which follows in hexadecimal: see
/// [`crate::low::exec::run::run`].
const MASK: &[u8] = b"m0000000000000000:";
/// How the value of LIGHTPATH_GATE ends when the gate comes as an auditor.
const AUDITS: &[u8] = b":audit";
/// How it ends when the gate comes within the C library.
const WITHIN: &[u8] = b":within";
/// What stands in it before the descriptor of a static program, which a colon and its path follow.
const STATIC: &[u8] = b":static:";
/// What the name of the gate's file for those has in the place of the ending of the preload library's.
const STATIC_ENDING: &[u8] = b"-static.so";
const ENDING: &[u8] = b".so";
/// Longest value of the program's own LD_PRELOAD that is kept, in bytes; the kernel takes strings up to 128 KiB.
const OWN_PRELOAD: usize = 64 << 10;
/// Most variables; more than the kernel takes on any stack limit in use.
const VARIABLES: usize = 1 << 20;

/// Memory for a new environment that does not fit the thread's scratch buffers: mapped when needed, kept for the next
/// exec that fails, given back with the record.
#[repr(C)]
pub(crate) struct Room {
    start: usize,
    bytes: usize,
}

impl Room {
    /// At least so many bytes; the next call may move them.
    pub(crate) fn at_least(&mut self, bytes: usize) -> Result<*mut u8> {
        if self.bytes < bytes {
            self.release();
            let bytes = bytes.next_multiple_of(4096);
            let (protection, flags) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
            // SAFETY: a new mapping.
            self.start = unsafe { lp_abi::syscall!(__NR_mmap, 0, bytes, protection, flags, usize::MAX, 0) }?;
            self.bytes = bytes;
        }
        Ok(self.start as *mut u8)
    }

    pub(crate) fn release(&mut self) {
        if self.bytes != 0 {
            // SAFETY: the mapping is this record's own and not in use.
            let _ = unsafe { lp_abi::syscall!(__NR_munmap, self.start, self.bytes) };
            self.bytes = 0;
        }
    }
}

/// Writes into a buffer from both ends: pointers from the start, strings behind them.
struct Writer {
    pointers: *mut usize,
    strings: *mut u8,
    end: *mut u8,
}

impl Writer {
    fn pointer(&mut self, value: usize) {
        // SAFETY: `build` made room for every pointer that it writes.
        unsafe {
            self.pointers.write(value);
            self.pointers = self.pointers.add(1);
        }
    }

    fn text(&mut self, part: &[u8]) -> Result<()> {
        // SAFETY: the room is checked; the buffer is the writer's own.
        unsafe {
            if self.end.offset_from(self.strings) < part.len() as isize {
                return Err(Errno::E2BIG);
            }
            self.strings.copy_from_nonoverlapping(part.as_ptr(), part.len());
            self.strings = self.strings.add(part.len());
        }
        Ok(())
    }

    /// Writes a string, and gives its address.
    fn string(&mut self, parts: &[&[u8]]) -> Result<usize> {
        let start = self.strings as usize;
        for part in parts {
            self.text(part)?;
        }
        self.text(b"\0")?;
        Ok(start)
    }

    /// The same with the program's string at its end.
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
        // SAFETY: the buffer is the writer's own, and the copy routine answers bad pointers.
        unsafe {
            let room = self.end.offset_from(self.strings) as usize;
            let length = ucopy::string(core::slice::from_raw_parts_mut(self.strings, room), from)
                .map_err(|errno| if errno == Errno::ENAMETOOLONG { Errno::E2BIG } else { errno })?;
            self.strings = self.strings.add(length);
        }
        Ok(())
    }
}

/// The environment that a program gives an image to come, with what it has for the loader.
pub(crate) struct Environment {
    envp: *const usize,
    /// The number of variables.
    count: usize,
    /// The program's own LD_PRELOAD, or 0. The first: this one getenv(3) finds.
    preload: usize,
    /// LD_LIBRARY_PATH, or 0. The last: this one the loader takes.
    library_path: usize,
    /// Whether LD_AUDIT is set.
    audits: bool,
}

impl Environment {
    /// Looks through the program's `envp`, which may be null.
    ///
    /// # Errors
    /// `EFAULT` for a bad pointer in it; `E2BIG`.
    pub(crate) fn survey(envp: usize) -> Result<Environment> {
        let envp = envp as *const usize;
        let mut found = Environment { envp, count: 0, preload: 0, library_path: 0, audits: false };
        if envp.is_null() {
            return Ok(found);
        }
        for index in 0..VARIABLES {
            // SAFETY: the copy routine answers bad pointers.
            let variable = unsafe { ucopy::get(envp.add(index)) }?;
            if variable == 0 {
                found.count = index;
                return Ok(found);
            }
            match kind(variable)? {
                Kind::Preload if found.preload == 0 => found.preload = variable,
                Kind::LibraryPath => found.library_path = variable,
                Kind::Audit => found.audits = true,
                _ => {}
            }
        }
        Err(Errno::E2BIG)
    }

    /// Whether it has the loader look in a mount.
    pub(crate) fn leads_into_mount(&self, thread: &Thread) -> bool {
        let leads = |variable: usize, name: &[u8], list| {
            variable != 0 && above::list_leads_into_mount(thread, list, (variable + name.len()) as *const u8)
        };
        leads(self.library_path, LIBRARY_PATH, List::Directories)
            || leads(self.preload, PRELOAD, List::Libraries)
    }

    /// How the gate comes into a program that names no paths itself.
    pub(crate) fn load(&self, thread: &Thread, loader: Loader) -> Load {
        // What else is to be loaded, or looked for elsewhere, must meet the C library that it would meet without us.
        let is_plain = self.preload == 0 && self.library_path == 0 && !self.audits;
        match loader {
            Loader::System if is_plain && !settings::get().library.get().is_empty() => Load::Within,
            loader if loader.is_gnu() && self.leads_into_mount(thread) => Load::Audit { storage: 0 },
            _ => Load::Preload,
        }
    }

    /// Builds the environment for an exec by `thread`: the program's variables and ours. What it points to
    /// lives until the next call.
    ///
    /// # Errors
    /// `EFAULT` for a bad pointer in it; `E2BIG`; `ENOMEM`.
    pub(crate) fn build(&self, thread: &mut Thread, load: Load) -> Result<Built> {
        let mut gate = [0u8; 64];
        let gate = match above::gate_value(thread, &mut gate) {
            0 => settings::get().gate.get(),
            length => &gate[..length.min(64)],
        };
        let mut ending = [0u8; ENDING_ROOM];
        let (name, ours, ending) = match load {
            Load::Preload => (PRELOAD, settings::get().preload.get(), &b""[..]),
            Load::Within => (LIBRARY_PATH, settings::get().library.get(), WITHIN),
            Load::Audit { .. } => (AUDIT, settings::get().preload.get(), AUDITS),
            Load::Static(program) => (&b""[..], &b""[..], program.ending(&mut ending)),
        };
        let own = if load == Load::Preload { self.preload } else { 0 };
        let pointers = (self.count + 4) * size_of::<usize>();
        let path = load.static_path().map_or(Ok(0), length_of)?;
        let names = name.len() + 2 * (GATE.len() + ending.len() + path) + MASK.len() + TUNABLES.len();
        let strings = names + 2 * gate.len() + ours.len() + 33;
        let room = pointers + strings + if own == 0 { 0 } else { OWN_PRELOAD };
        let scratch = &thread.scratch[1..];
        let start = match room <= size_of_val(scratch) {
            true => scratch.as_ptr().cast_mut().cast::<u8>(),
            false => thread.exec.at_least(room)?,
        };
        let mut writer = Writer {
            pointers: start.cast(),
            // SAFETY: both are within the room.
            strings: unsafe { start.add(pointers) },
            // SAFETY: as above.
            end: unsafe { start.add(room) },
        };
        let loads = match own {
            0 if name.is_empty() => 0,
            0 => writer.string(&[name, ours])?,
            own => writer.with_program_text(&[name, ours, b":"], (own + PRELOAD.len()) as *const u8)?,
        };
        let mut placed = false;
        for index in 0..self.count {
            // SAFETY: the copy routine answers bad pointers.
            let variable = unsafe { ucopy::get(self.envp.add(index)) }?;
            match kind(variable)? {
                Kind::Preload if own == 0 => writer.pointer(variable),
                Kind::Preload if !placed => {
                    placed = true;
                    writer.pointer(loads);
                }
                Kind::Preload | Kind::Gate => {}
                Kind::LibraryPath | Kind::Audit | Kind::Other => writer.pointer(variable),
            }
        }
        if !placed && loads != 0 {
            writer.pointer(loads);
        }
        if let Load::Audit { storage } = load {
            let mut digits = [0u8; 20];
            let digits = report::decimal(storage.saturating_add(STORAGE) as usize, &mut digits);
            let tunables = writer.string(&[TUNABLES, digits])?;
            writer.pointer(tunables);
        }
        let path = load.static_path().unwrap_or(c"".as_ptr().cast());
        let with_mask = writer.with_program_text(&[GATE, MASK, gate, ending], path)?;
        let gate = writer.with_program_text(&[GATE, gate, ending], path)?;
        let gate_at = writer.pointers;
        writer.pointer(gate);
        writer.pointer(0);
        Ok(Built { vector: start.cast(), gate_at, with_mask })
    }
}

/// A static program that is to be executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Static {
    /// Its descriptor, open for reading.
    pub(crate) fd: i32,
    /// The directory's descriptor and the path by which it is executed: the program's, or good.
    pub(crate) directory: i32,
    pub(crate) path: *const u8,
}

/// Bytes for what [`Static::ending`] writes.
const ENDING_ROOM: usize = STATIC.len() + 10 + 1 + DESCRIPTORS.len() + 10 + 1;
/// How the kernel names what is executed by a descriptor.
const DESCRIPTORS: &[u8] = b"/dev/fd/";

impl Static {
    /// What LIGHTPATH_GATE has before the path.
    fn ending<'r>(&self, room: &'r mut [u8; ENDING_ROOM]) -> &'r [u8] {
        let mut text = text::Writer::new(&mut room[..]);
        text.push(STATIC);
        text.push_decimal(self.fd as u64);
        text.push(b":");
        // SAFETY: the copy routine answers bad pointers.
        let first = unsafe { ucopy::get(self.path) }.unwrap_or(b'/');
        if self.directory != lp_abi::linux::AT_FDCWD && first != b'/' {
            text.push(DESCRIPTORS);
            text.push_decimal(self.directory as u64);
            text.push(if first == 0 { b"" } else { b"/" });
        }
        let length = text.finish().unwrap_or(0);
        &room[..length]
    }
}

impl Load {
    fn static_path(self) -> Option<*const u8> {
        if let Load::Static(program) = self { Some(program.path) } else { None }
    }
}

/// Bytes of a path of the program's.
fn length_of(path: *const u8) -> Result<usize> {
    let mut room = [0u8; lp_abi::PATH_MAX];
    // SAFETY: the copy routine answers bad pointers.
    unsafe { ucopy::string(&mut room, path) }
}

/// The path of the gate's file for static programs, with a NUL behind it, in `room`.
pub(crate) fn static_gate(room: &mut [u8]) -> Option<&[u8]> {
    let stem = settings::get().preload.get().strip_suffix(ENDING)?;
    let mut text = text::Writer::new(room);
    text.push(stem);
    text.push(STATIC_ENDING);
    let length = text.finish()?;
    room.get(..=length)
}

/// An environment for a new image, in the thread's memory.
pub(crate) struct Built {
    vector: *const usize,
    /// Where in it LIGHTPATH_GATE is.
    gate_at: *mut usize,
    /// The same variable with room for a mask.
    with_mask: usize,
}

impl Built {
    /// The vector, as execve(2) wants it.
    pub(crate) fn vector(&self) -> *const usize {
        self.vector
    }

    /// Has the new image set its signal mask.
    pub(crate) fn tell_mask(&self, mask: u64) {
        let digits = (self.with_mask + GATE.len() + 1) as *mut u8;
        for index in 0..16 {
            let digit = (mask >> (60 - 4 * index)) as usize & 15;
            // SAFETY: the string has room for 16 digits there, and is this thread's own, as the vector is.
            unsafe { digits.add(index).write(b"0123456789abcdef"[digit]) };
        }
        // SAFETY: as above.
        unsafe { self.gate_at.write(self.with_mask) };
    }
}

/// Takes the mask off the front of LIGHTPATH_GATE's value.
fn split_mask(gate: &[u8]) -> (Option<u64>, &[u8]) {
    if gate.len() < MASK.len() || gate[0] != MASK[0] {
        return (None, gate);
    }
    let (mask, rest) = gate.split_at(MASK.len());
    let value = |digit: &u8| char::from(*digit).to_digit(16).unwrap_or_default();
    (Some(mask[1..17].iter().fold(0, |mask, digit| mask << 4 | u64::from(value(digit)))), rest)
}

#[derive(PartialEq)]
enum Kind {
    Preload,
    LibraryPath,
    Audit,
    Gate,
    Other,
}

fn kind(variable: usize) -> Result<Kind> {
    if variable & 4095 <= 4096 - 8 {
        // SAFETY: the copy routine answers bad pointers; eight bytes on one page.
        let head = unsafe { ucopy::get(variable as *const [u8; 8]) }?;
        if [PRELOAD, LIBRARY_PATH, AUDIT, GATE].iter().all(|name| head[..] != name[..8]) {
            return Ok(Kind::Other);
        }
    }
    let mut head = [0u8; 24];
    // SAFETY: the copy routine answers bad pointers.
    if let Err(Errno::EFAULT) = unsafe { ucopy::string(&mut head, variable as *const u8) } {
        return Err(Errno::EFAULT);
    }
    Ok(match &head {
        head if head.starts_with(PRELOAD) => Kind::Preload,
        head if head.starts_with(LIBRARY_PATH) => Kind::LibraryPath,
        head if head.starts_with(AUDIT) => Kind::Audit,
        head if head.starts_with(GATE) => Kind::Gate,
        _ => Kind::Other,
    })
}

/// What attach found in the environment.
pub(crate) struct Found {
    /// LIGHTPATH_GATE's value, but for the mask.
    pub(crate) gate: &'static [u8],
    /// The signal mask that the image is to have once the gate is attached, if it is not the one that it
    /// started with.
    pub(crate) mask: Option<u64>,
    /// The first path in LD_PRELOAD, or that in LD_AUDIT; empty if the gate came within the C library.
    pub(crate) preload: &'static [u8],
    /// Whether the gate came as an auditor: the loader has not looked for the program's libraries yet.
    pub(crate) audits: bool,
    /// Whether it came within the C library.
    pub(crate) within: bool,
    /// The static program that is to be started.
    pub(crate) program: Option<Program>,
}

/// A static program, as LIGHTPATH_GATE names it.
#[derive(Clone, Copy)]
pub(crate) struct Program {
    /// Its descriptor.
    pub(crate) fd: usize,
    /// The path by which it was executed.
    pub(crate) name: &'static CStr,
}

/// Takes the program off the end of LIGHTPATH_GATE's value, a string.
fn split_program(gate: &'static [u8]) -> (Option<Program>, &'static [u8]) {
    let Some(at) = gate.windows(STATIC.len()).position(|window| window == STATIC) else {
        return (None, gate);
    };
    let (gate, rest) = (&gate[..at], &gate[at + STATIC.len()..]);
    let Some(colon) = rest.iter().position(|byte| *byte == b':') else { return (None, gate) };
    let Some(fd) = text::number(&rest[..colon]) else { return (None, gate) };
    // SAFETY: the value is a string, whose NUL follows it.
    let name = unsafe { CStr::from_ptr(rest[colon + 1..].as_ptr().cast()) };
    (Some(Program { fd, name }), gate)
}

/// Takes our variables out of the environment in place: LIGHTPATH_GATE, and what stands there to load us. Without the former
/// nothing is changed.
///
/// Programs that look for the auxiliary vector behind the environment's end find, after the NULL, a pair that starts
/// with 0: AT_NULL. They then do without it or read /proc/self/auxv.
///
/// # Safety
/// `envp` is the process's own environment as the kernel made it, and nothing else uses it now.
pub(crate) unsafe fn scrub(envp: *mut *mut u8) -> Option<Found> {
    // SAFETY: the vector ends with a null pointer; the strings are NUL-terminated, and live and stay where they are as long
    // as the process.
    let (gate_at, gate) = unsafe {
        let mut at = envp;
        loop {
            if (*at).is_null() {
                return None;
            }
            if starts_with(*at, GATE) {
                break (at, &report::c_bytes::<'static>(*at)[GATE.len()..]);
            }
            at = at.add(1);
        }
    };
    let (audits, within) = (gate.ends_with(AUDITS), gate.ends_with(WITHIN));
    let (program, gate) = split_program(gate);
    let (audits, within) = (audits && program.is_none(), within && program.is_none());
    let (mask, gate) = split_mask(gate);
    let mut found = Found { gate, mask, preload: &[], audits, within, program };
    let is_preloaded = !audits && !within && program.is_none();
    let (mut from, mut to) = (envp, envp);
    // SAFETY: as above; `to` never passes `from`.
    unsafe {
        while !(*from).is_null() {
            let variable = *from;
            from = from.add(1);
            if starts_with(variable, GATE) {
                continue;
            }
            match gate_at.offset_from(from) {
                0 if audits || within => continue,
                1 if audits => {
                    found.preload = &report::c_bytes::<'static>(variable)[AUDIT.len()..];
                    continue;
                }
                _ => {}
            }
            if found.preload.is_empty() && is_preloaded && starts_with(variable, PRELOAD) {
                let value = &report::c_bytes::<'static>(variable)[PRELOAD.len()..];
                let ours =
                    value.iter().position(|byte| *byte == b':' || *byte == b' ').unwrap_or(value.len());
                if ours == value.len() {
                    found.preload = value;
                    continue;
                }
                *to = move_name(variable, ours);
                found.preload = core::slice::from_raw_parts(variable, ours);
                to = to.add(1);
                continue;
            }
            *to = variable;
            to = to.add(1);
        }
        while to < from {
            *to = core::ptr::null_mut();
            to = to.add(1);
        }
    }
    Some(found)
}

/// Whether a string starts with `prefix`: looks no further than the first difference.
///
/// # Safety
/// `text` is a NUL-terminated string.
unsafe fn starts_with(text: *const u8, prefix: &[u8]) -> bool {
    // SAFETY: the caller's promise; a NUL in the text is a difference.
    prefix.iter().enumerate().all(|(at, byte)| unsafe { *text.add(at) } == *byte)
}

/// Moves `LD_PRELOAD=` up by `ours` and the separator, and what it overwrites to the front: the path of ours then starts
/// where the variable did.
///
/// # Safety
/// `variable` is a string `LD_PRELOAD=` + `ours` bytes + separator + more, and is nobody else's.
unsafe fn move_name(variable: *mut u8, ours: usize) -> *mut u8 {
    let name = PRELOAD.len();
    // SAFETY: all within the string. Rotating keeps our path readable: it moves down by the name's length.
    unsafe {
        let text = core::slice::from_raw_parts_mut(variable, name + ours + 1);
        text.rotate_left(name);
        variable.add(ours + 1)
    }
}
