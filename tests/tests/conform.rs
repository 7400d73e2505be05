//! Conformance of system calls: each group of `tests/programs/conform`, call by call, in a dynamic program
//! and in static ones.

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
    let mut trials = Vec::new();
    for (prefix, options) in [("", &[][..]), ("static-", &["-static"]), ("static-pie-", &["-static-pie"])] {
        let program = compile::compile_with("conform", "cc", options)?;
        let groups = String::from_utf8(Command::new(&program).arg("--list").output()?.stdout)?;
        trials.extend(groups.lines().map(|group| {
            let mut session = Session::new([program.as_os_str(), group.as_ref()]);
            session.limit = Duration::from_secs(30);
            suite::trial(&format!("{prefix}{group}"), session)
        }));
    }
    Ok(trials)
}
