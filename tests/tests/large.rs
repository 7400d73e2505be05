//! Programs of many megabytes in the mount.

use std::process::ExitCode;

fn main() -> ExitCode {
    lp_tests::suite::main("large")
}
