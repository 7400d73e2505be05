//! The settings from the process's environment, kept for the images that it will exec.

use lp_abi::linux::{__NR_mmap, MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use lp_abi::outline::FOR_HOST;

use crate::low::tools::report;

/// Bytes for strings in the record itself; longer ones get a mapping.
const ROOM: usize = 1000;

/// Set by attach, constant afterwards.
#[repr(C)]
pub(crate) struct Settings {
    /// The preload library's own path, as LD_PRELOAD named it.
    pub(crate) preload: Text,
    /// The directory of the C library that contains the gate; empty if there is none.
    pub(crate) library: Text,
    /// The number in the name of the dynamic linker beside it that starts outlines; 0 if there is none.
    pub(crate) linker: u64,
    /// The value of LIGHTPATH_GATE.
    pub(crate) gate: Text,
    /// The bundle of site images.
    pub(crate) bundle: Text,
    /// The launcher, which adds images to the bundle.
    pub(crate) builder: Text,
    /// The path of the running program, if it is a static one on the host.
    pub(crate) program: Text,
    /// Whether the running program was executed by an outline ([`crate::low::exec::outline`]).
    pub(crate) is_outlined: bool,
    /// Whether the program executes what it maps by translation, and makes its calls itself (valgrind).
    pub(crate) translates: bool,
    /// Bytes used in `room`.
    used: usize,
    room: [u8; ROOM],
}

/// A string followed by a NUL.
#[repr(C)]
pub(crate) struct Text {
    start: *const u8,
    length: usize,
}

impl Text {
    /// Refers to a string that stays in place and is followed by a NUL.
    pub(crate) fn of(text: &'static [u8]) -> Text {
        Text { start: text.as_ptr(), length: text.len() }
    }

    /// The string without its NUL.
    pub(crate) fn get(&self) -> &[u8] {
        if self.start.is_null() {
            return &[];
        }
        // SAFETY: `start` and `length` come from `of` or `Settings::keep`: memory that stays.
        unsafe { core::slice::from_raw_parts(self.start, self.length) }
    }

    /// Its first byte, as a NUL-terminated string.
    pub(crate) fn pointer(&self) -> *const u8 {
        if self.start.is_null() { c"".as_ptr().cast() } else { self.start }
    }
}

impl Settings {
    /// Whether programs of the host are executed by outlines.
    pub(crate) fn outlines_host(&self) -> bool {
        self.linker & FOR_HOST != 0
    }

    /// Keeps a copy of `text`.
    pub(crate) fn keep(&mut self, text: &[u8]) -> Text {
        let bytes = text.len() + 1;
        let start = match self.room.get_mut(self.used..self.used + bytes) {
            Some(room) => {
                self.used += bytes;
                room.as_mut_ptr()
            }
            None => {
                let (protection, flags) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
                // SAFETY: a new mapping.
                match unsafe { lp_abi::syscall!(__NR_mmap, 0, bytes, protection, flags, usize::MAX, 0) } {
                    Ok(start) => start as *mut u8,
                    Err(_) => report::refuse(&[b"no memory at the start of the program"]),
                }
            }
        };
        // SAFETY: `start` has room for the text and its NUL.
        unsafe {
            start.copy_from_nonoverlapping(text.as_ptr(), text.len());
            start.add(text.len()).write(0);
        }
        Text { start, length: text.len() }
    }
}
