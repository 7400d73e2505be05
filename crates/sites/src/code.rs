//! Disassembly.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

use crate::elf::{BoundsKnown, CodeRegion, Elf};

/// Bytes of a `syscall` instruction.
pub(crate) const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Distance in bytes from a site within which a branch target matters.
const NEAR: u64 = 32;

/// A region, disassembled from its start to its end.
pub(crate) struct Listing {
    /// Its addresses.
    pub region: CodeRegion,
    /// Its instructions, in order, contiguous (invalid bytes are instructions with `Code::INVALID`).
    pub instructions: Vec<Instruction>,
    /// For each target of a branch in the region: the indices of the branches.
    pub branches: BTreeMap<u64, Vec<usize>>,
    /// Indices of calls to functions that do not return.
    pub last_calls: BTreeSet<usize>,
}

impl Listing {
    /// Disassembles a region.
    pub(crate) fn new(elf: &Elf<'_>, region: CodeRegion) -> Self {
        let mut instructions = Vec::new();
        let mut branches = BTreeMap::<u64, Vec<usize>>::new();
        let mut last_calls = BTreeSet::new();
        for instruction in decode(elf, region.range.clone()) {
            if let Some(target) = branch_target(&instruction) {
                branches.entry(target).or_default().push(instructions.len());
                if instruction.flow_control() == FlowControl::Call && never_returns(elf, target) {
                    last_calls.insert(instructions.len());
                }
            }
            instructions.push(instruction);
        }
        Listing { region, instructions, branches, last_calls }
    }

    /// Whether execution continues after the instruction at `index`.
    pub(crate) fn falls_through(&self, index: usize) -> bool {
        let instruction = &self.instructions[index];
        let ends = matches!(
            instruction.flow_control(),
            FlowControl::UnconditionalBranch
                | FlowControl::IndirectBranch
                | FlowControl::Return
                | FlowControl::Exception
        );
        !self.last_calls.contains(&index) && (!ends || instruction.code() == Code::INVALID)
    }

    /// The index of the instruction at exactly `address`.
    pub(crate) fn index(&self, address: u64) -> Option<usize> {
        self.instructions.binary_search_by_key(&address, Instruction::ip).ok()
    }

    /// Targets of jump tables that the region uses: tables of 32-bit distances from the table's own address,
    /// as compilers generate for position-independent code. A superset: everything that can be read as such a
    /// table counts, up to its end.
    ///
    /// Two facts show the end: a table's targets are in the function that uses it, and nothing else that the
    /// code names lies within it. Where functions are not known, a call in data that is disassembled as code
    /// may cut a function short, and an address in such data a table; hence both are required.
    fn table_targets(&self, elf: &Elf<'_>, into: &mut BTreeSet<u64>) {
        let (labels, tables): (Vec<_>, Vec<_>) =
            self.addresses_taken().partition(|(_, address)| elf.is_code(*address));
        into.extend(labels.into_iter().map(|(_, label)| label));
        let named: BTreeSet<u64> = tables.iter().map(|(_, table)| *table).collect();
        let starts = self.function_starts();
        for (user, table) in tables {
            let next = named.range(table + 1..).next().copied().unwrap_or(u64::MAX);
            let function = self.function_around(&starts, user);
            for (index, entry) in elf.at(table).unwrap_or_default().chunks_exact(4).enumerate() {
                let distance = i32::from_le_bytes(entry.try_into().unwrap_or_default());
                let target = table.wrapping_add_signed(i64::from(distance));
                let is_past_end = || table + 4 * index as u64 >= next && !function.contains(&target);
                if !self.region.range.contains(&target) || is_past_end() {
                    break;
                }
                into.insert(target);
            }
        }
    }

    /// The instructions that take an address relative to their own, and what they take.
    fn addresses_taken(&self) -> impl Iterator<Item = (u64, u64)> {
        let takes = |instruction: &&Instruction| {
            instruction.code() == Code::Lea_r64_m && instruction.is_ip_rel_memory_operand()
        };
        let taken = self.instructions.iter().filter(takes);
        taken.map(|instruction| (instruction.ip(), instruction.ip_rel_memory_address()))
    }

