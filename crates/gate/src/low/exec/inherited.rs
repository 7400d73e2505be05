//! The environment that the image was given: reads and removes the gate's variables.

use core::ffi::CStr;

use crate::low::exec::variables::{
    AUDIT, AUDITS, BY_DESCRIPTOR, GATE, MASK, OUTLINE, PRELOAD, STATIC, WITHIN,
};
use crate::low::tools::report;
use lp_abi::{Fd, text};

/// Splits the mask off the front of LIGHTPATH_GATE's value.
#[unsafe(link_section = ".text.image.lp")]
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
    /// How the program was executed, if by an outline.
    pub(crate) outlined: Option<ExecutedAs>,
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

/// Splits the program off the end of LIGHTPATH_GATE's value, which is NUL-terminated.
fn split_program(gate: &'static [u8]) -> (Option<StaticProgram>, &'static [u8]) {
    let Some(at) = gate.windows(STATIC.len()).position(|window| window == STATIC) else {
        return (None, gate);
    };
    let (gate, rest) = (&gate[..at], &gate[at + STATIC.len()..]);
    let Some(colon) = rest.iter().position(|byte| *byte == b':') else { return (None, gate) };
    let Some(fd) = text::number(&rest[..colon]) else { return (None, gate) };
    let Some(executed) = ExecutedAs::read(&rest[colon + 1..]) else { return (None, gate) };
    (Some(StaticProgram { fd: Fd::new(fd as i32), executed }), gate)
}

/// Splits what names the program off the end of LIGHTPATH_GATE's value, which is NUL-terminated, if it was
/// executed by an outline.
fn split_outlined(gate: &'static [u8]) -> (Option<ExecutedAs>, &'static [u8]) {
    let Some(at) = gate.windows(OUTLINE.len()).position(|window| window == OUTLINE) else {
        return (None, gate);
    };
    (ExecutedAs::read(&gate[at + OUTLINE.len()..]), &gate[..at])
}

/// The value of LIGHTPATH_GATE without the mask; the environment stays as it is.
///
/// # Safety
/// `envp` must be the process's own environment as the kernel made it.
pub(crate) unsafe fn gate_value(mut envp: *mut *mut u8) -> Option<&'static [u8]> {
    // SAFETY: the vector ends with a null pointer; the strings are NUL-terminated and live as long as the
    // process.
    unsafe {
        while !(*envp).is_null() {
            if starts_with(*envp, GATE) {
                return Some(split_mask(&report::c_bytes::<'static>(*envp)[GATE.len()..]).1);
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
#[unsafe(link_section = ".text.image.lp")]
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
    let (audits, within) = (gate.ends_with(AUDITS), gate.ends_with(WITHIN));
    let (program, gate) = split_program(gate);
    let (outlined, gate) = if program.is_none() { split_outlined(gate) } else { (None, gate) };
    let is_named = program.is_some() || outlined.is_some();
    let (audits, within) = (audits && !is_named, within && !is_named || outlined.is_some());
    let (mask, gate) = split_mask(gate);
    let mut found = Inherited { gate, mask, preload: &[], audits, within, outlined, program };
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
#[unsafe(link_section = ".text.image.lp")]
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
