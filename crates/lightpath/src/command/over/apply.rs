//! `lightpath apply`: writing a session's changes to its directory.
//!
//! All that is in the way is found, and all content taken, before anything is written. Then the paths that
//! will be written are noted in the journal beside the session; directories are made, files put in place by a
//! temporary name and rename(2), and what is gone removed last. Each step may be done again: an apply that
//! finds a journal goes through all changes once more, and takes what is written already for what it is. An
//! apply of a part then makes the session's lists say what the directory has now, and removes the journal.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use lp_region::sync::Ordering::{Acquire, Relaxed};
use lp_vfs::below::complete;

use super::changes::{self, Change, Changes, Tree, is_dir, kind};
use super::limit::limit;
use super::put::{TEMPORARY, gone};
use super::reverse::Undo;
use super::{below, check_unused, host, in_use, of_run, open};
use crate::command::cli::Apply;
use crate::command::options::run::Options;
use crate::command::output::failure::{Failure, REGION, reason};
use crate::command::output::print::print;
use crate::command::run::claim::Session;
use crate::command::session::Kept;

/// Writes the changes of a session and ends it.
pub(crate) fn apply(args: &Apply) -> Result<u8, Failure> {
    let kept = Kept::find(args.which.session.as_deref())?;
    if let Some(archive) = &kept.archive {
        let line = format!(
            "session {} is over {}, which nothing is written to: see lightpath export",
            kept.shown(),
            archive.display()
        );
        return Err(Failure::new(REGION, line));
    }
    let paths = below(&kept.over, &args.paths)?;
    let _held = kept.hold()?;
    let session = open(&kept)?;
    check_unused(&kept, &session)?;
    let undo = args.reverse.as_deref().map(|file| Undo::place(file, &kept)).transpose()?;
    in_session(&kept, &session, &Asked { check: args.check, paths, undo })
}

/// `run --apply`, and the answer to `run --ask`: the command has ended.
pub(crate) fn at_end(session: &Session, options: &Options) -> Result<u8, Failure> {
    let kept = of_run(options)?;
    let _held = kept.hold()?;
    if session.has_others() {
        return Err(in_use(&kept));
    }
    in_session(&kept, session, &Asked::default())
}

/// What an apply is to do.
#[derive(Default)]
struct Asked {
    /// Write nothing.
    check: bool,
    /// Only what lies at or below these; everything if there are none.
    paths: Vec<PathBuf>,
    /// Keep there what it takes to undo it.
    undo: Option<Undo>,
}

fn in_session(kept: &Kept, session: &Session, asked: &Asked) -> Result<u8, Failure> {
    let over = kept.over.above();
    let fail =
        |what: &Path, e: &io::Error| Failure::new(REGION, format!("{}: {}", what.display(), reason(e)));
    for tree in kept.over.all() {
        match fs::metadata(tree) {
            Ok(found) if !found.is_dir() => {
                return Err(Failure::new(REGION, format!("{} is no directory any more", tree.display())));
            }
            Err(e) => return Err(fail(tree, &e)),
            Ok(_) => {}
        }
    }
    let done = session.with_task(|task| {
        let tree = Tree::of(task, kept);
        let mut changes = tree.changes().map_err(|e| fail(over, &e))?;
        let journaled = journaled(kept);
        let undo = Undo::begun(kept)?;
        let paths = chosen(kept, asked, &journaled, undo.is_some())?;
        let (left, unchanged) = limit(&mut changes, &paths, &journaled);
        if let Some(path) = unchanged.first().filter(|path| !journaled.contains(*path)) {
            let line =
                format!("{}: nothing has changed there; nothing was written", over.join(path).display());
            return Err(Failure::new(REGION, line));
        }
        let writer = Writer { tree: &tree, changes: &changes, journaled };
        writer.check(kept)?;
        if asked.check {
            return Ok(None);
        }
        let interrupted = |(path, e): (PathBuf, io::Error)| {
            let line = format!("{}: {}; the session is kept: apply again", path.display(), reason(&e));
            Failure::new(REGION, line)
        };
        let undo = match (undo, &asked.undo) {
            (None, Some(asked)) => Some(asked.begin(&writer, kept)?),
            (begun, _) => begun,
        };
        writer.write(kept).map_err(interrupted)?;
        if let Some(undo) = undo {
            undo.finish(&writer)?;
        }
        if left != 0 {
            tree.settle(&changes.all).map_err(interrupted)?;
        }
        Ok(Some((changes.all.iter().filter(|change| change.is_shown()).count(), left)))
    });
    let done = done.map_err(|e| fail(over, &changes::error(e)))??;
    let shown = kept.over.shown();
    let shown = shown.display();
    match done {
        None => print(format!("nothing is in the way in {shown}\n").as_bytes()),
        Some((count, 0)) => {
            kept.remove()?;
            print(format!("{count} changes are in {shown}\n").as_bytes())
        }
        Some((count, left)) => {
            kept.end_apply()?;
            let name = kept.shown();
            print(format!("{count} changes are in {shown}; session {name} keeps {left}\n").as_bytes())
        }
    }
}

