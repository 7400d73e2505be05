//! [`Writer`]: what writes the changes of a session to its directory.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use crate::command::output::progress::Progress;
use crate::command::over::compare::changes::Changes;
use crate::command::over::compare::host::{self, Reached};
use crate::command::over::compare::tree::Tree;

/// What becomes of what others have changed on the host where the session has changed it too.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum Others {
    /// It is a conflict.
    #[default]
    Kept,
    Overwritten,
}

/// The changes, and where they go.
pub(crate) struct Writer<'t> {
    pub(crate) tree: &'t Tree<'t>,
    pub(crate) changes: &'t Changes,
    pub(crate) journaled: BTreeSet<PathBuf>,
    pub(crate) others: Others,
    /// Name of a file before it gets its own ([`Kept::temporary`]). One is made at a time, so that a later
    /// apply finds what one that was killed left.
    ///
    /// [`Kept::temporary`]: crate::command::session::kept::Kept::temporary
    pub(crate) temporary: String,
    pub(crate) progress: Progress,
}

impl Writer<'_> {
    /// A path of the host.
    pub(crate) fn host(&self, path: &Path) -> io::Result<Reached> {
        host::reach(self.tree.over, path)
    }
}
