//! Compilers and build tools in the mount: gcc, g++, make, cargo, shared libraries.

use std::process::ExitCode;

fn main() -> ExitCode {
    lp_tests::suite::main("build")
}
