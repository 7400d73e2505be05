//! `lp-explore`: stops a process after each instruction of a call, lets others run to completion, then lets
//! it go on, kills it or leaves it stopped, and checks that no other process noticed. `docs/explorer.md`
//! explains its output.
#![warn(unreachable_pub)]

mod actor;
mod calls;
mod control;
mod door;
mod gate;
mod inside;
mod judge;
mod kernel;
mod life;
mod light;
mod mine;
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

/// Explores what happens when a process is stopped anywhere in a call while others go on.
#[derive(Parser)]
#[command(name = "lp-explore", version)]
pub struct Args {
    /// Victims: calls by name (default: all)
    #[arg(long, value_delimiter = ',')]
    victim: Vec<String>,
    /// Peers: calls by name, `@w` for another directory, `+` between several (default: all)
    #[arg(long, value_delimiter = ',')]
    peer: Vec<String>,
    /// Outcomes: go, kill, die, stop, waiter, exec, signal, two (default: all but two)
    #[arg(long, value_delimiter = ',')]
    outcome: Vec<String>,
    /// Try every N-th instruction
    #[arg(long, default_value_t = 1)]
    stride: u32,
    /// Do not stop after this instruction
    #[arg(long, default_value_t = 400_000)]
    until: u32,
    /// Do not stop before this instruction
    #[arg(long, default_value_t = 1)]
    since: u32,
    /// Run this many schedules, drawn evenly from all of them
    #[arg(long)]
    sample: Option<u32>,
    /// Seed for the draw
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run part K of N
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// Start with this victim:peer:outcome, where an earlier run ended
    #[arg(long)]
    from: Option<String>,
    /// Run one schedule, `victim:peer:outcome:instruction[:instruction]`, and print its result; an
    /// instruction is a number or @PLACExTIMES
    #[arg(long)]
    replay: Option<String>,
    /// Kinds of findings to count without failing the run; `waits` can name a lock, as in `waits:split`
    #[arg(long, value_delimiter = ',')]
    tolerate: Vec<String>,
    /// Append each new finding to this file
    #[arg(long)]
    findings: Option<PathBuf>,
    /// A directory on a tmpfs
    #[arg(long, default_value = "/dev/shm")]
    tmpfs: PathBuf,
    /// Print what is being explored
    #[arg(long, short)]
    verbose: bool,
    /// Explore programs under `lightpath run` (the command beside this one), with other victims, peers and
    /// outcomes
    #[arg(long)]
    gate: bool,
    /// Act as such a program
    #[arg(long, hide = true)]
    inside: Option<String>,
    /// The descriptor through which such a program receives its orders
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
