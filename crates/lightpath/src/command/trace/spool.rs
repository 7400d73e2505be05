//! Taking entries out of the rings of a traced run while it runs: quickly, so that the run does not wait for
//! what is then done with them.

use std::sync::atomic::{AtomicBool, Ordering as Std};
use std::sync::mpsc::SyncSender;

use lp_region::Region;
use lp_region::layout::LANES;
use lp_region::sync::Ordering::{Acquire, Relaxed};
use lp_region::sync::futex_wait;
use lp_region::trace::Rings;

/// How long the tracer sleeps when nobody needs room, in nanoseconds.
const NAP: u64 = 5_000_000;
/// Bytes of a batch after which the next one begins.
const BATCH: usize = 1 << 20;
/// Batches that wait at most. When there are so many, the run waits.
pub(super) const BATCHES: usize = 256;

/// Entries from the rings, as they were written: whole ones, those of a lane in order.
#[derive(Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    /// Where the entries of a lane end; those of the next follow.
    ends: Vec<usize>,
}

impl Batch {
    /// The entries of each lane, one after the other.
    pub(super) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[*start..*end])
    }
}

/// Empties the rings into batches.
pub(super) struct Spool {
    region: Region<'static>,
    rings: Rings,
}

impl Spool {
    pub(super) fn new(region: Region<'static>, rings: Rings) -> Spool {
        Spool { region, rings }
    }

    /// Empties the rings until `is_over`, and returns how many calls were lost.
    pub(super) fn run(&self, to: &SyncSender<Batch>, is_over: &AtomicBool) -> u64 {
        self.collect(to, is_over);
        // Those who outlive the command are not traced any more, and wait for nobody.
        self.rings.front().reading.store(0, Relaxed); // Relaxed: writers look again after each wait.
        (0..LANES).map(|lane| self.rings.ring(lane).lost.load(Relaxed)).sum() // Relaxed: counters.
    }

    fn collect(&self, to: &SyncSender<Batch>, is_over: &AtomicBool) {
        let bell = &self.rings.front().bell;
        let mut batch = Batch::default();
        loop {
            let over = is_over.load(Std::Acquire); // PAIRS: the release in `Reading::finish`.
            let rung = bell.load(Relaxed); // Relaxed: a ring that is missed costs a nap.
            let more = self.take(&mut batch);
            let is_due = over || !more || batch.bytes.len() >= BATCH;
            if is_due && !batch.ends.is_empty() && to.send(std::mem::take(&mut batch)).is_err() {
                return; // The output failed.
            }
            if over {
                return;
            }
            if !more {
                let _ = futex_wait(bell, rung, NAP);
            }
        }
    }

    /// Appends what is in the rings now. Returns whether there was anything.
    fn take(&self, batch: &mut Batch) -> bool {
        let used = (self.region.header().lane_limit.load(Acquire) as usize).min(LANES);
        let before = batch.ends.len();
        for lane in 1..used {
            let ring = self.rings.ring(lane);
            let written = ring.written.load(Acquire); // PAIRS: the release in `EntryWriter::end`.
            let at = ring.read.load(Relaxed); // Relaxed: the tracer's own.
            if at == written {
                continue;
            }
            // What a program has written over the counter is passed over.
            if let Some(words) = self.rings.words(lane, at, written) {
                batch.bytes.extend(words.flat_map(|word| word.load(Relaxed).to_ne_bytes()));
                batch.ends.push(batch.bytes.len());
            }
            self.rings.took(lane, written);
        }
        batch.ends.len() != before
    }
}
