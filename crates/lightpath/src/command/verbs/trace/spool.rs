//! Taking entries out of the rings of a traced run while it runs: quickly, so that the run does not wait for
//! what is then done with them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering as Std};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};

use lp_abi::PAGE_SIZE;
use lp_region::Region;
use lp_region::layout::LANES;
use lp_region::sync::Ordering::{Acquire, Relaxed};
use lp_region::sync::futex_wait;
use lp_region::trace::Rings;

use super::summary::counter;

/// How long the tracer sleeps when nobody needs room, in nanoseconds. It does not look at rings all the time,
/// because that takes their cache lines from the writers.
const NAP: u64 = 5_000_000;
/// Bytes of a batch that waits for others to be told.
const BATCH: usize = 7 << 20;
/// Bytes that it has room for, most of them in huge pages: the first touch of small ones takes longer than
/// what is copied there.
const ROOM: usize = 8 << 20;

/// Batches that wait at most: a quarter of the memory that is free. When there are so many, the run waits.
pub(super) fn batches() -> usize {
    let info = rustix::system::sysinfo();
    let free = (info.freeram as usize).saturating_mul(info.mem_unit as usize);
    (free / 4 / BATCH).clamp(16, 1024)
}

/// Entries from the rings, as they were written: whole ones, those of a lane in order.
pub(super) struct Batch {
    bytes: Vec<u8>,
    /// Each lane, and where its entries end; those of the next follow.
    ends: Vec<(usize, usize)>,
    /// All entries up to this time are in this batch or in those before.
    pub(super) whole_until: u64,
}

impl Batch {
    /// An empty one, with room for what is taken at once as a rule.
    fn new() -> Batch {
        let bytes = Vec::<u8>::with_capacity(ROOM);
        let start = bytes.as_ptr().addr().next_multiple_of(PAGE_SIZE);
        // SAFETY: changes only by what pages the room is backed. If it fails, they are small.
        unsafe { libc::madvise(start as *mut _, ROOM - PAGE_SIZE, libc::MADV_HUGEPAGE) };
        Batch { bytes, ends: Vec::new(), whole_until: 0 }
    }

    /// The lanes and their entries. A lane may come again, with entries that are later.
    pub(super) fn parts(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(_, end)| *end));
        starts.zip(&self.ends).map(|(start, (lane, end))| (*lane, &self.bytes[start..*end]))
    }

    /// Empties it, and keeps its memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// Empties the rings into batches.
pub(super) struct Spool {
    region: Region<'static>,
    rings: Rings,
    /// Batches that were sent and not received.
    sent: Arc<AtomicUsize>,
    /// Empty batches, whose memory has been touched.
    spare: Spare,
    /// How often a lane was named that writes alone.
    named: u32,
    /// Whether there were calls in the last batch.
    owes: bool,
}

/// Batches to use again.
pub(super) type Spare = Arc<Mutex<Vec<Batch>>>;

impl Spool {
    pub(super) fn new(region: Region<'static>, rings: Rings) -> Spool {
        Spool { region, rings, sent: Arc::default(), spare: Arc::default(), named: 0, owes: false }
    }

    /// Where a batch that has been told goes.
    pub(super) fn spare(&self) -> Spare {
        Arc::clone(&self.spare)
    }

    /// The number of batches that are on their way; who receives one takes it off.
    pub(super) fn sent(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.sent)
    }

    /// Empties the rings until `is_over`, and returns how many calls were lost.
    pub(super) fn run(mut self, to: &SyncSender<Batch>, is_over: &AtomicBool) -> u64 {
        self.collect(to, is_over);
        // Those who outlive the command are not traced any more, and wait for nobody.
        self.rings.end_reading();
        (0..LANES).map(|lane| self.rings.ring(lane).lost.load(Relaxed)).sum() // Relaxed: counters.
    }

    fn collect(&mut self, to: &SyncSender<Batch>, is_over: &AtomicBool) {
        let rings = self.rings;
        let front = rings.front();
        let mut batch = Batch::new();
        loop {
            let over = is_over.load(Std::Acquire); // PAIRS: the release in `Reading::finish`.
            let rung = front.bell.load(Relaxed); // Relaxed: a ring that is missed costs a nap.
            self.take(&mut batch);
            if over {
                batch.whole_until = u64::MAX;
            }
            // Relaxed: the channel orders what it carries.
            let is_due = over || batch.bytes.len() >= BATCH || self.sent.load(Std::Relaxed) == 0;
            // After the last calls comes an empty batch, which says that none are missing.
            if over || is_due && (!batch.ends.is_empty() || self.owes) {
                self.owes = !batch.ends.is_empty();
                self.sent.fetch_add(1, Std::Relaxed);
                let next = self.spare.lock().ok().and_then(|mut spare| spare.pop());
                let next = next.unwrap_or_else(Batch::new);
                if to.send(std::mem::replace(&mut batch, next)).is_err() {
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

    /// Appends what is in the rings now. If only one lane has written, it is the one that need not say when.
    fn take(&mut self, batch: &mut Batch) {
        let before = batch.ends.len();
        // A lane may write while others are read.
        batch.whole_until = counter();
        let used = (self.region.header().lane_limit.load(Acquire) as usize).min(LANES);
        for lane in 1..used {
            let ring = self.rings.ring(lane);
            let written = ring.written.load(Acquire); // PAIRS: the release in `EntryWriter::end`.
            let at = ring.read.load(Relaxed); // Relaxed: the tracer's own.
            if at == written {
                continue;
            }
            // What a program has written over the counter is passed over.
            // SAFETY: this is the tracer, and the words were published.
            if let Some(parts) = unsafe { self.rings.bytes(lane, at, written) } {
                parts.iter().for_each(|part| batch.bytes.extend_from_slice(part));
                batch.ends.push((lane, batch.bytes.len()));
            }
            self.rings.took(lane, written);
        }
        if let [(lane, _)] = batch.ends[before..] {
            self.named = self.named.wrapping_add(1);
            self.rings.front().sole.appoint(lane, self.named);
        }
    }
}
