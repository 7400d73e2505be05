//! Whether runs can start in this process.

use crate::command::cache::preload;
use crate::command::output::failure::{CANNOT_RUN, Failure, REGION};

/// Refuses to start where the loader would not preload, or inside another run.
pub(crate) fn check_caller() -> Result<(), Failure> {
    use rustix::process::{getegid, geteuid, getgid, getuid};
    if getuid() != geteuid() || getgid() != getegid() {
        let line = "real and effective user or group differ: the loader would ignore Lightpath; start it as one user";
        return Err(Failure::new(CANNOT_RUN, line));
    }
    match is_inside() {
        true => Err(Failure::new(
            REGION,
            "already inside a run: start the command as it is, it sees the file system",
        )),
        false => Ok(()),
    }
}

/// Whether this process takes part in a run.
fn is_inside() -> bool {
    std::fs::read("/proc/self/maps").is_ok_and(|maps| {
        maps.windows(preload::PREFIX.len()).any(|window| window == preload::PREFIX.as_bytes())
    })
}

/// Whether the caller can see which processes belong to a run.
pub(crate) fn check_outside() -> Result<(), Failure> {
    match is_inside() {
        true => {
            let line = "inside a run the processes of runs cannot be told; ask from outside";
            Err(Failure::new(REGION, line))
        }
        false => Ok(()),
    }
}
