//! `run --over`: the session that holds the changes, as a run begins and as it ends.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::compare::tree::{self, Tree};
use super::lower::form::Form;
use super::write::check::HINT;
use super::{apply, ask};
use crate::command::launch::start::start;
use crate::command::launch::supervise::{End, take_signals};
use crate::command::options::mountpoint::{self, MOST, MountPoint};
use crate::command::options::run::{Options, RegionOwner};
use crate::command::output::failure::{Failure, REGION, USAGE, reason};
use crate::command::output::message::message;
use crate::command::output::shown;
use crate::command::program::caller::check_caller;
use crate::command::run::claim::Claim;
use crate::command::run::record::Paths;
use crate::command::session::kept::Kept;
use crate::command::session::remove::{self, gone};
use crate::command::session::trees::Trees;

/// Conflicts that are listed as a run begins.
const LISTED: usize = 20;

/// `run --over DIR`.
pub(crate) fn run(options: &Options, command: &[OsString]) -> Result<u8, Failure> {
    let mut directories = Vec::new();
    for over in &options.over {
        let fail =
            |e: &std::io::Error| Failure::new(REGION, format!("--over {}: {}", over.display(), reason(e)));
        let directory = over.canonicalize().map_err(|e| fail(&e))?;
        match directory.is_dir() {
            // Its names are needed first of all.
            true => _ = std::fs::read_dir(&directory).map_err(|e| fail(&e))?,
            false if options.over.len() == 1 => return run_archive(options, &directory, command),
            false => {
                let line = "is no directory; only directories can be several";
                return Err(Failure::new(USAGE, format!("--over {} {line}", over.display())));
            }
        }
        directories.push(directory);
    }
    if !is_default(&options.at) {
        let line = "--over DIR: a directory appears at its own path; leave --at out";
        return Err(Failure::new(USAGE, line));
    }
    if options.ask && !ask::can_ask() {
        let line = "--ask needs a terminal on standard input and standard error; use --apply, or lightpath diff and \
                    lightpath apply afterwards";
        return Err(Failure::new(USAGE, line));
    }
    let over = Trees::new(&directories);
    let point = |directory: &PathBuf| {
        let fail = |line| Failure::new(USAGE, format!("--over {}: {line}", directory.display()));
        match directory.as_path() == Path::new("/") {
            true => MountPoint::root(),
            false => MountPoint::new(directory),
        }
        .map_err(fail)
    };
    let at = over.all().iter().map(point).collect::<Result<Vec<_>, _>>()?;
    if at.len() > MOST {
        let line = format!("--over is given for {} directories; the maximum is {MOST}", at.len());
        return Err(Failure::new(USAGE, line));
    }
    mountpoint::check_apart(&at).map_err(|line| Failure::new(USAGE, line))?;
    check_caller()?;
    let kept = match options.discard {
        true => None,
        false => Some(Kept::open(&over, options.session.as_deref())?),
    };
    let options = Options {
        at,
        region: kept.as_ref().map(Kept::file),
        owner: RegionOwner::Session,
        over: over.all().to_vec(),
        ..options.clone()
    };
    start(
        &options,
        command,
        |paths| begin(kept.as_ref(), &options, paths),
        |claim, end| at_end(claim, &options, end),
    )
}

/// Whether these are the mounts of a run without `--at`.
fn is_default(points: &[MountPoint]) -> bool {
    points == [MountPoint::default()]
}

