//! Programs that wait for changes to files: tail, inotifywait, entr, node, each also with a recursive watch.

use std::process::ExitCode;

fn main() -> ExitCode {
    lp_tests::suite::main("watch")
}
