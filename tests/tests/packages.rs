//! Programs that npm and PyPI bring (`scripts/test` installs them below `target`), and others that many use.

use std::process::ExitCode;

fn main() -> ExitCode {
    lp_tests::suite::main("packages")
}
