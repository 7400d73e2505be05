//! The arguments of an exec: the program's vector, or a copy of it in which scripts and the dynamic linker
//! get others.

use lp_abi::text::decimal;
use lp_abi::{Errno, Fd, Result};
use lp_region::ucopy;

use crate::high::frame::at::{At, spare_buffer};
use crate::low::exec::load::Named;
use crate::low::thread::current;

/// Maximum depth of scripts as interpreters (the kernel's limit).
pub(crate) const SCRIPTS: usize = 5;

/// The remaining arguments of an exec.
pub(crate) struct Exec {
    pub(crate) argv: usize,
    pub(crate) envp: usize,
    pub(crate) flags: u32,
    /// The vector that `argv` points into, once a script has created one.
    pub(crate) arguments: Option<Arguments>,
    /// How often links have led from the host into a mount.
    pub(crate) crossings: u32,
    /// The script that the program has named, whose interpreter is executed.
    pub(crate) script: Option<Named>,
}

impl Exec {
    /// What a program asks for.
    pub(crate) fn new(argv: usize, envp: usize, flags: u32) -> Self {
        Exec { argv, envp, flags, arguments: None, crossings: 0, script: None }
    }

    /// Checks that the program's vectors and their strings can be read.
    ///
    /// # Errors
    /// `EFAULT`, `E2BIG`.
    pub(crate) fn check(&self) -> Result<()> {
        let given = if self.arguments.is_none() { self.argv } else { 0 };
        for vector in [given, self.envp].map(|vector| vector as *const usize) {
            let mut count = 0;
            while !vector.is_null() && has_string(vector.wrapping_add(count))? {
                count += 1;
                if count > ARGUMENTS {
                    return Err(Errno::E2BIG);
                }
            }
        }
        Ok(())
    }
}

/// Whether a place in a vector has a string, which begins in memory that can be read.
///
/// # Errors
/// `EFAULT`.
fn has_string(place: *const usize) -> Result<bool> {
    // SAFETY: the copy routine handles bad pointers.
    match unsafe { ucopy::get(place) }? {
        0 => Ok(false),
        // SAFETY: as above.
        text => unsafe { ucopy::get(text as *const u8) }.map(|_| true),
    }
}

/// Pointers that scripts may need before the program's own arguments: two each.
const FRONT: usize = 2 * SCRIPTS + 1;
/// Bytes for the strings of all scripts: a path, and two strings of an interpreter line each.
const STRINGS: usize = lp_abi::PATH_MAX + SCRIPTS * 512 + 64;
/// Maximum number of arguments; the kernel limits only their bytes.
const ARGUMENTS: usize = 1 << 20;

/// An argument vector that grows at its front, in the thread's memory for it.
#[derive(Clone, Copy)]
pub(crate) struct Arguments {
    /// Address of argument 0.
    pub(crate) first: *mut usize,
    /// Where the next string goes; `end` is the end of the memory.
    strings: *mut u8,
    end: *mut u8,
}

impl Arguments {
    /// The vector of an exec: the one that a script has created already, or a copy of the program's.
    pub(crate) fn of(exec: &Exec) -> Result<Arguments> {
        if let Some(vector) = exec.arguments {
            return Ok(vector);
        }
        let argv = exec.argv as *const usize;
        let get = |index: usize| {
            if argv.is_null() {
                return Ok(0);
            }
            // SAFETY: the copy routine handles bad pointers.
            unsafe { ucopy::get(argv.wrapping_add(index)) }
        };
        let mut count = 0;
        while get(count)? != 0 {
            count += 1;
            if count > ARGUMENTS {
                return Err(Errno::E2BIG);
            }
        }
        let pointers = (FRONT + count.max(1) + 1) * size_of::<usize>();
        // SAFETY: the record is the thread's own.
        let start = unsafe { (*current::thread()).arguments.at_least(pointers + STRINGS) }?;
        // SAFETY: `pointers` and STRINGS bytes are within the memory.
        unsafe {
            let first = start.cast::<usize>().add(FRONT);
            for index in 1..count {
                first.add(index).write(get(index)?);
            }
            first.add(count.max(1)).write(0);
            Ok(Arguments { first, strings: start.add(pointers), end: start.add(pointers + STRINGS) })
        }
    }

    /// Replaces argument 0 by the script's path and inserts the interpreter and its argument before it. Also
    /// returns the interpreter's path.
    pub(crate) fn for_script(
        mut self,
        given: At,
        interpreter: &[u8],
        argument: Option<&[u8]>,
    ) -> Result<(Arguments, *const u8)> {
        let path = self.script_path(given)?;
        // SAFETY: FRONT leaves room for two pointers per script.
        unsafe {
            self.first.write(path as usize);
            if let Some(argument) = argument {
                self.first = self.first.sub(1);
                self.first.write(self.string(&[argument])? as usize);
            }
            let interpreter = self.string(&[interpreter])?;
            self.first = self.first.sub(1);
            self.first.write(interpreter as usize);
            Ok((self, interpreter))
        }
    }

    /// Replaces argument `index`, which exists and is not the first, and returns the vector. Argument 0 is
    /// the program's.
    pub(crate) fn replace(mut self, index: usize, parts: &[&[u8]], first: usize) -> Result<usize> {
        let text = self.string(parts)?;
        // SAFETY: the vector has these arguments.
        unsafe {
            self.first.write(first);
            self.first.add(index).write(text as usize);
        }
        Ok(self.first as usize)
    }

    /// The path under which the interpreter opens the script.
    fn script_path(&mut self, given: At) -> Result<*const u8> {
        let text = spare_buffer();
        // SAFETY: the copy routine handles bad pointers.
        let length = unsafe { ucopy::string(text, given.path.as_ptr()) }?;
        let text = &text[..length];
        if given.dirfd == Fd::CWD || text.first() == Some(&b'/') {
            return self.string(&[text]);
        }
        let mut room = [0; 20];
        let number = decimal(given.dirfd.raw() as u64, &mut room);
        let slash: &[u8] = if text.is_empty() { b"" } else { b"/" };
        self.string(&[b"/dev/fd/", number, slash, text])
    }

    /// Stores a NUL-terminated string.
    fn string(&mut self, parts: &[&[u8]]) -> Result<*const u8> {
        let start = self.strings;
        for part in parts.iter().chain(&[&b"\0"[..]]) {
            // SAFETY: both pointers are within the memory, and what does not fit is refused.
            unsafe {
                if (self.end.offset_from(self.strings) as usize) < part.len() {
                    return Err(Errno::E2BIG);
                }
                self.strings.copy_from_nonoverlapping(part.as_ptr(), part.len());
                self.strings = self.strings.add(part.len());
            }
        }
        Ok(start)
    }
}
