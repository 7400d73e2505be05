//! SQLite in each journal mode, with several processes at once.

use std::process::ExitCode;

fn main() -> ExitCode {
    lp_tests::suite::main("sqlite")
}
