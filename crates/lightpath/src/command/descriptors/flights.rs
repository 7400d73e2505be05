//! The descriptors of a run's flights ([`lp_vfs::flight`]) and of its shelf.

use std::os::fd::IntoRawFd;

use lp_abi::Fd;
use lp_region::process::{CALLS_ALL_TRACED, CALLS_TRACED};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{Region, RunId, trace};
use rustix::fs::{MemfdFlags, SealFlags};

use super::numbers::{few, high};
use super::shelf;
use crate::command::output::failure::{Failure, REGION, reason};

/// How the name of each run's flights starts; identity of the region and number of the run follow.
pub(crate) const FLIGHTS: &str = "lightpath-flights:";

/// Creates the descriptors that every process of the run inherits: that which records open files in transit
/// over a socket, see [`lp_vfs::flight`], and behind it the [`shelf`]'s. They stay open for ever.
pub(crate) fn inherit(region: Region<'static>, run: RunId) -> Result<(), Failure> {
    // Relaxed: this launcher has just set it.
    let is_traced = [CALLS_TRACED, CALLS_ALL_TRACED].contains(&region.run(run).stats.load(Relaxed));
    let length = if is_traced { trace::BYTES as u64 } else { 0 };
    let fail = |e: rustix::io::Errno| {
        Failure::new(REGION, format!("cannot make shared memory: {}", reason(&e.into())))
    };
    let name = format!("{FLIGHTS}{:016x}:{}:", region.header().identity.load(Relaxed), run.0);
    let made = rustix::fs::memfd_create(name, MemfdFlags::ALLOW_SEALING).map_err(fail)?;
    rustix::fs::ftruncate(&made, length).map_err(fail)?;
    // Nobody can leave data there, unless the rings of a traced run are there.
    let fixed = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW;
    let seals = if length == 0 { fixed | SealFlags::WRITE } else { fixed };
    rustix::fs::fcntl_add_seals(&made, seals).map_err(fail)?;
    // The next number is the shelf's. Where there can be none, it is taken all the same.
    let shelf = match shelf::open() {
        Ok(shelf) => shelf,
        Err(_) => made.try_clone().map_err(|_| few())?,
    };
    let (flights, shelf) = (Fd::new(made.into_raw_fd()), Fd::new(shelf.into_raw_fd()));
    let number = lp_region::life_file::pair(flights, shelf, high()?).map_err(|_| few())?;
    region.run(run).flights.store(number.raw() as u32 + 1, Relaxed);
    Ok(())
}
