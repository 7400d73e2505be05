//! Perl, Python, Node and Java programs that use their libraries' file functions.

use std::process::ExitCode;

fn main() -> ExitCode {
    lp_tests::suite::main("languages")
}
