//! The bench as a separate program, for work on it: `lp-bench --lightpath PATH/TO/lightpath NAME...`.

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
