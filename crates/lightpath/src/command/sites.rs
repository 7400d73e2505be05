//! `lightpath sites`: what the gate asks of the launcher when it meets an object without a site image.

use std::path::{Path, PathBuf};

use lp_sites::elf::Elf;
use lp_sites::image::Verdict;
use lp_sites::{Bundle, Status};

use super::cache;
use super::cli::Sites;
use super::failure::{CANNOT_RUN, Failure, REGION, reason};

/// Builds images, or says what is known of objects.
pub(crate) fn sites(arguments: &Sites) -> Result<u8, Failure> {
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
    // The gate of a process that has changed to another user names a directory that may not be there yet.
    if let Some(directory) = place.parent().filter(|directory| !directory.exists()) {
        cache::prepare(directory)
            .map_err(|why| Failure::new(REGION, format!("{}: {why}", directory.display())))?;
    }
    let bundle = Bundle::open(&place).map_err(|e| fail(&place, &e))?;
    // What cannot be patched the gate tells the user, now and whenever it meets the object again.
    let mut status = 0;
    for path in &arguments.paths {
        if let Status::Refused(_) = bundle.add(path).map_err(|e| fail(path, &e))? {
            status = CANNOT_RUN;
        }
    }
    Ok(status)
}

/// Where the gate of a run by this user finds its images.
fn bundle() -> Result<PathBuf, String> {
    cache::directory().map(|cache| cache.join(Bundle::file_name()))
}

/// What an analysis of the object at `path` finds.
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
        Err(why) => return why.to_string(),
    };
    let count = |verdict: Verdict| analysis.sites.iter().filter(|site| site.verdict == verdict).count();
    let all = analysis.sites.len();
    match (all, count(Verdict::Unpatchable)) {
        (0, _) => "no system calls of its own".to_owned(),
        (_, 0) => format!("{all} system calls, {} patched", count(Verdict::Patch)),
        (_, stuck) => {
            format!("{all} system calls, {stuck} of them cannot be patched: programs with it are refused")
        }
    }
}
