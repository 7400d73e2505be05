//! Programs that confine themselves: unshare, bubblewrap, man.

use std::process::ExitCode;

fn main() -> ExitCode {
    lp_tests::suite::main("sandboxes")
}
