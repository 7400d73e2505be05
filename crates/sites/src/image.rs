//! From an object to its image: chooses the sites to patch and produces the patched pages.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use iced_x86::Instruction;
use lp_abi::image::{Fixup, QUICK_CALLS, RANGES};
use lp_abi::linux::{
    __NR_access, __NR_execve, __NR_exit, __NR_munmap, __NR_readlink, __NR_write, __NR_writev,
};

use crate::code::{self, Listing, SiteMeaning};
use crate::elf::{CodeRegion, Elf, NotAnObject};
use crate::function::{self, OneCall};
use crate::number::{self, Number};
use crate::thunk::{self, GateEntry, Parts, Slots, Step, Thunk, WholeParts};
use crate::window::{self, JUMP, RegisterClass, Window};

const PAGE: u64 = 4096;
/// Address of the thunks, relative to a position-independent object's base, and to a fixed one's.
const DELTA: i64 = -(1 << 30);
const DELTA_FIXED: i64 = 1 << 30;
/// Unpatched pages between two patched ones that are included instead of starting another range. Another
/// mapping over the text costs 5 to 7 us; an additional page costs one more fault, if it is used at all.
const BRIDGE: u64 = 64;
/// Unpatched pages at an edge of the segment that are included, so that no piece of the old mapping is left
/// there to be split off, and unmapped at the end.
const EDGE: u64 = 8;
/// Objects whose sites come from a C library's system call macros, which keep nothing in vector registers;
/// still checked for each site.
const C_LIBRARIES: &[&str] = &["ld-linux", "libpthread.so", "librt.so"];
/// A text larger than this is not searched for branches if its sites, seen alone, do not need patching.
const LARGE: usize = 16 << 20;
/// Calls that the dynamic linker makes before the gate is there, or to print a message at the end of the
/// process. The linker is mapped anew in every process, and leaving these calls alone leaves most of its
/// pages unpatched. (At start it finds the program's own path by readlink of /proc/self/exe.)
const LINKERS_OWN: &[u32] = &[__NR_write, __NR_writev, __NR_access, __NR_execve, __NR_readlink];
/// Instructions between munmap and exit in a function that has unmapped its own stack.
const UNMAP_EXIT: usize = 6;

/// A `syscall` instruction.
#[derive(Clone, Debug)]
pub struct Site {
    /// Its address, relative to the object's base.
    pub address: u64,
    /// What it calls.
    pub number: Number,
    /// What is done about it.
    pub verdict: Verdict,
}

/// The decision about a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The gate does not need to see the call.
    NotNeeded,
    /// It must not be patched: it runs without a stack and without the thread's storage.
    NoStack,
    /// It is patched.
    Patch,
    /// It needs patching but cannot be patched.
    Unpatchable,
}

/// A patched site.
#[derive(Clone, Debug)]
pub struct Patch {
    /// Address of the first displaced byte.
    pub start: u64,
    /// Displaced bytes.
    pub bytes: u64,
    /// Address of the thunk.
    pub thunk: u64,
    /// Its length in bytes.
    pub thunk_bytes: u64,
    /// What it does.
    pub steps: Vec<Step>,
    /// The entry of the gate that it uses.
    pub entry: GateEntry,
    /// What it stands for.
    pub stands_for: StandsFor,
}

/// What a thunk stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandsFor {
    /// A site.
    Site,
    /// A whole function that makes one call, at a site of others.
    Function,
}

/// The analysis of an object.
pub struct Analysis {
    /// Its `syscall` instructions, sorted.
    pub sites: Vec<Site>,
    /// The patches, sorted.
    pub patches: Vec<Patch>,
    /// Location of the thunks.
    pub place: ThunkPlace,
    /// The thunks, whole pages.
    pub thunks: Vec<u8>,
    /// Distances that depend on the location of the thunks.
    pub fixups: Vec<Fixup>,
}

