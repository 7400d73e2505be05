//! Taking entries from the rings of a traced run while it runs.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering as Std};
use std::thread::JoinHandle;

use lp_region::Region;
use lp_region::layout::LANES;
use lp_region::sync::Ordering::{Acquire, Relaxed};
use lp_region::sync::futex_wait;
use lp_region::trace::{HEAD, Rings, WORDS};

/// How long the tracer sleeps when nobody needs room, in nanoseconds.
const NAP: u64 = 5_000_000;

/// A call that was answered in a process.
pub(super) struct Call {
    pub(super) number: u32,
    pub(super) tid: u32,
    /// Readings of the processor's counter.
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) result: i64,
    pub(super) words: [u64; 6],
    /// What arguments point to.
    pub(super) found: Vec<(usize, Vec<u8>)>,
}

/// Where calls go.
pub(super) trait Sink: Send + 'static {
    /// One call more, in the order of their ends.
    fn call(&mut self, call: &Call) -> io::Result<()>;
    /// Nothing more comes now.
    fn pause(&mut self) -> io::Result<()>;
    /// Nothing more comes at all; so many calls were lost.
    fn end(&mut self, lost: u64) -> io::Result<()>;
}

/// Reads the rings.
pub(super) struct Reader {
    region: Region<'static>,
    rings: Rings,
}

/// A reader at work in a thread of its own.
pub(super) struct Reading {
    thread: JoinHandle<io::Result<()>>,
    is_over: Arc<AtomicBool>,
}

impl Reading {
    /// Has what is in the rings told, and stops.
    pub(super) fn finish(self) -> io::Result<()> {
        // PAIRS: the acquire in `run`: what was written before is read.
        self.is_over.store(true, Std::Release);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the tracer failed")))
    }
}

impl Reader {
    pub(super) fn new(region: Region<'static>, rings: Rings) -> Reader {
        Reader { region, rings }
    }

    pub(super) fn start(self, sink: impl Sink) -> Reading {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        Reading { thread: std::thread::spawn(move || self.run(sink, &over)), is_over }
    }

    fn run(&self, mut sink: impl Sink, is_over: &AtomicBool) -> io::Result<()> {
        let told = self.tell(&mut sink, is_over);
        // Those who outlive the command are not traced any more, and wait for nobody.
        self.rings.front().reading.store(0, Relaxed); // Relaxed: writers look again after each wait.
        let lanes = 0..LANES;
        let lost = lanes.map(|lane| self.rings.ring(lane).lost.load(Relaxed)).sum(); // Relaxed: counters.
        told.and_then(|()| sink.end(lost))
    }

    fn tell(&self, sink: &mut impl Sink, is_over: &AtomicBool) -> io::Result<()> {
        let bell = &self.rings.front().bell;
        loop {
            let over = is_over.load(Std::Acquire); // PAIRS: the release in `finish`.
            let rung = bell.load(Relaxed); // Relaxed: a ring that is missed costs a nap.
            let mut calls = self.take();
            calls.sort_by_key(|call| call.end);
            calls.iter().try_for_each(|call| sink.call(call))?;
            if over {
                return Ok(());
            }
            if calls.is_empty() {
                sink.pause()?;
                let _ = futex_wait(bell, rung, NAP);
            }
        }
    }

    /// All that is in the rings now.
    fn take(&self) -> Vec<Call> {
        let used = (self.region.header().lane_limit.load(Acquire) as usize).min(LANES);
        let mut calls = Vec::new();
        for lane in 1..used {
            let ring = self.rings.ring(lane);
            let written = ring.written.load(Acquire); // PAIRS: the release in `Entry::end`.
            let mut at = ring.read.load(Relaxed); // Relaxed: the tracer's own.
            if at == written {
                continue;
            }
            while let Some((call, next)) = self.entry(lane, at, written) {
                calls.push(call);
                at = next;
            }
            // What does not make sense, since a program has written over it, is passed over.
            self.rings.took(lane, written);
        }
        calls
    }

    /// The entry at a position, and where the next one is.
    fn entry(&self, lane: usize, at: u64, end: u64) -> Option<(Call, u64)> {
        let left = end.wrapping_sub(at) as usize;
        // Ordered by `written`.
        let word = |index: usize| self.rings.word(lane, at + index as u64).load(Relaxed);
        if left == 0 || left > WORDS {
            return None;
        }
        let (head, length) = (word(0), word(0) as u32 as usize);
        if length < HEAD || length > left {
            return None;
        }
        let mut found = Vec::new();
        let mut index = HEAD;
        while index < length {
            let (argument, bytes) = (word(index) as u32 as usize, (word(index) >> 32) as usize);
            let words = bytes.div_ceil(8);
            if index + 1 + words > length {
                return None;
            }
            let mut data: Vec<u8> = (0..words).flat_map(|i| word(index + 1 + i).to_le_bytes()).collect();
            data.truncate(bytes);
            found.push((argument, data));
            index += 1 + words;
        }
        let call = Call {
            number: (head >> 32) as u32,
            tid: word(1) as u32,
            start: word(2),
            end: word(3),
            result: word(4) as i64,
            words: std::array::from_fn(|argument| word(5 + argument)),
            found,
        };
        Some((call, at + length as u64))
    }
}
