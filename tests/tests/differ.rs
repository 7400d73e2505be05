//! Rows of docs/differences.md that no other test shows: what the cases of `tests/programs/differ` say on the
//! kernel's file system, and on a mount. All need root.

use std::fs::{File, read_to_string};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Failed, Trial};
use lp_tests::door::{Door, Place};
use lp_tests::{binary, compile, process, suite};

/// A case, and what it says on the kernel and on Lightpath.
const CASES: [(&str, &str, &str); 79] = [
    // ids.c
    ("of_two_users", "test 0", "test 1"),
    ("unreadable_program", "exit 0", "exit 126"),
    (
        "large_maps",
        "map 0, 32 lines: owner, map 0, 33 lines: owner",
        "map 0, 32 lines: owner, map 0, 33 lines: nobody",
    ),
    ("flags_set_within", "set 0, clear 0", "set 0, clear EPERM"),
    ("link_of_the_parent", "link ENOENT, own 0", "link 0, own 0"),
    ("device_without_capability", "capset 0, open 0", "capset 0, open EACCES"),
    ("splice_of_another_user", "splice 0", "splice EACCES"),
    // mounts.c
    (
        "tmpfs_shown",
        "mount 0, statfs 0, percent of memory, bind 0, unlink 0, root /f//deleted, source of 100 bytes",
        "mount 0, statfs 0, percent of another size, bind 0, unlink 0, root /#//deleted, source of 55 bytes",
    ),
    ("beneath_and_idmap", "move 0, map 0, map 0, idmap 0", "move EINVAL, map 0, map 0, idmap EINVAL"),
    ("kernel_only", "init 0, mark 0, pivot_root 0", "init 0, mark ENODEV, pivot_root EINVAL"),
    ("mounted_across", "proc 0, host's 0, on the host 0", "proc ENODEV, host's EINVAL, on the host EPERM"),
    ("mounted_elsewhere", "not seen, umount EINVAL", "seen, umount 0"),
    ("detached", "move 0", "move EINVAL"),
    ("made_with_files", "create 0, open 0, move 0", "create 0, open 0, move EINVAL"),
    ("picked", "set 0, reconfigure 0", "set 0, reconfigure EBUSY"),
    ("many_mounts", "300", "mount ENOSPC, fewer"),
    ("mountinfo_open", "mount 0, told, shown", "mount 0, not told, not shown"),
    // names.c
    ("order_of_names", "made c b a, over a b, exchanged b a", "made c b a, over b a, exchanged b a"),
    (
        "listed_above",
        "by a low number listed, by a high number listed",
        "by a low number listed, by a high number not listed",
    ),
    ("seen_from_above", "3 links, access EACCES", "2 links, access 0"),
    ("link_of_host", "link 0, chroot 0, open 0", "link 0, chroot 0, open ENOENT"),
    (
        "link_to_a_descriptor",
        "chown 0, utimensat 0, owner 5, time 5, 1 attribute, access EACCES",
        "chown 0, utimensat 0, owner 0, time another, no attribute, access 0",
    ),
    ("closed_numbers", "rename EBADF, mount 0, unlink EROFS", "rename ENOENT, mount 0, unlink ENOENT"),
    ("long_links", "one 0, two 0, three 0", "one 0, two 0, three ENAMETOOLONG"),
    (
        "names_of_the_gone",
        "renamed b (deleted), used again c (deleted)",
        "renamed a (deleted), used again # (deleted)",
    ),
    // descriptors.c
    ("select_above", "open 0, select 0", "open 0, select EBADF"),
    ("taken_numbers", "0 taken", "5 taken"),
    ("counted_descriptors", "as many", "more"),
    ("link_itself", "by name 700, by descriptor 700", "by name 700, by descriptor 0"),
    ("table_of_a_thread", "unshare 0, flags 0", "unshare 0, flags EBADF"),
    ("ring_through_an_open_file", "lock EDEADLK", "lock EINTR"),
    ("no_number_left", "mmap 0, sendmsg 0, static 0", "mmap EMFILE, sendmsg EMFILE, static EMFILE"),
    ("waits_for_a_lock", "the holder is shown, the waiter shown", "the holder is shown, the waiter not"),
    (
        "fdinfo",
        "lease 0, read: position, lease, preadv: position",
        "lease 0, read: position, no lease, preadv: none",
    ),
    ("rulesets", "add 0, eighth 0, ninth 0", "add EBADFD, eighth 0, ninth ENFILE"),
    ("leases_without_names", "renamed 0, unlinked 0", "renamed EAGAIN, unlinked EAGAIN"),
    ("lease_of_mapped", "lease EAGAIN", "lease 0"),
    ("signal_fetched", "notify 0, the descriptor", "notify 0, another"),
    ("table_of_a_child", "fcntl 0", "fcntl EBADF"),
    ("directory_of_a_thread", "the thread's", "the process's"),
    ("fifo_without_writers", "splice 0", "splice EAGAIN"),
    ("rings", "another error", "ENOSYS"),
    // memory.c
    ("shown_mapping", "file f, userfaultfd no", "file the region, userfaultfd yes"),
    ("own_mappings", "no region, no variable", "region, the gate's variable"),
    ("space_of_holes", "mapped 0, touched 8", "mapped 128, touched 128"),
    ("hole_in_a_call", "process_vm_readv 0", "process_vm_readv EFAULT"),
    ("blocked_while_mapped", "blocked", "not blocked"),
    ("grown_by_another", "grown 0, cut and grown 0", "grown EFAULT, cut and grown EFAULT"),
    ("copied_page_cut", "SIGBUS", "the copy"),
    ("times_seen_by_others", "the new time", "the old time"),
    ("registered_mapping", "api 0, register 0", "api 0, register EBUSY"),
    ("touched_space", "byte 0, data 0", "byte 0, data ENXIO"),
    ("bad_write", "pwrite EFAULT, size 5000, blocks 8", "pwrite EFAULT, size 0, blocks 0"),
    ("blocked_fault", "write EFAULT", "signal 11"),
    ("last_page", "pwrite 0, data ENXIO", "pwrite 0, data 0"),
    ("times_of_the_undumpable", "the new time", "the old time"),
    // limited.c
    ("limited_and_asked", "mkdirat EPERM, on the host EPERM", "mkdirat 0, on the host EPERM"),
    (
        "limited_files",
        "open: the lowest number, mmap 0, mmap of code 0",
        "open: another number, mmap ENODEV, mmap of code EACCES",
    ),
    ("limited_rights", "landlock 0, setrlimit 0, setuid 0", "landlock EPERM, setrlimit EPERM, setuid EPERM"),
    (
        "limited_processes",
        "child 0, vfork 0, fork 0, executed",
        "child EACCES, vfork EAGAIN, fork EAGAIN, exec EPERM",
    ),
    ("limited_times", "the new time", "the old time"),
    ("mapped_under_a_filter", "SIGBUS", "0"),
    ("limited_opener", "open EAGAIN", "open 0"),
    ("limited_and_watched", "event 0", "event EAGAIN"),
    // proc.c
    ("caught_signals", "SEGV 0, BUS 0", "SEGV 1, BUS 1"),
    ("listed_sockets", "1 by its name", "0 by its name"),
    ("counts_of_reads", "a file's counted, the host's counted", "a file's not counted, the host's counted"),
    ("static_programs", "alone, open ETXTBSY", "the gate, open 0"),
    ("static_by_itself", "cat", "busybox"),
    // watches.c
    (
        "watched_programs",
        "executed OPEN ACCESS CLOSE_NOWRITE, temporary OPEN CLOSE_WRITE",
        "executed nothing, temporary nothing",
    ),
    ("watched_fifo", "a FIFO CREATE OPEN CLOSE_WRITE", "a FIFO CREATE"),
    ("watched_device", "null MODIFY", "null nothing"),
    ("watched_readers", "read OPEN ACCESS CLOSE_NOWRITE", "read OPEN CLOSE_NOWRITE"),
    ("watched_from_elsewhere", "made CREATE", "made nothing"),
    (
        "watched_and_sent",
        "closed by the sender OPEN, by both CLOSE_NOWRITE",
        "closed by the sender OPEN CLOSE_NOWRITE, by both nothing",
    ),
    ("numbers_of_the_watched", "128", "129"),
    // landlock.c
    ("ruled_out_cache", "other EACCES, cache EACCES", "other EACCES, cache 0"),
    ("ruled_devices", "ioctl ENOTTY", "ioctl EACCES"),
    // times.c
    ("times_within_a_tick", "times of their own", "the time of a tick"),
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
    command.env("XDG_CACHE_HOME", binary::cache_home()?).current_dir("/").stdin(Stdio::null());
    command.stdout(File::create(&said)?);
    let status = process::run(&mut command, Duration::from_secs(60));
    door.close(&mount)?;
    let said = read_to_string(&said).context("said")?.lines().collect::<Vec<_>>().join(", ");
    ensure!(status? == "exit 0" && said == expected, "on {door:?}: {said}");
    Ok(())
}
