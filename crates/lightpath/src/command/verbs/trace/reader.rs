//! The calls of a traced run, from the entries in its rings to where they go.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::iter::Peekable;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering as Std};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use lp_abi::signature::{NO_ARGUMENT, SHAPES, SIGNAL_ACTION};
use lp_region::layout::LANES;
use lp_region::trace::DATA;
use lp_region::trace::entry::{Head, Kind, padded};

use super::spool::{Batch, Spare, Spool, batches};

/// Arguments of a call that are kept with what they point to: two paths or actions, and data.
const FOUND: usize = 3;

/// A call that was answered in a process.
pub(super) struct Call<'b> {
    pub(super) number: u32,
    pub(super) tid: u32,
    /// The processor's counter at its end, or at that of a call of the lane before it.
    pub(super) end: u64,
    pub(super) result: i64,
    pub(super) words: [u64; 6],
    /// What arguments point to.
    pub(super) found: [Option<(usize, &'b [u8])>; FOUND],
}

/// Where calls go.
pub(super) trait Sink: Send + 'static {
    /// One call more, in the order of their ends.
    fn call(&mut self, call: &Call<'_>) -> io::Result<()>;
    /// Nothing more comes now.
    fn pause(&mut self) -> io::Result<()>;
    /// Nothing more comes at all; so many calls were lost.
    fn end(&mut self, lost: u64) -> io::Result<()>;
}

/// Two threads at work: one empties the rings, the other has the calls told.
pub(super) struct Reading {
    spool: JoinHandle<u64>,
    teller: JoinHandle<io::Result<Box<dyn Sink>>>,
    is_over: Arc<AtomicBool>,
}

impl Reading {
    pub(super) fn start(spool: Spool, sink: impl Sink) -> Reading {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let (to, from) = sync_channel(batches());
        let (sent, spare) = (spool.sent(), spool.spare());
        Reading {
            spool: std::thread::spawn(move || spool.run(&to, &over)),
            teller: std::thread::spawn(move || tell(&from, &sent, &spare, Box::new(sink))),
            is_over,
        }
    }

    /// Has what is in the rings told, and stops.
    pub(super) fn finish(self) -> io::Result<()> {
        // PAIRS: the acquire in `Spool::collect`: what was written before is read.
        self.is_over.store(true, Std::Release);
        let failed = |_| io::Error::other("the tracer failed");
        let lost = self.spool.join().map_err(failed)?;
        self.teller.join().map_err(failed)??.end(lost)
    }
}

/// How much the program's threads come before the thread that prints.
const NICE: i32 = 19;

fn tell(
    from: &Receiver<Batch>,
    sent: &AtomicUsize,
    spare: &Spare,
    mut sink: Box<dyn Sink>,
) -> io::Result<Box<dyn Sink>> {
    // SAFETY: 0 is the calling thread. If it fails, the program waits for this thread more often.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
    let mut told = Told { times: vec![0; LANES], left: BTreeMap::new() };
    loop {
        let batch = match from.try_recv() {
            Err(TryRecvError::Empty) => {
                sink.pause()?;
                from.recv().ok()
            }
            received => received.ok(),
        };
        let Some(mut batch) = batch else { return Ok(sink) };
        sent.fetch_sub(1, Std::Relaxed); // Relaxed: a number.
        told.tell(&batch, sink.as_mut())?;
        batch.clear();
        if let Ok(mut spare) = spare.lock() {
            spare.push(batch);
        }
    }
}

/// How far the calls have been told.
struct Told {
    /// Each lane's last time.
    times: Vec<u64>,
    /// Entries of lanes that calls of other lanes may come before, which are not read yet.
    left: BTreeMap<usize, Vec<u8>>,
}

impl Told {
    /// Tells the calls of a batch, and those that are left, by the order of their ends.
    fn tell(&mut self, batch: &Batch, sink: &mut dyn Sink) -> io::Result<()> {
        let left = std::mem::take(&mut self.left);
        let mut by_lane = BTreeMap::<usize, Vec<&[u8]>>::new();
        let before = left.iter().map(|(lane, bytes)| (*lane, &bytes[..]));
        before.chain(batch.parts()).for_each(|(lane, bytes)| by_lane.entry(lane).or_default().push(bytes));
        if by_lane.len() > 1 {
            let rests = by_lane.iter_mut().map(|(lane, parts)| (*lane, cut(parts, batch.whole_until)));
            self.left = rests.filter(|(_, rest)| !rest.is_empty()).collect();
        }
        self.in_order(by_lane, sink)
    }

    fn in_order(&mut self, by_lane: BTreeMap<usize, Vec<&[u8]>>, sink: &mut dyn Sink) -> io::Result<()> {
        let names: Vec<usize> = by_lane.keys().copied().collect();
        let entries = |(lane, parts): (usize, Vec<_>)| {
            let time = self.times.get(lane).copied().unwrap_or_default();
            Entries { parts: parts.into_iter(), bytes: &[], time }.peekable()
        };
        let mut lanes: Vec<_> = by_lane.into_iter().map(entries).collect();
        let next = |lanes: &mut Vec<Peekable<Entries<'_>>>, index: usize| {
            lanes[index].peek().map(|call| Reverse((call.end, index)))
        };
        let mut heads: BinaryHeap<_> = (0..lanes.len()).filter_map(|index| next(&mut lanes, index)).collect();
        while let Some(Reverse((_, index))) = heads.pop() {
            // All that are not later than the next lane's: calls without a time of their own come in rows.
            let until = heads.peek().map_or(u64::MAX, |Reverse((end, _))| *end);
            while let Some(call) = lanes[index].next_if(|call| call.end <= until) {
                if let Some(time) = self.times.get_mut(names[index]) {
                    *time = call.end;
                }
                sink.call(&call)?;
            }
            heads.extend(next(&mut lanes, index));
        }
        Ok(())
    }
}

