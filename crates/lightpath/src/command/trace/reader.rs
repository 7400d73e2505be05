//! The calls of a traced run, from the entries in its rings to where they go.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::iter::Peekable;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering as Std};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use lp_abi::signature::SHAPES;
use lp_region::trace::HEAD;

use super::spool::{BATCHES, Batch, Spare, Spool};

/// Arguments of a call that are kept with what they point to: two paths, and data.
const FOUND: usize = 3;

/// A call that was answered in a process.
pub(super) struct Call<'b> {
    pub(super) number: u32,
    pub(super) tid: u32,
    /// The processor's counter at its end.
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
        let (to, from) = sync_channel(BATCHES);
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
        in_order(&batch, sink.as_mut())?;
        batch.clear();
        if let Ok(mut spare) = spare.lock() {
            spare.push(batch);
        }
    }
}

/// Tells the calls of a batch by the order of their ends.
fn in_order(batch: &Batch, sink: &mut dyn Sink) -> io::Result<()> {
    let mut lanes: Vec<_> = batch.parts().map(|part| Entries(part).peekable()).collect();
    if let [only] = &mut lanes[..] {
        return only.try_for_each(|call| sink.call(&call));
    }
    let next = |lanes: &mut Vec<Peekable<Entries<'_>>>, lane: usize| {
        lanes[lane].peek().map(|call| Reverse((call.end, lane)))
    };
    let mut heads: BinaryHeap<_> = (0..lanes.len()).filter_map(|lane| next(&mut lanes, lane)).collect();
    while let Some(Reverse((_, lane))) = heads.pop() {
        if let Some(call) = lanes[lane].next() {
            sink.call(&call)?;
        }
        heads.extend(next(&mut lanes, lane));
    }
    Ok(())
}

/// The entries of a lane, up to one that does not make sense, since a program has written over it.
struct Entries<'b>(&'b [u8]);

impl<'b> Iterator for Entries<'b> {
    type Item = Call<'b>;

    fn next(&mut self) -> Option<Call<'b>> {
        let bytes = self.0;
        let word = |index: usize| {
            let bytes = bytes.get(index * 8..index * 8 + 8)?;
            Some(u64::from_ne_bytes(bytes.try_into().ok()?))
        };
        let head = word(0)?;
        let (length, number) = (head as u16 as usize, (head >> 16) as u16);
        self.0 = bytes.get(length * 8..)?;
        let count = usize::from(SHAPES.get(usize::from(number))?.count);
        let (mut found, mut index) = ([None; FOUND], HEAD + count);
        for slot in &mut found {
            if index >= length {
                break;
            }
            let (argument, count) = (word(index)? as u32 as usize, (word(index)? >> 32) as usize);
            let data = bytes.get((index + 1) * 8..)?.get(..count)?;
            *slot = Some((argument, data));
            index += 1 + count.div_ceil(8);
        }
        let mut words = [0; 6];
        for (argument, to) in words[..count].iter_mut().enumerate() {
            *to = word(HEAD + argument)?;
        }
        // An entry that is shorter than its head would be read again and again.
        (length >= HEAD).then_some(Call {
            number: u32::from(number),
            tid: (head >> 32) as u32,
            end: word(1)?,
            result: word(2)? as i64,
            words,
            found,
        })
    }
}