/// Why an object cannot be patched.
#[derive(Debug)]
pub enum ObjectRefusal {
    /// It is not an object.
    NotAnObject(NotAnObject),
    /// A needed site cannot be patched.
    Site(u64),
    /// A displaced instruction cannot be moved.
    Encoding(u64, String),
    /// Its sites are on more scattered pages than an entry has room for.
    Scattered,
    /// It is packed: its code appears as it runs.
    Packed,
}

impl fmt::Display for ObjectRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectRefusal::NotAnObject(why) => why.fmt(f),
            ObjectRefusal::Site(at) => write!(f, "the system call at {at:#x} leaves no room for a jump"),
            ObjectRefusal::Encoding(at, why) => {
                write!(f, "the system call at {at:#x} cannot be moved: {why}")
            }
            ObjectRefusal::Scattered => f.write_str("its system calls are on too many scattered pages"),
            ObjectRefusal::Packed => f.write_str("it is packed"),
        }
    }
}

impl std::error::Error for ObjectRefusal {}

impl From<NotAnObject> for ObjectRefusal {
    fn from(why: NotAnObject) -> Self {
        ObjectRefusal::NotAnObject(why)
    }
}

/// Location of an object's thunks.
#[derive(Clone, Copy, Debug)]
pub struct ThunkPlace {
    /// Their address relative to the object's base.
    pub delta: i64,
    /// How they find the gate.
    pub slots: Slots,
}

impl ThunkPlace {
    /// Beside the object, in pages that the gate maps.
    fn beside(elf: &Elf<'_>) -> ThunkPlace {
        ThunkPlace { delta: if elf.fixed { DELTA_FIXED } else { DELTA }, slots: Slots::Process }
    }
}

/// Finds the sites of an object and decides about each.
///
/// # Errors
/// See [`ObjectRefusal`].
pub fn analyse(elf: &Elf<'_>) -> Result<Analysis, ObjectRefusal> {
    analyse_for(elf, ThunkPlace::beside(elf))
}

/// [`analyse`], for thunks at `place`.
///
/// # Errors
/// See [`ObjectRefusal`].
pub(crate) fn analyse_for(elf: &Elf<'_>, place: ThunkPlace) -> Result<Analysis, ObjectRefusal> {
    if elf.is_packed() {
        return Err(ObjectRefusal::Packed);
    }
    let mut analysis =
        Analysis { sites: Vec::new(), patches: Vec::new(), place, thunks: Vec::new(), fixups: Vec::new() };
    let Listings { all, sites, out_of_step } = listings(elf);
    if sites.is_empty() {
        return Ok(analysis);
    }
    let is_libc = elf.starts_programs || C_LIBRARIES.iter().any(|name| elf.soname.starts_with(name));
    let functions = if is_libc { functions(elf, &sites) } else { Vec::new() };
    let mut places = sites.clone();
    places.extend(functions.iter().map(|(listing, _)| listing.region.range.start));
    let mut targets = code::listed_targets(elf, &all, &places);
    targets.extend(out_of_step);
    if elf.text.bytes.len() > LARGE {
        let judged = judge(&all, &sites, &targets);
        if judged.iter().all(|(_, _, site)| site.verdict == Verdict::NotNeeded) {
            analysis.sites = judged.into_iter().map(|(_, _, site)| site).collect();
            return Ok(analysis);
        }
    }
    targets.extend(code::branch_targets(elf, &places));
    let is_linker = elf.soname.starts_with("ld-linux");
    for (listing, index, mut site) in judge(&all, &sites, &targets) {
        if is_linker && LINKERS_OWN.iter().any(|nr| site.number.is(*nr)) {
            site.verdict = Verdict::NotNeeded;
        }
        if site.verdict == Verdict::Patch {
            let vectors = !is_libc || window::live(RegisterClass::Vectors, listing, index);
            let entry = match vectors {
                true if !is_libc && site.number.is(__NR_exit) => GateEntry::Exit,
                true => GateEntry::Vector,
                false => plain_entry(elf, listing, index, &site.number),
            };
            analysis.patch(listing, index, &targets, entry)?;
        }
        analysis.sites.push(site);
    }
    for (listing, does) in &functions {
        let is_shared = |site: &Site| site.address == does.made.site && site.number == Number::Dynamic;
        if analysis.sites.iter().any(is_shared) {
            analysis.patch_function(listing, *does, &targets)?;
        }
    }
    analysis.patches.sort_by_key(|patch| patch.start);
    analysis.thunks.resize(analysis.thunks.len().next_multiple_of(PAGE as usize), 0xcc);
    Ok(analysis)
}

