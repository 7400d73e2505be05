//! No way around the gate: `tests/programs/around.c` makes every call that takes a path, on a mount that
//! covers a host directory. That directory must be unchanged afterwards, in content, names and attributes.
//! `tests/programs/own_memory.c` makes every call that changes a mapping, on the gate's own memory.
//! `tests/programs/named.c` makes files with the mount's name in roundabout ways: no host file may get it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use lp_tests::door::{Door, Place};
use lp_tests::{binary, compile, process, suite};

fn main() -> ExitCode {
    let run = || around().map_err(|error| Failed::from(format!("{error:#}")));
    let memory = || own_memory().map_err(|error| Failed::from(format!("{error:#}")));
    suite::run(Ok(vec![
        Trial::test("the_covered_directory_is_untouched", run),
        Trial::test("the_gates_memory_stays", memory),
        Trial::test("the_name_of_a_mount_is_taken", || {
            named().map_err(|error| Failed::from(format!("{error:#}")))
        }),
    ]))
}

fn own_memory() -> Result<()> {
    let program = compile::compile("own_memory")?;
    let place = Place::new()?;
    let (mount, said) = (place.of(Door::Lightpath).join("m"), place.of(Door::Lightpath).join("said"));
    std::fs::create_dir(&mount)?;
    let mut command = Command::new(binary::lightpath()?);
    command.args(["run", "--size", "64M", "--at"]).arg(&mount).arg("--").arg(program).arg(&mount);
    command.env("XDG_CACHE_HOME", binary::cache_home()?).current_dir("/").stdin(Stdio::null());
    command.stdout(std::fs::File::create(&said)?);
    let status = process::run(&mut command, Duration::from_secs(60))?;
    ensure!(status == "exit 0", "{status}: {}", std::fs::read_to_string(said)?);
    Ok(())
}

/// The same answers as where the kernel has mounted something.
fn named() -> Result<()> {
    let program = compile::compile("named")?;
    let (with_tmpfs, with_mount) = (tempfile::tempdir()?, tempfile::tempdir()?);
    std::fs::create_dir(with_tmpfs.path().join("m"))?;
    let mount = with_mount.path().join("m");
    let mut plain = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        plain.arg("--map-root-user");
    }
    plain.args(["--mount", "sh", "-c", "mount -t tmpfs none \"$1/m\" && exec \"$0\" \"$1\""]);
    plain.arg(&program).arg(with_tmpfs.path());
    let mut run = Command::new(binary::lightpath()?);
    run.args(["run", "--size", "64M", "--at"]).arg(&mount).arg("--").arg(&program).arg(with_mount.path());
    let mut said = Vec::new();
    for command in [&mut plain, &mut run] {
        let output = tempfile::NamedTempFile::new()?;
        command.env("XDG_CACHE_HOME", binary::cache_home()?).stdin(Stdio::null());
        command.stdout(output.reopen()?);
        let status = process::run(command, Duration::from_secs(60))?;
        let text = std::fs::read_to_string(output.path())?;
        ensure!(status == "exit 0", "{status}: {text}");
        said.push(text);
    }
    let differ: Vec<_> = said[0].lines().zip(said[1].lines()).filter(|(a, b)| a != b).collect();
    ensure!(said[0] == said[1], "on the kernel, in a run: {differ:#?}");
    ensure!(mount.symlink_metadata().is_err(), "the host has a file with the mount's name");
    Ok(())
}

/// The host directory: files with the names that the program's calls use, larger than ours and with an
/// attribute that ours lack.
fn prepare(directory: &Path) -> Result<()> {
    std::fs::create_dir(directory)?;
    std::fs::create_dir(directory.join("d"))?;
    let text = "of the host\n".repeat(400);
    std::fs::write(directory.join("f"), &text.as_bytes()[..4242])?;
    rustix::fs::ioctl_setflags(std::fs::File::open(directory.join("f"))?, rustix::fs::IFlags::NODUMP)
        .context("FS_IOC_SETFLAGS")?;
    std::os::unix::fs::symlink("f", directory.join("l"))?;
    for name in ["f", "d", "."] {
        rustix::fs::setxattr(directory.join(name), "user.host", b"here", rustix::fs::XattrFlags::empty())
            .context("setxattr")?;
    }
    Ok(())
}

/// Everything in the directory that a call could change; change times also reveal what was changed back.
fn state(directory: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for name in [".", "d", "f", "l"] {
        let path = directory.join(name);
        let m = std::fs::symlink_metadata(&path)?;
        let times = (m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec());
        found.push(format!(
            "{name} {:o} {} {} {} {} {times:?}",
            m.mode(),
            m.uid(),
            m.gid(),
            m.nlink(),
            m.size()
        ));
    }
    let mut names: Vec<_> =
        std::fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name())).collect::<Result<_>>()?;
    names.sort();
    found.push(format!("{names:?}"));
    let text = std::fs::read(directory.join("f"))?;
    found.push(format!("{}", text.iter().fold(0u64, |hash, byte| hash.wrapping_mul(31) + u64::from(*byte))));
    Ok(found)
}

fn around() -> Result<()> {
    let program = compile::compile("around")?;
    let place = Place::new()?;
    let mount = place.of(Door::Lightpath).join("m");
    prepare(&mount)?;
    let before = state(&mount)?;
    let host = tempfile::tempdir()?;
    let said = host.path().join("said");
    // If anything mounts, it does so in a namespace of its own.
    let is_root = rustix::process::geteuid().is_root();
    let mut command = Command::new(if is_root { "unshare" } else { "env" });
    if is_root {
        command.args(["--mount", "--propagation", "private", "--"]);
    }
    command.arg(binary::lightpath()?).arg("run").arg("--at").arg(&mount).arg("--").arg(program).arg(&mount);
    command.env("XDG_CACHE_HOME", binary::cache_home()?).current_dir("/").stdin(Stdio::null());
    command.stdout(std::fs::File::create(&said)?);
    let status = process::run(&mut command, Duration::from_secs(120))?;
    let (after, said) = (state(&mount)?, std::fs::read_to_string(said)?);
    ensure!(status == "exit 0", "{status}: {said}");
    ensure!(after == before, "before {before:#?}\nafter {after:#?}\n{said}");
    println!("{said}");
    Ok(())
}
