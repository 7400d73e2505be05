//! Python's own test modules with their files on the mount: every test must end as it does on tmpfs.

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use libtest_mimic::{Failed, Trial};
use lp_tests::session::Session;
use lp_tests::{compile, program, suite};

/// The modules, slow ones first, with tests to skip because their result on tmpfs varies from run to run.
const MODULES: &[(&str, &[&str])] = &[
    ("test_io", &[]),
    ("test_subprocess", &["test_run_with_shell_timeout"]),
    ("test_zipfile", &[]),
    ("test_tarfile", &[]),
    ("test_os", &[]),
    ("test_posix", &[]),
    ("test_shutil", &[]),
    ("test_tempfile", &[]),
    ("test_fileio", &[]),
    ("test_mmap", &[]),
    ("test_glob", &[]),
    ("test_pathlib", &[]),
    ("test_dbm", &[]),
    ("test_dbm_dumb", &[]),
    ("test_sqlite3", &[]),
    ("test_file", &[]),
    // F_NOTIFY: see docs/differences.md.
    ("test_fcntl", &["test_fcntl_64_bit"]),
    ("test_posixpath", &[]),
    ("test_genericpath", &[]),
    ("test_select", &[]),
    ("test_filecmp", &[]),
    ("test_fileinput", &[]),
    ("test_gzip", &[]),
    ("test_shelve", &[]),
    ("test_mailbox", &[]),
    ("test_largefile", &[]),
    ("test_stat", &[]),
];

fn main() -> ExitCode {
    let trials = MODULES.iter().map(|&(module, skipped)| {
        Trial::test(module, move || {
            session(module, skipped)
                .and_then(|s| s.compare())
                .map_err(|error| Failed::from(format!("{error:#}")))
        })
    });
    suite::run(Ok(trials.collect()))
}

fn session(module: &str, skipped: &[&str]) -> Result<Session> {
    let python = carrier(module)?;
    let script = r#"TMPDIR=$T "$0" -B "$@" 2>/dev/null"#;
    let mut command =
        vec!["bash".to_owned(), "-c".to_owned(), script.to_owned(), python.display().to_string()];
    command.push(compile::sources().join("outcomes.py").display().to_string());
    command.push(module.to_owned());
    command.extend(skipped.iter().map(|name| (*name).to_owned()));
    let mut session = Session::new(command);
    session.limit = Duration::from_secs(240);
    // Sparse files of several gigabytes; as large as the host's tmpfs.
    session.size = "12G".to_owned();
    Ok(session)
}

/// A Python that has the module: distributions package the test suite separately, and some omit parts of it.
fn carrier(module: &str) -> Result<PathBuf> {
    let carries = |python: &PathBuf| {
        let import = format!("import test.{module}");
        let run = Command::new(python).args(["-B", "-c", &import]).stderr(Stdio::null()).status();
        run.is_ok_and(|status| status.success())
    };
    candidates().into_iter().find(carries).with_context(|| {
        format!("no Python here carries test.{module}: install libpython3.N-testsuite (scripts/test does), or pyenv's Python")
    })
}

fn candidates() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = program::find("python3").into_iter().collect();
    let versions = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".pyenv/versions"));
    for version in versions.and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten()
    {
        found.push(version.path().join("bin/python3"));
    }
    found.extend(
        std::env::var("PATH").unwrap_or_default().split(':').map(|dir| PathBuf::from(dir).join("python3")),
    );
    found.retain(|path| path.is_file());
    found
}
