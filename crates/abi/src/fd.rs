//! Descriptor numbers.

use crate::text::Writer;

/// A file descriptor as a system call takes it: any `int`, whether open or not.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fd(i32);

impl Fd {
    /// `AT_FDCWD`: the working directory, in place of a directory's descriptor.
    pub const CWD: Fd = Fd(crate::linux::AT_FDCWD);
    /// A number that no descriptor has.
    pub const NONE: Fd = Fd(-1);

    /// The descriptor of this number.
    #[inline(always)]
    pub const fn new(number: i32) -> Fd {
        Fd(number)
    }

    /// Its number.
    #[inline(always)]
    pub const fn raw(self) -> i32 {
        self.0
    }

    /// The next number.
    #[inline(always)]
    pub const fn next(self) -> Fd {
        Fd(self.0.wrapping_add(1))
    }

    /// Its number as a register of a system call holds it.
    #[inline(always)]
    pub const fn word(self) -> usize {
        self.0 as usize
    }

    /// Bytes of [`Fd::link`].
    pub const LINK: usize = 32;

    /// The path of its link in /proc, `/proc/thread-self/fd/N`, NUL-terminated.
    pub fn link(self) -> [u8; Fd::LINK] {
        let mut path = [0; Fd::LINK];
        let mut text = Writer::new(&mut path);
        text.push_link(self);
        let _ = text.finish(); // The longest number fits.
        path
    }

    /// Its number as an index. A negative number is past the end of every table.
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as u32 as usize
    }
}