    /// The functions in the region that others in it call, sorted.
    fn function_starts(&self) -> Vec<u64> {
        let is_call = |index: &usize| self.instructions[*index].flow_control() == FlowControl::Call;
        let called = self.branches.iter().filter(|(_, from)| from.iter().any(is_call));
        called.map(|(target, _)| *target).filter(|target| self.region.range.contains(target)).collect()
    }

    /// The function with the instruction at `address`, or more: that function and others around it.
    fn function_around(&self, starts: &[u64], address: u64) -> Range<u64> {
        if self.region.known == BoundsKnown::Function {
            return self.region.range.clone();
        }
        let behind = starts.partition_point(|start| *start <= address);
        let start = behind.checked_sub(1).map_or(self.region.range.start, |before| starts[before]);
        start..starts.get(behind).copied().unwrap_or(self.region.range.end)
    }
}

/// Decodes the instructions in `range`.
fn decode(elf: &Elf<'_>, range: Range<u64>) -> impl Iterator<Item = Instruction> {
    let bytes = elf.at(range.start).unwrap_or_default();
    let bytes = &bytes[..bytes.len().min((range.end - range.start) as usize)];
    let mut decoder = Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE);
    std::iter::from_fn(move || decoder.can_decode().then(|| decoder.decode()))
}

fn branch_target(instruction: &Instruction) -> Option<u64> {
    matches!(instruction.op0_kind(), OpKind::NearBranch64 | OpKind::NearBranch32 | OpKind::NearBranch16)
        .then(|| instruction.near_branch_target())
}

/// The addresses at which the two bytes of an instruction occur in executable sections.
pub(crate) fn candidates(elf: &Elf<'_>, instruction: [u8; 2]) -> Vec<u64> {
    let mut found = Vec::new();
    for code in &elf.code {
        let bytes = elf.at(code.start).unwrap_or_default();
        let bytes = &bytes[..bytes.len().min((code.end - code.start) as usize)];
        let pairs = bytes.windows(2).enumerate().filter(|(_, pair)| **pair == instruction);
        found.extend(pairs.map(|(at, _)| code.start + at as u64));
    }
    found
}

/// Meaning of the bytes `0f 05` at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SiteMeaning {
    /// A `syscall` instruction.
    Site,
    /// Part of another instruction of a known function, or data.
    Other,
}

/// Decides the meaning of the candidate at `address`.
///
/// In a known function the disassembly decides. A gap may contain data or start in the middle of something.
/// There, bytes that read as `mov eax, NUMBER; syscall` are a site too, even if the disassembly did not
/// arrive at them.
pub(crate) fn meaning(elf: &Elf<'_>, listing: &Listing, address: u64) -> SiteMeaning {
    if let Some(index) = listing.index(address) {
        let is_site = listing.instructions[index].code() == Code::Syscall;
        return if is_site { SiteMeaning::Site } else { SiteMeaning::Other };
    }
    let before = address.checked_sub(5).and_then(|start| elf.at(start)).and_then(|bytes| bytes.get(..5));
    match (listing.region.known, before) {
        (BoundsKnown::Gap, Some([0xb8, low, high, 0, 0])) if u16::from_le_bytes([*low, *high]) < 512 => {
            SiteMeaning::Site
        }
        _ => SiteMeaning::Other,
    }
}

/// All places near one of the `sites` that may be jump targets, from the `listings` or from data.
pub(crate) fn listed_targets(elf: &Elf<'_>, listings: &[Listing], sites: &BTreeSet<u64>) -> BTreeSet<u64> {
    let pointers = elf.pointers.iter().filter(|target| !sites.contains(target));
    let mut targets: BTreeSet<u64> =
        elf.entries.iter().chain(pointers).copied().filter(|target| is_near(*target, sites)).collect();
    for listing in listings {
        listing.table_targets(elf, &mut targets);
    }
    targets
}

