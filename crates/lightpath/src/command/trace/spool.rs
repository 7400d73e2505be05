//! Taking entries out of the rings of a traced run while it runs: quickly, so that the run does not wait for
//! what is then done with them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering as Std};
use std::sync::mpsc::SyncSender;

use lp_region::Region;
use lp_region::layout::LANES;
use lp_region::sync::Ordering::{Acquire, Relaxed};
use lp_region::sync::futex_wait;
use lp_region::trace::Rings;

/// How long the tracer sleeps when nobody needs room, in nanoseconds. It does not look at rings all the time,
/// because that takes their cache lines from the writers.
const NAP: u64 = 5_000_000;
/// Bytes of a batch that waits for others to be told.
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
    /// Batches that were sent and not received.
    sent: Arc<AtomicUsize>,
}

impl Spool {
    pub(super) fn new(region: Region<'static>, rings: Rings) -> Spool {
        Spool { region, rings, sent: Arc::default() }
    }

    /// The number of batches that are on their way; who receives one takes it off.
    pub(super) fn sent(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.sent)
    }

    /// Empties the rings until `is_over`, and returns how many calls were lost.
    pub(super) fn run(&self, to: &SyncSender<Batch>, is_over: &AtomicBool) -> u64 {
        self.collect(to, is_over);
        // Those who outlive the command are not traced any more, and wait for nobody.
        self.rings.front().reading.store(0, Relaxed); // Relaxed: writers look again after each wait.
        (0..LANES).map(|lane| self.rings.ring(lane).lost.load(Relaxed)).sum() // Relaxed: counters.
    }

    fn collect(&self, to: &SyncSender<Batch>, is_over: &AtomicBool) {
        let front = self.rings.front();
        let mut batch = Batch::default();
        loop {
            let over = is_over.load(Std::Acquire); // PAIRS: the release in `Reading::finish`.
            let rung = front.bell.load(Relaxed); // Relaxed: a ring that is missed costs a nap.
            self.take(&mut batch);
            // Relaxed: the channel orders what it carries.
            let is_due = over || batch.bytes.len() >= BATCH || self.sent.load(Std::Relaxed) == 0;
            if is_due && !batch.ends.is_empty() {
                self.sent.fetch_add(1, Std::Relaxed);
                if to.send(std::mem::take(&mut batch)).is_err() {
                    return; // The output failed.
                }
            }
            if over {
                return;
            }
            front.naps.store(1, Relaxed); // Relaxed: a writer looks again at its next entry.
            let _ = futex_wait(&front.bell, rung, NAP);
        }
    }

    /// Appends what is in the rings now.
    fn take(&self, batch: &mut Batch) {
        let used = (self.region.header().lane_limit.load(Acquire) as usize).min(LANES);
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
    }
}
