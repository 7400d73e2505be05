//! Timeouts of the program's calls.

use lp_abi::linux::{__NR_clock_gettime, __NR_select, CLOCK_MONOTONIC};
use lp_abi::{Errno, Result};
use lp_region::ucopy;

use crate::high::frame::handler::kernel;

/// Nanoseconds in a second.
pub(crate) const SECOND: i64 = 1_000_000_000;

/// `CLOCK_MONOTONIC` in nanoseconds.
pub(crate) fn now() -> i64 {
    let mut time = [0i64; 2];
    kernel!(__NR_clock_gettime, CLOCK_MONOTONIC, &raw mut time);
    time[0] * SECOND + time[1]
}

/// The program's timeout of a call that does not wait, because something is ready.
pub(crate) struct Unused {
    at: *mut [i64; 2],
    /// Seconds and nanoseconds.
    time: [i64; 2],
    /// Nanoseconds of its unit.
    unit: i64,
    start: i64,
}

impl Unused {
    /// Reads it; `None` if it is no time or none at all.
    ///
    /// # Errors
    /// `EFAULT`; `EINVAL` if it is negative or, but for select(2), has a second or more behind the seconds.
    pub(crate) fn new(nr: u32, at: usize) -> Result<Option<Unused>> {
        if at == 0 {
            return Ok(None);
        }
        // SAFETY: the copy routine handles bad pointers.
        let [seconds, rest] = unsafe { ucopy::get(at as *const [i64; 2]) }?;
        // select(2) has microseconds, any number of them.
        let unit = if nr == __NR_select { 1000 } else { 1 };
        let time = match unit {
            1 => [seconds, rest],
            _ => [seconds.wrapping_add(rest / (SECOND / unit)), rest % (SECOND / unit) * unit],
        };
        if time[0] < 0 || !(0..SECOND).contains(&time[1]) {
            return Err(Errno::EINVAL);
        }
        let unused = Unused { at: at as *mut [i64; 2], time, unit, start: now() };
        Ok((time != [0; 2]).then_some(unused))
    }

    /// Tells the program what is left of it.
    pub(crate) fn put(self) {
        let [mut seconds, mut rest] = self.time;
        let gone = now() - self.start;
        (seconds, rest) = (seconds - gone / SECOND, rest - gone % SECOND);
        if rest < 0 {
            (seconds, rest) = (seconds - 1, rest + SECOND);
        }
        let left = if seconds < 0 { [0; 2] } else { [seconds, rest / self.unit] };
        // SAFETY: the copy routine handles bad pointers: a timeout that cannot be written stays as it is.
        let _ = unsafe { ucopy::put(self.at, &left) };
    }
}
