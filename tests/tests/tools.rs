//! The tools that walk trees, edit in place and pack: find, grep, sed, tar, gzip, rsync, diff and their like.

use std::process::ExitCode;

fn main() -> ExitCode {
    lp_tests::suite::main("tools")
}
