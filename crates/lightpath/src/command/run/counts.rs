//! The table that `--stats` prints.

use std::fmt::Write;

use lp_region::lane::{COUNTED_CALLS, Lane, MOVING_CALLS};
use lp_region::layout::LANES;
use lp_region::sync::Ordering;
use lp_region::{LaneId, Region};
use syscalls::Sysno;

use crate::command::output::shown::grouped;

/// Calls and bytes, summed over all threads that were ever in a region.
#[derive(Clone)]
pub(crate) struct Counts {
    /// By call number.
    pub(crate) calls: Vec<[u64; COLUMNS]>,
}

/// Calls answered in the process, calls passed to the kernel, and bytes moved in the process.
const COLUMNS: usize = 3;

impl Counts {
    /// The current counters of the lanes of `region`. A lane keeps its counters when its thread ends.
    pub(crate) fn of(region: Region<'_>) -> Counts {
        let mut counts = Counts { calls: vec![[0; COLUMNS]; COUNTED_CALLS] };
        for lane in lanes(region) {
            // Relaxed, all: counters.
            for (number, call) in counts.calls.iter_mut().enumerate() {
                call[0] += u64::from(lane.answered[number].load(Ordering::Relaxed));
                call[1] += u64::from(lane.passed[number].load(Ordering::Relaxed));
            }
            for (number, bytes) in MOVING_CALLS.iter().zip(&lane.bytes) {
                counts.calls[*number as usize][2] += bytes.load(Ordering::Relaxed);
            }
        }
        counts
    }

    /// The counts since `before`.
    pub(crate) fn since(&self, before: &Counts) -> Counts {
        let minus = |now: &[u64; COLUMNS], then: &[u64; COLUMNS]| {
            std::array::from_fn(|column| now[column].wrapping_sub(then[column]))
        };
        Counts { calls: self.calls.iter().zip(&before.calls).map(|(now, then)| minus(now, then)).collect() }
    }

    /// Calls answered in process, all together.
    pub(crate) fn answered(&self) -> u64 {
        self.calls.iter().map(|call| call[0]).sum()
    }

    /// The table, the most frequent call first.
    pub(crate) fn table(&self) -> String {
        let made = |call: &[u64; COLUMNS]| call[0] + call[1];
        let mut calls: Vec<(usize, [u64; COLUMNS])> =
            self.calls.iter().copied().enumerate().filter(|(_, call)| made(call) > 0).collect();
        calls.sort_by_key(|(number, call)| (std::cmp::Reverse(made(call)), *number));
        let total =
            calls.iter().fold([0; COLUMNS], |sum, (_, call)| std::array::from_fn(|i| sum[i] + call[i]));

        let mut rows = vec![["call", "in process", "to the kernel", "bytes in process"].map(str::to_owned)];
        let row = |name: String, call: &[u64; COLUMNS]| {
            [name, grouped(call[0]), grouped(call[1]), grouped(call[2])]
        };
        rows.extend(calls.iter().map(|(number, call)| row(name(*number), call)));
        rows.push(row("all".to_owned(), &total));
        let widths: [usize; COLUMNS + 1] =
            std::array::from_fn(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
        let [first, second, third, fourth] = widths;
        let mut text = summary(&total);
        for [call, answered, passed, bytes] in &rows {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{call:first$}  {answered:>second$}  {passed:>third$}  {bytes:>fourth$}");
        }
        text
    }
}

/// The lanes of a region that were ever in use.
pub(crate) fn lanes(region: Region<'_>) -> impl Iterator<Item = &Lane> {
    let used = region.header().lane_limit.load(Ordering::Acquire).min(LANES as u32);
    (1..used).map(move |index| region.lane(LaneId(index)))
}

/// The first line: a summary of all calls.
fn summary(total: &[u64; COLUMNS]) -> String {
    let made = total[0] + total[1];
    let percent = total[0] * 100 / made.max(1);
    format!(
        "lightpath: {} calls: {} answered in process ({percent}%), {} passed to the kernel\n",
        grouped(made),
        grouped(total[0]),
        grouped(total[1]),
    )
}

/// The name of a call.
pub(crate) fn name(number: usize) -> String {
    match Sysno::new(number) {
        Some(call) => call.name().to_owned(),
        None => format!("call {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_aligned_and_sorted() {
        let mut counts = Counts { calls: vec![[0; COLUMNS]; COUNTED_CALLS] };
        counts.calls[Sysno::read as usize] = [3, 4, 10];
        counts.calls[Sysno::write as usize] = [1000, 0, 2000];
        let expected = "\
lightpath: 1,007 calls: 1,003 answered in process (99%), 4 passed to the kernel
call   in process  to the kernel  bytes in process
write       1,000              0             2,000
read            3              4                10
all         1,003              4             2,010
";
        assert_eq!(counts.table(), expected);
        assert_eq!(counts.since(&counts.clone()).table().lines().count(), 3);
    }
}
