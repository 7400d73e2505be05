//! [`Rings`]: a ring for each lane, and the front that says what is asked for.
//!
//! The rings lie in the run's flights, a memfd that all processes of the run inherit, or in a memfd of the
//! tracer's if it came later. A lane's owner alone appends to its ring, and the tracer alone takes from it. A
//! full ring has its writer wait: the tracer is behind, or stopped. It holds nothing that others wait for,
//! since its call is over. A tracer that is killed ends the wait: its record lock on the memfd is gone then.

use core::ptr::NonNull;

use lp_abi::gated::CALLS;
use lp_abi::linux::{
    __NR_fcntl, __NR_madvise, __NR_mmap, __NR_munmap, F_OFD_GETLK, F_SETLK, F_UNLCK, F_WRLCK, MADV_DONTDUMP,
    MAP_FIXED, MAP_NORESERVE, MAP_SHARED, PROT_READ, PROT_WRITE, flock,
};
use lp_abi::{Errno, Fd, Result};

use super::entry::{self, EntryWriter};
use super::sole::Sole;
use crate::layout::LANES;
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering, futex_wait, futex_wake};

/// Words of a ring.
pub const WORDS: usize = 1 << 17;
/// The result of a call that is recorded before the kernel makes it.
pub const NO_RESULT: i64 = i64::MIN;
/// How long a writer waits before it asks whether the tracer lives, in nanoseconds.
const PATIENCE: u64 = 50_000_000;
/// The byte of the memfd that the tracer has locked. Locks of open files in flight lie below.
const LOCK: i64 = 1 << 60;

/// How far ahead of an entry a lane asks for the ring's lines, in words: the tracer's processor has them.
const AHEAD: usize = 64;

/// Asks for a line that is about to be written.
#[inline(always)]
fn prefetch(line: *const u64) {
    // SAFETY: reads and writes nothing, and faults for no address.
    unsafe { core::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags)) };
}

/// What the tracer asks for.
#[repr(C, align(64))]
pub struct TraceHeader {
    /// The lane that alone appends entries, as [`Sole`] says. Atomic.
    pub sole: Sole,
    /// Nonzero while the tracer reads. Atomic.
    pub reading: AtomicU32,
    /// Nonzero to have the calls that go to the kernel too. Immutable while the tracer reads.
    pub host: AtomicU32,
    spare: [AtomicU64; 6],
    /// Grows as rings fill and writers wait: the tracer sleeps on it. Atomic.
    pub bell: AtomicU32,
    /// Nonzero while the tracer sleeps: a ring that is half full wakes it. Atomic.
    pub naps: AtomicU32,
    spare_too: [AtomicU64; 7],
    /// What is asked for of each call: one of [`ask`]. Changes when the tracer comes and goes only.
    asked: [AtomicU8; CALLS],
}

/// What is asked for of a call.
pub mod ask {
    /// Nothing.
    pub const NOTHING: u8 = 0;
    /// Its sum ([`super::CallSum`]).
    pub const SUM: u8 = 1;
    /// An entry for each.
    pub const ENTRY: u8 = 2;
}

/// What is known of a ring: a line of its writer's, and one of the tracer's.
#[repr(C, align(64))]
pub struct Ring {
    /// Words ever written. Lane.
    pub written: AtomicU64,
    /// Calls that found no room. Lane.
    pub lost: AtomicU64,
    /// What [`Sole`] said when the lane last wrote the time, if it named this lane. Lane.
    pub(super) timed: AtomicU64,
    spare: [AtomicU64; 5],
    /// Words ever read. The tracer's.
    pub read: AtomicU64,
    /// Grows as the tracer reads: the writer sleeps on it. The tracer's.
    pub turn: AtomicU32,
    /// Nonzero while the writer sleeps. Atomic.
    pub sleeps: AtomicU32,
    spare_too: [AtomicU64; 6],
}

/// What `trace -c` keeps of one call in a lane, in place of the ring. Only the lane's owner writes it.
#[repr(C)]
pub struct CallSum {
    /// Calls that were answered. Lane.
    pub calls: AtomicU64,
    /// Those that failed. Lane.
    pub errors: AtomicU64,
    /// Ticks of the processor's counter that they took, extrapolated from those that were timed. Lane.
    pub ticks: AtomicU64,
    /// Calls when one was last timed. Lane.
    timed: AtomicU64,
}

