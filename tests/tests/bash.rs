//! The shell: redirections, here-documents, substitutions, pipelines, globbing, directories, traps, scripts.

use std::process::ExitCode;

fn main() -> ExitCode {
    lp_tests::suite::main("bash")
}
