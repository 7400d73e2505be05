//! Taking back changes of a session: their paths are what the host has there now.
//!
//! What stands at such a path is taken out of the session with its records, and what the host has there is
//! taken in, as the next run does with a name that has changed. The caller is the only user of the session,
//! and has noted that it is being renewed: what is left undone if it is killed, the next run does. Therefore
//! records stand for nothing before anything is removed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lp_region::InodeRef;
use lp_region::sync::Ordering::{Acquire, Relaxed};
use lp_vfs::below::list::RecordAt;
use lp_vfs::below::{self, renew};

use super::changes::Change;
use super::tree::{New, Old, Tree, error, is_dir};

/// What failed, and why.
type Done<T> = Result<T, (PathBuf, io::Error)>;

/// A directory of the session, and its record if it stands where the host has it.
type Place = (InodeRef, Option<RecordAt>);

/// What is taken out at a path with all it holds, and replaced by what the host has there.
struct Unit<'c> {
    change: &'c Change,
    dir: InodeRef,
    of: Option<RecordAt>,
}

impl Tree<'_> {
    /// Takes back changes, which are ordered by path, after `begin`.
    pub(crate) fn revert(&self, chosen: &[Change], begin: impl FnOnce() -> io::Result<()>) -> Done<()> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |e: io::Error| (path, e)
        };
        for change in chosen {
            self.keep_other_names(change, chosen).map_err(at(&change.path))?;
        }
        let (mut units, mut directories) = (Vec::<Unit<'_>>::new(), Vec::new());
        let mut places = BTreeMap::new();
        for change in chosen {
            if units.last().is_some_and(|unit| change.path.starts_with(&unit.change.path)) {
                continue;
            }
            if let Some(found) = self.stays(change).map_err(at(&change.path))? {
                directories.push(found);
                continue;
            }
            let above = change.path.parent().unwrap_or(Path::new(""));
            let place = self.place(above, &mut places).map_err(at(&change.path))?;
            let Some((dir, of)) = place else {
                let line = format!("the session has removed {}: discard that", above.display());
                return Err((change.path.clone(), io::Error::other(line)));
            };
            units.push(Unit { change, dir, of });
        }
        begin().map_err(at(Path::new("")))?;
        let each = |done: &dyn Fn(&Unit<'_>) -> io::Result<()>| {
            units.iter().try_for_each(|unit| done(unit).map_err(at(&unit.change.path)))
        };
        each(&|unit| unit.change.old.iter().try_for_each(|old| self.orphan(old)))?;
        each(&|unit| {
            let name = unit.change.path.file_name().unwrap_or_default();
            unit.change.new.iter().try_for_each(|new| self.drop_name(unit.dir, name, new))
        })?;
        each(&|unit| unit.change.old.iter().try_for_each(|old| self.remove_records(old)))?;
        each(&|unit| {
            let name = unit.change.path.file_name().unwrap_or_default().as_bytes();
            match (unit.of, self.look(&unit.change.path)?) {
                (Some(of), Some(seen)) => renew::take_in(self.task, unit.dir, of, name, &seen).map_err(error),
                _ => Ok(()),
            }
        })?;
        for (old, seen) in directories {
            renew::redress(self.task, old.at, &seen, old.seen.target())
                .map_err(|e| (PathBuf::new(), error(e)))?;
        }
        Ok(())
    }

    /// If a change is one of a directory that stays, its record and what the host has there.
    fn stays(&self, change: &Change) -> io::Result<Option<(Old, below::list::Record)>> {
        let (Some(old), Some(new)) = (&change.old, &change.new) else { return Ok(None) };
        if !is_dir(old.seen.mode) || old.seen.target() != new.inode {
            return Ok(None);
        }
        let found = self
            .look(&change.path)?
            .filter(|found| is_dir(found.mode) && (found.dev, found.ino) == (old.seen.dev, old.seen.ino));
        Ok(found.map(|found| (*old, found)))
    }

    /// A directory by its path below the session's; none if the session has none there.
    fn place(&self, path: &Path, known: &mut BTreeMap<PathBuf, Option<Place>>) -> io::Result<Option<Place>> {
        if let Some(found) = known.get(path) {
            return Ok(*found);
        }
        let root = self.roots().find(|root| root.as_ref().map_or(true, |(at, ..)| *at == path));
        let found = match (root.transpose()?, path.parent(), path.file_name()) {
            (Some((_, old, new)), ..) => Some((new.inode, Some(old.at))),
            (None, Some(above), Some(name)) => match self.place(above, known)? {
                Some((dir, of)) => self.place_in(dir, of, name)?,
                None => None,
            },
            _ => None,
        };
        known.insert(path.to_owned(), found);
        Ok(found)
    }

    fn place_in(&self, dir: InodeRef, of: Option<RecordAt>, name: &OsStr) -> io::Result<Option<Place>> {
        let mut names = self.names_now(&self.seen(dir))?;
        let Some(new) = names.remove(name).filter(|new| is_dir(new.attributes.mode)) else {
            return Ok(None);
        };
        let mut records = match of {
            Some(at) => self.listed(&Old { at, seen: self.record(at)? })?,
            None => BTreeMap::new(),
        };
        let own = records.remove(name).filter(|old| old.seen.target() == new.inode);
        Ok(Some((new.inode, own.map(|old| old.at))))
    }

    /// Makes the records of a name and of all that it held stand for nothing.
    fn orphan(&self, old: &Old) -> io::Result<()> {
        self.records_below(old)?.iter().try_for_each(|old| self.orphan(old))?;
        renew::orphan(self.task.region, old.at).map_err(error)
    }

    fn remove_records(&self, old: &Old) -> io::Result<()> {
        self.records_below(old)?.iter().try_for_each(|old| self.remove_records(old))?;
        renew::remove(self.task.region, old.at).map_err(error)
    }

    fn records_below(&self, old: &Old) -> io::Result<Vec<Old>> {
        let records = if old.seen.list == 0 { BTreeMap::new() } else { self.listed(old)? };
        Ok(records.into_values().collect())
    }

    /// Removes a name of the session with all that it holds.
    fn drop_name(&self, dir: InodeRef, name: &OsStr, new: &New) -> io::Result<()> {
        self.empty(new)?;
        renew::drop_name(self.task, dir, name.as_bytes()).map_err(error)
    }

    /// Removes what a directory of the session holds.
    pub(super) fn empty(&self, new: &New) -> io::Result<()> {
        let is_dir = is_dir(new.attributes.mode);
        let inside = if is_dir { self.entries_of(new)? } else { BTreeMap::new() };
        inside.iter().try_for_each(|(name, inside)| self.drop_name(new.inode, name, inside))
    }

    /// Reads what is missing of a file that keeps other names in the session before its origin is forgotten.
    fn keep_other_names(&self, change: &Change, chosen: &[Change]) -> io::Result<()> {
        let Some(old) = change.old.filter(|old| !is_dir(old.seen.mode)) else { return Ok(()) };
        let target = old.seen.target();
        let record = self.task.region.inode(target.id);
        // Acquire: the generation grows before the slot is used again. Relaxed: nobody else uses the session.
        let lives = record.generation.load(Acquire) == target.generation;
        let names = if lives { record.nlink.load(Relaxed) as usize } else { 0 };
        if names == 0 {
            return Ok(());
        }
        let is_it = |change: &&Change| change.new.as_ref().is_some_and(|new| new.inode == target);
        match chosen.iter().filter(is_it).count() < names {
            true => self.keep(record),
            false => Ok(()),
        }
    }
}
