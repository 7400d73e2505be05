//! Every command of coreutils that touches files.

use std::process::ExitCode;

fn main() -> ExitCode {
    lp_tests::suite::main("coreutils")
}
