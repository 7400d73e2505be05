//! `.eh_frame`: bounds of functions, and landing pads of exceptions.

use std::collections::BTreeSet;
use std::ops::Range;

/// What the unwind tables contain about code.
#[derive(Default)]
pub struct Frames {
    /// Functions, or parts of functions.
    pub functions: Vec<Range<u64>>,
    /// Landing pads: entered by the unwinder, not by a branch.
    pub landings: BTreeSet<u64>,
}

/// How a pointer is stored (DW_EH_PE_*).
#[derive(Clone, Copy)]
struct Encoding(u8);

const OMIT: u8 = 0xff;

/// Reads a byte slice that is mapped at `address`.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    address: u64,
}

impl Reader<'_> {
    fn u8(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn word<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.bytes.get(self.at..self.at + N)?.try_into().ok()?;
        self.at += N;
        Some(bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.word()?))
    }

    fn uleb(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..63).step_by(7) {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn here(&self) -> u64 {
        self.address.wrapping_add(self.at as u64)
    }

    /// A pointer; 0 stays 0. Indirect and data-relative pointers do not occur where this reads.
    fn pointer(&mut self, encoding: Encoding) -> Option<u64> {
        let here = self.here();
        let value = match encoding.0 & 0x0f {
            0x00 | 0x04 | 0x0c => u64::from_le_bytes(self.word()?),
            0x01 => self.uleb()?,
            0x02 => u64::from(u16::from_le_bytes(self.word()?)),
            0x03 => u64::from(self.u32()?),
            0x0a => i16::from_le_bytes(self.word()?) as u64,
            0x0b => i32::from_le_bytes(self.word()?) as u64,
            _ => return None,
        };
        match encoding.0 & 0x70 {
            _ if value == 0 => Some(0),
            0x00 => Some(value),
            0x10 => Some(here.wrapping_add(value)),
            _ => None,
        }
    }
}

/// The part of a common information entry that its FDEs need.
struct Common {
    pointer: Encoding,
    lsda: Encoding,
    has_data: bool,
    is_signal_frame: bool,
}

/// Parses `.eh_frame`, mapped at `address`; `read` returns the bytes of the object from an address on.
///
/// Unreadable entries are skipped: their functions are then found as gaps between others.
pub fn parse<'a>(bytes: &[u8], address: u64, read: impl Fn(u64) -> Option<&'a [u8]>) -> Frames {
    let mut frames = Frames::default();
    let mut at = 0;
    while let Some((entry, next)) = entry(bytes, at) {
        let mut reader = Reader { bytes: &bytes[..next], at: entry, address };
        if let Some(fde) = description(&mut reader, bytes, address) {
            if let Some(lsda) = fde.lsda.filter(|lsda| *lsda != 0).and_then(|lsda| Some((lsda, read(lsda)?)))
            {
                landings(lsda.1, lsda.0, fde.range.start, &mut frames.landings);
            }
            frames.functions.push(fde.range);
        }
        at = next;
    }
    frames
}

/// The contents of the entry at `at`, and where the next starts.
fn entry(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let mut reader = Reader { bytes, at, address: 0 };
    let length = match reader.u32()? {
        0 => return None,
        u32::MAX => u64::from_le_bytes(reader.word()?),
        length => u64::from(length),
    };
    let next = reader.at.checked_add(usize::try_from(length).ok()?)?;
    (next <= bytes.len()).then_some((reader.at, next))
}

struct Description {
    range: Range<u64>,
    lsda: Option<u64>,
}

fn description(reader: &mut Reader<'_>, all: &[u8], address: u64) -> Option<Description> {
    let id_at = reader.at;
    let id = reader.u32()?;
    if id == 0 {
        return None; // A common information entry.
    }
    let (start, end) = entry(all, id_at.checked_sub(id as usize)?)?;
    let common = common(&mut Reader { bytes: &all[..end], at: start, address })?;
    let mut first = reader.pointer(common.pointer)?;
    let mut length = reader.pointer(Encoding(common.pointer.0 & 0x0f))?;
    if common.is_signal_frame {
        // It starts one byte before the code that it describes, because unwinders look up return addresses
        // minus one.
        first += 1;
        length = length.checked_sub(1)?;
    }
    let mut lsda = None;
    if common.has_data {
        reader.uleb()?;
        if common.lsda.0 != OMIT {
            lsda = reader.pointer(common.lsda);
        }
    }
    (first != 0 && length != 0).then_some(Description { range: first..first.checked_add(length)?, lsda })
}

fn common(reader: &mut Reader<'_>) -> Option<Common> {
    reader.u32()?;
    let version = reader.u8()?;
    let start = reader.at;
    while reader.u8()? != 0 {}
    let augmentation = reader.bytes.get(start..reader.at - 1)?;
    reader.uleb()?;
    reader.uleb()?;
    if version == 1 {
        reader.u8().map(u64::from)?
    } else {
        reader.uleb()?
    };
    let mut common =
        Common { pointer: Encoding(0), lsda: Encoding(OMIT), has_data: false, is_signal_frame: false };
    let Some((b'z', letters)) = augmentation.split_first() else { return Some(common) };
    common.has_data = true;
    reader.uleb()?;
    for letter in letters {
        match letter {
            b'R' => common.pointer = Encoding(reader.u8()?),
            b'L' => common.lsda = Encoding(reader.u8()?),
            b'P' => {
                let encoding = Encoding(reader.u8()?);
                reader.pointer(Encoding(encoding.0 & 0x0f))?;
            }
            b'S' => common.is_signal_frame = true,
            b'B' => {}
            _ => return None,
        }
    }
    Some(common)
}

/// The landing pads in a language-specific data area (the layout that C++ and Rust share).
fn landings(bytes: &[u8], address: u64, function: u64, into: &mut BTreeSet<u64>) -> Option<()> {
    let mut reader = Reader { bytes, at: 0, address };
    let start = match reader.u8()? {
        OMIT => function,
        encoding => reader.pointer(Encoding(encoding))?,
    };
    if reader.u8()? != OMIT {
        reader.uleb()?;
    }
    let encoding = Encoding(reader.u8()?);
    let length = reader.uleb()? as usize;
    let end = reader.at.checked_add(length)?;
    while reader.at < end {
        reader.pointer(encoding)?;
        reader.pointer(encoding)?;
        let landing = reader.pointer(encoding)?;
        reader.uleb()?;
        if landing != 0 {
            into.insert(start.wrapping_add(landing));
        }
    }
    Some(())
}
