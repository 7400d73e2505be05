//! Pairs of calls that commute: every fifth call with every other.

use lp_audit::{Actors, Findings, Report};

/// Calls that touch no line which the other writes, whatever else a change brings.
const FREE: &[[&str; 2]] = &[
    ["lseek(own a, 1, SET)", "pread(own a, page 0)"],
    ["lseek(own a, 1, SET)", "lseek(own a, 1, SET)"],
    ["pread(own a, page 0)", "pread(own a, page 0)"],
    ["pread(own a, page 0)", "access(d/b)"],
    ["access(d/b)", "access(d/b)"],
    ["stat(d/n)", "stat(d/n)"],
    // Links, and other names of the directory.
    ["access(d/b)", "mkdir(d/n)"],
    ["close(shared a)", "link(d/a, d/m)"],
    ["open(e/two, CREAT|EXCL)", "open(e/m, CREAT)"],
];

#[test]
fn each_conflict_has_a_reason() {
    let report =
        Report([Actors::Processes, Actors::Threads].map(|actors| Findings::of(actors, 5).unwrap()).to_vec());
    assert_eq!(report.unexplained().into_iter().collect::<Vec<_>>(), Vec::<&str>::new());
    let processes = &report.0[0];
    assert!(
        processes.pairs.len() > 400 && processes.pairs.len() < processes.tried,
        "{}",
        processes.pairs.len()
    );
    for free in FREE {
        let is_it = |pair: &&lp_audit::Pair| {
            (0..2).all(|at| format!("{}({})", pair.kinds[at], pair.arguments[at]) == free[at])
        };
        let pair = processes.pairs.iter().find(is_it).unwrap_or_else(|| panic!("{free:?} do not commute"));
        assert_eq!(pair.fields.iter().collect::<Vec<_>>(), Vec::<&String>::new(), "{free:?}");
    }
    // Two that set one position of one open file do meet, and a call that shows what another changes does not
    // commute.
    let meet = |kinds: [&str; 2]| processes.conflicts().any(|pair| pair.kinds == kinds);
    assert!(meet(["flock", "flock"]) && meet(["ftruncate", "ftruncate"]));
    assert!(processes.pairs.iter().all(|pair| pair.kinds != ["rmdir", "rmdir"]));
}
