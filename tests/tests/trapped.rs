//! Programs whose calls cannot be patched, and are trapped: `tests/programs/trapped.c`.

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
    let kinds: [(&str, &[&str]); 6] = [
        ("dynamic", &[]),
        ("static", &["-static"]),
        ("static_pie", &["-static-pie"]),
        ("packed", &["-DPACKED", "-static"]),
        ("packed_dynamic", &["-DPACKED"]),
        ("loads", &["-DLOADS"]),
    ];
    let trial = |(name, options): (&str, &[&str])| {
        let program = compile::compile_with("trapped", "cc", options)?;
        let run = Session::new([program.as_os_str(), library.as_os_str()]);
        let script = "cp $0 p; cp $1 l; exec ./p ./l";
        let copied = Session::new([
            "sh".as_ref(),
            "-c".as_ref(),
            script.as_ref(),
            program.as_os_str(),
            library.as_os_str(),
        ]);
        Ok([suite::trial(name, run), suite::trial(&format!("{name}_in_a_mount"), copied)])
    };
    kinds
        .into_iter()
        .map(trial)
        .collect::<Result<Vec<_>>>()
        .map(|pairs| pairs.into_iter().flatten().collect())
}
