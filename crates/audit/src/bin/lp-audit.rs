//! `lp-audit`: counts what file calls execute.
#![forbid(unsafe_code)]

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match lp_audit::run(&lp_audit::Command::parse()) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("lp-audit: {error:#}");
            ExitCode::from(2)
        }
    }
}
