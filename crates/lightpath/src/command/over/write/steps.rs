//! The steps of an apply, in their order.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use lp_region::sync::Ordering::{Acquire, Relaxed};

use super::times::Times;
use super::writer::Writer;
use crate::command::over::compare::changes::Change;
use crate::command::over::compare::host;
use crate::command::over::compare::tree::{New, Old, is_dir, kind};
use crate::command::session::kept::Kept;
use crate::command::session::remove::gone;

/// What failed, and why.
type Done<T> = Result<T, (PathBuf, io::Error)>;

impl Writer<'_> {
    pub(crate) fn write(&self, kept: &Kept) -> Done<()> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |e: io::Error| (path, e)
        };
        for change in &self.changes.all {
            if let Some(new) = &change.new {
                let record = self.tree.task.region.inode(new.inode.id);
                if !is_dir(new.attributes.mode) {
                    self.tree.keep(record).map_err(at(&change.path))?;
                }
            }
        }
        for change in &self.changes.all {
            self.keep_origin(change).map_err(at(&change.path))?;
        }
        self.begin(kept).map_err(at(&kept.journal()))?;
        let times = Times::of(self.tree.over, self.changes.all.iter().map(|change| &change.path));
        // Those that stay get their modes last.
        let directories = self.changes.all.iter().filter(|change| {
            let (old, new) = change.modes();
            old.is_some_and(is_dir) || new.is_some_and(is_dir)
        });
        for change in directories {
            host::open_up(self.tree.over, &change.path).map_err(at(&change.path))?;
        }
        // What makes place for another type, the deepest first.
        let replaced: Vec<&Path> = self
            .changes
            .all
            .iter()
            .filter(|change| change.what.kind && change.new.is_some())
            .map(|change| change.path.as_path())
            .collect();
        for change in self.changes.all.iter().rev().filter(|change| change.old.is_some()) {
            let gives_way = replaced.iter().any(|path| change.path.starts_with(path));
            let is_old = kind(change.modes().0.unwrap_or(0));
            let still =
                host::look(self.tree.over, &change.path).is_ok_and(|found| kind(found.mode()) == is_old);
            if gives_way && still {
                self.remove(change).map_err(at(&change.path))?;
            }
        }
        for change in self.changes.all.iter().filter(|change| change.modes().1.is_some_and(is_dir)) {
            self.make_directory(change).map_err(at(&change.path))?;
            self.progress.advance();
        }
        let mut written = BTreeMap::new();
        for change in &self.changes.all {
            if let Some(new) = change.new.as_ref().filter(|new| !is_dir(new.attributes.mode)) {
                self.put(change, new, &mut written).map_err(at(&change.path))?;
                self.progress.advance();
            }
        }
        for change in self.changes.all.iter().rev().filter(|change| change.new.is_none()) {
            self.remove(change).map_err(at(&change.path))?;
            self.progress.advance();
        }
        for change in self.changes.all.iter().rev() {
            if let Some(new) = change.new.as_ref().filter(|new| is_dir(new.attributes.mode)) {
                self.dress_directory(change, new).map_err(at(&change.path))?;
            }
        }
        times.give()
    }

    /// Reads what is missing of a file that has another name in the session before its origin is removed.
    fn keep_origin(&self, change: &Change) -> io::Result<()> {
        let Some(old) = change.old.filter(|old| !is_dir(old.seen.mode)) else { return Ok(()) };
        let target = old.seen.target();
        let record = self.tree.task.region.inode(target.id);
        // Acquire: the generation grows before the slot is used again. Relaxed: nobody else uses the session.
        let lives = record.generation.load(Acquire) == target.generation && record.nlink.load(Relaxed) != 0;
        if lives { self.tree.keep(record) } else { Ok(()) }
    }

    /// Notes what will be written, and removes what one that was killed left.
    fn begin(&self, kept: &Kept) -> io::Result<()> {
        let mut text = Vec::new();
        for change in &self.changes.all {
            text.extend(change.path.as_os_str().as_bytes());
            text.push(0);
            let parent = change.path.parent().unwrap_or(Path::new(""));
            if !self.journaled.is_empty() {
                gone(self.host(&parent.join(&self.temporary)).and_then(fs::remove_file))?;
            }
        }
        // One that was interrupted may have written more than is left to do.
        for path in &self.journaled {
            text.extend(path.as_os_str().as_bytes());
            text.push(0);
        }
        let temporary = kept.journal().with_extension("new");
        let mut file = File::create(&temporary)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(temporary, kept.journal())
    }

    fn make_directory(&self, change: &Change) -> io::Result<()> {
        // It may be a private one, and gets its mode last.
        match DirBuilder::new().mode(host::OWNERS).create(self.host(&change.path)?) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }

    /// Gives a directory what the session has changed, and leaves it what the host has changed.
    fn dress_directory(&self, change: &Change, new: &New) -> io::Result<()> {
        let (path, mut looks) = (self.host(&change.path)?, self.tree.looks(new)?);
        if let Some(Old { seen, .. }) = change.old.filter(|old| is_dir(old.seen.mode)) {
            let found = fs::symlink_metadata(&*path)?;
            // The apply may have opened it up.
            let was = [seen.mode, seen.mode | host::OWNERS].map(|mode| mode & 0o7777);
            if !change.what.mode && !was.contains(&(found.mode() & 0o7777)) {
                looks.mode = found.mode();
            }
            if !change.what.owner {
                looks.owner = (found.uid(), found.gid());
            }
            if !change.what.xattr {
                looks.xattrs = host::xattrs(&path)?;
            }
        }
        looks.give(&path)
    }

    fn remove(&self, change: &Change) -> io::Result<()> {
        // A link may stand for a directory above already.
        if host::look(self.tree.over, &change.path).is_err_and(|e| host::is_absence(&e)) {
            return Ok(());
        }
        let path = self.host(&change.path)?;
        match change.modes().0.is_some_and(is_dir) {
            true => gone(fs::remove_dir(path)),
            false => gone(fs::remove_file(path)),
        }
    }
}
