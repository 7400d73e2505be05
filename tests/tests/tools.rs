//! Tools that walk trees, edit in place and pack: find, grep, sed, tar, gzip, rsync, diff and similar.

use std::process::ExitCode;

fn main() -> ExitCode {
    lp_tests::suite::main("tools")
}
