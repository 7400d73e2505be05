//! [`Writer`]: what writes the changes of a session to its directory.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::command::output::progress::Progress;
use crate::command::over::compare::changes::Changes;
use crate::command::over::compare::host::{self, Reached};
use crate::command::over::compare::tree::Tree;

/// The changes, and where they go.
pub(crate) struct Writer<'t> {
    pub(crate) tree: &'t Tree<'t>,
    pub(crate) changes: &'t Changes,
    pub(crate) journaled: BTreeSet<PathBuf>,
    pub(crate) progress: Progress,
}

impl Writer<'_> {
    /// A path of the host.
    pub(crate) fn host(&self, path: &Path) -> io::Result<Reached> {
        host::reach(self.tree.over, path)
    }
}
