//! Conformance of system calls: each group of `tests/programs/conform`, call by call.

use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::Result;
use libtest_mimic::Trial;
use lp_tests::session::Session;
use lp_tests::{compile, suite};

fn main() -> ExitCode {
    suite::run(trials())
}

fn trials() -> Result<Vec<Trial>> {
    let program = compile::compile("conform")?;
    let groups = String::from_utf8(Command::new(&program).arg("--list").output()?.stdout)?;
    let trial = |group: &str| {
        let mut session = Session::new([program.as_os_str(), group.as_ref()]);
        session.limit = Duration::from_secs(30);
        suite::trial(group, session)
    };
    Ok(groups.lines().map(trial).collect())
}
