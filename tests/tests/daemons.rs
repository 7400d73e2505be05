//! Programs that leave their parent, communicate through the mount, inherit descriptors, or are killed.

use std::process::ExitCode;

fn main() -> ExitCode {
    lp_tests::suite::main("daemons")
}
