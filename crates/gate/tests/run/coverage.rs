//! Every call that the gate must see is made at a patched site, or by the gate itself.

use crate::Case;
use crate::gate::Gate;
use crate::programs::SESSIONS;
use crate::tracer;

pub const CASES: &[Case] = &[("every_call_is_covered", every_call), ("every_call_is_covered_musl", musl)];

fn every_call(gate: &Gate) {
    for (name, script) in SESSIONS {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut command = gate.command("bash");
        command.arg("-c").arg(script).current_dir(&directory);
        check(name, tracer::run(command));
    }
}

fn musl(gate: &Gate) {
    let program = gate.compile("musl-gcc", "processes.c");
    check("musl", tracer::run(gate.command(program)));
}

fn check(name: &str, report: tracer::Report) {
    assert!(report.covered > 50, "{name}: only {} calls at patched sites", report.covered);
    assert!(report.missed.is_empty(), "{name}: not covered: {:#?}", report.missed);
}
