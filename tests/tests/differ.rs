//! Rows of docs/differences.md that no other test shows: what `tests/programs/differ.c` says on the kernel's
//! file system, and on a mount. All need root.

use std::fs::{File, read_to_string};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use lp_tests::door::{Door, Place};
use lp_tests::{binary, compile, process, suite};

/// A case, and what it says on the kernel and on Lightpath.
const CASES: [(&str, &str, &str); 14] = [
    ("of_two_users", "test 0", "test 1"),
    (
        "large_maps",
        "map 0, 32 lines: owner, map 0, 33 lines: owner",
        "map 0, 32 lines: owner, map 0, 33 lines: nobody",
    ),
    ("attributes", "mount 0, setxattr 0", "mount 0, setxattr EPERM"),
    (
        "tmpfs_shown",
        "mount 0, statfs 0, percent of memory, bind 0, unlink 0, root /f//deleted, source of 100 bytes",
        "mount 0, statfs 0, percent of another size, bind 0, unlink 0, root /#//deleted, source of 55 bytes",
    ),
    ("closed_numbers", "rename EBADF, mount 0, unlink EROFS", "rename ENOENT, mount 0, unlink ENOENT"),
    ("link_of_host", "link 0, chroot 0, open 0", "link 0, chroot 0, open ENOENT"),
    ("beneath_and_idmap", "move 0, map 0, map 0, idmap 0", "move EINVAL, map 0, map 0, idmap EINVAL"),
    ("kernel_only", "init 0, mark 0, pivot_root 0", "init 0, mark ENODEV, pivot_root EINVAL"),
    ("rulesets", "add 0, eighth 0, ninth 0", "add EBADFD, eighth 0, ninth ENFILE"),
    ("order_of_names", "made c b a, over a b, exchanged b a", "made c b a, over b a, exchanged b a"),
    ("link_of_the_parent", "link ENOENT, own 0", "link 0, own 0"),
    ("counts_of_reads", "a file's counted, the host's counted", "a file's not counted, the host's counted"),
    ("shown_mapping", "file f, userfaultfd no", "file the region, userfaultfd yes"),
    ("select_above", "open 0, select 0", "open 0, select EBADF"),
];

fn main() -> ExitCode {
    let trial = |(name, kernel, lightpath): (&'static str, &'static str, &'static str)| {
        let run = move || {
            let shown =
                shows(name, Door::Kernel, kernel).and_then(|()| shows(name, Door::Lightpath, lightpath));
            shown.map_err(|error| Failed::from(format!("{error:#}")))
        };
        Trial::test(name, run).with_ignored_flag(!rustix::process::geteuid().is_root())
    };
    suite::run(Ok(CASES.into_iter().map(trial).collect()))
}

/// Whether the case says `expected` on a door.
fn shows(name: &str, door: Door, expected: &str) -> Result<()> {
    let (place, host) = (Place::new()?, tempfile::tempdir()?);
    let (mount, said) = (place.of(door).join("m"), host.path().join("said"));
    let mut command = door.command(&mount, "64M", "unshare")?;
    // What is mounted is so in a namespace of its own.
    command.args(["--mount", "--propagation", "private", "--"]).arg(compile::compile("differ")?);
    command.arg(name).arg(&mount).arg(host.path());
    command.env("XDG_CACHE_HOME", binary::scratch_dir()?).current_dir("/").stdin(Stdio::null());
    command.stdout(File::create(&said)?);
    let status = process::run(&mut command, Duration::from_secs(60));
    door.close(&mount)?;
    let said = read_to_string(&said).context("said")?.lines().collect::<Vec<_>>().join(", ");
    ensure!(status? == "exit 0" && said == expected, "on {door:?}: {said}");
    Ok(())
}
