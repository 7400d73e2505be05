//! The table of `trace -c`, in strace's format.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Instant;

use super::name;
use super::reader::{Call, Sink};

/// Calls by number.
pub(super) struct Summary<W> {
    out: W,
    began: (u64, Instant),
    calls: BTreeMap<u32, Sum>,
}

#[derive(Default)]
struct Sum {
    calls: u64,
    errors: u64,
    ticks: u64,
}

fn counter() -> u64 {
    // SAFETY: reads the processor's counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

impl<W> Summary<W> {
    pub(super) fn new(out: W) -> Summary<W> {
        Summary { out, began: (counter(), Instant::now()), calls: BTreeMap::new() }
    }
}

impl<W: Write + Send + 'static> Sink for Summary<W> {
    fn call(&mut self, call: &Call) -> io::Result<()> {
        let sum = self.calls.entry(call.number).or_default();
        sum.calls += 1;
        sum.errors += u64::from((-4095..0).contains(&call.result));
        sum.ticks += call.end.saturating_sub(call.start);
        Ok(())
    }

    fn pause(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn end(&mut self, lost: u64) -> io::Result<()> {
        let (ticks, time) = (counter() - self.began.0, self.began.1.elapsed());
        let second = time.as_secs_f64() / ticks.max(1) as f64;
        let mut rows: Vec<(&u32, &Sum)> = self.calls.iter().collect();
        rows.sort_by_key(|(number, sum)| (std::cmp::Reverse(sum.ticks), **number));
        let mut total = Sum::default();
        for (_, sum) in &rows {
            total.calls += sum.calls;
            total.errors += sum.errors;
            total.ticks += sum.ticks;
        }
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
            self.out.write_all(row(sum, &name(*number)).as_bytes())?;
        }
        write!(self.out, "{line}\n{}", row(&total, "total"))?;
        super::format::say_lost(&mut self.out, lost)?;
        self.out.flush()
    }
}
