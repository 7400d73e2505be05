//! `lightpath diff`: what a session has changed, in git's words.

use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use serde_json::json;

use super::compare::changes::{Change, listed};
use super::compare::host;
use super::compare::tree::{self, Tree, is_dir};
use super::patch::{self, Shown};
use super::paths::below;
use crate::command::output::failure::{Failure, REGION, reason};
use crate::command::output::message::message;
use crate::command::output::print::print;
use crate::command::output::shown;
use crate::command::session::kept::Kept;
use crate::command::session::open::open;
use crate::command::session::which::Which;

const AFTER_HELP: &str = "\
Letters: A added, M content or attributes changed, D deleted, R renamed, T another type.

With --json, a name that is not UTF-8 is also given by its bytes, as path_bytes or from_bytes.

Exit status: 0; 1 if something could not be read, which is named in a message, or if there is nothing at PATH.";

/// `lightpath diff`.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Diff {
    #[command(flatten)]
    which: Which,
    /// Print a patch that git apply takes.
    #[arg(long, conflicts_with_all = ["stat", "name_status", "json"])]
    patch: bool,
    /// Count the lines added and removed in each file.
    #[arg(long, conflicts_with_all = ["name_status", "json"])]
    stat: bool,
    /// Print a letter and the name: the default.
    #[arg(long, conflicts_with = "json")]
    name_status: bool,
    /// Print it as JSON.
    #[arg(long)]
    json: bool,
    /// Only what lies at or below these.
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    paths: Vec<PathBuf>,
}

/// Prints the changes of a session; says of each that cannot be written why.
pub(crate) fn diff(args: &Diff) -> Result<u8, Failure> {
    let kept = Kept::find(args.which.session.as_deref())?;
    let wanted = below(&kept.at, &args.paths)?;
    let claim = open(&kept)?;
    kept.over.check()?;
    let fail = |e: io::Error| Failure::new(REGION, format!("session {}: {}", kept.shown(), reason(&e)));
    // What it has written differs from what the session saw.
    let journaled = kept.journaled();
    if !journaled.is_empty() {
        let line = format!("an apply of session {} was interrupted: lightpath apply goes on", kept.shown());
        message(Failure::new(REGION, line));
    }
    let made = claim.with_task(|task| {
        let tree = Tree::of(task, &kept);
        let changes = tree.changes().map_err(fail)?;
        let shown: Vec<&Change> =
            changes.all.iter().filter(|change| change.is_shown() && is_wanted(change, &wanted)).collect();
        if let Some(path) = wanted.iter().find(|path| is_nowhere(&tree, &changes.all, path)) {
            let line = format!("{}: no such file in the session or its directory", shown::below(path));
            return Err(Failure::new(REGION, line));
        }
        let conflicts = shown.iter().filter(|change| !journaled.contains(&change.path));
        for (path, why) in conflicts.filter_map(|change| Some((&change.path, tree.conflict(change)?))) {
            message(Failure::new(REGION, format!("conflict: {} {why}", shown::below(path))));
        }
        Ok(text(args, &tree, &shown))
    });
    let made = made.map_err(|e| fail(tree::error(e)))??;
    print(&made.text)?;
    Ok(if made.unread == 0 { 0 } else { REGION })
}

/// Whether neither the session nor the host has anything at a path.
fn is_nowhere(tree: &Tree<'_>, changes: &[Change], path: &Path) -> bool {
    let is_changed = |change: &Change| {
        change.path.starts_with(path) || change.from.as_ref().is_some_and(|from| from.starts_with(path))
    };
    !changes.iter().any(is_changed) && host::look(tree.over, path).is_err_and(|e| host::is_absence(&e))
}

fn is_wanted(change: &Change, wanted: &[PathBuf]) -> bool {
    let is_in = |path: &Path| wanted.iter().any(|wanted| path.starts_with(wanted));
    wanted.is_empty() || is_in(&change.path) || change.from.as_deref().is_some_and(is_in)
}

fn text(args: &Diff, tree: &Tree<'_>, shown: &[&Change]) -> Shown {
    let listed = listed(shown);
    if args.json {
        let list = json!(listed.iter().map(|change| object(change)).collect::<Vec<_>>());
        return Shown { text: format!("{list}\n").into(), unread: 0 };
    }
    if args.patch {
        return patch::patch(tree, &listed);
    }
    if args.stat {
        return patch::stat(tree, &listed);
    }
    let colour = io::stdout().is_terminal();
    let mut text = Vec::new();
    for change in listed {
        let letter = change.letter();
        let code = match letter {
            'A' => 32,
            'D' => 31,
            _ => 33,
        };
        match colour {
            true => text.extend(format!("\x1b[{code}m{letter}\x1b[m\t").bytes()),
            false => text.extend(format!("{letter}\t").bytes()),
        }
        if let Some(from) = &change.from {
            text.extend(patch::quoted(from.as_os_str().as_bytes()));
            text.push(b'\t');
        }
        text.extend(patch::quoted(change.path.as_os_str().as_bytes()));
        if change.modes().1.or(change.modes().0).is_some_and(is_dir) {
            text.push(b'/');
        }
        text.push(b'\n');
    }
    Shown { text, unread: 0 }
}

fn object(change: &Change) -> serde_json::Value {
    let (old, new) = change.modes();
    let octal = |mode: Option<u32>| mode.map(|mode| format!("{mode:06o}"));
    let what = [
        ("type", change.what.kind),
        ("content", change.what.content),
        ("mode", change.what.mode),
        ("owner", change.what.owner),
        ("xattr", change.what.xattr),
    ];
    let mut object = json!({
        "status": change.letter().to_string(),
        "path": change.path.to_string_lossy(),
        "from": change.from.as_ref().map(|from| from.to_string_lossy()),
        "old_mode": octal(old.or(change.from_mode)),
        "new_mode": octal(new),
        "changed": what.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect::<Vec<_>>(),
    });
    // A string of JSON holds Unicode only: the bytes of other names are beside it.
    for (key, path) in [("path_bytes", Some(&change.path)), ("from_bytes", change.from.as_ref())] {
        if let Some(path) = path.filter(|path| path.to_str().is_none()) {
            object[key] = json!(path.as_os_str().as_bytes());
        }
    }
    object
}