/// The exported functions that make one call at a site that is not their own.
fn functions(elf: &Elf<'_>, sites: &BTreeSet<u64>) -> Vec<(Listing, OneCall)> {
    let known = elf.exports.iter().filter_map(|start| {
        let region = elf.region(*start).filter(|region| region.range.start == *start)?;
        let has_sites = sites.range(region.range.clone()).next().is_some();
        let does = function::one_call(elf, *start).filter(|_| !has_sites)?;
        Some((Listing::new(elf, region), does))
    });
    known.collect()
}

/// The entry for a site in a C library at which no vector register is live.
///
/// A function that others call by name is compiled to preserve only the registers of the calling convention;
/// callers of a static function may rely on more.
fn plain_entry(elf: &Elf<'_>, listing: &Listing, index: usize, number: &Number) -> GateEntry {
    let Some(call) = QUICK_CALLS.iter().position(|nr| number.is(*nr)) else { return GateEntry::Plain };
    let exported = elf.exports.contains(&listing.region.range.start);
    if exported && !window::live(RegisterClass::Arguments, listing, index) {
        GateEntry::QuickScratch(call)
    } else {
        GateEntry::Quick(call)
    }
}

/// All regions of an object that contain sites.
struct Listings {
    /// The regions, disassembled.
    all: Vec<Listing>,
    /// All sites.
    sites: BTreeSet<u64>,
    /// Targets of branches in regions that are only partly listed.
    out_of_step: BTreeSet<u64>,
}

fn listings(elf: &Elf<'_>) -> Listings {
    let mut regions = BTreeMap::<u64, (CodeRegion, Vec<u64>)>::new();
    for candidate in code::candidates(elf, code::SYSCALL) {
        if let Some(region) = elf.region(candidate) {
            regions.entry(region.range.start).or_insert((region, Vec::new())).1.push(candidate);
        }
    }
    let mut found = Listings { all: Vec::new(), sites: BTreeSet::new(), out_of_step: BTreeSet::new() };
    for (region, candidates) in regions.into_values() {
        let listing = Listing::new(elf, region);
        let mut has_sites = false;
        for candidate in candidates {
            if code::meaning(elf, &listing, candidate) == SiteMeaning::Other {
                continue;
            }
            found.sites.insert(candidate);
            if listing.index(candidate).is_some() {
                has_sites = true;
                continue;
            }
            // In a gap, not aligned with the disassembly: listed separately, from the instruction that sets
            // the number.
            let mut region = listing.region.clone();
            region.range.start = candidate - JUMP as u64;
            found.all.push(Listing::new(elf, region));
            found.out_of_step.extend(listing.branches.keys());
        }
        if has_sites {
            found.all.push(listing);
        }
    }
    found
}

/// Whether two pages are in the same executable segment.
fn is_one(elf: &Elf<'_>, first: u64, second: u64) -> bool {
    let start =
        |page| elf.executable(page).or(elf.executable(page + PAGE - 1)).map(|segment| segment.address);
    start(first) == start(second)
}

/// Extends a range of pages, given by its first and last, to the edges of its segment if they are close.
fn to_edges(elf: &Elf<'_>, start: u64, end: u64) -> (u64, u64) {
    let Some(segment) = elf.executable(start).or(elf.executable(end + PAGE - 1)) else { return (start, end) };
    let first = segment.address & !(PAGE - 1);
    let last = (segment.address + segment.bytes.len() as u64 - 1) & !(PAGE - 1);
    let close = |from: u64, to: u64| to.saturating_sub(from) <= EDGE * PAGE;
    (if close(first, start) { first } else { start }, if close(end, last) { last } else { end })
}

