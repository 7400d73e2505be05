//! [`Which`]: the option that names a session.

use clap::{Args, ValueHint};

/// Which session.
#[derive(Args)]
pub(crate) struct Which {
    /// The session, by its name or by the directory or archive that it is over; without it that of the
    /// current directory or the nearest above it.
    #[arg(long, value_name = "NAME|PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) session: Option<String>,
}
