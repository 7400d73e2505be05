//! The roots of a run's mounts.

use std::os::unix::ffi::OsStrExt;

use lp_abi::Errno;
use lp_region::{Region, RunId};
use lp_vfs::boot::{self, MountAccess};
use lp_vfs::{Task, below};

use super::part::take_part;
use crate::command::options::run::Options;
use crate::command::output::failure::{Failure, REGION};

/// Makes the root of each mount unless it is there.
pub(super) fn make(region: Region<'static>, run: RunId, options: &Options) -> Result<(), Failure> {
    let made = take_part(region, run, |task| {
        // A region file may name processes that died with an earlier run.
        lp_vfs::reclaim::dead(task);
        let access = if options.ro { MountAccess::ReadOnly } else { MountAccess::ReadWrite };
        let mut roots = 0..options.at.len() as u32;
        roots.try_for_each(|root| boot::mount_root(task, root, access)).and_then(|()| lay(task, options))
    });
    made.flatten().map_err(|e| {
        Failure::new(
            REGION,
            match e {
                Errno::ENOSPC => "the region is full: its first directory has no place in it".to_owned(),
                Errno::EAGAIN => "the region has no place for another process".to_owned(),
                e => format!("the region cannot be used: {e:?}"),
            },
        )
    })
}

/// Puts each directory that the run is over below its root.
fn lay(task: &Task, options: &Options) -> lp_abi::Result<()> {
    (0..).zip(&options.over).try_for_each(|(root, over)| {
        let path = [over.as_os_str().as_bytes(), b"\0"].concat();
        below::names::lay(task, root, &path)
    })
}
