//! The workload programs: C sources embedded in the binary, compiled by the host's `cc`.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

const HEADER: &str = include_str!("../c/bench.h");

const SOURCES: &[(&str, &str)] = &[
    ("acl", include_str!("../c/acl.c")),
    ("app", include_str!("../c/app.c")),
    ("build", include_str!("../c/build.c")),
    ("bulk", include_str!("../c/bulk.c")),
    ("calls", include_str!("../c/calls.c")),
    ("dd", include_str!("../c/dd.c")),
    ("fstat", include_str!("../c/fstat.c")),
    ("fstime", include_str!("../c/fstime.c")),
    ("lmbench", include_str!("../c/lmbench.c")),
    ("lseek", include_str!("../c/lseek.c")),
    ("scale", include_str!("../c/scale.c")),
    ("growth", include_str!("../c/growth.c")),
    ("spawn", include_str!("../c/spawn.c")),
    ("sqlite", include_str!("../c/sqlite.c")),
    ("tree", include_str!("../c/tree.c")),
];

/// The source of `program`.
pub(crate) fn source_of(program: &str) -> Option<&'static str> {
    SOURCES.iter().find(|(name, _)| *name == program).map(|(_, source)| *source)
}

/// Compiles `program` into `dir` and returns the binary's path: dynamically linked, like any user's program.
pub(crate) fn compile(program: &str, dir: &Path) -> Result<PathBuf> {
    let binary = dir.join(program);
    if binary.exists() {
        return Ok(binary);
    }
    let source = source_of(program).with_context(|| format!("no program {program}"))?;
    let file = dir.join(program).with_extension("c");
    std::fs::write(dir.join("bench.h"), HEADER)?;
    std::fs::write(&file, source)?;
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-pthread", "-o"])
        .args([&binary, &file])
        .output()
        .context("cannot run cc, which compiles the workloads")?;
    if !output.status.success() {
        bail!("cc cannot compile {program}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(binary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_compiles_without_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("bench.h"), HEADER).unwrap();
        for (name, source) in SOURCES {
            let file = dir.path().join(name).with_extension("c");
            std::fs::write(&file, source).unwrap();
            let output = Command::new("cc")
                .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"])
                .arg(&file)
                .output()
                .unwrap();
            assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
