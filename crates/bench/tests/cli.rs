//! The bench as a command: what it prints, writes and refuses.

use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lp-bench")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn an_unknown_name_is_one_line_and_status_2() {
    let output = bench(&["nosuch"]);
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("'nosuch'") && errors.contains("lmbench"), "{errors}");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_anything_is_measured() {
    let output = bench(&["--kernel-only", "--json", "/nonexistent/dir/run.json", "spawn"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("/nonexistent/dir/run.json"));
    assert!(output.stdout.is_empty());
}

#[test]
fn a_report_is_printed_kept_and_shown_again() {
    let dir = tempfile::tempdir().unwrap();
    let (json, html) = (dir.path().join("run.json"), dir.path().join("run.html"));
    let (json, html) = (json.to_str().unwrap(), html.to_str().unwrap());
    let first = bench(&["--quick", "--samples", "1", "--kernel-only", "--json", json, "lseek", "spawn"]);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let table = text(&first.stdout);
    assert!(table.contains("random lseeks") && table.contains("posix_spawn"), "{table}");

    let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let series = report["workloads"][0]["series"].as_array().unwrap();
    assert_eq!(series.len(), 5);
    for figure in series {
        let cell = &figure["cells"][0];
        assert!(cell["median"].as_f64().unwrap() > 0.0 && cell["samples"].as_array().unwrap().len() == 1);
    }
    assert!(report["machine"]["kernel"].as_str().unwrap().starts_with("Linux"));

    let again = bench(&["--from", json, "--html", html]);
    assert_eq!(text(&again.stdout), table);
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("<svg") && !page.contains("http://localhost") && !page.contains("<script"));
}

#[test]
fn what_is_no_report_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.json");
    std::fs::write(&file, "{\"schema\": 1}").unwrap();
    let output = bench(&["--from", file.to_str().unwrap()]);
    assert!(!output.status.success() && text(&output.stderr).contains("not a bench report"));
}

#[test]
fn applications_give_rows_of_wall_and_processor_time() {
    let output = bench(&["--quick", "--samples", "1", "--kernel-only", "apps/tar", "apps/rm"]);
    let (table, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{table}{errors}");
    for row in ["tar -x ", "tar -x: CPU ", "rm -r ", "rm -r: CPU "] {
        assert!(table.contains(row), "{row}: {table}");
    }
    assert!(!table.contains("sqlite") && !table.contains("left out"), "{table}");
}
