//! `lightpath apply`: writing a session's changes to its directory.
//!
//! All that is in the way is found, and all content taken, before anything is written. Then the paths that will
//! be written are noted in the journal beside the session; directories are made, files put in place by a
//! temporary name and rename(2), and what is gone removed last. Each step may be done again: an apply that
//! finds a journal goes through all changes once more, and takes what is written already for what it is.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use lp_vfs::below;
use rustix::fs::{AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};

use super::changes::{self, Change, Changes, New, Old, Tree, is_dir, kind};
use super::{check_unused, open};
use crate::command::cli::{Apply, Options};
use crate::command::failure::{Failure, REGION, reason};
use crate::command::print;
use crate::command::region::Session;
use crate::command::session::Kept;

/// Name of a file before it gets its own. One is made at a time, so that a later apply finds what one that was killed left.
const TEMPORARY: &str = ".lightpath-apply";
/// Bytes that are copied at a time.
const STEP: usize = 1 << 20;
/// Conflicts that are listed.
const LISTED: usize = 100;

/// Writes the changes of a session and ends it.
pub(crate) fn apply(args: &Apply) -> Result<u8, Failure> {
    let kept = Kept::find(args.which.session.as_deref())?;
    let session = open(&kept)?;
    check_unused(&kept, &session)?;
    in_session(&kept, &session, args.check)
}

/// `run --apply`: the command has ended.
pub(crate) fn at_end(session: &Session, options: &Options) -> Result<u8, Failure> {
    let over = options.over.as_deref().unwrap_or(Path::new("/"));
    let kept = Kept::open(over, options.session.as_deref())?;
    in_session(&kept, session, false)
}

fn in_session(kept: &Kept, session: &Session, check: bool) -> Result<u8, Failure> {
    let over = &kept.over;
    let fail =
        |what: &Path, e: &io::Error| Failure::new(REGION, format!("{}: {}", what.display(), reason(e)));
    match fs::metadata(over) {
        Ok(found) if !found.is_dir() => {
            return Err(Failure::new(REGION, format!("{} is no directory any more", over.display())));
        }
        Err(e) => return Err(fail(over, &e)),
        Ok(_) => {}
    }
    let done = session.with_task(|task| {
        let tree = Tree { task, over };
        let changes = tree.changes().map_err(|e| fail(over, &e))?;
        let writer = Writer { tree: &tree, changes: &changes, journaled: journaled(kept) };
        let conflicts = writer.conflicts();
        if !conflicts.is_empty() {
            for line in conflicts.iter().take(LISTED) {
                eprintln!("lightpath: {}", Failure::new(REGION, format!("conflict: {line}")));
            }
            let line = format!("{} conflicts: nothing was written, the session is kept", conflicts.len());
            return Err(Failure::new(REGION, line));
        }
        if let Some((path, e)) = writer.unwritable() {
            return Err(fail(&path, &e));
        }
        if check {
            return Ok(None);
        }
        writer.write(kept).map_err(|(path, e)| {
            let line = format!("{}: {}; the session is kept: apply again", path.display(), reason(&e));
            Failure::new(REGION, line)
        })?;
        Ok(Some(changes.all.iter().filter(|change| change.is_shown()).count()))
    });
    let done = done.map_err(|e| fail(over, &changes::error(e)))??;
    match done {
        None => print(format!("nothing is in the way in {}\n", over.display()).as_bytes()),
        Some(count) => {
            kept.remove()?;
            print(format!("{count} changes are in {}\n", over.display()).as_bytes())
        }
    }
}

/// The paths that an apply that was interrupted may have written.
fn journaled(kept: &Kept) -> BTreeSet<PathBuf> {
    let journal = fs::read(kept.journal()).unwrap_or_default();
    let paths = journal.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    paths.map(|path| PathBuf::from(OsStr::from_bytes(path))).collect()
}

struct Writer<'t> {
    tree: &'t Tree<'t>,
    changes: &'t Changes,
    journaled: BTreeSet<PathBuf>,
}

/// What failed, and why.
type Done<T> = Result<T, (PathBuf, io::Error)>;

