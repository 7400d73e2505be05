//! `lightpath fsck`: reports the errors of a region file, one line each, and repairs them.

use std::fs::File;
use std::os::fd::IntoRawFd;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use lp_abi::Fd;
use lp_fsck::{Finding, Rebuilt, Report, Severity};
use lp_region::{ProcessId, Region, life_file};
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use crate::command::output::failure::{Failure, MENDED, UNCHECKED, WRONG, reason};
use crate::command::output::print::print;
use crate::command::region::explain::explain;
use crate::command::region::sound;

const AFTER_HELP: &str = "\
Exit status, as for fsck(8): 0 if there are no errors; 1 if all errors were corrected; 4 if errors are \
left; 8 if FILE cannot be checked because it is not a region or a run is using it; 16 for a usage error.";

/// `lightpath fsck`.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Fsck {
    /// Repair errors. Without it, FILE is not modified.
    #[arg(long)]
    repair: bool,
    /// Print the findings as JSON.
    #[arg(long)]
    json: bool,
    /// The region file; no run may be using it.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
}

/// Checks, and repairs if asked to; returns the exit status.
pub(crate) fn fsck(args: &Fsck) -> Result<u8, Failure> {
    let name = args.file.display().to_string();
    let fail = |line: String| Failure::new(UNCHECKED, line);
    // Opened for writing even to be read, because a region is mapped that way.
    let file = File::options()
        .read(true)
        .write(true)
        .open(&args.file)
        .map_err(|e| fail(format!("cannot open region file {name}: {}", reason(&e))))?;
    // Launchers hold this lock while they examine a region and claim a run, so no run starts meanwhile.
    flock(&file, FlockOperation::LockExclusive)
        .map_err(|e| fail(format!("locking {name}: {}", reason(&e.into()))))?;
    // With a life file of this process's own, every process of the region counts as dead. Live processes hold
    // their run, which the region itself shows.
    let fd = life_file::beside(Fd::new(file.into_raw_fd())).map_err(|e| {
        fail(format!("cannot make the life file: {}", reason(&std::io::Error::from_raw_os_error(e.number()))))
    })?;
    let region = Region::open(fd).map_err(|e| fail(explain(&name, e)))?;
    if lp_fsck::is_in_use(region) {
        return Err(fail(format!("{name} is in use: check it when no program of a run is left")));
    }
    let is_old = region.is_of_former_boot();
    if !args.repair {
        let report = lp_fsck::check(region, ProcessId::NONE);
        show(args, &Checked { name: &name, is_old, report: &report, repaired: None })?;
        return Ok(if report.is_sound() { 0 } else { WRONG });
    }
    let done = lp_fsck::repair(region).map_err(|e| fail(format!("{name} cannot be repaired: {e:?}")))?;
    let repaired = Some((&done.after, done.rebuilt));
    show(args, &Checked { name: &name, is_old, report: &done.before, repaired })?;
    Ok(match (done.before.findings.is_empty(), done.after.is_sound()) {
        (true, _) => 0,
        (false, true) => MENDED,
        (false, false) => WRONG,
    })
}

/// The results for a region.
struct Checked<'a> {
    name: &'a str,
    /// Whether it was last used before this boot.
    is_old: bool,
    report: &'a Report,
    /// The findings after a repair, and what the repair could not keep in its place.
    repaired: Option<(&'a Report, Rebuilt)>,
}

/// Prints the results.
fn show(args: &Fsck, checked: &Checked) -> Result<u8, Failure> {
    if args.json {
        return print(json(checked).as_bytes());
    }
    let Checked { name, report, repaired, .. } = *checked;
    let mut text = String::new();
    for finding in &report.findings {
        text.push_str(&format!("{name}: {finding}\n"));
    }
    if report.omitted != 0 {
        text.push_str(&format!("{name}: {} more findings\n", report.omitted));
    }
    if let Some((after, lost)) = repaired {
        after.findings.iter().for_each(|finding| text.push_str(&format!("{name}: still: {finding}\n")));
        if lost != Rebuilt::default() {
            text.push_str(&format!("{name}: {}\n", sound::told(lost)));
        }
    }
    text.push_str(&format!("{name}: {}\n", summary(checked)));
    print(text.as_bytes())
}

fn summary(checked: &Checked) -> String {
    let Checked { is_old, report, repaired, .. } = *checked;
    let after = repaired.map(|(after, _)| after);
    let usage = after.unwrap_or(report).usage;
    let state = match (report.worst(), after) {
        (_, None) if is_old => "last used before the machine was started; the next run rebuilds it",
        (None, Some(_)) if is_old => "rebuilt",
        (None, _) => "clean",
        (Some(_), Some(after)) if after.is_sound() => "mended",
        (Some(Severity::Leftover), _) => "clean but for what dead processes left; the next run gives it back",
        (Some(_), None) => "damaged; repair it with --repair",
        (Some(_), Some(_)) => "damaged, and not all could be mended",
    };
    format!("{state}: {} names, {} inodes, {} pages of data in use", usage.entries, usage.inodes, usage.pages)
}

fn json(checked: &Checked) -> String {
    let Checked { name, is_old, report, repaired } = *checked;
    let list = |findings: &[Finding]| -> Vec<Value> {
        findings.iter().map(|f| json!({ "severity": f.severity.name(), "what": f.what })).collect()
    };
    let after = repaired.map_or(report, |(after, _)| after);
    let usage = json!({
        "names": after.usage.entries, "inodes": after.usage.inodes, "pages": after.usage.pages
    });
    let mut value = json!({
        "file": name,
        "sound": after.is_sound(),
        "former_boot": is_old,
        "findings": list(&report.findings),
        "omitted": report.omitted,
        "usage": usage,
    });
    if let Some((after, lost)) = repaired {
        value["left"] = list(&after.findings).into();
        value["dropped"] = lost.dropped.into();
        value["unnamed"] = lost.unnamed.into();
    }
    format!("{value}\n")
}
