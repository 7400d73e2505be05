//! The bench on its own, for work on it: `lp-bench --lightpath PATH/TO/lightpath NAME...`.
#![forbid(unsafe_code)]

use clap::Parser;
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "lp-bench", version)]
struct Command {
    #[command(flatten)]
    bench: lp_bench::Args,
}

fn main() -> anyhow::Result<ExitCode> {
    lp_bench::main(Command::parse().bench)
}
