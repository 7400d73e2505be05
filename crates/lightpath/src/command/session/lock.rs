//! Locks that others hold for a moment only.

use std::fs::File;
use std::io;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// How often a lock that others hold is tried, and how far apart.
const PATIENCE: u32 = 200;
const PAUSE: Duration = Duration::from_millis(10);

/// Locks a file, for which it waits a moment; whether it did.
pub(crate) fn lock(file: &File) -> io::Result<bool> {
    for _ in 0..PATIENCE {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => std::thread::sleep(PAUSE),
            done => return done.map(|()| true).map_err(Into::into),
        }
    }
    Ok(false)
}
