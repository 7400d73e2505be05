//! `lightpath discard`: forgets a session, or what it has changed at some paths.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};

use super::compare::changes::count;
use super::compare::host;
use super::compare::tree::{self, Tree};
use super::paths::below;
use super::write::limit::{Above, limit};
use crate::command::output::failure::{Failure, REGION, reason};
use crate::command::output::print::report;
use crate::command::output::shown::{self, counted};
use crate::command::region::file::is_open_elsewhere;
use crate::command::run::claim::Claim;
use crate::command::session::kept::Kept;
use crate::command::session::open::{check_unused, in_use, open};
use crate::command::session::remove::gone;
use crate::command::session::which::Which;

const AFTER_HELP: &str = "\
With PATH the session shows there what the directory has now, and keeps its other changes. A rename is an \
addition and a deletion: with one name inside, only what happened to the name inside is discarded. A file \
that has several names on the host is taken back at all of them.";

/// `lightpath discard`.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Discard {
    #[command(flatten)]
    which: Which,
    /// Also if an apply was interrupted: what it has written stays, and the rest is lost.
    #[arg(long, conflicts_with = "paths")]
    force: bool,
    /// Only what lies at or below these; the session keeps the rest.
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
}

/// Forgets a session, or a part of its changes.
pub(crate) fn discard(args: &Discard) -> Result<u8, Failure> {
    let kept = Kept::find(args.which.session.as_deref())?;
    let paths = below(&kept.at, &args.paths)?;
    let _held = kept.hold()?;
    let is_used = is_open_elsewhere(&kept.file());
    let claim = open(&kept);
    match &claim {
        Ok(claim) => check_unused(&kept, claim)?,
        Err(_) if is_used => return Err(in_use(&kept)),
        // Another version's, say: it can still be forgotten.
        Err(_) => {}
    }
    if kept.journal().exists() {
        if !args.force {
            let line = format!(
                "an apply of session {} was interrupted and has written a part: finish it with lightpath apply, \
                 or leave it so with --force",
                kept.shown()
            );
            return Err(Failure::new(REGION, line));
        }
        remove_temporaries(&kept)
            .map_err(|e| Failure::new(REGION, format!("{}: {}", kept.over.shown().display(), reason(&e))))?;
    }
    if !paths.is_empty() {
        return part(&kept, &claim?, &paths);
    }
    drop(claim);
    kept.remove()?;
    report(format!("session {} over {} is gone\n", kept.shown(), kept.shown_over().display()))
}

/// Forgets what has changed at some paths.
fn part(kept: &Kept, claim: &Claim, paths: &[PathBuf]) -> Result<u8, Failure> {
    kept.over.check()?;
    let fail =
        |path: &Path, e: &io::Error| Failure::new(REGION, format!("{}: {}", shown::below(path), reason(e)));
    let mark = kept.renewing();
    let done = claim.with_task(|task| {
        let tree = Tree::of(task, kept);
        let mut changes = tree.changes().map_err(|e| fail(kept.over.above(), &e))?;
        let (left, unchanged) = limit(&mut changes, paths, &[].into(), Above::Left);
        if let Some(path) = unchanged.first() {
            let line = format!("{}: the session has changed nothing there", shown::below(path));
            return Err(Failure::new(REGION, line));
        }
        tree.revert(&changes.all, || fs::write(&mark, [])).map_err(|(path, e)| fail(&path, &e))?;
        gone(fs::remove_file(&mark)).map_err(|e| fail(&mark, &e))?;
        Ok((count(&changes.all), left))
    });
    let (count, left) = done.map_err(|e| fail(kept.over.above(), &tree::error(e)))??;
    let changes = counted(count, "change is", "changes are");
    report(format!("{changes} discarded; session {} keeps {left}\n", kept.shown()))
}

/// Removes the files that an interrupted apply has not given their names.
fn remove_temporaries(kept: &Kept) -> io::Result<()> {
    let name = kept.temporary()?;
    kept.journaled().iter().try_for_each(|path| {
        let temporary = path.with_file_name(&name);
        match host::reach(kept.over.above(), &temporary).and_then(fs::remove_file) {
            Err(e) if !host::is_absence(&e) => Err(e),
            _ => Ok(()),
        }
    })
}
