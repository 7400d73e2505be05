//! Programs in PATH that cannot be covered.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::finding::Finding;
use crate::command::program::coverage::{self, Fault};

/// Names shown before "and N more".
const SHOWN: usize = 8;

pub(super) fn findings() -> Vec<Finding> {
    let (mut privileged, mut other) = (BTreeSet::new(), BTreeSet::new());
    let mut covered = 0;
    let mut seen = BTreeSet::new();
    for path in executables() {
        // /bin and /usr/bin are often the same directory.
        let Ok(found) = std::fs::metadata(&path) else { continue };
        if !seen.insert((found.dev(), found.ino())) {
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match coverage::coverable(&path) {
            Ok(()) => covered += 1,
            Err(Fault::Refused(refusal)) if refusal.is_privileged() => add(&mut privileged, name),
            Err(_) => add(&mut other, name),
        }
    }
    let line = |about, names: &BTreeSet<String>, fate: &str| match names.len() {
        0 => Finding::ok(about, "none in PATH"),
        _ => Finding::warn(about, format!("refused, {fate}: {}", list(names))),
    };
    vec![
        match covered {
            0 => Finding::fail("programs", "none found in PATH"),
            _ => Finding::ok("programs", format!("{covered} in PATH can be covered")),
        },
        line("privileged", &privileged, "because the loader would ignore Lightpath"),
        line("other", &other, "because they are unreadable or not for this machine"),
    ]
}

fn executables() -> impl Iterator<Item = PathBuf> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> =
        std::env::split_paths(&search).filter(|path| path.is_absolute()).collect();
    directories
        .into_iter()
        .flat_map(|path| std::fs::read_dir(path).into_iter().flatten())
        .flatten()
        .filter_map(|entry| {
            let found = std::fs::metadata(entry.path()).ok()?;
            (found.is_file() && found.mode() & 0o111 != 0).then(|| entry.path())
        })
}

fn add(names: &mut BTreeSet<String>, name: String) {
    names.insert(name);
}

fn list(names: &BTreeSet<String>) -> String {
    let shown: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
    match names.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
