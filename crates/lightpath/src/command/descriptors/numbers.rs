//! The numbers that the descriptors of a run have, out of its programs' way.

use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use lp_abi::Fd;
use rustix::process::{Resource, getrlimit};

use crate::command::output::failure::{Failure, REGION};

/// Descriptor numbers that most programs stay below. The kernel's table grows with the highest number, and
/// fork copies it.
const USUAL: u64 = 256;
/// Numbers below that, or below the descriptor limit, that are reserved for what the gate keeps open.
const HEADROOM: u64 = 24;
/// Minimum number of descriptors that a run needs.
const FEWEST: u64 = 64;

/// The number from which descriptors are out of the program's way.
pub(super) fn high() -> Result<i32, Failure> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(1024);
    if limit < FEWEST { Err(few()) } else { Ok((limit.min(USUAL) - HEADROOM) as i32) }
}

pub(super) fn few() -> Failure {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(1024);
    Failure::new(REGION, format!("only {limit} descriptors are allowed (ulimit -n): allow {FEWEST} or more"))
}

/// Moves the descriptors of the region and its life file out of the program's way, to high adjacent numbers
/// that are inherited across exec. Returns the first of them.
pub(crate) fn raise(region: OwnedFd, life: OwnedFd) -> Result<OwnedFd, Failure> {
    let wanted = high()?;
    let (region, life) = (Fd::new(region.into_raw_fd()), Fd::new(life.into_raw_fd()));
    let low = lp_region::life_file::pair(region, life, wanted).map_err(|_| few())?;
    // SAFETY: the region's descriptor, which has moved there.
    Ok(unsafe { OwnedFd::from_raw_fd(low.raw()) })
}
