//! The environment that the image was given: reads and removes the gate's variables.

use core::ffi::CStr;

use crate::low::exec::variables::{
    AUDIT, AUDITS, BY_DESCRIPTOR, GATE, MASK, NAMED, OUTLINE, PRELOAD, STATIC, WITHIN,
};
use crate::low::tools::report;
use lp_abi::{Fd, text};

/// Splits the mask off the front of LIGHTPATH_GATE's value.
fn split_mask(gate: &[u8]) -> (Option<u64>, &[u8]) {
    if gate.len() < MASK.len() || gate[0] != MASK[0] {
        return (None, gate);
    }
    let (mask, rest) = gate.split_at(MASK.len());
    let value = |digit: &u8| char::from(*digit).to_digit(16).unwrap_or_default();
    (Some(mask[1..17].iter().fold(0, |mask, digit| mask << 4 | u64::from(value(digit)))), rest)
}

/// The gate's part of the environment.
pub(crate) struct Inherited {
    /// LIGHTPATH_GATE's value without the mask.
    pub(crate) gate: &'static [u8],
    /// The signal mask to set once the gate is attached, if it differs from the one that the image started
    /// with.
    pub(crate) mask: Option<u64>,
    /// The first path in LD_PRELOAD, or that in LD_AUDIT; empty if the gate is within the C library.
    pub(crate) preload: &'static [u8],
    /// Whether the gate was loaded as an auditor: the loader has not looked for the program's libraries yet.
    pub(crate) audits: bool,
    /// Whether the gate is within the C library.
    pub(crate) within: bool,
    /// How the program was executed, if the kernel has not got it by its name.
    pub(crate) executed: Option<ExecutedAs>,
    /// Whether it was executed by an outline.
    pub(crate) is_outlined: bool,
    /// The static program to start.
    pub(crate) program: Option<StaticProgram>,
}

/// How a program was executed, as LIGHTPATH_GATE tells it.
#[derive(Clone, Copy)]
pub(crate) struct ExecutedAs {
    /// The path, as the kernel shows it in AT_EXECFN.
    pub(crate) path: &'static CStr,
    /// Whether a descriptor alone has named the program.
    pub(crate) by_descriptor: bool,
}

impl ExecutedAs {
    /// Reads the end of LIGHTPATH_GATE's value, which is NUL-terminated.
    fn read(rest: &'static [u8]) -> Option<ExecutedAs> {
        let (kind, path) = rest.split_first()?;
        // SAFETY: the value is NUL-terminated.
        let path = unsafe { CStr::from_ptr(path.as_ptr().cast()) };
        Some(ExecutedAs { path, by_descriptor: *kind == BY_DESCRIPTOR })
    }
}

/// A static program, as LIGHTPATH_GATE names it.
#[derive(Clone, Copy)]
pub(crate) struct StaticProgram {
    /// Its descriptor.
    pub(crate) fd: Fd,
    /// How it was executed.
    pub(crate) executed: ExecutedAs,
}

impl StaticProgram {
    /// Reads the end of LIGHTPATH_GATE's value, which is NUL-terminated.
    fn read(rest: &'static [u8]) -> Option<StaticProgram> {
        let colon = rest.iter().position(|byte| *byte == b':')?;
        let fd = Fd::new(text::number(&rest[..colon])? as i32);
        Some(StaticProgram { fd, executed: ExecutedAs::read(&rest[colon + 1..])? })
    }
}

/// The end of LIGHTPATH_GATE's value: what the image is told of its program.
enum Told {
    Nothing,
    Static(StaticProgram),
    Outline(ExecutedAs),
    Named(ExecutedAs),
}

/// Splits the end off LIGHTPATH_GATE's value, which is NUL-terminated.
fn split_told(gate: &'static [u8]) -> (Told, &'static [u8]) {
    // The first of them: a path may contain another.
    let first = (0..gate.len()).find_map(|at| {
        let kinds = [STATIC, OUTLINE, NAMED];
        Some((at, kinds.into_iter().find(|kind| gate[at..].starts_with(kind))?))
    });
    let Some((at, kind)) = first else { return (Told::Nothing, gate) };
    let (gate, rest) = (&gate[..at], &gate[at + kind.len()..]);
    let told = match kind {
        STATIC => StaticProgram::read(rest).map(Told::Static),
        OUTLINE => ExecutedAs::read(rest).map(Told::Outline),
        _ => ExecutedAs::read(rest).map(Told::Named),
    };
    (told.unwrap_or(Told::Nothing), gate)
}