/// The paths that an apply is limited to.
fn chosen(
    kept: &Kept,
    asked: &Asked,
    journaled: &BTreeSet<PathBuf>,
    undo: bool,
) -> Result<Vec<PathBuf>, Failure> {
    if journaled.is_empty() {
        return Ok(asked.paths.clone());
    }
    if asked.undo.is_some() {
        let line =
            format!("an apply of session {} was interrupted: finish it without --reverse", kept.shown());
        return Err(Failure::new(REGION, line));
    }
    // The file that undoes it holds what these were.
    Ok(if undo { journaled.iter().cloned().collect() } else { asked.paths.clone() })
}

/// The paths that an apply that was interrupted may have written.
fn journaled(kept: &Kept) -> BTreeSet<PathBuf> {
    let journal = fs::read(kept.journal()).unwrap_or_default();
    let paths = journal.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    paths.map(|path| PathBuf::from(OsStr::from_bytes(path))).collect()
}

/// What writes the changes of a session.
pub(super) struct Writer<'t> {
    pub(super) tree: &'t Tree<'t>,
    pub(super) changes: &'t Changes,
    pub(super) journaled: BTreeSet<PathBuf>,
}

/// What failed, and why.
type Done<T> = Result<T, (PathBuf, io::Error)>;

impl Writer<'_> {
    /// A path of the host.
    pub(super) fn host(&self, path: &Path) -> PathBuf {
        match path.as_os_str().is_empty() {
            true => self.tree.over.to_owned(),
            false => self.tree.over.join(path),
        }
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
                    complete(self.tree.task, record).map_err(changes::error).map_err(at(&change.path))?;
                }
            }
        }
        for change in &self.changes.all {
            self.keep_content(change).map_err(at(&change.path))?;
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
                host::look(self.tree.over, &change.path).is_ok_and(|found| kind(found.mode()) == is_old);
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

    /// Reads the content of a file that has another name in the session before its origin is removed.
    fn keep_content(&self, change: &Change) -> io::Result<()> {
        let Some(old) = change.old.filter(|old| !is_dir(old.seen.mode)) else { return Ok(()) };
        let target = old.seen.target();
        let record = self.tree.task.region.inode(target.id);
        // Acquire: the generation grows before the slot is used again. Relaxed: nobody else uses the session.
        let lives = record.generation.load(Acquire) == target.generation && record.nlink.load(Relaxed) != 0;
        if lives { complete(self.tree.task, record).map_err(changes::error) } else { Ok(()) }
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
        // A link may stand for a directory above already.
        if host::look(self.tree.over, &change.path).is_err_and(|e| host::is_absence(&e)) {
            return Ok(());
        }
        let path = self.host(&change.path);
        match change.modes().0.is_some_and(is_dir) {
            true => gone(fs::remove_dir(path)),
            false => gone(fs::remove_file(path)),
        }
    }
}
