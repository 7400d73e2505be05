//! The recorded path of an undisturbed victim, and breakpoints on it.
//!
//! A trap after every instruction costs microseconds, and a victim always takes the same path up to its stop.
//! So its path is recorded once. An instruction is then identified by its address and the number of times the
//! victim arrives there.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::control::{Slot, shared};

/// Maximum length of a path in instructions.
const MOST: usize = 1 << 19;
/// No breakpoint finds it: the instruction repeats itself, each iteration of which counts as an arrival, or
/// is one of those that take breakpoints out and put them back.
const REPEATS: u64 = 1 << 63;
const INT3: u8 = 0xcc;
const TRAP_FLAG: i64 = 0x100;
const PAGE: u64 = 4096;

/// A path, in memory that the conductor and the victim share.
#[repr(C)]
pub(crate) struct Trace {
    places: [AtomicU64; MOST],
}

/// The path being recorded; usually none.
static TRACE: AtomicPtr<Trace> = AtomicPtr::new(std::ptr::null_mut());

/// An address, and the number of arrivals up to the one that counts.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// Where the instruction lies.
    pub address: u64,
    /// Arrivals, including the wanted one.
    pub hits: u32,
}

/// The address range of the program's own code.
fn code() -> std::ops::Range<u64> {
    unsafe extern "C" {
        static __executable_start: u8;
        static etext: u8;
    }
    &raw const __executable_start as u64..&raw const etext as u64
}

impl Place {
    /// Whether another process of the same program can find it by its name.
    pub(crate) fn has_name(&self) -> bool {
        code().contains(&self.address)
    }

    /// The place of this name.
    pub(crate) fn named(name: &str) -> Option<Place> {
        let (offset, hits) = name.strip_prefix('@')?.split_once('x')?;
        let offset = u64::from_str_radix(offset, 16).ok()?;
        Some(Place { address: code().start + offset, hits: hits.parse().ok()? })
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "@{:x}x{}", self.address - code().start, self.hits)
    }
}

impl Trace {
    /// Memory for a path.
    pub(crate) fn new() -> &'static Trace {
        shared()
    }

    /// Makes the victims that are forked from now on record their paths here, or nowhere.
    pub(crate) fn record(trace: Option<&'static Trace>) {
        let to = trace.map_or(std::ptr::null_mut(), |trace| std::ptr::from_ref(trace).cast_mut());
        TRACE.store(to, Ordering::Relaxed);
    }

    /// The recorded path: its first `length` instructions.
    pub(crate) fn way(&self, length: u32) -> Vec<u64> {
        self.places.iter().take(length as usize).map(|place| place.load(Ordering::Relaxed)).collect()
    }
}

/// Place of instruction number `at` of a path, if a breakpoint reaches it with fewer traps than single steps
/// would.
pub(crate) fn place(way: &[u64], at: u32) -> Option<Place> {
    let before = way.get(..at as usize)?;
    let address = before.last()? & !REPEATS;
    let arrivals = before.iter().filter(|place| **place & !REPEATS == address);
    let repeats = arrivals.clone().any(|place| place & REPEATS != 0);
    let hits = arrivals.count() as u32;
    (!repeats && 2 * hits < at).then_some(Place { address, hits })
}

fn noted(me: &Slot, back: u32) -> Option<&'static AtomicU64> {
    // SAFETY: null, or memory that stays.
    let trace = unsafe { TRACE.load(Ordering::Relaxed).as_ref() }?;
    trace.places.get(me.steps.load(Ordering::Relaxed).checked_sub(back)? as usize)
}

/// Records where the victim is about to continue; `is_own` in code that handles breakpoints.
pub(crate) fn note(me: &Slot, place: u64, is_own: bool) {
    if let Some(to) = noted(me, 0) {
        to.store(if is_own { place | REPEATS } else { place }, Ordering::Relaxed);
    }
}

/// Records that the last instruction has repeated itself.
pub(crate) fn repeats(me: &Slot) {
    if let Some(last) = noted(me, 1) {
        last.fetch_or(REPEATS, Ordering::Relaxed);
    }
}

/// A breakpoint in the calling process.
pub(crate) struct Breakpoint {
    address: AtomicU64,
    hits: AtomicU32,
    /// The original byte at its address.
    byte: AtomicU8,
    armed: AtomicBool,
    inserted: AtomicBool,
}

impl Breakpoint {
    /// None.
    pub(crate) const fn new() -> Breakpoint {
        Breakpoint {
            address: AtomicU64::new(0),
            hits: AtomicU32::new(0),
            byte: AtomicU8::new(0),
            armed: AtomicBool::new(false),
            inserted: AtomicBool::new(false),
        }
    }

    /// Sets the breakpoint that `me` names; returns whether it names one that can be set.
    pub(crate) fn arm(&self, me: &Slot) -> bool {
        let address = me.place.load(Ordering::Relaxed);
        if address == 0 {
            return false;
        }
        let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        // SAFETY: a private page of code becomes writable: the byte that changes in it is put back.
        if unsafe { libc::mprotect((address & !(PAGE - 1)) as *mut libc::c_void, PAGE as usize, all) } != 0 {
            return false;
        }
        self.address.store(address, Ordering::Relaxed);
        self.hits.store(me.hits.load(Ordering::Relaxed), Ordering::Relaxed);
        self.armed.store(true, Ordering::Relaxed);
        self.insert();
        true
    }

    /// Writes it into the code.
    pub(crate) fn insert(&self) {
        self.byte.store(self.exchange(INT3), Ordering::Relaxed);
        self.inserted.store(true, Ordering::Relaxed);
    }

    /// Takes it out of the code; whether it was there.
    pub(crate) fn remove(&self) -> bool {
        let was = self.inserted.swap(false, Ordering::Relaxed);
        if was {
            self.exchange(self.byte.load(Ordering::Relaxed));
        }
        was
    }

    fn exchange(&self, byte: u8) -> u8 {
        let at = self.address.load(Ordering::Relaxed) as *mut u8;
        // SAFETY: `arm` has made the page writable; only this thread runs what lies there.
        unsafe {
            let old = at.read_volatile();
            at.write_volatile(byte);
            old
        }
    }

    /// A trap: `None` if it has nothing to do with a breakpoint, else whether this is the arrival that
    /// counts.
    pub(crate) fn on_trap(&self, registers: &mut [i64; 23]) -> Option<bool> {
        if !self.armed.load(Ordering::Relaxed) {
            return None;
        }
        if !self.remove() {
            // The instruction behind it has been made.
            self.insert();
            registers[libc::REG_EFL as usize] &= !TRAP_FLAG;
            return Some(false);
        }
        registers[libc::REG_RIP as usize] -= 1;
        let arrived = self.hits.fetch_sub(1, Ordering::Relaxed) == 1;
        if arrived {
            self.armed.store(false, Ordering::Relaxed);
        } else {
            registers[libc::REG_EFL as usize] |= TRAP_FLAG;
        }
        Some(arrived)
    }
}
