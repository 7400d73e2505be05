//! What a session has changed: its tree against the lists of what was taken from the directory below.
//!
//! A name is compared with its record. The same inode with the change time that the record has is untouched,
//! and a directory that nobody has looked into has nothing changed below it. What is left is compared with
//! the host.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use lp_abi::Errno;
use lp_region::InodeId;
use lp_vfs::below;
use lp_vfs::below::Need;
use lp_vfs::below::list::{self, NameRoom, Record};
use lp_vfs::inode::Attributes;

use super::host;
use super::tree::{New, Old, Tree, error, is_dir, kind};
use crate::command::copies::origin::record_of;
use crate::command::output::failure::reason;

/// A name that is not what it was.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// Below the directory.
    pub(crate) path: PathBuf,
    pub(crate) old: Option<Old>,
    pub(crate) new: Option<New>,
    /// Where what it names was before, if that name is gone.
    pub(crate) from: Option<PathBuf>,
    /// The mode that it had there.
    pub(crate) from_mode: Option<u32>,
    /// What differs if it was there, or at `from`, and is.
    pub(crate) what: What,
}

/// What of a name differs.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct What {
    pub(crate) kind: bool,
    pub(crate) content: bool,
    pub(crate) mode: bool,
    pub(crate) owner: bool,
    pub(crate) xattr: bool,
    pub(crate) times: bool,
}

/// A name of a file that has several.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) path: PathBuf,
    /// Whether the host has the same file at this name.
    pub(crate) is_there: bool,
}

/// A name, what it was, and what it is.
type Compared = (PathBuf, Option<Old>, Option<New>);

/// What there is to say of a session.
#[derive(Default)]
pub(crate) struct Changes {
    /// By path.
    pub(crate) all: Vec<Change>,
    /// Names of files that have several, by inode.
    pub(crate) links: BTreeMap<u64, Vec<Link>>,
}

impl Change {
    /// The letter that git has for it.
    pub(crate) fn letter(&self) -> char {
        match (&self.old, &self.new) {
            (_, Some(_)) if self.from.is_some() => 'R',
            (None, _) => 'A',
            (_, None) => 'D',
            _ if self.what.kind => 'T',
            _ => 'M',
        }
    }

    /// The mode that it had, and the one that it has.
    pub(crate) fn modes(&self) -> (Option<u32>, Option<u32>) {
        (self.old.map(|old| old.seen.mode), self.new.as_ref().map(|new| new.attributes.mode))
    }

    /// Whether a listing shows it: of directories it shows what they hold, and changes of times alone not at
    /// all.
    pub(crate) fn is_shown(&self) -> bool {
        let (old, new) = self.modes();
        let directory = old.or(new).is_some_and(is_dir) && new.or(old).is_some_and(is_dir);
        let attributes = self.what.mode || self.what.owner || self.what.xattr;
        let both = self.old.is_some() && self.new.is_some();
        if directory {
            both && attributes
        } else {
            !both || attributes || self.what.kind || self.what.content
        }
    }

    /// Whether it is lost with the session: what a listing shows, an empty directory that was made or
    /// removed, and times that were set. Times of directories change with what they hold.
    pub(crate) fn counts(&self) -> bool {
        let is_directory = self.modes().1.is_some_and(is_dir);
        self.is_shown() || self.old.is_some() != self.new.is_some() || self.what.times && !is_directory
    }
}

