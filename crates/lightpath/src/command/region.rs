//! The launcher's side of a region: making or opening it, and the process slot of the command.

use super::cli::Options;
use super::failure::Failure;

/// A run about to start.
pub(crate) struct Session {}

impl Session {
    /// Makes the region, or opens `--region FILE`.
    pub(crate) fn open(_options: &Options) -> Result<Session, Failure> {
        Ok(Session {})
    }

    /// Claims a process slot for this process, which is about to exec the command; what the gate has to be told.
    pub(crate) fn claim(&self) -> Result<Option<String>, Failure> {
        Ok(None)
    }
}

/// Bytes of memory of this machine.
pub(crate) fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    // The kernel counts in units of `mem_unit` bytes.
    info.totalram as u64 * u64::from(info.mem_unit)
}
