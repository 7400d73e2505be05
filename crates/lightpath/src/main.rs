//! The `lightpath` command.
//!
//! It has no `main` of Rust's own: std's start-up ignores SIGPIPE and opens `/dev/null` on closed standard
//! descriptors, and the command that `run` execs in place would inherit both.
#![cfg_attr(not(test), no_main)]
#![cfg_attr(test, allow(dead_code))]

mod command;

/// The C entry point.
///
/// glibc hands the arguments to `std::env::args_os` before it, through `.init_array`.
#[cfg(not(test))]
#[unsafe(no_mangle)]
extern "C" fn main(_argc: libc::c_int, _argv: *const *const libc::c_char) -> libc::c_int {
    let status = command::main(std::env::args_os());
    // Without std's start-up there is no flush at exit; what fails here failed to be shown, nothing else.
    let shown = std::io::Write::flush(&mut std::io::stdout()).is_ok();
    i32::from(if shown || status != 0 { status } else { 1 })
}
