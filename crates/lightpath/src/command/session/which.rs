//! [`Which`]: the option that names a session.

use clap::Args;

/// Which session.
#[derive(Args)]
pub(crate) struct Which {
    /// The session; without it that of the current directory or the nearest above it.
    #[arg(long, value_name = "NAME")]
    pub(crate) session: Option<String>,
}