/// `run --over FILE` for an archive or a frozen region.
fn run_archive(options: &Options, archive: &Path, command: &[OsString]) -> Result<u8, Failure> {
    let shown = archive.display();
    let fail = |status: u8, why: &str| Failure::new(status, format!("--over {shown}: {why}"));
    let form = Form::of(archive).map_err(|e| fail(REGION, &reason(&e)))?.map_err(|why| fail(REGION, why))?;
    if options.apply || options.ask {
        return Err(fail(
            USAGE,
            "nothing is written to an archive; use lightpath export when the command has ended",
        ));
    }
    let [point] = &options.at[..] else {
        return Err(fail(USAGE, "it appears at one place; give one --at"));
    };
    check_caller()?;
    let (kept, scratch) = match options.discard {
        true => Kept::scratch(archive, form, point.path()).map(|(kept, held)| (kept, Some(held)))?,
        false => {
            let name = options.session.as_deref();
            (Kept::open_archive(archive, form, point.path(), name)?, None)
        }
    };
    let options = Options {
        region: scratch.is_none().then(|| kept.file()),
        owner: RegionOwner::Session,
        over: kept.over.all().to_vec(),
        scratch: scratch.is_some().then(|| kept.place.clone()),
        ..options.clone()
    };
    let session = scratch.is_none().then_some(&kept);
    let done = start(
        &options,
        command,
        |paths| begin(session, &options, paths),
        |claim, end| at_end(claim, &options, end),
    );
    if done.is_err() && scratch.is_some() {
        kept.remove()?;
    }
    done
}

/// Opens the region for a run. Nobody ends the session meanwhile.
pub(crate) fn begin(kept: Option<&Kept>, options: &Options, paths: &Paths<'_>) -> Result<Claim, Failure> {
    let _held = kept.map(Kept::hold).transpose()?;
    if kept.is_some_and(|kept| kept.journal().exists()) {
        let line = "an apply of this session was interrupted: finish it with lightpath apply first";
        return Err(Failure::new(REGION, line));
    }
    kept.map_or(Ok(()), Kept::remove_half_made)?;
    let new = kept.filter(|kept| !kept.file().exists());
    let claim = Claim::open(options, paths).inspect_err(|_| {
        // A session without a region holds nothing. If it is left, it can be discarded.
        let _ = new.map(Kept::remove);
    })?;
    // What is unpacked is the session's own, and does not change.
    if let Some(kept) = kept
        && kept.archive.is_none()
        && !claim.has_others()
    {
        renew(kept, &claim)?;
    }
    Ok(claim)
}

/// Takes over what has changed in the directory since the last run; names what the session has changed too.
fn renew(kept: &Kept, claim: &Claim) -> Result<(), Failure> {
    let fail = |e: &std::io::Error| {
        let line = format!("session {} cannot take over what has changed: {}", kept.shown(), reason(e));
        Failure::new(REGION, line)
    };
    let mark = kept.renewing();
    let again = mark.exists();
    let renewed = claim.with_task(|task| {
        let tree = Tree::of(task, kept);
        let conflicts = tree.renew(again, || std::fs::write(&mark, []))?;
        gone(std::fs::remove_file(&mark)).map(|()| conflicts)
    });
    let conflicts = renewed.map_err(|e| fail(&tree::error(e)))?.map_err(|e| fail(&e))?;
    for path in conflicts.iter().take(LISTED) {
        let line = format!("conflict: {} has changed on the host and in the session", shown::below(path));
        message(Failure::new(REGION, line));
    }
    if let Some(more @ 1..) = conflicts.len().checked_sub(LISTED) {
        message(format_args!("and {more} conflicts more: see lightpath apply --check"));
    }
    if !conflicts.is_empty() {
        message(HINT);
    }
    Ok(())
}

/// Does what remains when the command has ended, and ends as it did.
fn at_end(claim: &Claim, options: &Options, end: End) -> Result<u8, Failure> {
    if options.ask {
        // From here on they have their usual effect: the session is kept.
        take_signals();
        ask::at_end(claim, options)?;
    }
    if let Some(scratch) = &options.scratch {
        remove::tree(scratch)
            .map_err(|e| Failure::new(REGION, format!("{}: {}", scratch.display(), reason(&e))))?;
    }
    match end {
        End::Exited(0) if options.apply => apply::at_end(claim, options),
        end => Ok(end.pass_on()),
    }
}
