//! `lightpath info`: what it says of region files in use and not in use, and of files that are none.

use std::path::Path;
use std::process::{Command, Output};

fn lightpath(args: &[&str], file: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lightpath")).args(args).arg(file).output().unwrap()
}

/// A region of 16 MiB that a command has filled.
fn run(region: &Path, script: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lightpath"))
        .args(["run", "--at", "/light", "--size", "16M", "--region"])
        .arg(region)
        .args(["--", "sh", "-c", script])
        .output()
        .unwrap()
}

fn facts(region: &Path) -> serde_json::Value {
    let output = lightpath(&["info", "--json"], region);
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_region_says_what_it_holds() {
    let dir = tempfile::tempdir().unwrap();
    let region = dir.path().join("region");
    let made =
        run(&region, "mkdir /light/d && head -c 1000000 /dev/zero > /light/d/f && ln /light/d/f /light/g");
    assert!(made.status.success(), "{made:?}");
    let facts = facts(&region);
    // The root, a directory and a file.
    assert_eq!((&facts["inodes"], &facts["names"]), (&3.into(), &3.into()), "{facts}");
    assert_eq!((&facts["limit"], &facts["runs"]), (&(16 << 20).into(), &0.into()), "{facts}");
    let used = facts["used"].as_u64().unwrap();
    assert!((1_000_000..1_100_000).contains(&used), "{facts}");
    assert!(facts["on_disk"].as_u64().unwrap() < facts["length"].as_u64().unwrap(), "{facts}");
    let text = lightpath(&["info"], &region);
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(text.contains("not in use") && text.contains("of 16 MiB") && text.lines().count() == 4, "{text}");
}

#[test]
fn a_frozen_region_says_so_until_it_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let (region, frozen) = (dir.path().join("region"), dir.path().join("frozen"));
    assert!(run(&region, ": > /light/f").status.success());
    assert_eq!(facts(&region)["frozen"], false);
    let made = Command::new(env!("CARGO_BIN_EXE_lightpath")).arg("freeze").args([&region, &frozen]).output();
    assert!(made.as_ref().is_ok_and(|made| made.status.success()), "{made:?}");
    let says = || String::from_utf8(lightpath(&["info"], &frozen).stdout).unwrap();
    assert!(says().contains("frozen: see lightpath run --from"), "{}", says());
    // A look does not change that, nor does a branch.
    let branch = ["run", "--from", frozen.to_str().unwrap(), "--", "true"];
    assert!(Command::new(env!("CARGO_BIN_EXE_lightpath")).args(branch).status().unwrap().success());
    assert_eq!(facts(&frozen)["frozen"], true);
    assert!(run(&frozen, "true").status.success());
    assert_eq!(facts(&frozen)["frozen"], false);
    assert!(says().contains("not in use"), "{}", says());
}

#[test]
fn a_region_in_use_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let region = dir.path().join("region");
    // Inside a run the command looks at its own region, by the host's path.
    let script = format!("{} info {}", env!("CARGO_BIN_EXE_lightpath"), region.display());
    let output = run(&region, &script);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("in use by 1 run"), "{output:?}");
}

#[test]
fn what_is_no_region_gets_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "text").unwrap();
    for (path, says) in [(file.as_path(), "not a Lightpath region"), (Path::new("/none"), "No such file")] {
        let output = lightpath(&["info"], path);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
        assert!(text.contains(says), "{text}");
    }
}

/// What is opened gets no standard descriptor's number.
#[test]
fn a_report_is_not_written_to_the_region() {
    let dir = tempfile::tempdir().unwrap();
    let region = dir.path().join("region");
    assert!(run(&region, "echo text >/light/f").status.success());
    let script = "\"$0\" info \"$1\" >&-; \"$0\" info \"$1\" <&- >&- 2>&-";
    let shell =
        Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_lightpath")]).arg(&region).status();
    assert!(shell.unwrap().success());
    assert_eq!(String::from_utf8_lossy(&run(&region, "cat /light/f").stdout), "text\n");
}
