//! Programs whose calls cannot be patched, and are trapped: `tests/programs/trapped.c`.

use std::ffi::OsStr;
use std::process::ExitCode;

use anyhow::Result;
use libtest_mimic::Trial;
use lp_tests::session::Session;
use lp_tests::{compile, suite};

fn main() -> ExitCode {
    suite::run(trials())
}

fn trials() -> Result<Vec<Trial>> {
    let library = compile::compile_with("trapped", "cc", &["-DLIBRARY", "-shared", "-fPIC"])?;
    let kinds: [(&str, &str, &[&str]); 7] = [
        ("dynamic", "cc", &[]),
        ("static", "cc", &["-static"]),
        ("static_pie", "cc", &["-static-pie"]),
        ("musl", "musl-gcc", &["-static"]),
        ("packed", "cc", &["-DPACKED", "-static"]),
        ("packed_dynamic", "cc", &["-DPACKED"]),
        ("loads", "cc", &["-DLOADS"]),
    ];
    let trial = |(name, compiler, options): (&str, &str, &[&str])| {
        let program = compile::compile_with("trapped", compiler, options)?;
        let files = [program.as_os_str(), library.as_os_str()];
        let script = ["sh", "-c", "cp $0 p; cp $1 l; exec ./p ./l"].map(OsStr::new);
        let copied = Session::new(script.into_iter().chain(files));
        Ok([suite::trial(name, Session::new(files)), suite::trial(&format!("{name}_in_a_mount"), copied)])
    };
    kinds
        .into_iter()
        .map(trial)
        .collect::<Result<Vec<_>>>()
        .map(|pairs| pairs.into_iter().flatten().collect())
}