/// All places near one of the `sites` that are the target of a branch in another region, since parts of a
/// function may be far apart. Targets from the same region are in its listing.
///
/// Short branches come from nearby code, which is disassembled. Other branches are found by their bytes at
/// all addresses. Bytes that only look like a branch to a place near a site count where functions are not
/// known; a known one is disassembled.
pub(crate) fn branch_targets(elf: &Elf<'_>, sites: &BTreeSet<u64>) -> BTreeSet<u64> {
    let mut targets = BTreeSet::new();
    let (Some(first), Some(last)) = (sites.first(), sites.last()) else { return targets };
    let around = first.saturating_sub(NEAR)..=last.saturating_add(NEAR);
    let mut add = |from: u64, target: u64| {
        let is_other = || elf.region(target).is_none_or(|region| !region.range.contains(&from));
        if around.contains(&target) && is_near(target, sites) && is_other() && is_branch(elf, from, target) {
            targets.insert(target);
        }
    };
    for code in &elf.code {
        let bytes = elf.at(code.start).unwrap_or_default();
        let bytes = &bytes[..bytes.len().min((code.end - code.start) as usize)];
        for (at, window) in bytes.windows(1 + DISTANCE).enumerate() {
            let [opcode, distance @ ..] = window else { continue };
            let is_conditional = || opcode & 0xf0 == 0x80 && at != 0 && bytes[at - 1] == 0x0f;
            if (opcode & 0xfe == 0xe8 || is_conditional())
                && let Ok(distance) = distance.try_into()
            {
                let from = code.start + at as u64;
                let end = from + 1 + DISTANCE as u64;
                add(from, end.wrapping_add_signed(i64::from(i32::from_le_bytes(distance))));
            }
        }
    }
    for region in regions_around(elf, sites) {
        for instruction in decode(elf, region) {
            if let Some(target) = branch_target(&instruction) {
                add(instruction.ip(), target);
            }
        }
    }
    targets
}

/// Whether the byte at `address` may be of a branch to `target`.
fn is_branch(elf: &Elf<'_>, address: u64, target: u64) -> bool {
    match elf.region(address) {
        Some(region) if region.known == BoundsKnown::Function => {
            let mut branches = decode(elf, region.range).filter(|it| branch_target(it) == Some(target));
            branches.any(|branch| (branch.ip()..branch.next_ip()).contains(&address))
        }
        _ => true,
    }
}

/// Bytes of the displacement in a branch that is not short.
const DISTANCE: usize = 4;
/// Reach of a short branch, including its own length.
const SHORT: u64 = 130;

/// The regions from which a short branch may reach a site.
fn regions_around(elf: &Elf<'_>, sites: &BTreeSet<u64>) -> Vec<Range<u64>> {
    let mut all = BTreeMap::new();
    for site in sites {
        let (mut at, end) = (site.saturating_sub(NEAR + SHORT), site + NEAR + SHORT);
        while at < end {
            match elf.region(at) {
                Some(region) if region.range.end > at => {
                    at = region.range.end;
                    all.insert(region.range.start, region.range);
                }
                _ => at += 1,
            }
        }
    }
    all.into_values().collect()
}

fn is_near(address: u64, sites: &BTreeSet<u64>) -> bool {
    sites.range(address.saturating_sub(NEAR)..=address.saturating_add(NEAR)).next().is_some()
}

/// Whether the function at `start` cannot return: its end is known, and only calls leave it.
fn never_returns(elf: &Elf<'_>, start: u64) -> bool {
    let Some(region) = elf
        .region(start)
        .filter(|region| region.known == BoundsKnown::Function && region.range.start == start)
    else {
        return false;
    };
    decode(elf, region.range.clone()).all(|instruction| match instruction.flow_control() {
        FlowControl::Return | FlowControl::IndirectBranch => false,
        FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
            region.range.contains(&instruction.near_branch_target())
        }
        _ => instruction.code() != Code::INVALID,
    })
}