/// Takes the entries off a lane's that are later than `until`.
fn cut(parts: &mut Vec<&[u8]>, until: u64) -> Vec<u8> {
    for index in 0..parts.len() {
        let part = parts[index];
        let mut at = 0;
        while let Some(word) = part.get(at..at + 8) {
            let Some(head) = word.try_into().ok().map(u64::from_ne_bytes).and_then(Head::of) else { break };
            let time =
                part.get(at + 8..at + 16).and_then(|word| word.try_into().ok()).map(u64::from_ne_bytes);
            if head.kind == Kind::Time && time > Some(until) {
                let rest = [&part[at..]].into_iter().chain(parts[index + 1..].iter().copied());
                let rest = rest.collect::<Vec<_>>().concat();
                parts.truncate(index + 1);
                parts[index] = &part[..at];
                return rest;
            }
            at += head.length * 8;
        }
    }
    Vec::new()
}

/// The entries of a lane, up to one that does not make sense, since a program has written over it.
struct Entries<'b> {
    /// Whole entries each.
    parts: std::vec::IntoIter<&'b [u8]>,
    /// What is left of a part.
    bytes: &'b [u8],
    /// The last time that was written.
    time: u64,
}

impl<'b> Iterator for Entries<'b> {
    type Item = Call<'b>;

    fn next(&mut self) -> Option<Call<'b>> {
        loop {
            if self.bytes.is_empty() {
                self.bytes = self.parts.next()?;
            }
            let mut words = Words(self.bytes);
            let head = Head::of(words.next()?)?;
            let (entry, rest) = self.bytes.split_at_checked(head.length * 8)?;
            self.bytes = rest;
            words = Words(entry.get(8..)?);
            match head.kind {
                Kind::Nothing => {}
                Kind::Time => self.time = words.next()?,
                Kind::Call { number, tid, result } => {
                    return call(number, tid, result, self.time, words);
                }
            }
        }
    }
}

/// A call, of which `left` is the rest of its entry.
fn call(number: u32, tid: u32, result: Option<i64>, end: u64, mut left: Words<'_>) -> Option<Call<'_>> {
    let shape = SHAPES.get(number as usize)?;
    let result = result.or_else(|| left.next().map(|word| word as i64))?;
    let mut words = [0; 6];
    for argument in (0..padded(usize::from(shape.count))).rev() {
        *words.get_mut(argument)? = left.next()?;
    }
    let mut found = [None; FOUND];
    for (slot, path) in found.iter_mut().zip(shape.paths.into_iter().filter(|path| *path != NO_ARGUMENT)) {
        if let Some(length) = left.next()?.checked_sub(1) {
            *slot = Some((usize::from(path), left.take(length as usize)?));
        }
    }
    let data = shape.data(result as isize, DATA, |argument| words[argument % 6] as usize);
    if let Some((argument, _, length)) = data
        && let Some(bytes) = left.take(length)
    {
        found[FOUND - 1] = Some((argument, bytes));
    }
    let actions = shape.actions(result as isize, |argument| words[argument % 6] as usize);
    for (slot, argument) in found.iter_mut().zip(actions) {
        *slot = left.take(SIGNAL_ACTION * 8).map(|bytes| (argument, bytes));
    }
    Some(Call { number, tid, end, result, words, found })
}

/// The words of an entry that are left.
struct Words<'b>(&'b [u8]);

impl<'b> Words<'b> {
    fn next(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*word))
    }

    /// As many bytes, which fill whole words.
    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length.checked_next_multiple_of(8)?)?;
        self.0 = rest;
        bytes.get(..length)
    }
}
