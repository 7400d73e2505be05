//! `lightpath apply`: writing a session's changes to its directory.
//!
//! All that is in the way is found, and all content taken, before anything is written. Then the paths that
//! will be written are noted in the journal beside the session; directories are made, files put in place by a
//! temporary name and rename(2), and what is gone removed last. Each step may be done again: an apply that
//! finds a journal goes through all changes once more, and takes what is written already for what it is. An
//! apply of a part then makes the session's lists say what the directory has now, and removes the journal.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};

use super::compare::changes::count;
use super::compare::tree::{self, Tree};
use super::paths::below;
use super::write::limit::{Above, limit};
use super::write::reverse::Undo;
use super::write::writer::{Others, Writer};
use crate::command::options::run::Options;
use crate::command::output::failure::{Failure, REGION, reason};
use crate::command::output::print::{print, report};
use crate::command::output::progress::Progress;
use crate::command::output::shown::{self, counted};
use crate::command::run::claim::Claim;
use crate::command::session::kept::Kept;
use crate::command::session::open::{check_unused, in_use, of_run, open};
use crate::command::session::which::Which;

const AFTER_HELP: &str = "\
Nothing is written if the directory has changed where the session has: each such path is a conflict and is \
listed. lightpath discard PATH takes what the directory has there, lightpath apply --force PATH what the \
session has. An apply that was interrupted is finished by the next one. With PATH, directories that a path needs \
are made with it, and a rename of which only one name is chosen is taken as what happens to that name: an \
addition or a deletion.

Exit status: 0 if all was written; 1 if there is a conflict or writing failed, and then the session is \
kept.";

/// `lightpath apply`.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Apply {
    #[command(flatten)]
    which: Which,
    /// List the conflicts only; write nothing.
    #[arg(long)]
    check: bool,
    /// Overwrite what has changed in the directory as well. What is of another type there stays a conflict.
    #[arg(long)]
    force: bool,
    /// Keep in FILE what lightpath undo needs to take it back. FILE is a tar archive of what was there
    /// before.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "check")]
    reverse: Option<PathBuf>,
    /// Only what lies at or below these; the session keeps the rest.
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
}

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
    let claim = open(&kept)?;
    check_unused(&kept, &claim)?;
    let undo = args.reverse.as_deref().map(|file| Undo::place(file, &kept)).transpose()?;
    let others = if args.force { Others::Overwritten } else { Others::Kept };
    in_session(&kept, &claim, &Asked { check: args.check, others, paths, undo })
}

/// `run --apply`, and the answer to `run --ask`: the command has ended.
pub(crate) fn at_end(claim: &Claim, options: &Options) -> Result<u8, Failure> {
    let kept = of_run(options)?;
    let _held = kept.hold()?;
    if claim.has_others() {
        return Err(in_use(&kept));
    }
    if claim.has_left() {
        let line = format!("processes of the run live on: session {} is kept, apply it later", kept.shown());
        return Err(Failure::new(REGION, line));
    }
    in_session(&kept, claim, &Asked::default())
}

/// What an apply is to do.
#[derive(Default)]
struct Asked {
    /// Write nothing.
    check: bool,
    others: Others,
    /// Only what lies at or below these; everything if there are none.
    paths: Vec<PathBuf>,
    /// Keep there what it takes to undo it.
    undo: Option<Undo>,
}

fn in_session(kept: &Kept, claim: &Claim, asked: &Asked) -> Result<u8, Failure> {
    let over = kept.over.above();
    let fail =
        |what: &Path, e: &io::Error| Failure::new(REGION, format!("{}: {}", what.display(), reason(e)));
    kept.over.check()?;
    let _written = kept.over.hold()?;
    let temporary = kept.temporary().map_err(|e| fail(&kept.place, &e))?;
    let done = claim.with_task(|task| {
        let tree = Tree::of(task, kept);
        let mut changes = tree.changes().map_err(|e| fail(over, &e))?;
        let journaled = kept.journaled();
        let undo = Undo::begun(kept)?;
        let paths = chosen(kept, asked, &journaled, undo.is_some())?;
        let (left, unchanged) = limit(&mut changes, &paths, &journaled, Above::Chosen);
        if let Some(path) = unchanged.first().filter(|path| !journaled.contains(*path)) {
            let line =
                format!("{}: nothing has changed there; nothing was written", over.join(path).display());
            return Err(Failure::new(REGION, line));
        }
        let progress = Progress::new("writing changes", changes.all.len());
        let (tree, changes) = (&tree, &changes);
        let writer = Writer { tree, changes, journaled, others: asked.others, temporary, progress };
        writer.check(kept)?;
        if asked.check {
            return Ok(None);
        }
        let interrupted = |(path, e): (PathBuf, io::Error)| {
            let line = format!("{}: {}; the session is kept: apply again", shown::below(&path), reason(&e));
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
        Ok(Some((count(&changes.all), left)))
    });
    let done = done.map_err(|e| fail(over, &tree::error(e)))??;
    let shown = kept.over.shown();
    let shown = shown.display();
    let changes = |count| match count {
        0 => "nothing has changed".to_owned(),
        count => counted(count, "change is", "changes are"),
    };
    match done {
        None => print(format!("nothing is in the way in {shown}\n").as_bytes()),
        Some((count, 0)) => {
            kept.over.sync()?;
            kept.remove()?;
            report(format!("{} in {shown}\n", changes(count)))
        }
        Some((count, left)) => {
            kept.over.sync()?;
            kept.end_apply()?;
            let name = kept.shown();
            report(format!("{} in {shown}; session {name} keeps {left}\n", changes(count)))
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
