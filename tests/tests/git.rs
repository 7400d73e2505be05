//! Git: from init to fsck, every hash comparable.

use std::process::ExitCode;

fn main() -> ExitCode {
    lp_tests::suite::main("git")
}
