//! Joining a run under way.
//!
//! Whoever joins takes a run record of its own on the same region, with the same mounts, as a second
//! `run --region FILE` does: the descriptors that the processes of a run inherit are those of its launcher,
//! and cannot be taken from them without ptrace(2)'s rights.

use std::fs::File;
use std::io::ErrorKind;

use lp_region::Region;

use super::claim::Claim;
use super::record::Paths;
use super::under_way::{self, Member};
use crate::command::cache::directory;
use crate::command::options::mountpoint::MountPoint;
use crate::command::options::run::Options;
use crate::command::output::failure::{CANNOT_RUN, Failure, REGION, reason};
use crate::command::output::shown::user;

/// Takes part in the run that process `pid` belongs to.
pub(crate) fn claim(pid: u32) -> Result<Claim, Failure> {
    let (file, options) = entrance(pid)?;
    let cache = directory::find().map_err(|line| Failure::new(REGION, line))?;
    Claim::join(file.into(), pid, &options, &Paths::without_command(&cache))
}

/// The region of a run, and its mounts.
pub(crate) fn entrance(pid: u32) -> Result<(File, Options), Failure> {
    let member = find(pid)?;
    let (file, region) = member.open()?;
    let at: Vec<MountPoint> = member.mounts(region).iter().map(|path| MountPoint::unchecked(path)).collect();
    match at.is_empty() {
        true => Err(under_way::gone(pid)),
        false => Ok((file, Options { at, joins: true, ..Options::default() })),
    }
}

/// The process of a run with that pid, if the caller may join it, and the run's region.
pub(crate) fn member(pid: u32) -> Result<(Member, Region<'static>), Failure> {
    let member = find(pid)?;
    let (_, region) = member.open()?;
    match member.mounts(region).is_empty() {
        true => Err(under_way::gone(pid)),
        false => Ok((member, region)),
    }
}

/// The process of a run with that pid, if the caller may join it.
fn find(pid: u32) -> Result<Member, Failure> {
    let member = match Member::of(pid) {
        Ok(Some(member)) => member,
        Ok(None) => {
            let line = format!("process {pid} takes part in no run; lightpath ps shows those under way");
            return Err(Failure::new(REGION, line));
        }
        Err(e) if e.kind() == ErrorKind::PermissionDenied => {
            let line = format!("process {pid} is another user's; only that user can join its run");
            return Err(Failure::new(CANNOT_RUN, line));
        }
        Err(e) if e.kind() == ErrorKind::NotFound || e.raw_os_error() == Some(libc::ESRCH) => {
            return Err(under_way::gone(pid));
        }
        Err(e) => return Err(Failure::new(REGION, format!("process {pid}: {}", reason(&e)))),
    };
    // Root could, but would run what the other user's processes may have changed.
    match member.owner == rustix::process::geteuid().as_raw() {
        true => Ok(member),
        false => {
            let owner = user(member.owner);
            let line = format!("run {pid} is another user's; join it as {owner}");
            Err(Failure::new(CANNOT_RUN, line))
        }
    }
}
