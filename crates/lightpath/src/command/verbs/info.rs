//! `lightpath info`: reports what a region file contains and how much space it takes.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use lp_abi::Fd;
use lp_region::layout::{RUNS, VERSION};
use lp_region::records::{Dirent, Inode};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{Region, RunId};
use serde_json::json;

use crate::command::output::failure::{Failure, REGION, reason};
use crate::command::output::print::print;
use crate::command::output::shown::human;
use crate::command::region::explain::explain;
use crate::command::region::packed::refuse_packed;
use crate::command::region::space::space;

/// `lightpath info`.
#[derive(Args)]
pub(crate) struct Info {
    /// Print JSON, with sizes in bytes.
    #[arg(long)]
    json: bool,
    /// The region file; runs may be using it.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
}

/// Size of a block of `st_blocks` in bytes.
const BLOCK: u64 = 512;

/// Facts about a region file. Sizes are in bytes; counts are a snapshot.
struct Facts {
    name: String,
    length: u64,
    on_disk: u64,
    limit: u64,
    used: u64,
    inode_limit: u64,
    inodes: u64,
    entries: u64,
    runs: usize,
    is_old: bool,
    is_frozen: bool,
}

/// Describes a region file, which runs may be using.
pub(crate) fn info(args: &Info) -> Result<u8, Failure> {
    let name = args.file.display().to_string();
    let fail =
        |e: &std::io::Error| Failure::new(REGION, format!("cannot open region file {name}: {}", reason(e)));
    // Opened for writing even to be read, because a region is mapped that way.
    let file = File::options().read(true).write(true).open(&args.file).map_err(|e| fail(&e))?;
    refuse_packed(&file, &name)?;
    let found = file.metadata().map_err(|e| fail(&e))?;
    let region =
        Region::open(Fd::new(file.as_raw_fd())).map_err(|e| Failure::new(REGION, explain(&name, e)))?;
    let (used, limit) = space(region);
    let facts = Facts {
        length: found.len(),
        on_disk: found.blocks() * BLOCK,
        limit,
        used,
        inode_limit: region.header().inode_limit.load(Relaxed), // Relaxed, here and below: immutable.
        inodes: region.in_use::<Inode>(),
        entries: region.in_use::<Dirent>(),
        runs: (1..RUNS as u32).filter(|run| region.run_is_held(RunId(*run))).count(),
        is_old: region.is_of_former_boot(),
        is_frozen: region.header().frozen.load(Relaxed) != 0,
        name,
    };
    print(if args.json { json(&facts) } else { table(&facts) }.as_bytes())
}

fn table(facts: &Facts) -> String {
    let state = match facts.runs {
        0 if facts.is_frozen => "frozen: see lightpath run --from".to_owned(),
        0 if facts.is_old => "last used before the machine was started; the next run rebuilds it".to_owned(),
        0 => "not in use".to_owned(),
        1 => "in use by 1 run".to_owned(),
        runs => format!("in use by {runs} runs"),
    };
    let percent = (facts.used * 100).div_ceil(facts.limit.max(1));
    format!(
        "{}: a region of version {VERSION}, {state}\n\
         data    {} of {} ({percent}%)\n\
         files   {} of {} inodes, {} name{}\n\
         on disk {}; the file is sparse and appears to be {} long\n",
        facts.name,
        human(facts.used),
        human(facts.limit),
        facts.inodes,
        facts.inode_limit,
        facts.entries,
        if facts.entries == 1 { "" } else { "s" },
        human(facts.on_disk),
        human(facts.length),
    )
}

fn json(facts: &Facts) -> String {
    let value = json!({
        "file": facts.name,
        "version": VERSION,
        "length": facts.length,
        "on_disk": facts.on_disk,
        "limit": facts.limit,
        "used": facts.used,
        "inode_limit": facts.inode_limit,
        "inodes": facts.inodes,
        "names": facts.entries,
        "runs": facts.runs,
        "former_boot": facts.is_old,
        "frozen": facts.is_frozen,
    });
    format!("{value}\n")
}