/// The value of LIGHTPATH_GATE without the mask and what the image is told of its program; the environment
/// stays as it is.
///
/// # Safety
/// `envp` must be the process's own environment as the kernel made it.
pub(crate) unsafe fn gate_value(mut envp: *mut *mut u8) -> Option<&'static [u8]> {
    // SAFETY: the vector ends with a null pointer; the strings are NUL-terminated and live as long as the
    // process.
    unsafe {
        while !(*envp).is_null() {
            if starts_with(*envp, GATE) {
                let value = &report::c_bytes::<'static>(*envp)[GATE.len()..];
                return Some(split_mask(split_told(value).1).1);
            }
            envp = envp.add(1);
        }
    }
    None
}

/// Removes our variables from the environment in place: LIGHTPATH_GATE and those that load us. Without
/// LIGHTPATH_GATE it changes nothing. The words between the environment's null pointer and the auxiliary
/// vector are null afterwards.
///
/// # Safety
/// `envp` must be the process's own environment as the kernel made it, and nothing else may use it meanwhile.
pub(crate) unsafe fn scrub(envp: *mut *mut u8) -> Option<Inherited> {
    // SAFETY: the vector ends with a null pointer; the strings are NUL-terminated and stay in place as long
    // as the process lives.
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
    let (told, gate) = split_told(gate);
    let is_outlined = matches!(told, Told::Outline(_));
    let (audits, within) = (gate.ends_with(AUDITS), gate.ends_with(WITHIN) || is_outlined);
    let (mask, gate) = split_mask(gate);
    let (program, executed) = match told {
        Told::Static(program) => (Some(program), None),
        Told::Outline(executed) | Told::Named(executed) => (None, Some(executed)),
        Told::Nothing => (None, None),
    };
    let mut found = Inherited { gate, mask, preload: &[], audits, within, executed, is_outlined, program };
    let is_preloaded = !audits && !within && program.is_none();
    let (mut from, mut to) = (envp, envp);
    // SAFETY: the vector ends with a null pointer; the strings are NUL-terminated and stay in place as long
    // as the process lives; `to` never passes `from`.
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

/// Fills the gap that [`scrub`] leaves before the auxiliary vector with entries that programs ignore, because
/// they look for the vector right behind the environment's null pointer. An entry is two words. Whoever makes
/// the environment therefore passes an even number of variables that are removed, if need be LIGHTPATH_GATE
/// twice; after an odd number, programs find AT_NULL, the end of the vector.
///
/// # Safety
/// `envp` must be the process's own environment, scrubbed, and `vector` the auxiliary vector behind it.
/// Nothing else may use them meanwhile.
pub(crate) unsafe fn fill_gap(envp: *mut *mut u8, vector: *mut [usize; 2]) {
    /// `linux/auxvec.h`.
    const AT_IGNORE: usize = 1;
    // SAFETY: the environment ends with a null pointer; the gap, null too, and the vector follow.
    unsafe {
        let mut end = vector.cast::<*mut u8>().sub(1);
        while end > envp && (*end.sub(1)).is_null() {
            end = end.sub(1);
        }
        let gap = end.add(1).cast::<usize>();
        let words = vector.cast::<usize>().offset_from(gap) as usize;
        if words.is_multiple_of(2) {
            for pair in 0..words / 2 {
                gap.cast::<[usize; 2]>().add(pair).write([AT_IGNORE, 0]);
            }
        }
    }
}

/// Whether a string starts with `prefix`. Reads no further than the first difference.
///
/// # Safety
/// `text` must be NUL-terminated.
unsafe fn starts_with(text: *const u8, prefix: &[u8]) -> bool {
    // SAFETY: the caller guarantees a NUL-terminated string; its NUL differs from every byte of the prefix.
    prefix.iter().enumerate().all(|(at, byte)| unsafe { *text.add(at) } == *byte)
}

/// Moves `LD_PRELOAD=` up by `ours` bytes and the separator, and what it overwrites to the front. The path of
/// ours then starts where the variable did.
///
/// # Safety
/// `variable` must be a string `LD_PRELOAD=` + `ours` bytes + separator + more, and nothing else may use it.
unsafe fn move_name(variable: *mut u8, ours: usize) -> *mut u8 {
    let name = PRELOAD.len();
    // SAFETY: all of it lies within the string. The rotation keeps our path intact, moved down by the name's
    // length.
    unsafe {
        let text = core::slice::from_raw_parts_mut(variable, name + ours + 1);
        text.rotate_left(name);
        variable.add(ours + 1)
    }
}
