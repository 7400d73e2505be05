//! Programs that wait for files to change: tail, inotifywait, entr, node, and a recursive watch of each.

use std::process::ExitCode;

fn main() -> ExitCode {
    lp_tests::suite::main("watch")
}
