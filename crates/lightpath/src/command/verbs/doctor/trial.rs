//! A trial: a shell and a program of its own under the gate, with a file between them.

use std::process::{Command, Stdio};
use std::time::Instant;

use super::finding::Finding;
use crate::command::output::failure::reason;

/// The trial's shell script: creates, appends to, lists and reads a file, the latter by another program.
const SCRIPT: &str = "cd \"$LIGHTPATH\" && echo one > file && echo two >> file && ls && cat < file";

pub(super) fn findings() -> Vec<Finding> {
    const WHAT: &str = "trial run";
    let run = || {
        let own = std::env::current_exe()?;
        // Not the default directory, since this host may have one of that name.
        let arguments = ["run", "--size", "16M", "--at", "/lightpath-doctor", "--", "/bin/sh", "-c", SCRIPT];
        Command::new(own).args(arguments).stdin(Stdio::null()).output()
    };
    let began = Instant::now();
    let finding = match run() {
        Err(e) => Finding::fail(WHAT, format!("cannot start: {}", reason(&e))),
        Ok(output) if output.status.success() && output.stdout == b"file\none\ntwo\n" => {
            let took = began.elapsed().as_secs_f64() * 1e3;
            Finding::ok(
                WHAT,
                format!("a shell wrote and other programs read a file in it; {took:.1} ms in all"),
            )
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let said =
                said.lines().next().unwrap_or("other output than expected").trim_start_matches("lightpath: ");
            Finding::fail(WHAT, format!("{}: {said}", output.status))
        }
    };
    vec![finding]
}
