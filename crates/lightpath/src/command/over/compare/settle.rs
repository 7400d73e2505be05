//! What a session knows of its directory after a part of its changes was written there: the lists of names
//! say what the directory has now, so that these changes are no longer changes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lp_abi::Errno;
use lp_region::InodeId;
use lp_vfs::below::list::{self, NameRoom, Record, RecordAt};
use lp_vfs::below::renew;

use super::changes::Change;
use super::host;
use super::tree::{Old, Tree, error};
use crate::command::copies::origin::record_of;

/// Lists by directory of the host, below the session's.
#[derive(Default)]
struct Lists(BTreeMap<PathBuf, InodeId>);

impl Tree<'_> {
    /// Notes that changes are on the host. What is above another comes first.
    pub(crate) fn settle(&self, written: &[Change]) -> Result<(), (PathBuf, io::Error)> {
        let mut lists = Lists::default();
        // A name that was added or removed has changed the file at its other names. They are found by what
        // the file was, so this comes first.
        for change in written {
            self.relink(change).map_err(|e| (change.path.clone(), e))?;
        }
        for change in written {
            self.settle_one(change, &mut lists).map_err(|e| (change.path.clone(), e))?;
        }
        Ok(())
    }

    fn relink(&self, change: &Change) -> io::Result<()> {
        let mut others = Vec::new();
        let now = host::look(self.over, &change.path).ok().map(|found| record_of(&found));
        for file in change.old.map(|old| old.seen).into_iter().chain(now) {
            renew::links(self.task, &file, |at, seen| others.push((at, *seen))).map_err(error)?;
        }
        for (at, seen) in others {
            let Ok(found) = host::look(self.over, &self.path_of(at)?) else { continue };
            let now = record_of(&found);
            let known = |record: &Record| {
                (record.dev, record.ino, record.size, record.mode, record.seconds[1], record.nanoseconds[1])
            };
            if known(&now) == known(&seen) {
                renew::relink(self.task, at, &now).map_err(error)?;
            }
        }
        Ok(())
    }

    /// The path of a record, below the session's directory.
    fn path_of(&self, at: RecordAt) -> io::Result<PathBuf> {
        let region = self.task.region;
        let mut names = Vec::new();
        let mut here = at;
        while let Some(up) = list::up(&list::head(region, here.list).map_err(error)?) {
            let mut room: NameRoom = [0; size_of::<NameRoom>()];
            let record = list::record(region, here).map_err(error)?;
            let name = list::name(region, here, &record, &mut room).map_err(error)?;
            names.push(OsStr::from_bytes(name).to_owned());
            here = up;
        }
        let mut path = PathBuf::new();
        for root in self.roots() {
            let (root, old, _) = root?;
            path.extend((old.at.list == here.list).then_some(root));
        }
        path.extend(names.iter().rev());
        Ok(path)
    }

    fn settle_one(&self, change: &Change, lists: &mut Lists) -> io::Result<()> {
        let now = match (&change.new, host::look(self.over, &change.path)) {
            (Some(new), found) => Some((new, record_of(&found?))),
            (None, _) => None,
        };
        if let (Some(old), Some((new, now))) = (&change.old, &now)
            && (old.seen.dev, old.seen.ino) == (now.dev, now.ino)
            && !change.what.kind
        {
            return renew::update(self.task, old.at, now, new.inode).map_err(error);
        }
        if let Some(old) = &change.old {
            renew::remove(self.task.region, old.at).map_err(error)?;
        }
        lists.0.remove(&change.path);
        let Some((new, now)) = now else { return Ok(()) };
        let above = self.list_of(change.path.parent().unwrap_or(Path::new("")), lists)?;
        let name = change.path.file_name().unwrap_or_default().as_bytes();
        let own = renew::insert(self.task, above, name, &now, new.inode).map_err(error)?;
        lists.0.extend(own.map(|own| (change.path.clone(), own)));
        Ok(())
    }

    /// What was at a path, if the session is over that very directory.
    fn root_at(&self, path: &Path) -> io::Result<Option<Old>> {
        for root in self.roots() {
            let (at, old, _) = root?;
            if at == path {
                return Ok(Some(old));
            }
        }
        Ok(None)
    }

    /// The list of a directory of the host.
    fn list_of(&self, path: &Path, lists: &mut Lists) -> io::Result<InodeId> {
        if let Some(known) = lists.0.get(path) {
            return Ok(*known);
        }
        let region = self.task.region;
        let found = match (self.root_at(path)?, path.parent()) {
            (Some(root), _) => root.seen.list,
            (None, None) => 0,
            (None, Some(above)) => {
                let above = self.list_of(above, lists)?;
                let (mut list, mut room): (_, NameRoom) = (0, [0; size_of::<NameRoom>()]);
                list::each(region, above, list::FIRST, |at, seen| {
                    let name = list::name(region, at, seen, &mut room)?;
                    let is_it = path.file_name() == Some(OsStr::from_bytes(name));
                    list = if is_it { seen.list } else { list };
                    Ok(!is_it)
                })
                .map_err(error)?;
                list
            }
        };
        if found == 0 {
            return Err(error(Errno::ENOENT));
        }
        lists.0.insert(path.to_owned(), InodeId(found));
        Ok(InodeId(found))
    }
}
