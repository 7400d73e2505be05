//! Whether a region is sound: after a crash of the machine, and after whatever else may have happened to it.

use lp_abi::Errno;
use lp_fsck::{Rebuilt, Severity};
use lp_region::{ProcessId, Region};
use lp_vfs::boot;

use super::file::no_room;
use crate::command::output::failure::{Failure, REGION};
use crate::command::output::message::message;

/// Rebuilds a region that was last used before this boot, because the machine may have crashed. Reports
/// whether anything was not kept in its place.
pub(crate) fn rebuild_after_boot(region: Region<'static>, name: &str) -> Result<(), Failure> {
    if !region.is_of_former_boot() {
        return Ok(());
    }
    boot::back(region).map_err(|e| no_room(name, e))?;
    let lost = lp_fsck::rebuild(region).map_err(|e| match e {
        Errno::ENOSPC => Failure::new(REGION, format!("{name}: the region has no room to be rebuilt in")),
        e => Failure::new(REGION, format!("{name} cannot be rebuilt: {e:?}")),
    })?;
    if lost != Rebuilt::default() {
        let line = format!("{name} was in use when the machine stopped: {}", told(lost));
        message(Failure::new(REGION, line));
    }
    Ok(())
}

/// Describes in words what a rebuild could not keep in its place.
pub(crate) fn told(lost: Rebuilt) -> String {
    let count =
        |number: u64, one: &str, many: &str| format!("{number} {}", if number == 1 { one } else { many });
    let names = (lost.dropped != 0).then(|| {
        format!("{} led nowhere and {} gone", count(lost.dropped, "name", "names"), is(lost.dropped))
    });
    let files = (lost.unnamed != 0).then(|| {
        let files = count(lost.unnamed, "file or directory", "files and directories");
        format!("{files} without a name {} in lost+found", is(lost.unnamed))
    });
    names.into_iter().chain(files).collect::<Vec<_>>().join(", ")
}

const fn is(number: u64) -> &'static str {
    if number == 1 { "is" } else { "are" }
}

/// Refuses a damaged region. If other runs use it, the first of them has checked it.
pub(crate) fn check(region: Region<'static>, name: &str) -> Result<(), Failure> {
    if lp_fsck::is_in_use(region) {
        return Ok(());
    }
    let report = lp_fsck::check(region, ProcessId::NONE);
    match report.first_worst() {
        Some(finding) if finding.severity == Severity::Structure => Err(Failure::new(
            REGION,
            format!("{name} is damaged ({}); repair it with: lightpath fsck --repair {name}", finding.what),
        )),
        _ => Ok(()),
    }
}
