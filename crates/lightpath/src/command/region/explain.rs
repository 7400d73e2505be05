//! Why something is not usable as a region.

use lp_abi::Errno;
use lp_region::RegionError;
use lp_region::layout::VERSION;

use crate::command::output::failure::reason;

/// Why `name` is not usable as a region, and what to do.
pub(crate) fn explain(name: &str, error: RegionError) -> String {
    match error {
        RegionError::NotARegion => {
            format!("{name} is not a Lightpath region; name another file, or one that is not there")
        }
        RegionError::Version(found) => {
            format!(
                "{name} is a region of version {found}, this lightpath reads version {VERSION}: use the one that made it"
            )
        }
        RegionError::Truncated => format!("{name} is a region cut short: part of it is missing"),
        RegionError::Corrupted => format!("{name} is a damaged region: its header contradicts itself"),
        RegionError::System(Errno::ENOMEM) => {
            format!(
                "{name} cannot be mapped whole: lift the limit of address space (ulimit -v) or give a smaller --size"
            )
        }
        RegionError::System(Errno::EFBIG) => {
            format!("{name} is too large for its file system; give a smaller --size, or a file elsewhere")
        }
        RegionError::System(errno) => {
            format!("{name}: {}", reason(&std::io::Error::from_raw_os_error(errno.number())))
        }
    }
}
