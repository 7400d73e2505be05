//! Text without allocation: decimal numbers, comparison of paths, a bounded buffer.

use crate::Fd;

/// `number` in decimal, in `room`.
pub fn decimal(mut number: u64, room: &mut [u8; 20]) -> &[u8] {
    let mut at = room.len();
    loop {
        at -= 1;
        room[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 || at == 0 {
            return &room[at..];
        }
    }
}

/// The rest of `path` after `directory`, compared as text: empty if they are equal, otherwise it starts with
/// a slash. Returns `None` if `path` is not within `directory`.
#[inline(always)]
pub fn within<'p>(path: &'p [u8], directory: &[u8]) -> Option<&'p [u8]> {
    let ends = path.len() == directory.len() || path.get(directory.len()) == Some(&b'/');
    (ends && path.iter().zip(directory).all(|(a, b)| a == b)).then(|| &path[directory.len()..])
}

/// Parses all of `text` as a decimal number.
pub fn number(text: &[u8]) -> Option<usize> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0usize, |number, byte| {
        number.checked_mul(10)?.checked_add(byte.checked_sub(b'0').filter(|digit| *digit < 10)? as usize)
    })
}

/// The decimal number at the start of `text`, and the rest.
pub fn parse_decimal(text: &[u8]) -> Option<(u32, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || digits > 9 {
        return None;
    }
    let number = text[..digits].iter().fold(0u32, |number, byte| number * 10 + u32::from(byte - b'0'));
    Some((number, &text[digits..]))
}

/// Appends bytes to a buffer. The last byte stays free for a NUL.
pub struct Writer<'b> {
    to: &'b mut [u8],
    length: usize,
    full: bool,
}

impl<'b> Writer<'b> {
    /// An empty text in `to`.
    pub fn new(to: &'b mut [u8]) -> Self {
        Writer { to, length: 0, full: false }
    }

    /// Appends `bytes`.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = self.to.len().saturating_sub(self.length + 1);
        if bytes.len() > room {
            self.full = true;
            return;
        }
        self.to[self.length..self.length + bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    /// Appends a number in decimal.
    pub fn push_decimal(&mut self, number: u64) {
        self.push(decimal(number, &mut [0; 20]));
    }

    /// Appends the path of the link in /proc of a descriptor of the calling thread, which may have another
    /// table than the first thread or outlive it.
    pub fn push_link(&mut self, fd: Fd) {
        self.push(b"/proc/thread-self/fd/");
        self.push_decimal(fd.index() as u64);
    }

    /// Appends the last `width` digits of a number in hexadecimal, at most 16.
    pub fn push_hex(&mut self, number: u64, width: usize) {
        let digit = |at: usize| b"0123456789abcdef"[(number >> (4 * at) & 15) as usize];
        let digits: [u8; 16] = core::array::from_fn(|at| digit(15 - at));
        self.push(&digits[16 - width.min(16)..]);
    }

    /// Bytes so far.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Appends a NUL and returns the length without it; `None` if the text did not fit.
    pub fn finish(self) -> Option<usize> {
        if self.full || self.length >= self.to.len() {
            return None;
        }
        self.to[self.length] = 0;
        Some(self.length)
    }
}
