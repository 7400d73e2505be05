//! Scripts of the host, whose interpreters get [`outline`](super::outline)s.
//!
//! The kernel executes a script's interpreter as it is. So the interpreter is executed here, with the
//! arguments that the kernel would pass. What is not as usual is left to the kernel: a script by a
//! descriptor, one whose interpreter is a script, a first line that it cuts short.

use lp_abi::{Fd, script};
use lp_region::ucopy;

use crate::low::exec::check::File;
use crate::low::exec::load::Executed;
use crate::low::thread::home;
use crate::low::thread::record::Thread;

/// Bytes of a script that the kernel examines.
pub(crate) const HEAD: usize = 256;
/// Maximum number of arguments; the kernel limits only their bytes.
const ARGUMENTS: usize = 1 << 20;
/// Pointers before the script's own arguments, and the null after them: the interpreter, its argument, the
/// script's path.
const AROUND: usize = 4;

/// What is executed for a script. Both are valid as long as the buffer for its head.
pub(crate) struct Script {
    pub(crate) interpreter: Executed,
    pub(crate) argv: usize,
}

impl Script {
    /// What is executed for `file` with the arguments `argv`; `None` if it is no script, or is left to the
    /// kernel.
    ///
    /// # Safety
    /// The file's path must be NUL-terminated, or bad in a way that the kernel answers with `EFAULT`.
    pub(crate) unsafe fn of(
        thread: &Thread,
        file: Executed,
        argv: usize,
        head: &mut [u8; HEAD],
    ) -> Option<Script> {
        if !home::settings().outlines_host() || file.flags != 0 || thread.arguments.holds(argv) {
            return None;
        }
        // SAFETY: the copy routine handles bad pointers.
        let first = unsafe { ucopy::get(file.path) }.ok()?;
        if file.directory != Fd::CWD && first != b'/' {
            return None;
        }
        // SAFETY: the caller guarantees the path.
        let script = unsafe { File::executable(file.directory, file.path, file.flags) }.ok()??;
        let got = script.read(head, 0);
        let line = head.get(..got)?;
        if !line.starts_with(b"#!") || !line.contains(&b'\n') {
            return None;
        }
        let (interpreter, argument) = script::interpreter(line).filter(|(path, _)| !path.is_empty())?;
        // Blanks, or the line's end.
        *head.get_mut(interpreter.end)? = 0;
        if let Some(argument) = &argument {
            *head.get_mut(argument.end)? = 0;
        }
        let interpreter = head.get(interpreter)?.as_ptr();
        let argument = argument.and_then(|argument| head.get(argument)).map(<[u8]>::as_ptr);
        let front = [Some(interpreter), argument, Some(file.path)];
        let argv = arguments(thread, front, argv as *const usize)?;
        Some(Script { interpreter: Executed { directory: Fd::CWD, path: interpreter, flags: 0 }, argv })
    }
}

/// The vector with `front` in place of the first argument, in the thread's memory.
fn arguments(thread: &Thread, front: [Option<*const u8>; AROUND - 1], argv: *const usize) -> Option<usize> {
    let get = |index: usize| {
        if argv.is_null() {
            return Some(0);
        }
        // SAFETY: the copy routine handles bad pointers.
        unsafe { ucopy::get(argv.wrapping_add(index)) }.ok()
    };
    let mut count = 0;
    while get(count)? != 0 {
        count += 1;
        if count > ARGUMENTS {
            return None;
        }
    }
    let start = thread.arguments.at_least((count + AROUND) * size_of::<usize>()).ok()?.cast::<usize>();
    let mut next = start;
    let mut push = |word: usize| {
        // SAFETY: `count` and AROUND words are within the memory.
        unsafe {
            next.write(word);
            next = next.add(1);
        }
    };
    front.into_iter().flatten().for_each(|text| push(text as usize));
    for index in 1..count {
        push(get(index)?);
    }
    push(0);
    Some(start as usize)
}
