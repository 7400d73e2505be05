//! The part of a session's changes that an apply takes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::command::over::compare::changes::{Change, Changes, listed};
use crate::command::over::compare::tree::is_dir;

/// What stands for a file that a change leaves at a name it had before, if the file has several names.
fn file(change: &Change) -> Option<u64> {
    let (old, new) = (change.old.as_ref()?, change.new.as_ref()?);
    let is_it = old.seen.target() == new.inode && !is_dir(new.attributes.mode) && new.attributes.nlink > 1;
    is_it.then(|| new.inode.to_word())
}

/// What becomes of the new directories above a chosen path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Above {
    /// They are chosen with it.
    Chosen,
    Left,
}

/// Leaves only the changes at or below `paths`, those that an interrupted apply may have written, the other
/// names of the same files, and the directories that they need, as `needed` says. No paths: all changes. Returns
/// how many are left out, of those that a listing shows if there are any, and the paths at which nothing has
/// changed.
pub(crate) fn limit(
    changes: &mut Changes,
    paths: &[PathBuf],
    journaled: &BTreeSet<PathBuf>,
    needed: Above,
) -> (usize, Vec<PathBuf>) {
    if paths.is_empty() {
        return (0, Vec::new());
    }
    let is_named = |change: &Change| {
        journaled.contains(&change.path) || paths.iter().any(|path| change.path.starts_with(path))
    };
    // The names that a file has on the host are one file there too.
    let files: BTreeSet<u64> =
        changes.all.iter().filter(|change| is_named(change)).filter_map(file).collect();
    let is_chosen =
        |change: &Change| is_named(change) || file(change).is_some_and(|file| files.contains(&file));
    let unchanged = paths
        .iter()
        .filter(|path| !changes.all.iter().any(|change| change.path.starts_with(path)))
        .cloned()
        .collect();
    let above: BTreeSet<PathBuf> = changes
        .all
        .iter()
        .filter(|change| is_chosen(change) && change.new.is_some())
        .flat_map(|change| change.path.ancestors().skip(1).map(Path::to_owned))
        .collect();
    let is_needed = |change: &Change| {
        let is_made = change.modes().1.is_some_and(is_dir) && !change.modes().0.is_some_and(is_dir);
        needed == Above::Chosen && is_made && above.contains(&change.path)
    };
    let is_left = |change: &&Change| change.counts() && !is_chosen(change) && !is_needed(change);
    let left: Vec<&Change> = changes.all.iter().filter(is_left).collect();
    let shown: Vec<&Change> = left.iter().copied().filter(|change| change.is_shown()).collect();
    let left = if shown.is_empty() { left.len() } else { listed(&shown).len() };
    // With nothing else the session ends, and the times of directories are the last of it.
    if left != 0 || needed == Above::Left {
        changes.all.retain(|change| is_chosen(change) || is_needed(change));
    }
    (left, unchanged)
}
