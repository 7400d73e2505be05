//! Paths that subcommands limit a session's changes to.

use std::path::{Component, Path, PathBuf};

use crate::command::output::failure::{Failure, USAGE};
use crate::command::session::trees::Trees;

/// The paths that were asked for, relative to [`Trees::above`].
pub(super) fn below(over: &Trees, paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let fail = |path: &Path, why: &str| Failure::new(USAGE, format!("{}: {why}", path.display()));
    let here = std::env::current_dir().unwrap_or_default();
    paths
        .iter()
        .map(|path| {
            let mut absolute = PathBuf::new();
            for part in here.join(path).components() {
                match part {
                    Component::ParentDir => _ = absolute.pop(),
                    Component::CurDir => {}
                    part => absolute.push(part),
                }
            }
            let is_over =
                over.all().iter().any(|tree| absolute.starts_with(tree) || tree.starts_with(&absolute));
            let rest = absolute.strip_prefix(over.above()).ok().filter(|_| is_over).map(Path::to_owned);
            rest.ok_or_else(|| fail(path, &format!("not below {}", over.shown().display())))
        })
        .collect()
}
