//! The same cases as programs meet them: `lightpath run --region FILE` on a damaged file.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::mutate::{self, Image, Random};

/// How long a run may take: it takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends `count` cases through a run of this very program, which then makes a program's calls.
pub fn cases(image: &Image, seed: u64, count: u64) {
    if count == 0 {
        return;
    }
    let lightpath = lp_tests::binary::lightpath().expect("lightpath");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("region");
    let (mut refused, mut used) = (0, 0);
    for index in 0..count {
        let _ = fs::remove_file(&path);
        let file =
            File::options().create(true).truncate(true).read(true).write(true).open(&path).expect("file");
        image.put(file.as_raw_fd());
        let changes = mutate::mutate(image, file.as_raw_fd(), &mut Random::new(seed, index));
        drop(file);
        let again = format!("case {index} of seed {seed}, through a run:\n{changes}");
        let own = std::env::current_exe().expect("own path");
        let mut run = Command::new(lightpath);
        run.args(["run", "--at", "/light", "--region"]).arg(&path).arg("--").arg(own).arg("--victim");
        match finish(&mut run, &again) {
            0 => used += 1,
            1 => refused += 1,
            other => panic!("{again}exit status {other}"),
        }
        let mut mend = Command::new(lightpath);
        mend.args(["fsck", "--repair"]).arg(&path).stdout(Stdio::null());
        let mended = finish(&mut mend, &again);
        assert!([0, 1, 8].contains(&mended), "{again}mending it: exit status {mended}");
    }
    println!("through a run: {refused} refused, {used} used");
    assert!(count < 30 || refused > 0 && used > 0, "both ends are seen");
}

/// Awaits a command; its exit status. One that hangs or dies of a signal fails the test.
fn finish(command: &mut Command, again: &str) -> i32 {
    let mut child = command.stderr(Stdio::null()).stdin(Stdio::null()).spawn().expect("lightpath starts");
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("wait") {
            return status.code().unwrap_or_else(|| panic!("{again}{status}"));
        }
        if started.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{again}hangs");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What the program of such a run does. Results do not matter.
pub fn victim() {
    let mut pending = vec!["/light".into()];
    let mut seen = Vec::new();
    while let Some(directory) = pending.pop() {
        let Ok(entries) = fs::read_dir::<std::path::PathBuf>(directory) else { continue };
        for entry in entries.take(300).flatten() {
            let path = entry.path();
            match entry.metadata() {
                Ok(found) if found.is_dir() && seen.len() < 1000 => pending.push(path.clone()),
                _ => content(&path),
            }
            seen.push(path);
        }
    }
    let _ = fs::create_dir("/light/new");
    (0..50).for_each(|number| _ = fs::write(format!("/light/new/{number}"), vec![7; number * 300]));
    let _ = fs::rename("/light/a", "/light/new/a");
    let _ = Command::new("/bin/true").status();
    for path in seen.iter().rev() {
        let _ = fs::remove_file(path);
        let _ = fs::remove_dir(path);
    }
}

fn content(path: &std::path::Path) {
    let Ok(mut file) = OpenOptions::new().read(true).write(true).open(path) else { return };
    let mut bytes = vec![0; 20_000];
    let _ = file.read(&mut bytes);
    let _ = file.seek(SeekFrom::Start(4000));
    let _ = file.write(&bytes[..6000]);
    let _ = file.set_len(3000);
}