impl Tree<'_> {
    /// All changes, by path.
    pub(crate) fn changes(&self) -> io::Result<Changes> {
        let mut found = Changes::default();
        for root in self.roots() {
            let (path, old, new) = root?;
            let mut left = vec![(path.to_owned(), Some(old), Some(new))];
            while let Some((path, old, new)) = left.pop() {
                self.compare(&path, old.as_ref(), new.as_ref(), &mut found)?;
                left.extend(self.below(&path, old.as_ref(), new.as_ref())?);
            }
        }
        for (at, old) in pair_renames(&mut found.all) {
            let change = &mut found.all[at];
            if let (Some(from), Some(new)) = (&change.from, &change.new) {
                change.what = self.differs(from, &old, new)?;
            }
        }
        found.all.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    }

    /// Compares a name; of a directory, not what it holds.
    fn compare(
        &self,
        path: &Path,
        old: Option<&Old>,
        new: Option<&New>,
        found: &mut Changes,
    ) -> io::Result<()> {
        let what = match (old, new) {
            (Some(old), Some(new)) => self.differs(path, old, new)?,
            _ => What::default(),
        };
        let changed = what != What::default() || old.is_some() != new.is_some();
        if let Some(new) = new.filter(|new| !is_dir(new.attributes.mode) && new.attributes.nlink > 1) {
            let is_there = !changed && old.is_some_and(|old| old.seen.target() == new.inode);
            found
                .links
                .entry(new.inode.to_word())
                .or_default()
                .push(Link { path: path.to_owned(), is_there });
        }
        if changed {
            let (path, old, new) = (path.to_owned(), old.copied(), new.cloned());
            found.all.push(Change { path, old, new, from: None, from_mode: None, what });
        }
        Ok(())
    }

    /// The names in what was or is a directory, with what they were and are, the last first.
    fn below(&self, path: &Path, old: Option<&Old>, new: Option<&New>) -> io::Result<Vec<Compared>> {
        let old = old.filter(|old| is_dir(old.seen.mode));
        let new = new.filter(|new| is_dir(new.attributes.mode));
        let (mut before, now) = match (old, new) {
            // Of what has not been taken in nothing has changed.
            (Some(old), Some(new)) if old.seen.target() == new.inode && self.waits(new) => {
                match below::has_listing(self.task.region.inode(new.inode.id)) {
                    true => (self.records_of(old)?, self.entries_of(new)?),
                    false => return Ok(Vec::new()),
                }
            }
            _ => (
                old.map_or(Ok(BTreeMap::new()), |old| self.names_before(old))?,
                new.map_or(Ok(BTreeMap::new()), |new| self.names_now(new))?,
            ),
        };
        let mut names: Vec<Compared> =
            now.into_iter().map(|(name, new)| (path.join(&name), before.remove(&name), Some(new))).collect();
        names.extend(before.into_iter().map(|(name, old)| (path.join(name), Some(old), None)));
        names.sort_by(|one, other| other.0.cmp(&one.0));
        Ok(names)
    }

    /// Whether names of a directory are still to be taken in.
    fn waits(&self, new: &New) -> bool {
        below::is_pending(self.task.region.inode(new.inode.id))
    }

    /// The names that a directory had.
    fn names_before(&self, old: &Old) -> io::Result<BTreeMap<OsString, Old>> {
        let seen = self.record(old.at)?;
        // The names may be incomplete, if the directory was moved before anybody listed it or if a listing
        // was cut short. Those of a removed directory are complete.
        match below::take(self.task, seen.target(), Need::All) {
            Err(Errno::ESTALE) if seen.list != 0 => {}
            taken => taken.map_err(error)?,
        }
        self.records_of(old)
    }

    /// The names of a directory that have been seen with their attributes.
    fn records_of(&self, old: &Old) -> io::Result<BTreeMap<OsString, Old>> {
        let region = self.task.region;
        let seen = self.record(old.at)?;
        let mut names = BTreeMap::new();
        let mut room: NameRoom = [0; std::mem::size_of::<NameRoom>()];
        list::each(region, InodeId(seen.list), list::FIRST, |at, seen| {
            // Without a target it is being renewed, and the session is not asked for it.
            if seen.target != 0 {
                let name = OsStr::from_bytes(list::name(region, at, seen, &mut room)?).to_owned();
                names.insert(name, Old { at, seen: *seen });
            }
            Ok(true)
        })
        .map_err(error)?;
        Ok(names)
    }

    fn differs(&self, path: &Path, old: &Old, new: &New) -> io::Result<What> {
        let (seen, now) = (&old.seen, &new.attributes);
        let same = seen.target() == new.inode;
        let changed = (now.ctime.sec, now.ctime.nsec) != (seen.seconds[2], seen.nanoseconds[2]);
        if same && !changed {
            return Ok(What::default());
        }
        let kinds = kind(seen.mode) != kind(now.mode) || seen.rdev != now.rdev;
        let content = !kinds
            && match kind(now.mode) {
                libc::S_IFREG => !self.has_content_of(path, old, new)?,
                libc::S_IFLNK if !same => {
                    let there = host::reach(self.over, path).and_then(fs::read_link);
                    host::unless_lost(there)? != Some(self.target(new)?)
                }
                _ => false,
            };
        let link = kind(now.mode) == libc::S_IFLNK;
        let inode = self.task.region.inode(new.inode.id);
        // What nobody has asked for, nobody has changed.
        let is_asked = !(same && below::lacks_attributes(inode));
        Ok(What {
            kind: kinds,
            content,
            mode: !link && seen.mode & 0o7777 != now.mode & 0o7777,
            owner: (seen.uid, seen.gid) != (now.uid, now.gid),
            xattr: !kinds
                && !link
                && is_asked
                && host::unless_lost(host::reach(self.over, path).and_then(|at| host::xattrs(&at)))?
                    != Some(self.xattrs(new)?),
            times: (seen.seconds[1], seen.nanoseconds[1]) != (now.mtime.sec, now.mtime.nsec),
        })
    }

    fn has_content_of(&self, path: &Path, old: &Old, new: &New) -> io::Result<bool> {
        if old.seen.size != new.attributes.size {
            return Ok(false);
        }
        let pending = below::is_pending(self.task.region.inode(new.inode.id));
        if pending && old.seen.target() == new.inode {
            return Ok(true);
        }
        let there = host::unless_lost(host::reach(self.over, path))?;
        there.map_or(Ok(false), |there| self.has_content(new, &there))
    }

    /// Whether a file of the session holds what a file of the host does.
    pub(crate) fn has_content(&self, new: &New, path: &Path) -> io::Result<bool> {
        let Some(host) = host::unless_lost(host::regular(path))?.flatten() else { return Ok(false) };
        if host.metadata()?.len() != new.attributes.size {
            return Ok(false);
        }
        let mut at = 0;
        host::holds(host, |to| {
            let got = self.read(new, to, at)?;
            at += got as u64;
            Ok(got)
        })
    }

    /// Why a change cannot be written: what is on the host is not what was seen there.
    pub(crate) fn conflict(&self, change: &Change) -> Option<String> {
        let found = host::look(self.over, &change.path);
        match (&change.old, found) {
            // Perhaps a directory above is not there yet, or not any more.
            (None, Err(e)) if host::is_absence(&e) => None,
            (None, Ok(found)) if found.is_dir() && change.modes().1.is_some_and(is_dir) => {
                Some("was made on the host too".to_owned())
            }
            (None, Ok(_)) => Some("was made on the host too".to_owned()),
            (Some(_), Err(e)) if host::is_absence(&e) => Some("has been removed on the host".to_owned()),
            (_, Err(e)) => Some(format!("cannot be looked at on the host: {}", reason(&e))),
            (Some(old), Ok(found)) => {
                let (seen, found) = (&old.seen, record_of(&found));
                let new = change.new.as_ref();
                let ctime = |record: &Record| (record.seconds[2], record.nanoseconds[2]);
                let times = |record: &Record| (record.size, ctime(record));
                let is_same = (found.dev, found.ino, kind(found.mode))
                    == (seen.dev, seen.ino, kind(seen.mode))
                    && match is_dir(found.mode) {
                        // Whose extended attributes are the newer ones only the host's change time can say.
                        true => {
                            let is_dressed = |new: &New| is_dressed_otherwise(seen, &new.attributes, &found);
                            let has_new_xattrs = change.what.xattr && ctime(&found) != ctime(seen);
                            !has_new_xattrs && !new.is_some_and(is_dressed)
                        }
                        false => times(&found) == times(seen) || is_same_special(&found, seen),
                    };
                (!is_same).then(|| "has changed on the host".to_owned())
            }
        }
    }
}

