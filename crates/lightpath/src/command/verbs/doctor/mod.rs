//! `lightpath doctor`: what works on this machine, line by line.

mod finding;
mod kernel;
mod library;
mod limits;
mod programs;
mod trial;

use finding::{Verdict, table};

/// The findings as text; the exit status is 1 when one of them prevents Lightpath from running.
pub(crate) fn doctor() -> (String, u8) {
    let mut findings = Vec::new();
    findings.extend(kernel::findings());
    findings.extend(library::findings());
    findings.extend(limits::findings());
    findings.extend(trial::findings());
    findings.extend(programs::findings());
    let failed = findings.iter().filter(|finding| finding.verdict == Verdict::Fail).count();
    let verdict = match failed {
        0 => "Lightpath runs here.".to_owned(),
        1 => "Lightpath cannot run here: see the line marked FAIL.".to_owned(),
        _ => format!("Lightpath cannot run here: see the {failed} lines marked FAIL."),
    };
    (format!("{}\n{verdict}\n", table(&findings)), u8::from(failed > 0))
}
