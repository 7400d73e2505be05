//! Programs whose libraries are in the mount: search paths, preloading, libraries that need others.

use std::process::ExitCode;

fn main() -> ExitCode {
    lp_tests::suite::main("libraries")
}
