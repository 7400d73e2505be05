//! The command line of `lightpath bench`.

use std::path::PathBuf;

/// Measure Lightpath against the kernel's file systems
#[derive(clap::Args, Debug, Clone, Default)]
pub struct Args {
    /// Workloads to run (default: all); `figures` selects those that have a target
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,

    /// List the workloads and exit
    #[arg(long)]
    pub list: bool,

    /// Take fewer samples of shorter runs: seconds instead of minutes, but a wider spread
    #[arg(long)]
    pub quick: bool,

    /// Samples of each workload in each place (default: 5, or 3 with --quick)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub samples: Option<u32>,

    /// Measure in DIR as well; may be repeated
    #[arg(long, value_name = "DIR")]
    pub dir: Vec<PathBuf>,

    /// Write the raw samples, with a description of the machine, to FILE
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write a self-contained page with plots to FILE
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write the plot of the speed-up over tmpfs to FILE
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    /// Hold the figures against those to reach, in the table and in the plots
    #[arg(long)]
    pub goals: bool,

    /// Show the report that --json wrote to FILE, without measuring
    #[arg(long, value_name = "FILE", conflicts_with_all = ["names", "quick", "samples", "dir"])]
    pub from: Option<PathBuf>,

    /// Measure only the kernel's file systems
    #[arg(long)]
    pub kernel_only: bool,

    /// Run one sample of the workload `before` in this process
    #[arg(long, value_name = "SPEC", hide = true)]
    pub in_process: Option<String>,

    /// The command that starts a run, if not this one
    #[arg(long, value_name = "PATH", hide = true)]
    pub lightpath: Option<PathBuf>,
}

impl Args {
    /// Samples of each workload in each place.
    pub(crate) fn samples(&self) -> u32 {
        self.samples.unwrap_or(if self.quick { 3 } else { 5 })
    }
}
