//! The `lightpath` command.
//!
//! It does not use Rust's `main`: std's start-up code ignores SIGPIPE and opens `/dev/null` on closed
//! standard descriptors, and the command that `run` executes in place would inherit both. What is opened here
//! instead closes at an exec.
#![cfg_attr(not(test), no_main)]
#![cfg_attr(test, allow(dead_code))]

mod command;

// The unwinder within the program: loading libgcc_s.so takes a twentieth of the start of a run.
#[cfg(all(target_env = "gnu", not(test)))]
#[link(name = "gcc_eh", kind = "static", modifiers = "+whole-archive,-bundle")]
unsafe extern "C" {}

/// Opens /dev/null on closed standard descriptors: a file that is opened later would get such a number, and
/// what is printed would be written to it.
#[cfg(not(test))]
fn open_standard_descriptors() {
    loop {
        // SAFETY: the path is a string; the process has one thread.
        let opened = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        if opened > libc::STDERR_FILENO {
            // SAFETY: the descriptor was just opened.
            unsafe { libc::close(opened) };
        }
        if !(0..=libc::STDERR_FILENO).contains(&opened) {
            return;
        }
    }
}

/// The C entry point.
///
/// glibc has passed the arguments to `std::env::args_os` before, through `.init_array`.
#[cfg(not(test))]
#[unsafe(no_mangle)]
extern "C" fn main(_argc: libc::c_int, _argv: *const *const libc::c_char) -> libc::c_int {
    command::cli::stack::with_enough(run)
}

/// Runs the command line and returns the exit status.
#[cfg(not(test))]
fn run() -> libc::c_int {
    open_standard_descriptors();
    let status = command::cli::dispatch::main(std::env::args_os());
    // Without std's start-up code nothing flushes at exit. If the flush fails, the output is lost, nothing
    // else.
    let shown = std::io::Write::flush(&mut std::io::stdout()).is_ok();
    i32::from(if shown || status != 0 { status } else { 1 })
}