/// Whether the session has changed mode or owner of a directory, and the host has changed them otherwise.
pub(super) fn is_dressed_otherwise(seen: &Record, now: &Attributes, found: &Record) -> bool {
    let of = |mode: u32, owner: (u32, u32)| (mode & 0o7777, owner);
    let seen = of(seen.mode, (seen.uid, seen.gid));
    let now = of(now.mode, (now.uid, now.gid));
    let found = of(found.mode, (found.uid, found.gid));
    now.0 != seen.0 && ![seen.0, now.0].contains(&found.0)
        || now.1 != seen.1 && ![seen.1, now.1].contains(&found.1)
}

/// Whether the host has the FIFO, socket or device that was seen. Whoever writes to one changes its times.
pub(super) fn is_same_special(found: &Record, seen: &Record) -> bool {
    let of = |record: &Record| {
        (record.dev, record.ino, record.mode, record.rdev, record.uid, record.gid, record.nlink)
    };
    !matches!(kind(seen.mode), libc::S_IFREG | libc::S_IFLNK | libc::S_IFDIR) && of(found) == of(seen)
}

/// How many lines a listing of changes has.
pub(crate) fn count(changes: &[Change]) -> usize {
    let shown: Vec<&Change> = changes.iter().filter(|change| change.is_shown()).collect();
    listed(&shown).len()
}

/// What is listed of changes: a rename says what became of the name that is gone.
pub(crate) fn listed<'c>(shown: &[&'c Change]) -> Vec<&'c Change> {
    let renamed: BTreeSet<&PathBuf> = shown.iter().filter_map(|change| change.from.as_ref()).collect();
    shown.iter().copied().filter(|change| change.new.is_some() || !renamed.contains(&change.path)).collect()
}

/// Finds names that were taken away from what stands at another name now. Returns what was there, with the
/// place of the change.
fn pair_renames(all: &mut [Change]) -> Vec<(usize, Old)> {
    let gone: BTreeMap<u64, (PathBuf, Old)> = all
        .iter()
        .filter(|change| change.new.is_none())
        .filter_map(|change| change.old.map(|old| (old.seen.target, (change.path.clone(), old))))
        .collect();
    let (mut taken, mut pairs) = (BTreeSet::new(), Vec::new());
    for (at, change) in all.iter_mut().enumerate().filter(|(_, change)| change.old.is_none()) {
        let Some(new) = &change.new else { continue };
        let word = new.inode.to_word();
        if let Some((from, old)) = gone.get(&word).filter(|_| taken.insert(word)) {
            change.from = Some(from.clone());
            change.from_mode = Some(old.seen.mode);
            pairs.push((at, *old));
        }
    }
    pairs
}
