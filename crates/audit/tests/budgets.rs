//! The hot calls through the patched gate, held against `budgets.toml`.

use lp_audit::{Ground, Probe, budgets};
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

#[test]
fn hot_calls_stay_within_their_budgets() {
    let probe = Probe::new(Ground::Lightpath(lightpath())).unwrap();
    let mut complaints = Vec::new();
    for budget in budgets().unwrap() {
        let audit = probe.audit(&budget.call).unwrap();
        for excess in budget.excesses(&audit) {
            complaints.push(format!("{}: {excess}", budget.call));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}