/// Decides about every site, given all jump targets.
fn judge<'a>(
    listings: &'a [Listing],
    sites: &BTreeSet<u64>,
    targets: &BTreeSet<u64>,
) -> Vec<(&'a Listing, usize, Site)> {
    let mut all = Vec::new();
    for listing in listings {
        for address in sites.range(listing.region.range.clone()) {
            let Some(index) = listing.index(*address) else { continue };
            let number = number::at_site(listing, index, targets);
            let verdict = if !number.is_needed() {
                Verdict::NotNeeded
            } else if has_no_stack(listing, index, &number, targets) {
                Verdict::NoStack
            } else if window::choose(listing, index, targets).is_some() {
                Verdict::Patch
            } else {
                Verdict::Unpatchable
            };
            all.push((listing, index, Site { address: *address, number, verdict }));
        }
    }
    all.sort_by_key(|(_, _, site)| site.address);
    all.dedup_by_key(|(_, _, site)| site.address);
    all
}

/// Whether the site is the exit of a thread that has unmapped its own stack (musl's `__unmapself`): its
/// thread-local storage, which the gate's entry reads, was in the same mapping. The gate treats that munmap as
/// the thread's end.
fn has_no_stack(listing: &Listing, index: usize, number: &Number, targets: &BTreeSet<u64>) -> bool {
    let is_syscall = |at: &usize| listing.instructions[*at].code() == iced_x86::Code::Syscall;
    let start = index.saturating_sub(UNMAP_EXIT);
    number.is(__NR_exit)
        && (start..index).filter(is_syscall).any(|at| number::at_site(listing, at, targets).is(__NR_munmap))
}

impl Analysis {
    fn patch(
        &mut self,
        listing: &Listing,
        index: usize,
        targets: &BTreeSet<u64>,
        entry: GateEntry,
    ) -> Result<(), ObjectRefusal> {
        let site = listing.instructions[index].ip();
        let window = window::choose(listing, index, targets).ok_or(ObjectRefusal::Site(site))?;
        let range = window.range();
        let parts = Parts {
            before: &listing.instructions[range.start..index],
            behind: match window {
                Window::Before(_) => None,
                Window::Around(_) => Some(&listing.instructions[index + 1..range.end]),
            },
            site,
            entry,
            slots: self.place.slots,
        };
        let thunk = thunk::assemble(&parts, self.next_thunk());
        let thunk = thunk.map_err(|why| ObjectRefusal::Encoding(site, why))?;
        self.add(&listing.instructions[range], thunk, entry, StandsFor::Site);
        Ok(())
    }

    /// Displaces the start of a function, if it can be moved.
    fn patch_function(
        &mut self,
        listing: &Listing,
        does: OneCall,
        targets: &BTreeSet<u64>,
    ) -> Result<(), ObjectRefusal> {
        let Some(displaced) = window::at_start(listing, targets) else { return Ok(()) };
        let first = &listing.instructions[..displaced];
        let parts = WholeParts { first, does, slots: self.place.slots };
        let thunk = thunk::assemble_whole(&parts, self.next_thunk());
        let thunk = thunk.map_err(|why| ObjectRefusal::Encoding(listing.region.range.start, why))?;
        self.add(first, thunk, GateEntry::QuickScratch(does.made.call), StandsFor::Function);
        Ok(())
    }

    /// The address of the next thunk.
    fn next_thunk(&self) -> u64 {
        (self.place.delta + self.thunks.len() as i64) as u64
    }

