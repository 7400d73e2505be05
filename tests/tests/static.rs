//! Static programs: C with two C libraries and with none, Go, a shell.

use std::process::ExitCode;

fn main() -> ExitCode {
    lp_tests::suite::main("static")
}
