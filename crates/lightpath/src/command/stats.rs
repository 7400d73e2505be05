//! The table that `--stats` prints.

use std::fmt::Write;

use lp_region::lane::COUNTED_CALLS;
use lp_region::layout::LANES;
use lp_region::sync::Ordering;
use lp_region::{LaneId, Region};
use syscalls::Sysno;

/// Calls and bytes, added up over all threads that there ever were in a region.
#[derive(Clone)]
pub(crate) struct Counts {
    /// By call number: answered in process, passed to the kernel.
    calls: Vec<[u64; 2]>,
    /// Read and written by calls answered in process.
    bytes: [u64; 2],
}

impl Counts {
    /// What the lanes of `region` hold now. A lane keeps its counts when its thread ends.
    pub(crate) fn of(region: Region<'_>) -> Counts {
        let mut counts = Counts { calls: vec![[0; 2]; COUNTED_CALLS], bytes: [0; 2] };
        let used = region.header().lane_limit.load(Ordering::Acquire).min(LANES as u32);
        for lane in (1..used).map(|index| region.lane(LaneId(index))) {
            // Relaxed, all: counters.
            for (number, call) in counts.calls.iter_mut().enumerate() {
                call[0] += u64::from(lane.answered[number].load(Ordering::Relaxed));
                call[1] += u64::from(lane.passed[number].load(Ordering::Relaxed));
            }
            for (sum, bytes) in counts.bytes.iter_mut().zip(&lane.bytes) {
                *sum += bytes.load(Ordering::Relaxed);
            }
        }
        counts
    }

    /// What came since `before`.
    pub(crate) fn since(&self, before: &Counts) -> Counts {
        let minus =
            |now: [u64; 2], then: [u64; 2]| [now[0].wrapping_sub(then[0]), now[1].wrapping_sub(then[1])];
        let calls = self.calls.iter().zip(&before.calls).map(|(now, then)| minus(*now, *then)).collect();
        Counts { calls, bytes: minus(self.bytes, before.bytes) }
    }

    /// The table, the most frequent call first.
    pub(crate) fn table(&self) -> String {
        let mut calls: Vec<(usize, [u64; 2])> =
            self.calls.iter().copied().enumerate().filter(|(_, call)| call[0] + call[1] > 0).collect();
        calls.sort_by_key(|(number, call)| (std::cmp::Reverse(call[0] + call[1]), *number));
        let total = calls.iter().fold([0; 2], |sum, (_, call)| [sum[0] + call[0], sum[1] + call[1]]);

        let mut rows = vec![["call".to_owned(), "in process".to_owned(), "to the kernel".to_owned()]];
        rows.extend(calls.iter().map(|(number, call)| [name(*number), grouped(call[0]), grouped(call[1])]));
        rows.push(["all".to_owned(), grouped(total[0]), grouped(total[1])]);
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let (first, second, third) = (width(0), width(1), width(2));
        let mut text = String::from("lightpath: calls\n");
        for [call, answered, passed] in &rows {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{call:first$}  {answered:>second$}  {passed:>third$}");
        }
        let [read, written] = self.bytes.map(grouped);
        let _ = writeln!(text, "bytes in process: {read} read, {written} written");
        text
    }
}

/// The name of a call.
fn name(number: usize) -> String {
    match Sysno::new(number) {
        Some(call) => call.name().to_owned(),
        None => format!("call {number}"),
    }
}

/// A number with its digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_048_576, "1,048,576")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn the_table_is_aligned_and_sorted() {
        let mut counts = Counts { calls: vec![[0; 2]; COUNTED_CALLS], bytes: [10, 2000] };
        counts.calls[Sysno::read as usize] = [3, 4];
        counts.calls[Sysno::write as usize] = [1000, 0];
        let expected = "\
lightpath: calls
call   in process  to the kernel
write       1,000              0
read            3              4
all         1,003              4
bytes in process: 10 read, 2,000 written
";
        assert_eq!(counts.table(), expected);
        assert_eq!(counts.since(&counts.clone()).table().lines().count(), 4);
    }
}