    /// Adds a thunk, and the patch of the instructions that it displaces.
    fn add(&mut self, displaced: &[Instruction], thunk: Thunk, entry: GateEntry, stands_for: StandsFor) {
        let (Some(first), Some(last)) = (displaced.first(), displaced.last()) else { return };
        let (start, bytes) = (first.ip(), last.next_ip() - first.ip());
        let (offset, at) = (self.thunks.len(), self.next_thunk());
        let Thunk { bytes: code, fixups, steps } = thunk;
        self.fixups.extend(fixups.iter().map(|fixup| thunk::fixup(offset + *fixup as usize)));
        self.fixups.push(Fixup { at: start as u32 + 1 });
        let thunk_bytes = code.len() as u64;
        self.thunks.extend(code);
        self.thunks.resize(self.thunks.len().next_multiple_of(thunk::ALIGN), 0xcc);
        self.patches.push(Patch { start, bytes, thunk: at, thunk_bytes, steps, entry, stands_for });
    }

    /// How many sites are patched.
    pub fn patched_sites(&self) -> usize {
        self.patches.iter().filter(|patch| patch.stands_for == StandsFor::Site).count()
    }

    /// The first site that needs patching but cannot be patched.
    pub fn unpatchable(&self) -> Option<u64> {
        self.sites.iter().find(|site| site.verdict == Verdict::Unpatchable).map(|site| site.address)
    }

    /// Ranges of pages with patches: address and contents.
    ///
    /// # Errors
    /// [`ObjectRefusal::Scattered`].
    pub fn pages(&self, elf: &Elf<'_>) -> Result<Vec<(u64, Vec<u8>)>, ObjectRefusal> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for patch in &self.patches {
            let (start, end) = (patch.start & !(PAGE - 1), (patch.start + patch.bytes - 1) & !(PAGE - 1));
            match ranges.last_mut() {
                Some(last) if start <= last.1 + BRIDGE * PAGE && is_one(elf, last.1, start) => {
                    last.1 = last.1.max(end);
                }
                _ => ranges.push((start, end)),
            }
        }
        // The closest neighbours are merged until they fit.
        while ranges.len() > RANGES {
            let (closest, _) = ranges
                .windows(2)
                .enumerate()
                .filter(|(_, pair)| is_one(elf, pair[0].1, pair[1].0))
                .min_by_key(|(_, pair)| pair[1].0 - pair[0].1)
                .ok_or(ObjectRefusal::Scattered)?;
            let joined = ranges.remove(closest + 1);
            ranges[closest].1 = joined.1;
        }
        let mut pages = Vec::new();
        for (start, end) in ranges {
            let (start, end) = to_edges(elf, start, end);
            let mut bytes = self.file_pages(elf, start, end + PAGE)?;
            self.write_jumps(start, &mut bytes);
            pages.push((start, bytes));
        }
        Ok(pages)
    }

    /// Writes the jumps into `bytes`, text that starts at `start`.
    pub(crate) fn write_jumps(&self, start: u64, bytes: &mut [u8]) {
        let range = start..start + bytes.len() as u64;
        for patch in self.patches.iter().filter(|patch| range.contains(&patch.start)) {
            let at = (patch.start - start) as usize;
            let distance = patch.thunk.wrapping_sub(patch.start + JUMP as u64) as i64 as i32;
            let room = &mut bytes[at..at + patch.bytes as usize];
            // The rest of the displaced instructions is never executed.
            room.fill(0xcc);
            room[0] = 0xe9;
            room[1..JUMP].copy_from_slice(&distance.to_le_bytes());
        }
    }

    /// Pages of the executable segment as the kernel maps them: whole pages of the file.
    fn file_pages(&self, elf: &Elf<'_>, start: u64, end: u64) -> Result<Vec<u8>, ObjectRefusal> {
        let segment = elf.executable(start).or(elf.executable(end - 1)).ok_or(ObjectRefusal::Scattered)?;
        let offset = (segment.offset + start).wrapping_sub(segment.address) as usize;
        let bytes = elf.file.get(offset..).ok_or(ObjectRefusal::Scattered)?;
        let length = (end - start) as usize;
        let mut pages = bytes[..bytes.len().min(length)].to_vec();
        pages.resize(length, 0);
        Ok(pages)
    }
}
