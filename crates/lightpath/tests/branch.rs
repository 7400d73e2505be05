//! `run --from` where blocks cannot be shared: content is taken in as files are opened.

mod trees;

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use trees::{LIST, MAKE, Trees, is_root, kill, said, sh, stopped_at};

/// What the frozen regions of these tests hold beside [`MAKE`].
const MORE: &str = "seq 1 900000 > long; cp /bin/echo program; truncate -s 9000000 sparse; \
    echo middle | dd of=sparse bs=1 seek=5000000 conv=notrunc 2>/dev/null; fallocate -l 70000 space; echo x | dd of=space conv=notrunc 2>/dev/null; \
    setfattr -n user.k -v value numbers; ln -s $(printf 'l%.0s' $(seq 200)) link; echo one page > small";

/// Files that are first used in every way.
const USE: &str = r#"
tail -c 20 long; echo more >> small; truncate -s 300 numbers; getfattr -d numbers
printf 12345 | dd of=d/large bs=1 seek=70000 conv=notrunc 2>/dev/null; tail -c 30 sparse | od -c; md5sum sparse space
./program said; cp d/e/larger copy; cp --reflink=auto a/b/two copy2; : > a/b/c/three; mv keep/file keep/moved; ln a/one keep/link; rm d/hard
readlink link; ./run.sh > /dev/null; cat a/*utf8
python3 -c "
import mmap, os
f = open('keep/moved', 'r+b')
m = mmap.mmap(f.fileno(), 0)
print(m[:4])
m[0:1] = b'K'
m.close()
g = os.open('long', os.O_PATH)
print(os.read(os.open('/proc/self/fd/%d' % g, os.O_RDONLY), 6))
print(os.stat('long').st_blocks >= 12000, os.stat('sparse').st_blocks <= 16)
"
cat keep/moved
"#;

/// A frozen region of a tree, on a file system without shared blocks.
struct Frozen {
    trees: Trees,
    place: TempDir,
}

impl Frozen {
    fn new(make: &str) -> Frozen {
        let frozen = Frozen { trees: Trees::new(make), place: TempDir::new_in("/dev/shm").unwrap() };
        let region = frozen.trees.home.path().join("region");
        let fill = ["--size", "256M", "--", "sh", "-c", "cp -a . $LIGHTPATH"];
        frozen.trees.says(&[&["run", "--region", region.to_str().unwrap()], &fill[..]].concat());
        frozen.trees.says(&["freeze", region.to_str().unwrap(), &frozen.shown()]);
        frozen
    }

    fn file(&self) -> PathBuf {
        self.place.path().join("frozen")
    }

    fn shown(&self) -> String {
        self.file().to_str().unwrap().to_owned()
    }

    /// A run that begins with it.
    fn branch(&self, command: &[&str]) -> Command {
        self.trees.lightpath(&[&["run", "--from", &self.shown(), "--"], command].concat())
    }

    fn says(&self, script: &str) -> String {
        said(&self.branch(&["sh", "-c", &format!("cd $LIGHTPATH; {script}")]).output().unwrap())
    }

    /// A run that goes on until its input ends, and then runs the script.
    fn held(&self, script: &str) -> Child {
        let script = format!("cd $LIGHTPATH; echo; read line; {script}");
        let mut run = self.branch(&["sh", "-c", &script]);
        let mut run =
            run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        run.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        run
    }

    /// A command in a run that is under way.
    fn joined(&self, run: &Child, command: &[&str]) -> Command {
        self.trees.lightpath(&[&["exec", &run.id().to_string(), "--"], command].concat())
    }
}

/// Lets a run go on; what it prints.
fn ended(mut run: Child) -> String {
    drop(run.stdin.take());
    let output = run.wait_with_output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn first_uses_do_what_they_do_in_a_copy() {
    let frozen = Frozen::new(&format!("{MAKE}\n{MORE}"));
    let state =
        || fs::metadata(frozen.file()).map(|found| (found.mtime_nsec(), found.ctime_nsec(), found.blocks()));
    let before = state().unwrap();
    assert_eq!(frozen.says(LIST), sh(&frozen.trees.copy(), LIST));
    assert_eq!(frozen.says(&format!("{USE}\n{LIST}")), sh(&frozen.trees.copy(), &format!("{USE}\n{LIST}")));
    assert_eq!(state().unwrap(), before, "the file was written to");
    assert_eq!(frozen.says("rm -r *; ls | wc -l"), "0\n");
}

/// What of a file is in memory, in KiB.
fn memory(run: &Child) -> u64 {
    let fds = fs::read_dir(format!("/proc/{}/fd", run.id())).unwrap().map(|entry| entry.unwrap().path());
    let region =
        |fd: &PathBuf| fs::read_link(fd).is_ok_and(|to| to.as_os_str() == "/memfd:lightpath (deleted)");
    fds.filter(region).map(|fd| fs::metadata(fd).unwrap().blocks() / 2).max().unwrap()
}

#[test]
fn content_is_copied_as_it_is_used() {
    let frozen = Frozen::new("seq 1 3000000 > large; seq 1 2000000 > other");
    let size = |name: &str| fs::metadata(frozen.trees.tree().join(name)).unwrap().len() / 1024;
    let run = frozen.held("true");
    let start = memory(&run);
    assert!(start < size("other") / 4, "{start} KiB at the start");
    said(&frozen.joined(&run, &["stat", "/light/large", "/light/other"]).output().unwrap());
    assert!(memory(&run) < start + 1024);
    said(&frozen.joined(&run, &["tail", "-n", "1", "/light/other"]).output().unwrap());
    let used = memory(&run);
    assert!(used >= start + size("other") && used < start + size("other") + 4096, "{used} KiB");
    ended(run);
}

#[test]
fn a_use_that_is_killed_leaves_nothing_half_there() {
    let frozen = Frozen::new("seq 1 900000 > large; seq 1 99 > small");
    let expected = sh(&frozen.trees.copy(), "md5sum < large; md5sum < small");
    let (mut calls, step) = trees::kills(200, 23);
    let mut kills = 0;
    loop {
        let run = frozen.held("md5sum < large; md5sum < small");
        let use_it = ["md5sum", "/light/small", "/light/large"];
        let stopped = stopped_at(&mut frozen.joined(&run, &use_it), calls);
        if let Some(pid) = stopped {
            kill(pid);
        }
        assert_eq!(ended(run), expected, "killed at call {calls}");
        if stopped.is_none() {
            break;
        }
        calls += step;
        kills += 1;
    }
    assert!(kills > 5, "{kills} kills");
}

#[test]
fn many_use_one_file_at_once() {
    let frozen = Frozen::new("seq 1 900000 > large");
    let expected = sh(&frozen.trees.copy(), "md5sum < large");
    let script = "for i in 1 2 3 4 5 6; do md5sum < large & done; wait";
    assert_eq!(frozen.says(script), expected.repeat(6));
    let script =
        "(printf X | dd of=large bs=1 conv=notrunc 2>/dev/null) & (echo end >> large) & wait; md5sum < large";
    assert_eq!(frozen.says(script), sh(&frozen.trees.copy(), script));
}

#[test]
fn content_of_a_file_that_is_gone_or_has_changed_is_an_error() {
    for change in ["rm", "touch -d 2001-01-01", "chmod 400"] {
        let frozen = Frozen::new("echo used > used; echo not > not; mkdir d; : > empty");
        let run =
            frozen.held("cat used; cat not; ls; cat empty; mv not d; rm used d/not; echo new > not; cat not");
        said(&frozen.joined(&run, &["cat", "/light/used"]).output().unwrap());
        sh(frozen.place.path(), &format!("{change} frozen"));
        let text = ended(run);
        assert_eq!(text, "used\nd\nempty\nnot\nused\nnew\ncat: not: Input/output error\n", "{change}");
    }
}

/// Content that was not taken in yet is read from the frozen region by the process that wants it.
#[test]
fn content_takes_a_way_to_the_frozen_region() {
    if !is_root() {
        return;
    }
    let frozen = Frozen::new("for n in 1 2 3 4; do echo $n > f$n; done");
    let script = r#"cat f1; python3 -u - <<'END'
import errno, os, resource
here = os.open('.', os.O_RDONLY)
def tries(what, name, prepare):
    if os.fork() == 0:
        prepare()
        try: print(what, os.read(os.open(name, os.O_RDONLY, dir_fd=here), 9))
        except OSError as e: print(what, errno.errorcode[e.errno])
        os._exit(0)
    os.wait()
def leave_one():
    resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
    try:
        while True: last = os.open('f1', os.O_RDONLY, dir_fd=here)
    except OSError: os.close(last)
tries('root', 'f2', lambda: os.chroot('/usr'))
tries('user', 'f3', lambda: os.setresuid(65534, 65534, 65534))
tries('descriptors', 'f4', leave_one)
tries('descriptors', 'f1', leave_one)
END
"#;
    assert_eq!(frozen.says(script), "1\nroot EIO\nuser EACCES\ndescriptors EMFILE\ndescriptors b'1\\n'\n");
}

/// Removal and replacement free all pages of a file that nobody has opened.
#[test]
fn names_that_go_before_content_is_used_free_it() {
    let make = "seq 1 9 > small; for i in 1 2 3 4; do seq 1 40000 > large$i; done; seq 1 900000 > huge; ln huge too; mkdir d; seq 1 30000 > d/in";
    let frozen = Frozen::new(make);
    let free = "stat -f -c %f .";
    let removed = "echo x > new; mv new large1; mv -T large2 large3; ln large4 d/four; rm large4; rm huge; rm -r small d/in";
    let used = frozen.says(&format!("cat * d/* too > /dev/null; {removed}; rm large3; sync; {free}"));
    let unused = frozen.says(&format!("{removed}; rm large3; sync; {free}"));
    assert_eq!(unused, used);
    let script = format!(
        "{removed}; cat large1; md5sum < large3; md5sum < d/four; md5sum < too; rm too large3; rm -r d; ls; {free}"
    );
    let left = frozen.says(&script);
    let copied = sh(&frozen.trees.copy(), &script);
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(&left)[..5], lines(&copied)[..5]);
    let all = frozen.says(&format!("cat * d/* > /dev/null; rm -r *; {free}"));
    assert_eq!(frozen.says(&format!("rm -r *; {free}")), all);
}

#[test]
fn a_branch_that_is_frozen_stands_on_its_own() {
    let frozen = Frozen::new(MAKE);
    let run = frozen.held("true");
    said(
        &frozen.joined(&run, &["sh", "-c", "echo more >> /light/a/one; rm /light/numbers"]).output().unwrap(),
    );
    let second = Frozen { trees: Trees::new("true"), place: TempDir::new_in("/dev/shm").unwrap() };
    frozen.trees.says(&["freeze", &run.id().to_string(), &second.shown()]);
    ended(run);
    fs::remove_file(frozen.file()).unwrap();
    sh(&frozen.trees.copy(), "echo more >> a/one; rm numbers");
    assert_eq!(second.says(LIST), sh(&frozen.trees.copy(), LIST));
    // And once more.
    let run = second.held("true");
    let third = Frozen { trees: Trees::new("true"), place: TempDir::new_in("/dev/shm").unwrap() };
    second.trees.says(&["freeze", &run.id().to_string(), &third.shown()]);
    ended(run);
    assert_eq!(third.says(LIST), sh(&frozen.trees.copy(), LIST));
}

#[test]
fn a_branch_of_a_session_has_both() {
    let trees = Trees::new(MAKE);
    trees.over("echo own > own; seq 1 50000 > d/own; cat a/one > /dev/null");
    let frozen = Frozen { trees, place: TempDir::new_in("/dev/shm").unwrap() };
    frozen.trees.says(&["freeze", &frozen.trees.session(), &frozen.shown()]);
    sh(&frozen.trees.copy(), "echo own > own; seq 1 50000 > d/own");
    assert_eq!(frozen.says(LIST), sh(&frozen.trees.copy(), LIST));
    frozen.trees.says(&["discard"]);
}
