//! Opening the region of a session, or a region file, beside the runs that use it.

use std::path::Path;

use super::kept::Kept;
use super::trees::Trees;
use crate::command::cache::directory;
use crate::command::options::mountpoint::MountPoint;
use crate::command::options::run::{Options, RegionOwner};
use crate::command::output::failure::{Failure, REGION};
use crate::command::run::claim::Claim;
use crate::command::run::record::Paths;

/// Opens the region of a session beside its runs.
pub(crate) fn open(kept: &Kept) -> Result<Claim, Failure> {
    let file = kept.file();
    if !file.exists() {
        return Err(Failure::new(REGION, format!("session {} has no region: discard it", kept.shown())));
    }
    look(points(&kept.at), &file, RegionOwner::Session)
}

/// Where a session is seen.
pub(crate) fn points(at: &Trees) -> Vec<MountPoint> {
    at.all().iter().map(|path| MountPoint::unchecked(path)).collect()
}

/// Opens a region file beside its runs.
pub(crate) fn look(at: Vec<MountPoint>, file: &Path, owner: RegionOwner) -> Result<Claim, Failure> {
    let cache = directory::find().map_err(|line| Failure::new(REGION, line))?;
    let options = Options { at, region: Some(file.to_owned()), owner, ..Options::default() };
    Claim::open(&options, &Paths::without_command(&cache))
}

/// The session of a run that is ending.
pub(crate) fn of_run(options: &Options) -> Result<Kept, Failure> {
    Kept::open(&Trees::new(&options.over), options.session.as_deref())
}

/// Refuses to end a session that a run is using.
pub(crate) fn check_unused(kept: &Kept, claim: &Claim) -> Result<(), Failure> {
    match claim.has_others() {
        true => Err(in_use(kept)),
        false => Ok(()),
    }
}

pub(crate) fn in_use(kept: &Kept) -> Failure {
    Failure::new(
        REGION,
        format!("session {} is in use: wait for its run to end, see lightpath ps", kept.shown()),
    )
}
