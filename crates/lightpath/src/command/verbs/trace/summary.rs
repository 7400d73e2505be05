//! The table of `trace -c`, in strace's format.

use std::io::{self, Write};
use std::time::Instant;

use lp_abi::gated::CALLS;
use lp_region::Region;
use lp_region::layout::LANES;
use lp_region::sync::Ordering::{Acquire, Relaxed};
use lp_region::trace::Rings;

use super::calls::name;

/// Calls by number: the lanes keep the sums, and nothing is read before the end.
pub(super) struct Summary<W> {
    out: W,
    region: Region<'static>,
    rings: Rings,
    began: (u64, Instant),
}

#[derive(Clone, Copy, Default)]
struct Sum {
    calls: u64,
    errors: u64,
    ticks: u64,
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.calls += other.calls;
        self.errors += other.errors;
        self.ticks += other.ticks;
    }
}

pub(super) fn counter() -> u64 {
    // SAFETY: reads the processor's counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Ticks that a timed call takes for reading the counter.
fn cost() -> u64 {
    (0..1000).map(|_| counter().abs_diff(counter())).min().unwrap_or(0)
}

impl<W: Write> Summary<W> {
    pub(super) fn new(region: Region<'static>, rings: Rings, out: W) -> Summary<W> {
        Summary { out, region, rings, began: (counter(), Instant::now()) }
    }

    /// What all lanes have kept of a call.
    fn sum(&self, number: usize, cost: u64) -> Sum {
        let used = (self.region.header().lane_limit.load(Acquire) as usize).min(LANES);
        let mut all = Sum::default();
        for kept in (1..used).map(|lane| self.rings.sum(lane, number)) {
            // Relaxed, all: counters.
            let (calls, errors) = (kept.calls.load(Relaxed), kept.errors.load(Relaxed));
            all.add(Sum { calls, errors, ticks: kept.ticks.load(Relaxed) });
        }
        all.ticks = all.ticks.saturating_sub(all.calls * cost);
        all
    }

    /// Prints the table.
    pub(super) fn finish(mut self) -> io::Result<()> {
        // Those who outlive the command are not traced any more.
        self.rings.end_reading();
        let (ticks, time) = (counter() - self.began.0, self.began.1.elapsed());
        let second = time.as_secs_f64() / ticks.max(1) as f64;
        let cost = cost();
        let rows = (0..CALLS).map(|number| (number as u32, self.sum(number, cost)));
        let mut rows: Vec<(u32, Sum)> = rows.collect();
        rows.retain(|(_, sum)| sum.calls != 0);
        rows.sort_by_key(|(number, sum)| (std::cmp::Reverse(sum.ticks), *number));
        let mut total = Sum::default();
        rows.iter().for_each(|(_, sum)| total.add(*sum));
        let line = "------ ----------- ----------- --------- --------- ----------------";
        writeln!(self.out, "% time     seconds  usecs/call     calls    errors syscall\n{line}")?;
        let all = total.ticks;
        let row = |sum: &Sum, name: &str| {
            let seconds = sum.ticks as f64 * second;
            let percent = 100.0 * sum.ticks as f64 / all.max(1) as f64;
            let each = seconds * 1e6 / sum.calls.max(1) as f64;
            let errors = if sum.errors == 0 { String::new() } else { sum.errors.to_string() };
            format!("{percent:6.2} {seconds:11.6} {each:11.3} {:9} {errors:>9} {name}\n", sum.calls)
        };
        for (number, sum) in rows {
            self.out.write_all(row(&sum, &name(number)).as_bytes())?;
        }
        write!(self.out, "{line}\n{}", row(&total, "total"))?;
        self.out.flush()
    }
}
