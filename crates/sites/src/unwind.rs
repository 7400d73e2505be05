//! Unwind tables of the gate and of thunks, in the two formats that exist: `.eh_frame` with a sorted
//! `.eh_frame_hdr` for unwinders in the program, `.debug_frame` for debuggers.
//!
//! Unwinders see a thunk as a call of it made by the function that contains its site (DWARF 5, 6.4; Linux
//! Standard Base 5.0, 10.6).

use crate::image::Patch;

/// `DW_EH_PE_pcrel | DW_EH_PE_sdata4`: how pointers are stored in `.eh_frame`.
const RELATIVE: u8 = 0x1b;
/// The start of an `.eh_frame_hdr` with the usual encodings: version, pointer to the frames, number of
/// entries (`udata4`), entries (`datarel | sdata4`).
const HEADER: [u8; 4] = [1, RELATIVE, 0x03, 0x3b];
/// Bytes before the entries, and of one.
const HEADER_BYTES: usize = 12;
const ENTRY_BYTES: usize = 8;
/// Instructions are padded to multiples of this.
const ALIGN: usize = 8;

/// Numbers of registers in the System V ABI for x86-64.
const RSP: u8 = 7;
const RETURN: u8 = 16;
const DW_CFA_ADVANCE_LOC: u8 = 0x40;
const DW_CFA_ADVANCE_LOC1: u8 = 0x02;
const DW_CFA_DEF_CFA: u8 = 0x0c;
const DW_CFA_DEF_CFA_OFFSET: u8 = 0x0e;
const DW_CFA_VAL_EXPRESSION: u8 = 0x16;
const DW_OP_BREG16: u8 = 0x80;
const DW_OP_CONST4S: u8 = 0x0d;
const DW_OP_PLUS: u8 = 0x22;

/// What several functions have in common.
#[derive(Clone, PartialEq, Eq)]
struct Common {
    /// Alignment factors and the column of the return address, as stored.
    columns: Vec<u8>,
    instructions: Vec<u8>,
}

/// One function.
struct Function {
    common: usize,
    start: u64,
    bytes: u64,
    instructions: Vec<u8>,
    /// Address of its entry, if it is in an `.eh_frame`.
    entry: Option<u64>,
}

/// Unwind tables.
#[derive(Default)]
pub struct Tables {
    common: Vec<Common>,
    functions: Vec<Function>,
}

impl Tables {
    /// Reads an `.eh_frame` at `address`, as compilers write them for code without landing pads. `None` if it
    /// is another one.
    pub fn read(section: &[u8], address: u64) -> Option<Tables> {
        let mut tables = Tables::default();
        let mut known = Vec::new();
        let mut at = 0;
        while at < section.len() {
            let length = word(section, at)? as usize;
            if length == 0 {
                break;
            }
            let record = section.get(at + 4..at + 4 + length)?;
            let (id, body) = (word(record, 0)? as usize, record.get(4..)?);
            if id == 0 {
                known.push((at, tables.common.len()));
                tables.common.push(common(body)?);
            } else {
                let (_, common) =
                    *known.iter().find(|(start, _)| Some(*start) == (at + 4).checked_sub(id))?;
                let here = address + at as u64 + 8;
                let function = Function {
                    common,
                    start: here.wrapping_add_signed(i64::from(word(body, 0)? as i32)),
                    bytes: u64::from(word(body, 4)?),
                    instructions: body.get(8..)?.strip_prefix(&[0])?.to_vec(),
                    entry: Some(address + at as u64),
                };
                tables.functions.push(function);
            }
            at += 4 + length;
        }
        Some(tables)
    }

    /// The tables of thunks.
    pub fn of_thunks(patches: &[Patch]) -> Tables {
        let common = Common { columns: vec![1, 0x78, RETURN], instructions: vec![DW_CFA_DEF_CFA, RSP, 0] };
        let function = |patch: &Patch| Function {
            common: 0,
            start: patch.thunk,
            bytes: patch.thunk_bytes,
            instructions: steps(patch),
            entry: None,
        };
        Tables { common: vec![common], functions: patches.iter().map(function).collect() }
    }

    /// Adds other tables.
    pub fn append(&mut self, other: Tables) {
        let first = self.common.len();
        self.common.extend(other.common);
        self.functions.extend(
            other
                .functions
                .into_iter()
                .map(|function| Function { common: first + function.common, ..function }),
        );
    }

    /// Moves the code and the entries.
    pub fn moved(mut self, by: u64) -> Tables {
        for function in &mut self.functions {
            function.start += by;
            function.entry = function.entry.map(|entry| entry + by);
        }
        self
    }

    /// As an `.eh_frame` at `address`, where all its functions then have their entries.
    pub fn write_eh_frame(&mut self, address: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut places = Vec::new();
        for common in &self.common {
            places.push(bytes.len());
            let columns = [&[1][..], b"zR\0", &common.columns, &[1, RELATIVE]].concat();
            record(&mut bytes, 0, &columns, &common.instructions);
        }
        for function in &mut self.functions {
            let at = bytes.len();
            function.entry = Some(address + at as u64);
            let distance = function.start.wrapping_sub(address + at as u64 + 8) as i32;
            let body = [&distance.to_le_bytes()[..], &(function.bytes as u32).to_le_bytes(), &[0]].concat();
            record(&mut bytes, (at + 4 - places[function.common]) as u32, &body, &function.instructions);
        }
        bytes.extend([0; 4]);
        bytes
    }

