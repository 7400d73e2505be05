//! `lightpath sites`: started by the gate when it meets an object without a site image, or when the cache
//! directory has gone.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use clap::Args;
use lp_abi::image::{NONE_NEEDED, OTHER_VERSION};
use lp_sites::elf::Elf;
use lp_sites::image::Verdict;
use lp_sites::{Bundle, Status};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::command::cache::within::Outlines;
use crate::command::cache::{directory, filled, preload};
use crate::command::output::failure::{CANNOT_RUN, Failure, REGION, reason};
use crate::command::output::progress::Progress;

/// `lightpath sites`.
#[derive(Args)]
pub(crate) struct Sites {
    /// Add site images to the bundle; without it, describe the objects.
    #[arg(long)]
    build: bool,
    /// The bundle, if it is not the one in the cache directory.
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
    /// Write this copy of the gate, and what lies with it in its cache directory, again.
    #[arg(long, value_name = "FILE", exclusive = true)]
    restore: Option<PathBuf>,
    /// Programs and libraries.
    #[arg(required_unless_present = "restore", value_name = "OBJECT")]
    paths: Vec<PathBuf>,
}

/// Builds images, describes objects, or restores the cache directory.
pub(crate) fn sites(arguments: &Sites) -> Result<u8, Failure> {
    if let Some(gate) = &arguments.restore {
        return Ok(restore(gate).map_or(REGION, |()| 0));
    }
    if !arguments.build {
        for path in &arguments.paths {
            println!("{}: {}", path.display(), describe(path));
        }
        return Ok(0);
    }
    let place = match &arguments.bundle {
        Some(path) => path.clone(),
        None => bundle().map_err(|line| Failure::new(REGION, line))?,
    };
    let fail =
        |path: &Path, e: &std::io::Error| Failure::new(REGION, format!("{}: {}", path.display(), reason(e)));
    let is_other = is_of_another_version(&place);
    // The gate of a process that has changed users may name a directory that does not exist yet.
    if let Some(directory) = place.parent().filter(|directory| !is_other && !directory.exists()) {
        directory::prepare(directory)
            .map_err(|why| Failure::new(REGION, format!("{}: {why}", directory.display())))?;
    }
    lift_limit();
    // Where the bundle cannot be written, the gate accepts what needs nothing in it, and reports the rest.
    let none_needed = || arguments.paths.iter().all(|path| makes_no_calls(path));
    let before = if is_other { None } else { Bundle::open(&place).ok() };
    if before.is_none() && none_needed() {
        return Ok(NONE_NEEDED as u8);
    }
    if is_other {
        return Ok(OTHER_VERSION as u8);
    }
    let progress = Progress::new("preparing libraries for their first use", arguments.paths.len());
    let next = AtomicUsize::new(0);
    let work = || {
        // Each thread opens the bundle itself: flock(2) excludes other open file descriptions, and would not
        // exclude threads that share one.
        let bundle = Bundle::open(&place).map_err(|e| fail(&place, &e))?;
        let mut is_refused = false;
        // Relaxed: only the number matters.
        while let Some(path) = arguments.paths.get(next.fetch_add(1, Ordering::Relaxed)) {
            is_refused |= matches!(bundle.add(path).map_err(|e| fail(path, &e))?, Status::Refused(_));
            progress.advance();
        }
        Ok(is_refused)
    };
    let results: Vec<Result<bool, Failure>> = thread::scope(|scope| {
        let more = thread::available_parallelism().map_or(1, usize::from).min(arguments.paths.len()) - 1;
        // Where no thread can be made, this one does everything.
        let helpers = (0..more).map_while(|_| thread::Builder::new().spawn_scoped(scope, work).ok());
        let helpers: Vec<_> = helpers.collect();
        let own = work();
        let panicked = |_| Err(Failure::new(REGION, "building a site image failed"));
        helpers.into_iter().map(|helper| helper.join().unwrap_or_else(panicked)).chain([own]).collect()
    });
    // A full bundle was replaced, maybe after some were added to it.
    if before.is_some_and(|before| !before.is_current())
        && let Ok(bundle) = Bundle::open(&place)
    {
        for path in &arguments.paths {
            bundle.add(path).map_err(|e| fail(path, &e))?;
        }
    }
    // What cannot be covered the gate tells the user, now and whenever it meets the object again.
    match results.into_iter().collect::<Result<Vec<bool>, Failure>>() {
        Ok(refused) => Ok(if refused.contains(&true) { CANNOT_RUN } else { 0 }),
        Err(_) if none_needed() => Ok(NONE_NEEDED as u8),
        Err(failure) => Err(failure),
    }
}

/// Fills the cache directory that `gate` was in, if it is of this version. Without a message: the gate looks
/// whether what it needs is there.
fn restore(gate: &Path) -> Result<(), String> {
    let is_own = gate.file_name().is_some_and(|name| name == preload::NAME);
    let cache = gate.parent().filter(|_| is_own).ok_or("another version")?;
    directory::prepare(cache)?;
    lift_limit();
    filled::fill(cache, Outlines::IfFaster).map(drop)
}

/// The limit of file sizes is the program's, and the bundle is not the program's file. Where it stays, a write
/// beyond it is an error.
fn lift_limit() {
    // SAFETY: no handler; the process has one thread.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let none = Rlimit { current: None, maximum: None };
    if setrlimit(Resource::Fsize, none).is_err() {
        let maximum = getrlimit(Resource::Fsize).maximum;
        let _ = setrlimit(Resource::Fsize, Rlimit { current: maximum, maximum });
    }
}

/// The bundle in which the gate of a run by this user looks for its images.
fn bundle() -> Result<PathBuf, String> {
    directory::find().map(|cache| cache.join(Bundle::file_name()))
}

/// Whether the path is that of a bundle for the gate of another version.
fn is_of_another_version(bundle: &Path) -> bool {
    let name = bundle.file_name().unwrap_or_default();
    name.as_encoded_bytes().starts_with(b"sites-") && name != &*Bundle::file_name()
}

/// Whether the object at `path` has no system calls of its own.
fn makes_no_calls(path: &Path) -> bool {
    let contents = std::fs::read(path).unwrap_or_default();
    let analysis = Elf::parse(&contents).ok().and_then(|elf| lp_sites::analyse(&elf).ok());
    analysis.is_some_and(|analysis| analysis.sites.is_empty())
}

/// Result of analysing the object at `path`.
pub(crate) fn describe(path: &Path) -> String {
    let contents = match std::fs::read(path) {
        Ok(contents) => contents,
        Err(e) => return reason(&e),
    };
    let elf = match Elf::parse(&contents) {
        Ok(elf) => elf,
        Err(why) => return why.to_string(),
    };
    let analysis = match lp_sites::analyse(&elf) {
        Ok(analysis) => analysis,
        Err(why) => return format!("{why}: system calls are trapped, which is slow"),
    };
    let count = |verdict: Verdict| analysis.sites.iter().filter(|site| site.verdict == verdict).count();
    let all = analysis.sites.len();
    match (all, count(Verdict::Unpatchable)) {
        (0, _) => "no system calls of its own".to_owned(),
        (_, 0) => format!("{all} system calls, {} patched", count(Verdict::Patch)),
        (_, stuck) => {
            format!("{all} system calls, {stuck} of them cannot be patched: all are trapped, which is slow")
        }
    }
}
