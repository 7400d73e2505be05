//! Whether the start of a run checks the region of its session.

mod trees;

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use lp_region::layout::INODE_SLAB;
use lp_region::records::{ABOVE_LAYER, Inode};
use tempfile::TempDir;
use trees::{MAKE, Trees};

/// Longer than the granularity of a file's times.
const TICK: Duration = Duration::from_millis(20);

/// What a run over the tree does.
fn over(trees: &Trees, state: &TempDir, script: &str) -> Output {
    let mut command = trees.lightpath(&["run", "--over", ".", "--", "sh", "-c", script]);
    command.env("XDG_STATE_HOME", state.path()).output().unwrap()
}

fn region(trees: &Trees, state: &TempDir) -> PathBuf {
    state.path().join("lightpath").join(trees.session()).join("region")
}

/// The word `at` bytes into a file, in a mapping that is kept.
fn mapped(file: &Path, at: u64) -> &'static AtomicU32 {
    let file = File::options().read(true).write(true).open(file).unwrap();
    let page = at & !0xfff;
    // SAFETY: a new mapping at a place of the kernel's choice, which nobody unmaps, so that a word in it can
    // be referred to for good.
    unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let fd = file.as_raw_fd();
        let map = libc::mmap(std::ptr::null_mut(), 4096, access, libc::MAP_SHARED, fd, page as i64);
        assert_ne!(map, libc::MAP_FAILED);
        &*map.cast::<u8>().add((at - page) as usize).cast::<AtomicU32>()
    }
}

/// A session, and a place in its region.
struct Damaged {
    trees: Trees,
    state: TempDir,
    /// Offset of a word that only a check, or a look at the file `made`, reads.
    at: u64,
    /// The word, in a page of the region that stays mapped.
    word: &'static AtomicU32,
}

impl Damaged {
    /// A session whose region is in a file below `home`.
    fn new(home: &Path) -> Damaged {
        let (trees, state) = (Trees::new(MAKE), tempfile::tempdir_in(home).unwrap());
        let output = over(&trees, &state, "find . > /dev/null; mkdir made; stat -c %i made");
        assert!(output.status.success(), "{output:?}");
        let number: u64 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
        let map = std::mem::offset_of!(Inode, map) as u64 + 4;
        let at = INODE_SLAB.offset((number - ABOVE_LAYER) as usize) as u64 + map;
        let word = mapped(&region(&trees, &state), at);
        let session = Damaged { trees, state, at, word };
        // The first store through a mapping changes the file's times, and no run has been left since.
        session.store(0);
        std::thread::sleep(TICK);
        assert!(session.run("true").status.success());
        session
    }

    fn run(&self, script: &str) -> Output {
        over(&self.trees, &self.state, script)
    }

    fn region(&self) -> PathBuf {
        region(&self.trees, &self.state)
    }

    /// Writes to the region, which changes no times of its file while that is in memory: the page is
    /// mapped, and stays dirty.
    fn store(&self, value: u32) {
        self.word.store(value, Relaxed); // Relaxed: no process is in the region.
    }

    fn is_refused(&self) -> bool {
        let output = self.run("true");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(said.contains("is damaged"), !output.status.success(), "{said}");
        !output.status.success()
    }
}

#[test]
fn only_a_session_that_was_left_in_order_is_not_checked() {
    let session = Damaged::new(Path::new("/dev/shm"));
    session.store(77);
    assert!(!session.is_refused(), "a session that was left in order was checked");
    session.store(0);
    assert!(session.run("true").status.success());
    let killed = session.run("kill -9 $$");
    assert_eq!(killed.status.code(), None, "{killed:?}");
    session.store(77);
    assert!(session.is_refused(), "a session that was killed was not checked");
    session.store(0);
    assert!(!session.is_refused());
}

#[test]
fn a_session_with_a_process_that_was_killed_beside_others_is_not_checked() {
    let session = Damaged::new(Path::new("/dev/shm"));
    // The shell waits for it, and takes over what it held.
    assert!(session.run("sh -c 'echo x > made/x; kill -9 $$'; cat made/x").status.success());
    session.store(77);
    assert!(!session.is_refused());
}

#[test]
fn a_session_whose_file_was_changed_by_others_is_checked() {
    let session = Damaged::new(&std::env::temp_dir());
    std::thread::sleep(TICK);
    let file = File::options().write(true).open(session.region()).unwrap();
    file.write_all_at(&77u32.to_le_bytes(), session.at).unwrap();
    drop(file);
    assert!(session.is_refused());
    let (region, copy) = (session.region(), session.region().with_extension("copy"));
    // Without its holes it would fill the disk.
    let copied = Command::new("cp").arg("--sparse=always").args([&region, &copy]).status().unwrap();
    assert!(copied.success());
    fs::rename(&copy, &region).unwrap();
    assert!(session.is_refused(), "a copy was not checked");
}
