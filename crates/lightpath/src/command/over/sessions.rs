//! `lightpath sessions` and `lightpath discard`.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use serde_json::json;

use super::compare::host;
use super::write::put::TEMPORARY;
use crate::command::output::failure::{Failure, REGION, reason};
use crate::command::output::print::print;
use crate::command::region::file::is_open_elsewhere;
use crate::command::session::kept::{Kept, all};
use crate::command::session::open::{check_unused, in_use, open};
use crate::command::session::which::Which;

/// `lightpath discard`.
#[derive(Args)]
pub(crate) struct Discard {
    #[command(flatten)]
    which: Which,
    /// Also if an apply was interrupted: what it has written stays, and the rest is lost.
    #[arg(long)]
    force: bool,
}

/// `lightpath sessions`.
#[derive(Args)]
pub(crate) struct Sessions {
    /// Print them as JSON.
    #[arg(long)]
    json: bool,
}

/// `lightpath discard`.
pub(crate) fn discard(args: &Discard) -> Result<u8, Failure> {
    let kept = Kept::find(args.which.session.as_deref())?;
    let _held = kept.hold()?;
    let is_used = is_open_elsewhere(&kept.file());
    match open(&kept) {
        Ok(claim) => check_unused(&kept, &claim)?,
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
    kept.remove()?;
    print(format!("session {} over {} is gone\n", kept.shown(), kept.shown_over().display()).as_bytes())
}

/// Removes the files that an interrupted apply has not given their names.
fn remove_temporaries(kept: &Kept) -> io::Result<()> {
    kept.journaled().iter().try_for_each(|path| {
        let temporary = path.with_file_name(TEMPORARY);
        match host::reach(kept.over.above(), &temporary).and_then(fs::remove_file) {
            Err(e) if !host::is_absence(&e) => Err(e),
            _ => Ok(()),
        }
    })
}

/// `lightpath sessions`.
pub(crate) fn sessions(args: &Sessions) -> Result<u8, Failure> {
    let all = all()?;
    let used = |kept: &Kept| std::fs::metadata(kept.file()).and_then(|found| found.modified()).ok();
    if args.json {
        let list: Vec<_> = all
            .iter()
            .map(|kept| {
                json!({
                    "name": kept.shown(),
                    "directories": kept.at.all().iter().map(|at| at.to_string_lossy()).collect::<Vec<_>>(),
                    "archive": kept.archive.as_ref().map(|archive| archive.to_string_lossy()),
                    "region": kept.file().to_string_lossy(),
                    "interrupted_apply": kept.journal().exists(),
                })
            })
            .collect();
        return print(format!("{}\n", json!(list)).as_bytes());
    }
    let mut text = Vec::new();
    for kept in &all {
        text.extend(kept.name.as_bytes());
        text.extend(b"\tover ");
        text.extend(kept.shown_over().as_bytes());
        if let Some(age) = used(kept).and_then(|time| time.elapsed().ok()) {
            text.extend(format!("\t{} min ago", age.as_secs() / 60).bytes());
        }
        if kept.journal().exists() {
            text.extend(b"\tapply interrupted");
        }
        text.push(b'\n');
    }
    print(&text)
}
