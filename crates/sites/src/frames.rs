//! `.eh_frame`: bounds of functions, and landing pads of exceptions.

use std::collections::BTreeSet;
use std::ops::Range;

use gimli::constants::{self, DwEhPe};
use gimli::{
    BaseAddresses, CieOrFde, EhFrame, EndianSlice, FrameDescriptionEntry, LittleEndian, Pointer, Reader,
    UnwindSection,
};

/// What the unwind tables contain about code.
#[derive(Default)]
pub(crate) struct Frames {
    /// Functions, or parts of functions.
    pub functions: Vec<Range<u64>>,
    /// Landing pads: entered by the unwinder, not by a branch.
    pub landings: BTreeSet<u64>,
}

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Parses `.eh_frame`, mapped at `address`; `read` returns the bytes of the object from an address on.
///
/// Unreadable entries are skipped: their functions are then found as gaps between others.
pub(crate) fn parse<'a>(bytes: &[u8], address: u64, read: impl Fn(u64) -> Option<&'a [u8]>) -> Frames {
    let section = EhFrame::new(bytes, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(address);
    // A null pointer that is stored as a distance reads as its own address.
    let is_null = |pointer: u64| (address..address + bytes.len() as u64).contains(&pointer) || pointer == 0;
    let mut frames = Frames::default();
    let mut entries = section.entries(&bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(description) = partial.parse(EhFrame::cie_from_offset) else { continue };
        let Some(range) = range(&description).filter(|range| !is_null(range.start)) else { continue };
        if let Some(Pointer::Direct(at)) = description.lsda()
            && !is_null(at)
            && let Some(data) = read(at)
        {
            landings(data, at, range.start, &mut frames.landings);
        }
        frames.functions.push(range);
    }
    frames
}

/// The code that an entry describes.
fn range(description: &FrameDescriptionEntry<Bytes<'_>>) -> Option<Range<u64>> {
    let (first, length) = (description.initial_address(), description.len());
    let end = first.checked_add(length)?;
    // A signal frame starts one byte before the code that it describes, because unwinders look up return
    // addresses minus one.
    let start = first + u64::from(description.is_signal_trampoline());
    (start < end).then_some(start..end)
}

/// Adds the landing pads in a language-specific data area, in the layout that C++ and Rust share, which is no
/// part of DWARF. Stops at what it cannot read.
fn landings(bytes: &[u8], address: u64, function: u64, into: &mut BTreeSet<u64>) -> Option<()> {
    let mut reader = EndianSlice::new(bytes, LittleEndian);
    let start = match encoding(&mut reader)? {
        constants::DW_EH_PE_omit => function,
        encoding => {
            let here = address + (bytes.len() - reader.len()) as u64;
            let value = value(&mut reader, encoding)?;
            match encoding.application() {
                constants::DW_EH_PE_absptr => value,
                constants::DW_EH_PE_pcrel => here.wrapping_add(value),
                _ => return None,
            }
        }
    };
    if encoding(&mut reader)? != constants::DW_EH_PE_omit {
        reader.read_uleb128().ok()?;
    }
    let encoding = encoding(&mut reader)?;
    let length = reader.read_uleb128().ok()?;
    let mut calls = reader.split(usize::try_from(length).ok()?).ok()?;
    while !calls.is_empty() {
        value(&mut calls, encoding)?;
        value(&mut calls, encoding)?;
        let landing = value(&mut calls, encoding)?;
        calls.read_uleb128().ok()?;
        if landing != 0 {
            into.insert(start.wrapping_add(landing));
        }
    }
    Some(())
}

fn encoding(reader: &mut Bytes<'_>) -> Option<DwEhPe> {
    reader.read_u8().ok().map(DwEhPe)
}

/// A number in the format of a pointer's encoding.
fn value(reader: &mut Bytes<'_>, encoding: DwEhPe) -> Option<u64> {
    match encoding.format() {
        constants::DW_EH_PE_absptr | constants::DW_EH_PE_udata8 | constants::DW_EH_PE_sdata8 => {
            reader.read_u64()
        }
        constants::DW_EH_PE_uleb128 => reader.read_uleb128(),
        constants::DW_EH_PE_udata2 => reader.read_u16().map(u64::from),
        constants::DW_EH_PE_udata4 => reader.read_u32().map(u64::from),
        constants::DW_EH_PE_sdata2 => reader.read_i16().map(|value| value as u64),
        constants::DW_EH_PE_sdata4 => reader.read_i32().map(|value| value as u64),
        _ => return None,
    }
    .ok()
}
