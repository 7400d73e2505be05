//! The applications of `lightpath bench apps`: shell scripts with three phases (see `apps/prelude.sh`).

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// One application.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) name: &'static str,
    /// What its row is called.
    pub(crate) label: &'static str,
    /// The programs that it needs.
    needs: &'static [&'static str],
    script: &'static str,
}

/// Shared by all scripts.
const PRELUDE: &str = include_str!("../apps/prelude.sh");

macro_rules! app {
    ($name:literal, $label:literal, [$($needs:literal),*]) => {
        App {
            name: $name,
            label: $label,
            needs: &[$($needs),*],
            script: include_str!(concat!("../apps/", $name, ".sh")),
        }
    };
}

pub(crate) const APPS: &[App] = &[
    app!("sqlite", "SQLite, autocommits", ["sqlite3"]),
    app!("lmdb", "LMDB, load and dump", ["mdb_load", "mdb_dump"]),
    app!("redis", "Redis, synced appends", ["redis-server", "redis-benchmark", "redis-cli"]),
    app!("postgres", "PostgreSQL, initdb and pgbench", ["initdb", "pgbench"]),
    app!("tar", "tar -x", ["tar"]),
    app!("cp", "cp -r", ["cp"]),
    app!("rm", "rm -r", ["rm"]),
    app!("rsync", "rsync -a, twice", ["rsync"]),
    app!("find", "find, grep -r, du", ["find", "grep"]),
    app!("zip", "zip and unzip", ["zip", "unzip"]),
    app!("git-commit", "git add, git commit", ["git"]),
    app!("git-status", "git status", ["git"]),
    app!("git-clone", "git clone", ["git"]),
    app!("make", "make -j2, C", ["make", "cc"]),
    app!("ccache", "ccache, all hits", ["ccache", "cc"]),
    app!("cargo", "cargo build", ["cargo", "cc"]),
    app!("go", "go build, changed", ["go"]),
    app!("python", "Python, compileall and imports", ["python3"]),
    app!("node", "Node.js, many modules", ["node"]),
    app!("java", "javac and java", ["javac", "java"]),
    app!("shell", "a shell loop of cat", ["sh"]),
    app!("large-program", "starts of a large program", ["node"]),
];

impl App {
    /// Whether all that it needs is installed.
    pub(crate) fn is_present(&self) -> bool {
        self.needs.iter().all(|program| directories().any(|dir| dir.join(program).is_file()))
    }

    /// Writes its script to `dir`.
    pub(crate) fn write(&self, dir: &Path) -> Result<PathBuf> {
        let file = dir.join(self.name).with_extension("sh");
        let text = format!("{PRELUDE}\n{}\n\"$phase\"\n", self.script);
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        Ok(file)
    }
}

/// Where programs are: `PATH`, and PostgreSQL's own directories, which Debian keeps out of it.
fn directories() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths: Vec<_> = std::env::split_paths(&path).collect();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    paths.into_iter().chain(versions.map(|version| version.path().join("bin")))
}

/// The readable name of the figure `metric`.
pub(crate) fn label(metric: &str) -> String {
    let (name, what) = metric.strip_suffix("_cpu").map_or((metric, ""), |name| (name, ": CPU"));
    let label = APPS.iter().find(|app| app.name == name).map_or(name, |app| app.label);
    format!("{label}{what}")
}

/// How two results differ: the first line that is not the same.
pub(crate) fn difference(result: &str, expected: &str) -> Option<String> {
    let lines = result.lines().map(Some).chain(std::iter::repeat(None));
    let others = expected.lines().map(Some).chain(std::iter::repeat(None));
    let shown = |line: Option<&str>| line.map_or("nothing".to_owned(), |line| format!("'{line}'"));
    lines
        .zip(others)
        .enumerate()
        .take_while(|(_, pair)| *pair != (None, None))
        .find(|(_, (line, other))| line != other)
        .map(|(at, (line, other))| format!("line {}: {}, not {}", at + 1, shown(line), shown(other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_name_their_line() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(difference("a\nb\n", "a\nc\n").unwrap(), "line 2: 'b', not 'c'");
        assert_eq!(difference("a\n", "a\nc\n").unwrap(), "line 2: nothing, not 'c'");
    }

    #[test]
    fn every_script_is_one_that_sh_reads() {
        let dir = tempfile::tempdir().unwrap();
        for app in APPS {
            let script = app.write(dir.path()).unwrap();
            let read = std::process::Command::new("sh").arg("-n").arg(&script).status().unwrap();
            assert!(read.success(), "{}", app.name);
            let phases = ["prepare", "work", "result"];
            assert!(phases.iter().all(|phase| app.script.contains(&format!("{phase}() {{"))), "{}", app.name);
        }
    }
}
