//! A fixed sample of schedules: what `just explore` runs in full.

use std::process::{Child, Command, Stdio};

/// Schedules of the sample; `LIGHTPATH_EXPLORE` asks for another number.
const SCHEDULES: u32 = 400;
/// Explorers that run side by side.
const SHARDS: u32 = 2;

fn explorer(arguments: &[&str]) -> Child {
    let mut explorer = Command::new(env!("CARGO_BIN_EXE_lp-explore"));
    explorer.args(arguments).args(["--seed", "1"]);
    explorer.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("lp-explore")
}

fn finds_nothing(explorer: Child) {
    let output = explorer.wait_with_output().expect("lp-explore");
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn nobody_notices_a_process_that_is_stopped_or_killed() {
    let wanted = std::env::var("LIGHTPATH_EXPLORE").ok().and_then(|count| count.parse().ok());
    let count = (wanted.unwrap_or(SCHEDULES) / SHARDS).to_string();
    let shard = |shard| explorer(&["--sample", &count, "--shard", &format!("{shard}/{SHARDS}")]);
    let explorers: Vec<Child> = (1..=SHARDS).map(shard).collect();
    explorers.into_iter().for_each(finds_nothing);
}
