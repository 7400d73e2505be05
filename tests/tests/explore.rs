//! A fixed sample of the schedules that stop a thread inside a gated call; `crates/explore` has those below
//! the gate.

use std::process::Command;

use lp_tests::binary;

/// Number of schedules in the sample; `LIGHTPATH_EXPLORE` overrides it.
const SCHEDULES: &str = "20";

#[test]
fn nobody_notices_a_thread_that_is_stopped_in_a_gated_call() {
    let count = std::env::var("LIGHTPATH_EXPLORE").unwrap_or_else(|_| SCHEDULES.into());
    let mut explorer = Command::new(binary::explorer().expect("lp-explore"));
    explorer.args(["--gate", "--sample", &count, "--seed", "1"]);
    let output = explorer.output().expect("lp-explore");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{}", text.lines().last().unwrap_or_default());
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
}
