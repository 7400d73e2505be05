//! `--region FILE`: what is no usable region is refused in one line and left as it is.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn run(options: &[&str], region: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lightpath"));
    command.arg("run").args(options).arg("--region").arg(region).args(["--", "true"]).output().unwrap()
}

/// A region in `directory`, as a run leaves it.
fn made(directory: &Path) -> PathBuf {
    let path = directory.join("region");
    let output = run(&["--size", "16M"], &path);
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(0), ""));
    path
}

/// Runs on `region` and expects status 1 and one line that ends with `complaint` and a region that is not
/// changed.
fn refused(options: &[&str], region: &Path, complaint: &str) {
    let head = || {
        let mut head = Vec::new();
        let read = std::fs::File::open(region)?.take(8192).read_to_end(&mut head);
        read.map(|_| head)
    };
    let before = head();
    let output = run(options, region);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.ends_with(&format!("{complaint}\n")) && said.lines().count() == 1,
        "{said:?} is not {complaint:?}"
    );
    assert_eq!(before.ok(), head().ok());
}

#[test]
fn a_region_is_made_once_and_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path());
    for options in [&[][..], &["--size", "16M"], &["--at", "/one", "--at", "/two"]] {
        assert_eq!(run(options, &path).status.code(), Some(0), "{options:?}");
    }
    refused(&["--size", "32M"], &path, "leave --size out, or make another region");
}

#[test]
fn what_is_not_a_region_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text");
    std::fs::write(&text, "not a region").unwrap();
    refused(&[], &text, "is not a Lightpath region; name another file, or one that is not there");
    std::fs::write(&text, vec![7; 100_000]).unwrap();
    refused(&[], &text, "is not a Lightpath region; name another file, or one that is not there");
    refused(&[], dir.path(), "Is a directory");
    refused(&[], Path::new("/dev/null"), "is not a regular file; name another");
    refused(&[], &dir.path().join("none/region"), "No such file or directory");
}

#[test]
fn a_region_of_another_version_is_refused() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path());
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&[99], 8).unwrap();
    let output = run(&[], &path);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("is a region of version 99, this lightpath reads version"), "{said}");
    refused(&[], &path, "use the one that made it");
}

#[test]
fn a_truncated_region_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = made(dir.path());
    for length in [1 << 30, 4096, 64] {
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(length).unwrap();
        refused(&[], &path, "is a region cut short: part of it is missing");
    }
}

#[test]
fn a_damaged_header_is_refused() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().unwrap();
    // Checksum, length, data pages, identity, inode limit.
    for offset in [12, 16, 24, 32, 40] {
        let path = made(dir.path());
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
        refused(&[], &path, "is a damaged region: its header contradicts itself");
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_directory_that_may_not_be_written_is_one_line() {
    // Root may write anywhere but to the kernel's own directories.
    refused(&[], Path::new("/proc/region"), "No such file or directory");
}

#[test]
fn limits_that_leave_no_room_are_one_line() {
    let limited = |limit: &str| {
        let script = format!("{limit}; exec \"$0\" run -- true");
        let output =
            Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_lightpath")]).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (limit, part) in
        [("ulimit -n 40", "ulimit -n"), ("ulimit -f 4000", "ulimit -f"), ("ulimit -v 4000000", "ulimit -v")]
    {
        let (status, said) = limited(limit);
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains(part) && said.lines().count() == 1, "{said}");
    }
    assert_eq!(limited("ulimit -n 64"), (Some(0), String::new()));
}

/// Makes a small tree of every kind.
const PLANT: &str =
    "cd $LIGHTPATH; mkdir -p a/b/c; for i in 1 2 3 4 5 6 7 8 9; do echo hello $i > a/f$i; ln -s f$i a/l$i
    mkdir a/d$i; done; dd if=/dev/zero of=big bs=1M count=3 2>/dev/null; ln a/f1 hard
    touch a/a-name-that-is-too-long-for-its-directory-entry";
/// Looks at everything and changes much of it.
const GRAZE: &str =
    "cd $LIGHTPATH; ls -laR .; cat a/f* a/l* hard; wc -c big; du -s .; cp -r a copy; mv a z; rm -rf z copy
    echo new > n; cat n; find . | wc -l";

/// The parts of a sparse file that hold data.
fn extents(path: &Path) -> Vec<(u64, u64)> {
    use rustix::fs::{SeekFrom, seek};
    let file = std::fs::File::open(path).unwrap();
    let (mut all, mut at) = (Vec::new(), 0);
    while let Ok(data) = seek(&file, SeekFrom::Data(at)) {
        at = seek(&file, SeekFrom::Hole(data)).unwrap();
        all.push((data, at));
    }
    all
}

#[test]
fn a_region_with_damaged_records_gives_errors_not_crashes() {
    use std::os::unix::fs::FileExt;
    use std::os::unix::process::ExitStatusExt;
    let dir = tempfile::tempdir().unwrap();
    let (good, path) = (dir.path().join("good"), dir.path().join("region"));
    let shell = |region: &Path, script: &str| {
        let mut command = Command::new("timeout");
        command.args(["60", env!("CARGO_BIN_EXE_lightpath"), "run", "--size", "16M", "--region"]);
        command.arg(region).args(["--", "sh", "-c", script]).output().unwrap()
    };
    assert!(shell(&good, PLANT).status.success());
    let extents = extents(&good);
    assert!(extents.len() > 5, "{extents:?}");
    // xorshift64: the same damage each time.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..12 {
        let copied = Command::new("cp").arg("--sparse=always").args([&good, &path]).status().unwrap();
        assert!(copied.success());
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        for _ in 0..1 << (round % 5) {
            let (from, to) = extents[random() as usize % extents.len()];
            // Records are at the beginning of their slabs; the header is another test's.
            let at = (from + random() % (to - from).min(65536)).max(4096) & !3;
            let word = [0, u32::MAX, random() as u32, random() as u8 as u32][random() as usize % 4];
            file.write_all_at(&word.to_le_bytes(), at).unwrap();
        }
        let status = shell(&path, GRAZE).status;
        let dead = status.signal().is_some() || status.code() == Some(124) || status.code() > Some(128);
        assert!(!dead, "round {round}: {status}");
    }
}

#[test]
fn only_a_new_file_is_not_read_ahead() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("region");
    // The flags of the region's mapping, in a process that uses the mount.
    let script = "cd /light; exec awk '/ .*region$/ { ours = 1 } /^VmFlags/ { if (ours) print; ours = 0 }' /proc/self/smaps";
    let flags = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lightpath"));
        let output =
            command.args(["run", "--region"]).arg(&path).args(["--", "sh", "-c", script]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.starts_with("VmFlags: rd wr sh"), "{output:?}");
        text
    };
    assert!(flags().split(' ').any(|flag| flag == "rr"));
    assert!(!flags().split(' ').any(|flag| flag == "rr"), "a file that was there before");
}
