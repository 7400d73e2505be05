//! `lightpath sessions`.

use std::os::unix::ffi::OsStrExt;

use clap::Args;
use serde_json::json;

use crate::command::output::failure::Failure;
use crate::command::output::print::print;
use crate::command::session::kept::{Kept, all};

/// `lightpath sessions`.
#[derive(Args)]
pub(crate) struct Sessions {
    /// Print them as JSON.
    #[arg(long)]
    json: bool,
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
