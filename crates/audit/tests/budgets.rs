//! The hot calls, held against `budgets.toml`.

use lp_audit::{Budgets, Descriptors, Ground, Probe};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The release binary of this workspace, brought up to date; or `$LIGHTPATH_BIN`.
fn lightpath() -> PathBuf {
    if let Some(path) = std::env::var_os("LIGHTPATH_BIN") {
        return PathBuf::from(path);
    }
    let program = std::env::current_exe().unwrap();
    let target = program.ancestors().nth(3).unwrap();
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--release", "-p", "lightpath", "--target-dir"])
        .arg(target)
        .current_dir(workspace)
        .status()
        .unwrap();
    assert!(status.success(), "cannot build lightpath");
    target.join("release/lightpath")
}

fn hold_to_budgets(ground: Ground) {
    let mut complaints = Vec::new();
    for table in [Descriptors::Own, Descriptors::Shared] {
        let probe = Probe::new(ground.clone(), table).unwrap();
        for budget in Budgets::load().unwrap().of(&ground, table) {
            let audit = probe.audit(&budget.call).unwrap();
            for excess in budget.excesses(&audit) {
                complaints.push(format!("{}, table {table:?}: {excess}", budget.call));
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn hot_calls_through_the_gate_stay_within_their_budgets() {
    hold_to_budgets(Ground::Lightpath(lightpath()));
}

/// Counts of a debug build say nothing.
#[test]
#[cfg(not(debug_assertions))]
fn hot_calls_through_the_library_stay_within_their_budgets() {
    hold_to_budgets(Ground::Library(env!("CARGO_BIN_EXE_lp-audit").into()));
}