    /// As a `.debug_frame`.
    pub fn write_debug_frame(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut places = Vec::new();
        for common in &self.common {
            places.push(bytes.len() as u32);
            let columns = [&[1][..], b"\0", &common.columns].concat();
            record(&mut bytes, u32::MAX, &columns, &common.instructions);
        }
        for function in &self.functions {
            let body = [function.start.to_le_bytes(), function.bytes.to_le_bytes()].concat();
            record(&mut bytes, places[function.common], &body, &function.instructions);
        }
        bytes
    }

    /// How many functions there are.
    pub fn functions(&self) -> usize {
        self.functions.len()
    }

    /// Bytes of an `.eh_frame_hdr` with the entries of `header` and `added` more.
    pub fn header_bytes(header: &[u8], added: usize) -> Option<usize> {
        Some(HEADER_BYTES + (entries(header, 0)?.len() + added) * ENTRY_BYTES)
    }

    /// An `.eh_frame_hdr` at `address` for these functions and those of `header`, another one at `from`.
    /// `None` if that has other encodings.
    pub fn write_header(&self, address: u64, header: &[u8], from: u64) -> Option<Vec<u8>> {
        let mut all = entries(header, from)?;
        all.extend(self.functions.iter().filter_map(|function| Some((function.start, function.entry?))));
        all.sort_unstable();
        let frames = from.wrapping_add_signed(i64::from(word(header, 4)? as i32)).wrapping_sub(address);
        let mut bytes = HEADER.to_vec();
        bytes.extend((frames as u32).to_le_bytes());
        bytes.extend((all.len() as u32).to_le_bytes());
        for (start, entry) in all {
            bytes.extend((start.wrapping_sub(address) as u32).to_le_bytes());
            bytes.extend((entry.wrapping_sub(address) as u32).to_le_bytes());
        }
        Some(bytes)
    }
}

/// The functions of an `.eh_frame_hdr` at `address`, and their entries.
fn entries(header: &[u8], address: u64) -> Option<Vec<(u64, u64)>> {
    let count = word(header.strip_prefix(&HEADER)?, 4)? as usize;
    let target = |at: usize| Some(address.wrapping_add_signed(i64::from(word(header, at)? as i32)));
    let pair = |index: usize| {
        let at = HEADER_BYTES + index * ENTRY_BYTES;
        Some((target(at)?, target(at + 4)?))
    };
    (0..count).map(pair).collect()
}

/// Reads what follows the id of a common record, if its augmentation is only an encoding of pointers.
fn common(body: &[u8]) -> Option<Common> {
    let body = body.strip_prefix(&[1])?.strip_prefix(b"zR\0")?;
    let mut columns = 0;
    for _ in 0..2 {
        columns += body.get(columns..)?.iter().position(|byte| byte & 0x80 == 0)? + 1;
    }
    let (columns, rest) = body.split_at_checked(columns + 1)?;
    let instructions = rest.strip_prefix(&[1, RELATIVE])?;
    Some(Common { columns: columns.to_vec(), instructions: instructions.to_vec() })
}

/// Appends a record, padded with instructions that do nothing.
fn record(bytes: &mut Vec<u8>, id: u32, body: &[u8], instructions: &[u8]) {
    let unpadded = 4 + body.len() + instructions.len();
    let length = (4 + unpadded).next_multiple_of(ALIGN) - 4;
    bytes.extend((length as u32).to_le_bytes());
    bytes.extend(id.to_le_bytes());
    bytes.extend(body);
    bytes.extend(instructions);
    bytes.resize(bytes.len() + length - unpadded, 0);
}

/// The instructions for a thunk. Its caller's address follows from its own, which every unwinder has in the
/// column of the return address. Unwinders look up the byte before: hence one more.
fn steps(patch: &Patch) -> Vec<u8> {
    let mut code = Vec::new();
    let (mut at, mut below) = (0, 0);
    for step in &patch.steps {
        match step.offset - at {
            0 => {}
            by @ 1..64 => code.push(DW_CFA_ADVANCE_LOC | by as u8),
            by => code.extend([DW_CFA_ADVANCE_LOC1, by as u8]),
        }
        if step.below != below {
            let [low, high] = [step.below as u8 & 0x7f | 0x80, (step.below >> 7) as u8];
            code.extend([DW_CFA_DEF_CFA_OFFSET, low, high]);
        }
        (at, below) = (step.offset, step.below);
        let distance = (step.replaces + 1).wrapping_sub(patch.thunk + u64::from(step.offset)) as i32;
        code.extend([DW_CFA_VAL_EXPRESSION, RETURN, 8, DW_OP_BREG16, 0, DW_OP_CONST4S]);
        code.extend(distance.to_le_bytes());
        code.push(DW_OP_PLUS);
    }
    code
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}
