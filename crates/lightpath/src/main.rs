//! The `lightpath` command.
//!
//! It does not use Rust's `main`: std's start-up code ignores SIGPIPE and opens `/dev/null` on closed
//! standard descriptors, and the command that `run` executes in place would inherit both.
#![cfg_attr(not(test), no_main)]
#![cfg_attr(test, allow(dead_code))]

mod command;

// The unwinder within the program: loading libgcc_s.so takes a twentieth of the start of a run.
#[cfg(all(target_env = "gnu", not(test)))]
#[link(name = "gcc_eh", kind = "static", modifiers = "+whole-archive,-bundle")]
unsafe extern "C" {}

/// The C entry point.
///
/// glibc has passed the arguments to `std::env::args_os` before, through `.init_array`.
#[cfg(not(test))]
#[unsafe(no_mangle)]
extern "C" fn main(_argc: libc::c_int, _argv: *const *const libc::c_char) -> libc::c_int {
    let status = command::cli::dispatch::main(std::env::args_os());
    // Without std's start-up code nothing flushes at exit. If the flush fails, the output is lost, nothing
    // else.
    let shown = std::io::Write::flush(&mut std::io::stdout()).is_ok();
    i32::from(if shown || status != 0 { status } else { 1 })
}