impl Writer<'_> {
    fn host(&self, path: &Path) -> PathBuf {
        match path.as_os_str().is_empty() {
            true => self.tree.over.to_owned(),
            false => self.tree.over.join(path),
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
            let why = why.or_else(|| {
                let parent = change.path.parent().filter(|_| change.old.is_none())?;
                let is_there = made.contains(parent)
                    || fs::symlink_metadata(self.host(parent)).is_ok_and(|found| found.is_dir());
                (!is_there).then(|| "has no directory on the host any more".to_owned())
            });
            lines.extend(why.map(|why| format!("{} {why}", change.path.display())));
        }
        lines
    }

    /// Whether an interrupted apply has written a change, or was at it.
    fn is_written(&self, change: &Change) -> bool {
        if !self.journaled.contains(&change.path) {
            return false;
        }
        let path = self.host(&change.path);
        let (found, new) = match (fs::symlink_metadata(&path), &change.new) {
            (Err(e), new) => {
                let is_gone = matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
                return is_gone && (new.is_none() || change.what.kind);
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
        match kind(found.mode()) {
            libc::S_IFREG => {
                found.size() == new.attributes.size && self.tree.content(new).ok() == fs::read(&path).ok()
            }
            libc::S_IFLNK => self.tree.target(new).ok() == fs::read_link(&path).ok(),
            _ => true,
        }
    }

    /// A directory that has to be written to and cannot be.
    fn unwritable(&self) -> Option<(PathBuf, io::Error)> {
        let directories: BTreeSet<PathBuf> = self
            .changes
            .all
            .iter()
            .filter_map(|change| Some(self.host(change.path.parent()?)))
            .filter(|directory| directory.is_dir())
            .collect();
        let mut all = directories.into_iter().map(|directory| {
            let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
            let may = rustix::fs::accessat(CWD, &directory, access, AtFlags::EACCESS);
            (directory, may)
        });
        all.find_map(|(directory, may)| Some((directory, io::Error::from(may.err()?))))
    }

    fn write(&self, kept: &Kept) -> Done<()> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |e: io::Error| (path, e)
        };
        for change in &self.changes.all {
            if let Some(new) = &change.new {
                let record = self.tree.task.region.inode(new.inode.id);
                if !is_dir(new.attributes.mode) {
                    below::complete(self.tree.task, record)
                        .map_err(changes::error)
                        .map_err(at(&change.path))?;
                }
            }
        }
        self.begin(kept).map_err(at(&kept.journal()))?;
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
                fs::symlink_metadata(self.host(&change.path)).is_ok_and(|found| kind(found.mode()) == is_old);
            if gives_way && still {
                self.remove(change).map_err(at(&change.path))?;
            }
        }
        for change in self.changes.all.iter().filter(|change| change.modes().1.is_some_and(is_dir)) {
            self.make_directory(change).map_err(at(&change.path))?;
        }
        let mut written = BTreeMap::new();
        for change in &self.changes.all {
            if let Some(new) = change.new.as_ref().filter(|new| !is_dir(new.attributes.mode)) {
                self.put(change, new, &mut written).map_err(at(&change.path))?;
            }
        }
        for change in self.changes.all.iter().rev().filter(|change| change.new.is_none()) {
            self.remove(change).map_err(at(&change.path))?;
        }
        for change in self.changes.all.iter().rev() {
            if let Some(new) = change.new.as_ref().filter(|new| is_dir(new.attributes.mode)) {
                self.dress(&self.host(&change.path), &change.path, new).map_err(at(&change.path))?;
            }
        }
        Ok(())
    }

    /// Notes what will be written, and removes what one that was killed left.
    fn begin(&self, kept: &Kept) -> io::Result<()> {
        let mut text = Vec::new();
        for change in &self.changes.all {
            text.extend(change.path.as_os_str().as_bytes());
            text.push(0);
            let parent = change.path.parent().unwrap_or(Path::new(""));
            if !self.journaled.is_empty() {
                gone(fs::remove_file(self.host(parent).join(TEMPORARY)))?;
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
        match fs::create_dir(self.host(&change.path)) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }

    fn remove(&self, change: &Change) -> io::Result<()> {
        let path = self.host(&change.path);
        match change.modes().0.is_some_and(is_dir) {
            true => gone(fs::remove_dir(path)),
            false => gone(fs::remove_file(path)),
        }
    }

    /// Puts anything but a directory in its place.
    fn put(&self, change: &Change, new: &New, written: &mut BTreeMap<u64, PathBuf>) -> io::Result<()> {
        let path = self.host(&change.path);
        let links = self.changes.links.get(&new.inode.to_word());
        let other = links.and_then(|links| links.iter().find(|link| link.is_there));
        let first = written.get(&new.inode.to_word()).cloned();
        if let Some(first) = first.or_else(|| other.map(|link| self.host(&link.path))) {
            return self.link(&first, &path);
        }
        let was_it = change.old.is_some_and(|old| old.seen.target() == new.inode) && !change.what.kind;
        let names = links.map_or(1, Vec::len);
        if was_it && !change.what.content {
            self.dress(&path, &change.path, new)?;
        } else if was_it && new.attributes.nlink as usize > names {
            // It has names on the host that nobody has looked at here: they stay its names.
            let file = OpenOptions::new().write(true).truncate(true).open(&path)?;
            self.fill(file, new)?;
            self.dress(&path, &change.path, new)?;
        } else {
            self.replace(&path, &change.path, new)?;
        }
        if names > 1 {
            written.insert(new.inode.to_word(), path);
        }
        Ok(())
    }

    fn link(&self, first: &Path, path: &Path) -> io::Result<()> {
        let same = |one: &Path, other: &Path| {
            let id = |path: &Path| fs::symlink_metadata(path).map(|found| (found.dev(), found.ino())).ok();
            id(one).is_some() && id(one) == id(other)
        };
        if same(first, path) {
            return Ok(());
        }
        let temporary = path.with_file_name(TEMPORARY);
        gone(fs::remove_file(&temporary))?;
        fs::hard_link(first, &temporary)?;
        fs::rename(temporary, path)
    }

    /// Makes it anew under a temporary name.
    fn replace(&self, path: &Path, below: &Path, new: &New) -> io::Result<()> {
        let temporary = path.with_file_name(TEMPORARY);
        gone(fs::remove_file(&temporary))?;
        let mode = new.attributes.mode;
        match kind(mode) {
            libc::S_IFREG => {
                let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
                self.fill(file, new)?;
            }
            libc::S_IFLNK => std::os::unix::fs::symlink(self.tree.target(new)?, &temporary)?,
            kind => {
                let device = u64::from(new.attributes.rdev);
                rustix::fs::mknodat(
                    CWD,
                    &temporary,
                    rustix::fs::FileType::from_raw_mode(kind),
                    Mode::from_raw_mode(0o600),
                    device,
                )?;
            }
        }
        self.dress(&temporary, below, new)?;
        fs::rename(temporary, path)
    }

    fn fill(&self, mut file: File, new: &New) -> io::Result<()> {
        let mut buffer = vec![0; STEP.min(new.attributes.size as usize)];
        let mut at = 0;
        while at < new.attributes.size {
            match self.tree.read(new, &mut buffer, at)? {
                0 => break,
                got => {
                    file.write_all(&buffer[..got])?;
                    at += got as u64;
                }
            }
        }
        Ok(())
    }

    /// Gives a file of the host owner, mode, extended attributes and times.
    fn dress(&self, path: &Path, below: &Path, new: &New) -> io::Result<()> {
        let wanted = &new.attributes;
        let found = fs::symlink_metadata(path)?;
        if (found.uid(), found.gid()) != (wanted.uid, wanted.gid) {
            let owner = (Uid::from_raw(wanted.uid), Gid::from_raw(wanted.gid));
            rustix::fs::chownat(CWD, path, Some(owner.0), Some(owner.1), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        if kind(wanted.mode) != libc::S_IFLNK {
            self.set_xattrs(path, below)?;
            // An ACL has changed the mode.
            if fs::symlink_metadata(path)?.mode() & 0o7777 != wanted.mode & 0o7777 {
                fs::set_permissions(path, Permissions::from_mode(wanted.mode & 0o7777))?;
            }
        }
        let time = |time: lp_vfs::Time| Timespec { tv_sec: time.sec, tv_nsec: i64::from(time.nsec) };
        let times = Timestamps { last_access: time(wanted.atime), last_modification: time(wanted.mtime) };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(())
    }

    fn set_xattrs(&self, path: &Path, below: &Path) -> io::Result<()> {
        let (wanted, found) = (self.tree.xattrs(below)?, changes::host_xattrs(path)?);
        for name in found.keys().filter(|name| !wanted.contains_key(*name)) {
            rustix::fs::lremovexattr(path, OsStr::from_bytes(name))?;
        }
        for (name, value) in wanted.iter().filter(|(name, value)| found.get(*name) != Some(value)) {
            rustix::fs::lsetxattr(path, OsStr::from_bytes(name), value, XattrFlags::empty())?;
        }
        Ok(())
    }
}

/// The removal of what may be gone already.
fn gone(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
        done => done,
    }
}
