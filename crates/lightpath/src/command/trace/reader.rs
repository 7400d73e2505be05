//! The calls of a traced run, from the entries in its rings to where they go.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering as Std};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use lp_region::trace::HEAD;

use super::spool::{BATCHES, Batch, Spool};

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
        let sent = spool.sent();
        Reading {
            spool: std::thread::spawn(move || spool.run(&to, &over)),
            teller: std::thread::spawn(move || tell(&from, &sent, Box::new(sink))),
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

fn tell(from: &Receiver<Batch>, sent: &AtomicUsize, mut sink: Box<dyn Sink>) -> io::Result<Box<dyn Sink>> {
    loop {
        let batch = match from.try_recv() {
            Err(TryRecvError::Empty) => {
                sink.pause()?;
                from.recv().ok()
            }
            received => received.ok(),
        };
        let Some(batch) = batch else { return Ok(sink) };
        sent.fetch_sub(1, Std::Relaxed); // Relaxed: a number.
        let mut calls: Vec<Call<'_>> = batch.parts().flat_map(Entries).collect();
        calls.sort_by_key(|call| call.end);
        calls.iter().try_for_each(|call| sink.call(call))?;
    }
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
        let length = head as u32 as usize;
        self.0 = bytes.get(length * 8..)?;
        let (mut found, mut index) = ([None; FOUND], HEAD);
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
        for (argument, to) in words.iter_mut().enumerate() {
            *to = word(4 + argument)?;
        }
        // An entry that is shorter than its head would be read again and again.
        (length >= HEAD).then_some(Call {
            number: (head >> 32) as u32,
            tid: word(1)? as u32,
            end: word(2)?,
            result: word(3)? as i64,
            words,
            found,
        })
    }
}
