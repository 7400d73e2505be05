//! `run --over` and what comes after it: the sessions that hold the changes, what they are, and writing them.

pub(crate) mod apply;
mod changes;
mod content;
pub(crate) mod diff;
mod patch;
mod put;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::json;

use super::cli::{Discard, Options, Sessions};
use super::failure::{Failure, REGION, USAGE, reason};
use super::mountpoint::MountPoint;
use super::region::{Paths, Session};
use super::session::{self, Kept};
use super::{cache, print, run};

/// `run --over DIR`.
pub(crate) fn run(options: &Options, over: &Path, command: &[OsString]) -> Result<u8, Failure> {
    let shown = over.display();
    let fail = |e: &std::io::Error| Failure::new(REGION, format!("--over {shown}: {}", reason(e)));
    let directory = over.canonicalize().map_err(|e| fail(&e))?;
    // Its names are needed first of all.
    std::fs::read_dir(&directory).map_err(|e| fail(&e))?;
    let point =
        MountPoint::new(&directory).map_err(|line| Failure::new(USAGE, format!("--over {shown}: {line}")))?;
    let kept = match options.discard {
        true => None,
        false => Some(Kept::open(&directory, options.session.as_deref())?),
    };
    if kept.as_ref().is_some_and(|kept| kept.journal().exists()) {
        let line = "an apply of this session was interrupted: finish it with lightpath apply first";
        return Err(Failure::new(REGION, line));
    }
    let options = Options {
        at: vec![point],
        region: kept.map(|kept| kept.file()),
        over: Some(directory),
        ..options.clone()
    };
    run::begin(&options, command)
}

/// Opens the region of a session beside its runs.
fn open(kept: &Kept) -> Result<Session, Failure> {
    let file = kept.file();
    if !file.exists() {
        return Err(Failure::new(REGION, format!("session {} has no region: discard it", kept.shown())));
    }
    let point = MountPoint::unchecked(&kept.over);
    let cache = cache::directory().map_err(|line| Failure::new(REGION, line))?;
    let options = Options { at: vec![point], region: Some(file), ..Options::default() };
    Session::open(&options, &Paths { cache: &cache, preload: &cache, library: None })
}

/// Refuses to end a session that a run is using.
fn check_unused(kept: &Kept, session: &Session) -> Result<(), Failure> {
    match session.has_others() {
        true => {
            Err(Failure::new(REGION, format!("session {} is in use: wait for its run to end", kept.shown())))
        }
        false => Ok(()),
    }
}

/// `lightpath discard`.
pub(crate) fn discard(args: &Discard) -> Result<u8, Failure> {
    let kept = Kept::find(args.which.session.as_deref())?;
    // One that cannot be opened, another version's say, can still be forgotten.
    if let Ok(session) = open(&kept) {
        check_unused(&kept, &session)?;
    }
    kept.remove()?;
    print(format!("session {} is gone; {} is as it was\n", kept.shown(), kept.over.display()).as_bytes())
}

/// `lightpath sessions`.
pub(crate) fn sessions(args: &Sessions) -> Result<u8, Failure> {
    let all = session::all()?;
    let used = |kept: &Kept| std::fs::metadata(kept.file()).and_then(|found| found.modified()).ok();
    if args.json {
        let list: Vec<_> = all
            .iter()
            .map(|kept| {
                json!({
                    "name": kept.shown(),
                    "directory": kept.over.to_string_lossy(),
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
        text.extend(kept.over.as_os_str().as_bytes());
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