impl CallSum {
    /// Calls of a kind that are all timed.
    pub const FIRST: u64 = 64;
    /// Of the calls that follow, one in so many is timed. A prime, because programs repeat themselves in
    /// powers of two.
    pub const STRIDE: u32 = 31;

    /// Adds a call that has taken `ticks`, for itself and those since the last that was timed, or one that
    /// was not timed. Returns how many there are.
    #[inline(always)]
    pub fn add(&self, has_failed: bool, ticks: Option<u64>) -> u64 {
        // Relaxed, all: counters that only this lane writes.
        let calls = self.calls.load(Ordering::Relaxed).wrapping_add(1);
        self.calls.store(calls, Ordering::Relaxed);
        if has_failed {
            self.errors.store(self.errors.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
        if let Some(ticks) = ticks {
            let stands_for = calls.wrapping_sub(self.timed.load(Ordering::Relaxed));
            let sum = self.ticks.load(Ordering::Relaxed).wrapping_add(ticks.wrapping_mul(stands_for));
            self.ticks.store(sum, Ordering::Relaxed);
            self.timed.store(calls, Ordering::Relaxed);
        }
        calls
    }
}

const FRONT: usize = 4096;
const DATA_AT: usize = FRONT + LANES * size_of::<Ring>();
/// Bytes of the memfd.
pub const BYTES: usize = DATA_AT + LANES * WORDS * 8;

/// The rings of a run, mapped for as long as the process lives.
#[derive(Clone, Copy)]
pub struct Rings(NonNull<u8>);

// SAFETY: everything in it is an atomic.
unsafe impl Send for Rings {}
// SAFETY: everything in it is an atomic.
unsafe impl Sync for Rings {}

const fn lock() -> flock {
    flock { l_type: F_WRLCK as i16, l_whence: 0, l_start: LOCK, l_len: 1, l_pid: 0 }
}

/// Says that the calling process reads the rings behind `fd`, until it ends or closes a descriptor of that
/// file.
///
/// # Errors
/// Those of fcntl(2).
pub fn hold(fd: Fd) -> Result<()> {
    let lock = lock();
    // SAFETY: the kernel reads the structure.
    unsafe { lp_abi::syscall!(__NR_fcntl, fd, F_SETLK, &raw const lock) }.map(drop)
}

/// Whether another process reads the rings behind `fd`.
pub fn is_held(fd: Fd) -> bool {
    let mut lock = lock();
    // SAFETY: the kernel writes the structure.
    let asked = unsafe { lp_abi::syscall!(__NR_fcntl, fd, F_OFD_GETLK, &raw mut lock) };
    asked.is_ok() && lock.l_type != F_UNLCK as i16
}

impl Rings {
    /// Maps the rings behind `fd`.
    ///
    /// # Errors
    /// Those of mmap(2).
    ///
    /// # Safety
    /// `fd` has [`BYTES`] and cannot be truncated.
    pub unsafe fn map(fd: Fd) -> Result<Rings> {
        let (protection, flags) = (PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE);
        // SAFETY: a new mapping.
        let base = unsafe { lp_abi::syscall!(__NR_mmap, 0, BYTES, protection, flags, fd, 0) }?;
        // SAFETY: changes how the new mapping is dumped only.
        let _ = unsafe { lp_abi::syscall!(__NR_madvise, base, BYTES, MADV_DONTDUMP) };
        NonNull::new(base as *mut u8).map(Rings).ok_or(Errno::ENOMEM)
    }

    /// Unmaps them.
    pub fn unmap(self) {
        // SAFETY: the caller has mapped them, and drops the only reference to them.
        let _ = unsafe { lp_abi::syscall!(__NR_munmap, self.base(), BYTES) };
    }

    /// The rings at an address that [`Rings::base`] gave.
    ///
    /// # Safety
    /// They are mapped there.
    pub unsafe fn at(base: usize) -> Option<Rings> {
        NonNull::new(base as *mut u8).map(Rings)
    }

    /// Where they are mapped.
    pub fn base(self) -> usize {
        self.0.as_ptr() as usize
    }

    fn record<T>(&self, offset: usize) -> &T {
        // SAFETY: callers pass offsets of records within the mapping; records are atomics.
        unsafe { &*self.0.as_ptr().add(offset).cast::<T>() }
    }

    /// What the tracer asks for.
    pub fn front(&self) -> &TraceHeader {
        self.record(0)
    }

    /// The ring of a lane.
    pub fn ring(&self, lane: usize) -> &Ring {
        self.record(FRONT + lane % LANES * size_of::<Ring>())
    }

    /// Maps the rings behind `fd` over others, at `base`.
    ///
    /// # Errors
    /// Those of mmap(2).
    ///
    /// # Safety
    /// `fd` has [`BYTES`] and cannot be truncated, and `base` came from [`Rings::base`].
    pub unsafe fn map_over(fd: Fd, base: usize) -> Result<()> {
        let (protection, flags) = (PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED);
        // SAFETY: replaces a mapping of rings by one of the same size; both hold atomics only.
        unsafe { lp_abi::syscall!(__NR_mmap, base, BYTES, protection, flags, fd, 0) }?;
        // SAFETY: changes how the mapping is dumped only.
        let _ = unsafe { lp_abi::syscall!(__NR_madvise, base, BYTES, MADV_DONTDUMP) };
        Ok(())
    }

    /// The word at a position of a lane's ring.
    #[inline(always)]
    pub fn word(&self, lane: usize, position: u64) -> &AtomicU64 {
        self.record(DATA_AT + (lane % LANES * WORDS + position as usize % WORDS) * 8)
    }

    /// The bytes between two positions of a lane's ring; `None` if they are more than it holds.
    ///
    /// # Safety
    /// The caller is the tracer, and `to` was published after them: nobody writes them before
    /// [`Rings::took`].
    pub unsafe fn bytes(&self, lane: usize, from: u64, to: u64) -> Option<[&[u8]; 2]> {
        let count = usize::try_from(to.wrapping_sub(from)).ok().filter(|count| *count <= WORDS)?;
        let first = from as usize % WORDS;
        let ahead = count.min(WORDS - first);
        let slice = |first: usize, count: usize| {
            let start = self.word(lane, first as u64).as_ptr().cast::<u8>();
            // SAFETY: within the ring, whose mapping lasts; nobody writes there, by this function's contract.
            unsafe { core::slice::from_raw_parts(start, count * 8) }
        };
        Some([slice(first, ahead), slice(0, count - ahead)])
    }

    /// What is kept of call `nr` in a lane. It lies where the lane's ring is otherwise.
    #[inline]
    pub fn sum(&self, lane: usize, nr: usize) -> &CallSum {
        self.record(DATA_AT + lane % LANES * WORDS * 8 + nr % CALLS * size_of::<CallSum>())
    }

    /// What is asked for of call `nr`: one of [`ask`].
    #[inline(always)]
    pub fn asked(&self, nr: usize) -> u8 {
        // Relaxed: a tracer that has just left loses nothing.
        self.front().asked[nr % CALLS].load(Ordering::Relaxed)
    }

    /// Has `what` recorded of the calls that `is_wanted` holds for; for a tracer, before anybody is told of
    /// it.
    pub fn begin_to_read(&self, what: u8, is_wanted: impl Fn(usize) -> bool) {
        let front = self.front();
        front.sole.clear();
        // Relaxed, all: who is told of the tracer later sees them.
        for (nr, asked) in front.asked.iter().enumerate() {
            asked.store(if is_wanted(nr) { what } else { ask::NOTHING }, Ordering::Relaxed);
        }
        front.reading.store(1, Ordering::Relaxed);
    }

    /// Nothing is recorded any more: the tracer leaves, or is gone.
    pub fn end_reading(&self) {
        let front = self.front();
        // Relaxed, all: writers look at every call, and after each wait.
        front.reading.store(0, Ordering::Relaxed);
        front.asked.iter().for_each(|asked| asked.store(ask::NOTHING, Ordering::Relaxed));
    }

    /// Begins an entry of at most `room` words in the ring of a lane, which is the caller's. `is_there` says
    /// whether the tracer lives. `None` if there is no room and nobody makes any.
    #[inline(always)]
    pub fn begin(&self, is_there: fn() -> bool, lane: usize, room: usize) -> Option<EntryWriter<'_>> {
        let ring = self.ring(lane);
        let mut at = ring.written.load(Ordering::Relaxed); // Relaxed: the lane's own.
        let room = room + entry::TIME;
        let is_near = self.used(lane, at).saturating_add(room as u64) <= WORDS as u64 / 2
            && at as usize % WORDS + room <= WORDS;
        if !is_near {
            at = self.make_room_slow(is_there, lane, at, room)?;
        }
        if !self.front().sole.is(&ring.timed) {
            at = self.write_time_slow(lane, at);
        }
        prefetch(self.word(lane, at).as_ptr().wrapping_add(AHEAD));
        Some(self.entry(lane, at))
    }

    /// An entry at a position of the lane's ring.
    #[inline(always)]
    fn entry(&self, lane: usize, at: u64) -> EntryWriter<'_> {
        // SAFETY: callers have made sure that the room from there on is the lane's, and within the ring.
        unsafe { EntryWriter::new(&self.ring(lane).written, at, self.word(lane, at).as_ptr()) }
    }

