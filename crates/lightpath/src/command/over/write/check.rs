//! What is looked at before an apply writes anything.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD};

use super::writer::{Others, Writer};
use crate::command::output::failure::{Failure, REGION, reason};
use crate::command::output::message::message;
use crate::command::output::shown::{self, counted};
use crate::command::over::compare::changes::Change;
use crate::command::over::compare::host;
use crate::command::over::compare::tree::{Old, is_dir, kind};
use crate::command::session::kept::Kept;

/// Conflicts that are listed.
const LISTED: usize = 100;
/// How a conflict is settled.
pub(crate) const HINT: &str =
    "lightpath discard PATH takes the host's, lightpath apply --force PATH the session's";

impl Writer<'_> {
    /// Refuses to write if that would fail or overwrite what others have changed.
    pub(crate) fn check(&self, kept: &Kept) -> Result<(), Failure> {
        let conflicts = self.conflicts();
        if !conflicts.is_empty() {
            for line in conflicts.iter().take(LISTED) {
                message(Failure::new(REGION, format!("conflict: {line}")));
            }
            let count = counted(conflicts.len(), "conflict", "conflicts");
            let line = format!("{count}: nothing was written, session {} is kept; {HINT}", kept.shown());
            return Err(Failure::new(REGION, line));
        }
        match self.unwritable() {
            Some((path, e)) => Err(Failure::new(REGION, format!("{}: {}", path.display(), reason(&e)))),
            None => Ok(()),
        }
    }

    /// What keeps the changes from being written, a line each.
    fn conflicts(&self) -> Vec<String> {
        let made: BTreeSet<&Path> = self
            .changes
            .all
            .iter()
            .filter(|change| change.modes().1.is_some_and(is_dir))
            .map(|change| change.path.as_path())
            .collect();
        let mut lines = Vec::new();
        for change in &self.changes.all {
            let why = self.tree.conflict(change).filter(|_| !self.is_written(change));
            let why = match self.others {
                Others::Kept => why,
                Others::Overwritten => why.and_then(|_| self.forbids(change)),
            };
            let why = why.or_else(|| {
                let parent = change.path.parent().filter(|_| change.old.is_none())?;
                let is_there = made.contains(parent)
                    || host::look(self.tree.over, parent).is_ok_and(|found| found.is_dir());
                (!is_there).then(|| "has no directory on the host any more".to_owned())
            });
            lines.extend(why.map(|why| format!("{} {why}", shown::below(&change.path))));
            lines
                .extend(self.unseen(change).map(|path| {
                    format!("{} is in a directory that the session has removed", path.display())
                }));
        }
        lines
    }

    /// Why what others have changed on the host cannot be overwritten.
    fn forbids(&self, change: &Change) -> Option<String> {
        let found = match host::look(self.tree.over, &change.path) {
            Err(e) if host::is_absence(&e) => None,
            Err(e) => return Some(format!("cannot be looked at on the host: {}", reason(&e))),
            Ok(found) => Some(found),
        };
        let (old, new) = change.modes();
        if let (Some(found), Some(mode)) = (&found, new.or(old))
            && found.is_dir() != is_dir(mode)
        {
            return Some("is of another type on the host".to_owned());
        }
        let new = change.new.as_ref().filter(|new| !is_dir(new.attributes.mode))?;
        let kept = self.tree.keep(self.tree.task.region.inode(new.inode.id));
        kept.err().map(|_| "has changed on the host before the session has read it".to_owned())
    }

    /// What the host has in a directory that is to be removed, and the session does not remove.
    fn unseen(&self, change: &Change) -> impl Iterator<Item = PathBuf> + use<'_> {
        let goes = change.modes().0.is_some_and(is_dir) && !change.modes().1.is_some_and(is_dir);
        let goes = goes && host::look(self.tree.over, &change.path).is_ok();
        let listed = goes.then(|| self.host(&change.path).and_then(fs::read_dir).ok()).flatten();
        let path = change.path.clone();
        let inside = listed.into_iter().flatten().flatten().map(move |entry| path.join(entry.file_name()));
        inside.filter(|inside| {
            inside.file_name() != Some(OsStr::new(&self.temporary))
                && self.changes.all.binary_search_by(|change| change.path.cmp(inside)).is_err()
        })
    }

    /// Whether an interrupted apply has written a change, or was at it.
    fn is_written(&self, change: &Change) -> bool {
        if !self.journaled.contains(&change.path) {
            return false;
        }
        let (found, new) = match (host::look(self.tree.over, &change.path), &change.new) {
            (Err(e), new) => {
                return host::is_absence(&e) && (new.is_none() || change.what.kind);
            }
            (Ok(_), None) => return false,
            (Ok(found), Some(new)) => (found, new),
        };
        // Another name of the same file may have been written, which changes `ctime`.
        let is_old = change.old.is_some_and(|Old { seen, .. }| {
            let now = (found.dev(), found.ino(), found.size(), found.mtime(), found.mtime_nsec());
            now == (seen.dev, seen.ino, seen.size, seen.seconds[1], i64::from(seen.nanoseconds[1]))
        });
        if is_old {
            return true;
        }
        if kind(found.mode()) != kind(new.attributes.mode) {
            return false;
        }
        let Ok(path) = self.host(&change.path) else { return false };
        match kind(found.mode()) {
            libc::S_IFREG => self.tree.has_content(new, &path).unwrap_or(false),
            libc::S_IFLNK => self.tree.target(new).ok() == fs::read_link(&path).ok(),
            _ => true,
        }
    }

    /// Whether a change is one of attributes alone, for which the directory above is not written to.
    fn is_of_attributes(&self, change: &Change) -> bool {
        let (Some(old), Some(new)) = (&change.old, &change.new) else { return false };
        old.seen.target() == new.inode && !change.what.kind && !change.what.content
    }

    /// A directory that has to be written to and cannot be. One that is a change itself gets its mode last.
    fn unwritable(&self) -> Option<(PathBuf, io::Error)> {
        let directories: BTreeSet<&Path> = self
            .changes
            .all
            .iter()
            .filter(|change| !self.tree.roots.contains(&change.path) && !self.is_of_attributes(change))
            .filter_map(|change| change.path.parent())
            .collect();
        directories.into_iter().find_map(|path| {
            let directory = self.host(path).ok().filter(|directory| directory.is_dir())?;
            let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
            let e = rustix::fs::accessat(CWD, &*directory, access, AtFlags::EACCESS).err()?;
            let opens = e == rustix::io::Errno::ACCESS
                && self.changes.all.binary_search_by(|change| change.path.as_path().cmp(path)).is_ok()
                && host::look(self.tree.over, path).is_ok_and(|found| host::may_open_up(&found));
            (!opens).then(|| (host::whole(self.tree.over, path), e.into()))
        })
    }
}
