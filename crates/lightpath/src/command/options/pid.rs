//! The argument that names a process, and by it a run.

/// Reads the pid of a process.
pub(crate) fn pid(text: &str) -> Result<u32, &'static str> {
    text.parse().map_err(|_| "use the pid of a process; lightpath ps shows those of runs")
}
