//! Conformance of system calls: each group of `tests/programs/conform`, call by call, in a dynamic program
//! and in a static one. There are two kinds of static programs, which differ in how they are loaded, and
//! those whose calls are trapped: groups take turns. `LP_CONFORM_FULL=1` runs each group in all kinds.

use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::Result;
use libtest_mimic::Trial;
use lp_tests::session::Session;
use lp_tests::{compile, suite};

/// Groups left out in programs whose calls are trapped: a debugger sees their signals, and a timer of some
/// ten microseconds leaves them no time for anything else.
const UNTRAPPED: [&str; 4] = [
    "program.is_there_when_a_debugger_sees_it",
    "signal.during_exit",
    "signal.during_fork",
    "signal.during_vfork",
];

fn main() -> ExitCode {
    suite::run(trials())
}

fn trials() -> Result<Vec<Trial>> {
    let mut trials = Vec::new();
    let every = if std::env::var_os("LP_CONFORM_FULL").is_some() { 1 } else { 2 };
    for (prefix, options, (first, step)) in [
        ("", &[][..], (0, 1)),
        ("static-", &["-static"], (0, every)),
        ("static-pie-", &["-static-pie"], (1 % every, every)),
        ("trapped-", &["-static", "-DTRAPPED"], (0, 2 * every - 1)),
    ] {
        let program = compile::compile_with("conform", "cc", options)?;
        let groups = String::from_utf8(Command::new(&program).arg("--list").output()?.stdout)?;
        for (number, group) in groups.lines().enumerate().skip(first).step_by(step) {
            if prefix == "trapped-" && UNTRAPPED.contains(&group) {
                continue;
            }
            // Groups that execute programs do so in both ways.
            let is_of_programs = prefix.is_empty() && group.starts_with("program.");
            let by_outlines = is_of_programs || number.is_multiple_of(2);
            let mut ways = vec![(prefix, by_outlines)];
            ways.extend(is_of_programs.then_some(("plain-", false)));
            trials.extend(ways.into_iter().map(|(prefix, outlines)| {
                let mut session = Session::new([program.as_os_str(), group.as_ref()]);
                session.outlines = outlines;
                session.limit = Duration::from_secs(30);
                suite::trial(&format!("{prefix}{group}"), session)
            }));
        }
    }
    Ok(trials)
}
