//! Programs under the gate alone: they must behave the same as without it, and their calls must arrive in it.
//!
//! This test has its own main function because it is also the builder of site images: the gate starts it as
//! `run sites --bundle FILE --build OBJECT...`.

mod coverage;
mod gate;
mod programs;
mod same;
mod tracer;

use std::panic;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// A case: its name, and a function that panics on failure.
type Case = (&'static str, fn(&gate::Gate));

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "sites") {
        return build(&arguments);
    }
    if arguments.iter().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let gate = gate::Gate::new();
    let cases: Vec<Case> = [same::CASES, coverage::CASES].concat();
    let (mut passed, mut failed, mut ignored, mut filtered) = (0, 0, 0, 0);
    let has_musl = has_program("musl-gcc") || std::env::var_os("ALL_TESTS_MUST_RUN").is_some();
    let start = Instant::now();
    println!("\nrunning {} tests", cases.len());
    for (name, case) in cases {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| name.contains(wanted.as_str())) {
            filtered += 1;
            continue;
        }
        if name.ends_with("_musl") && !has_musl {
            println!("test {name} ... ignored, musl-gcc is missing");
            ignored += 1;
            continue;
        }
        let outcome = panic::catch_unwind(|| case(&gate));
        println!("test {name} ... {}", if outcome.is_ok() { "ok" } else { "FAILED" });
        if outcome.is_ok() { passed += 1 } else { failed += 1 }
    }
    println!(
        "\ntest result: {}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; {filtered} filtered out; finished in {:.2}s\n",
        if failed == 0 { "ok" } else { "FAILED" },
        start.elapsed().as_secs_f64()
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// `sites --bundle FILE --build OBJECT...`
fn build(arguments: &[String]) -> ExitCode {
    let [_, _, bundle, _, objects @ ..] = arguments else { return ExitCode::FAILURE };
    let Ok(bundle) = lp_sites::Bundle::open(Path::new(bundle)) else { return ExitCode::FAILURE };
    for object in objects {
        if let Err(error) = bundle.add(Path::new(object)) {
            eprintln!("{object}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
