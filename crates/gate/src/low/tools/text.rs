//! Text without allocation: decimal numbers, path comparison, a bounded buffer.

/// Writes `number` in decimal to the start of `to` and returns its length. Digits that do not fit are cut
/// off.
pub fn decimal(number: u64, to: &mut [u8]) -> usize {
    let mut digits = [0u8; 20];
    let mut rest = number;
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    let mut length = 0;
    for (to, from) in to.iter_mut().zip(&digits[at..]) {
        *to = *from;
        length += 1;
    }
    length
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
        let mut digits = [0u8; 20];
        let length = decimal(number, &mut digits);
        self.push(&digits[..length]);
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