    /// Writes the time, and returns the position after it.
    #[cold]
    #[inline(never)]
    fn write_time_slow(self, lane: usize, at: u64) -> u64 {
        let time = self.front().sole.time(lane % LANES, &self.ring(lane).timed);
        self.entry(lane, at).end_as_time(time)
    }

    /// Words of a lane's ring, written up to `at`, that the tracer has not read.
    #[inline(always)]
    fn used(self, lane: usize, at: u64) -> u64 {
        // PAIRS: the release in `took`: the words have been read before they are overwritten.
        at.wrapping_sub(self.ring(lane).read.load(Ordering::Acquire))
    }

    fn has_room(self, lane: usize, at: u64, words: usize) -> bool {
        self.used(lane, at).saturating_add(words as u64) <= WORDS as u64
    }

    /// Makes room at `at` and returns where it is: passes over the ring's end, since an entry lies in one
    /// piece, wakes the tracer as the ring fills, and waits for it when the ring is full.
    #[cold]
    #[inline(never)]
    fn make_room_slow(self, is_there: fn() -> bool, lane: usize, at: u64, room: usize) -> Option<u64> {
        let front = self.front();
        let left = WORDS - at as usize % WORDS;
        let passed = if left < room { left } else { 0 };
        if self.used(lane, at).saturating_add((passed + room) as u64) > WORDS as u64 / 2 {
            // Relaxed: a wake that is missed is made by the next entry, or costs a nap.
            if front.naps.load(Ordering::Relaxed) != 0 && !lp_abi::sys::is_limited() {
                front.naps.store(0, Ordering::Relaxed);
                front.bell.fetch_add(1, Ordering::Relaxed); // Relaxed: the futex call orders it.
                futex_wake(&front.bell, 1);
            }
            if !self.has_room(lane, at, passed + room) && !self.wait_slow(is_there, lane, at, passed + room) {
                return None;
            }
        }
        Some(if passed != 0 { self.entry(lane, at).end_as_nothing(passed) } else { at })
    }

