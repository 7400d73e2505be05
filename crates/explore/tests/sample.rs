//! A fixed sample of schedules: what `just explore` runs in full.

use std::process::Command;

/// Schedules of the sample; `LIGHTPATH_EXPLORE` asks for another number.
const SCHEDULES: &str = "800";

#[test]
fn nobody_notices_a_process_that_is_stopped_or_killed() {
    let count = std::env::var("LIGHTPATH_EXPLORE").unwrap_or_else(|_| SCHEDULES.into());
    let mut explorer = Command::new(env!("CARGO_BIN_EXE_lp-explore"));
    // Locks of the region as a whole still make others wait: see docs/explorer.md, "Known".
    let output = explorer
        .args(["--sample", &count, "--seed", "1", "--tolerate", "waits"])
        .output()
        .expect("lp-explore");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{}", text.lines().last().unwrap_or_default());
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
}
