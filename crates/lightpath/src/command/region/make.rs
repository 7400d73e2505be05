//! Making a region, in memory or in an empty file.

use std::os::fd::{AsRawFd, OwnedFd};

use lp_abi::{Errno, Fd};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{Geometry, Region, RegionError};
use rustix::fs::MemfdFlags;
use rustix::process::{Resource, getrlimit};

use super::explain::explain;
use super::file::{no_room, take_room};
use crate::command::options::run::{Options, RegionOwner};
use crate::command::options::size::Size;
use crate::command::output::failure::{Failure, REGION, reason};

/// Bytes of memory of this machine.
pub(crate) fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    // The kernel counts in units of `mem_unit` bytes.
    info.totalram * u64::from(info.mem_unit)
}

/// A number for a new region.
pub(crate) fn identity() -> Result<u64, Failure> {
    let mut identity = [0; 8];
    rustix::rand::getrandom(&mut identity, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| Failure::new(REGION, format!("no random number: {}", reason(&e.into()))))?;
    Ok(u64::from_ne_bytes(identity))
}

/// An empty file in memory.
pub(crate) fn open_memory() -> Result<OwnedFd, Failure> {
    rustix::fs::memfd_create("lightpath", MemfdFlags::empty())
        .map_err(|e| Failure::new(REGION, format!("cannot make shared memory: {}", reason(&e.into()))))
}

/// Maps the region behind `fd`, initialising it if it is empty.
pub(crate) fn prepare(fd: &OwnedFd, name: &str, options: &Options) -> Result<Region<'static>, Failure> {
    let explain = |e: RegionError| Failure::new(REGION, explain(name, e));
    let size = options.size.unwrap_or(Size::DEFAULT).bytes(memory());
    let length = rustix::fs::fstat(fd).map_err(|e| explain(system(e)))?.st_size;
    if length > 0 {
        let region = Region::open(Fd::new(fd.as_raw_fd())).map_err(explain)?;
        let made_with = region.header().data_pages.load(Relaxed) * lp_abi::PAGE_SIZE as u64;
        if options.size.is_some() && size != made_with {
            let line = match options.owner {
                RegionOwner::Session => {
                    format!("the session was made with --size {made_with}: leave --size out")
                }
                RegionOwner::User => {
                    format!(
                        "{name} was made with --size {made_with}: leave --size out, or make another region"
                    )
                }
            };
            return Err(Failure::new(REGION, line));
        }
        return Ok(region);
    }
    let geometry = Geometry {
        data_bytes: size,
        // As in tmpfs: half as many as the machine has pages.
        inodes: memory().max(size) / lp_abi::PAGE_SIZE as u64 / 2,
        identity: identity()?,
    };
    check_file_size(geometry.length().map_err(|e| explain(e.into()))?)?;
    if options.region.is_some() {
        take_room(fd).map_err(|e| no_room(name, e))?;
    }
    Region::create(Fd::new(fd.as_raw_fd()), &geometry).map_err(explain)
}

/// Beyond `ulimit -f` the kernel would kill the launcher instead of returning an error.
fn check_file_size(length: u64) -> Result<(), Failure> {
    match getrlimit(Resource::Fsize).current {
        Some(limit) if limit < length => Err(Failure::new(
            REGION,
            "file sizes are limited (ulimit -f) and a region is a large sparse file: lift the limit",
        )),
        _ => Ok(()),
    }
}

fn system(errno: rustix::io::Errno) -> RegionError {
    RegionError::System(Errno::new(errno.raw_os_error()))
}
