//! `lp-explore`: stops a process after each instruction of a call, lets others run to completion, then lets
//! it go on, kills it or leaves it stopped, and checks that no other process noticed. `docs/explorer.md`
//! explains its output.

mod actor;
mod calls;
mod control;
mod door;
mod gate;
mod inside;
mod judge;
mod kernel;
mod light;
mod names;
mod oracle;
mod plan;
mod schedule;
mod step;
mod trace;
mod verdict;
mod world;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

/// Explores what happens when one process is stopped anywhere in a call and others go on.
#[derive(Parser)]
#[command(name = "lp-explore", version)]
pub struct Args {
    /// Victims: calls by name, all without
    #[arg(long, value_delimiter = ',')]
    victim: Vec<String>,
    /// Peers: calls by name, `@w` for another directory, `+` between several; all without
    #[arg(long, value_delimiter = ',')]
    peer: Vec<String>,
    /// What becomes of the victim: go, kill, die, stop, waiter, exec, signal, two; all but two without
    #[arg(long, value_delimiter = ',')]
    outcome: Vec<String>,
    /// Try every N-th instruction
    #[arg(long, default_value_t = 1)]
    stride: u32,
    /// Stop at no instruction behind this one
    #[arg(long, default_value_t = 400_000)]
    until: u32,
    /// Stop at no instruction before this one
    #[arg(long, default_value_t = 1)]
    since: u32,
    /// Run this many schedules, drawn evenly from all
    #[arg(long)]
    sample: Option<u32>,
    /// Where the drawing starts
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run part K of N
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// Begin with this victim:peer:outcome, where an earlier run ended
    #[arg(long)]
    from: Option<String>,
    /// Run one schedule, victim:peer:outcome:instruction[:instruction], an instruction by number or as
    /// @PLACExTIMES, and say what comes of it
    #[arg(long)]
    replay: Option<String>,
    /// Kinds of findings that are counted and do not fail the run; of `waits` also by what is waited for, as
    /// `waits:split`
    #[arg(long, value_delimiter = ',')]
    tolerate: Vec<String>,
    /// Append each new finding to this file
    #[arg(long)]
    findings: Option<PathBuf>,
    /// A directory on a tmpfs
    #[arg(long, default_value = "/dev/shm")]
    tmpfs: PathBuf,
    /// Say what is being explored
    #[arg(long, short)]
    verbose: bool,
    /// Explore programs under `lightpath run`, which lies beside this program: other victims, peers and
    /// outcomes
    #[arg(long)]
    gate: bool,
    /// Be such a program
    #[arg(long, hide = true)]
    inside: Option<String>,
    /// The descriptor by which such a program is told what to do
    #[arg(long, hide = true, default_value_t = -1)]
    control: i32,
    /// List calls and outcomes
    #[arg(long)]
    list: bool,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    if args.list && args.gate {
        gate::list();
        return Ok(ExitCode::SUCCESS);
    }
    if args.list {
        plan::list();
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(case) = &args.inside {
        inside::run(case, args.control)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.gate {
        let (schedules, bad) = gate::explore(&args)?;
        println!("{schedules} schedules; {bad} bad");
        return Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    plan::Explorer::new(args)?.run()
}