    #[cold]
    fn wait_slow(self, is_there: fn() -> bool, lane: usize, at: u64, words: usize) -> bool {
        let (front, ring) = (self.front(), self.ring(lane));
        // A limited process makes no calls of the gate's own.
        while words <= WORDS && !lp_abi::sys::is_limited() && front.reading.load(Ordering::Relaxed) != 0 {
            ring.sleeps.store(1, Ordering::Relaxed); // Relaxed: a wake that is missed costs `PATIENCE`.
            let turn = ring.turn.load(Ordering::Acquire); // PAIRS: the release in `took`.
            if self.has_room(lane, at, words) {
                ring.sleeps.store(0, Ordering::Relaxed);
                return true;
            }
            front.bell.fetch_add(1, Ordering::Relaxed); // Relaxed: the futex call orders it.
            futex_wake(&front.bell, 1);
            if futex_wait(&ring.turn, turn, PATIENCE) == Err(Errno::ETIMEDOUT) && !is_there() {
                // It was killed: nobody waits for it any more.
                self.end_reading();
            }
        }
        // Relaxed: a counter that this lane alone writes.
        ring.lost.store(ring.lost.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        false
    }

    /// The tracer has read a lane's ring up to `position`.
    pub fn took(&self, lane: usize, position: u64) {
        let ring = self.ring(lane);
        ring.read.store(position, Ordering::Release); // PAIRS: the acquire in `has_room`.
        ring.turn.fetch_add(1, Ordering::Release); // PAIRS: the acquire in `wait_slow`.
        if ring.sleeps.swap(0, Ordering::Relaxed) != 0 {
            futex_wake(&ring.turn, 1);
        }
    }
}

const _: () = assert!(CALLS * size_of::<CallSum>() <= WORDS * 8);
const _: () = assert!(size_of::<Ring>() == 128 && size_of::<TraceHeader>() <= FRONT);
