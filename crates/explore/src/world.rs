//! The initial state of each schedule, and a whole tree as text.

use std::ffi::{CStr, CString};

use lp_abi::fnv::fnv1a;

use crate::calls::{DIRS, LONG};
use crate::door::{COMMON, Door, GONE, KEEP, KEPT, NEW};

const FILE: i32 = libc::O_RDWR | libc::O_CREAT;

fn c(path: &str) -> CString {
    CString::new(path).unwrap_or_default()
}

fn file(door: &dyn Door, path: &str, content: &[u8]) {
    assert_eq!(door.open(NEW, &c(path), FILE, 0o644), 0, "{path}");
    assert_eq!(door.pwrite(NEW, content, 0), content.len() as i64, "{path}");
    assert_eq!(door.close(NEW), 0, "{path}");
}

/// Content of a file with bytes that nobody wrote to it.
pub(crate) const FOREIGN: &str = "foreign bytes";

/// Creates the tree, and opens the descriptors that all actors inherit.
pub(crate) fn furnish(door: &dyn Door) {
    for dir in DIRS {
        assert_eq!(door.mkdir(&c(dir)), 0, "{dir}");
        file(door, &format!("{dir}/a"), &[1; 5000]);
        file(door, &format!("{dir}/b"), &[1; 100]);
        file(door, &format!("{dir}/{LONG}"), b"long");
        file(door, &format!("{dir}/x"), b"");
        assert_eq!(door.setxattr(&c(&format!("{dir}/x")), c"user.a", b"value"), 0, "attribute");
        assert_eq!(door.symlink(c"a", &c(&format!("{dir}/l"))), 0, "link");
        assert_eq!(door.mkdir(&c(&format!("{dir}/d"))), 0, "d");
        assert_eq!(door.mkdir(&c(&format!("{dir}/e"))), 0, "e");
        file(door, &format!("{dir}/e/x"), b"x");
        file(door, &format!("{dir}/e/y"), b"y");
        assert_eq!(door.mkdir(&c(&format!("{dir}/m"))), 0, "m");
        let (from, to) = (c(&format!("{dir}/e")), c(&format!("{dir}/m")));
        assert_eq!(door.mount(Some(&from), &to, libc::MS_BIND), 0, "m");
    }
    file(door, "keep", KEPT);
    file(door, "gone", &[7; 3000]);
    assert_eq!(door.open(KEEP, c"keep", libc::O_RDWR, 0), 0, "keep");
    assert_eq!(door.open(COMMON, c"v/a", libc::O_RDWR | libc::O_APPEND, 0), 0, "common");
    assert_eq!(door.open(GONE, c"gone", libc::O_RDWR, 0), 0, "gone");
    assert_eq!(door.unlink(c"gone"), 0, "gone");
}

/// Every object below the root, one line each, in order.
pub(crate) fn tree(door: &dyn Door) -> Vec<String> {
    let (mut lines, mut pending) = (Vec::new(), vec![String::new()]);
    while let Some(dir) = pending.pop() {
        let listed = match door.names(&c(if dir.is_empty() { "." } else { &dir })) {
            Ok(names) => names,
            Err(error) => {
                lines.push(format!("{dir}: cannot be listed: {error}"));
                continue;
            }
        };
        for name in listed {
            // The bystander's directory is not compared.
            if dir.is_empty() && name == DIRS[2] {
                continue;
            }
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            let (line, is_dir) = object(door, &c(&path));
            lines.push(format!("{path}: {line}"));
            if is_dir {
                pending.push(path);
            }
        }
    }
    lines.sort();
    lines
}

fn object(door: &dyn Door, path: &CStr) -> (String, bool) {
    let facts = match door.facts(path) {
        Ok(facts) => facts,
        Err(error) => return (format!("listed, but lstat says {error}"), false),
    };
    let kind = facts.mode & libc::S_IFMT;
    // Directories have no blocks; times are compared where a call has set them.
    let time = if facts.mtime == 1_000_000 { " set" } else { "" };
    let read_only = if facts.read_only { " ro" } else { "" };
    let mut line = format!(
        "{:o} links {} of {:?} size {} blocks {}{time}{read_only}",
        facts.mode, facts.nlink, facts.owner, facts.size, facts.blocks
    );
    match kind {
        libc::S_IFREG => line += &format!(" content {}", content(door, path, facts.size)),
        libc::S_IFLNK => line += &format!(" to {:?}", door.readlink(path).map(|to| to.len())),
        _ => {}
    }
    match door.xattrs(path) {
        Ok(mut pairs) => {
            pairs.sort();
            for (name, value) in pairs {
                line += &format!(" {name}={:x}", fnv1a(&value));
            }
        }
        Err(error) => line += &format!(" attributes {error}"),
    }
    (line, kind == libc::S_IFDIR)
}

fn content(door: &dyn Door, path: &CStr, size: i64) -> String {
    let mut bytes = vec![0u8; size.clamp(0, 1 << 20) as usize];
    let opened = door.open(NEW, path, libc::O_RDONLY, 0);
    if opened < 0 {
        return format!("open {opened}");
    }
    let got = door.pread(NEW, &mut bytes, 0);
    door.close(NEW);
    if bytes.iter().any(|byte| *byte > 2) && bytes.len() > 100 {
        return FOREIGN.into();
    }
    if got != bytes.len() as i64 { format!("pread {got}") } else { format!("{:x}", fnv1a(&bytes)) }
}

/// Takes out what is mounted below a directory.
fn unmount(door: &dyn Door, dir: &str) {
    for name in door.names(&c(if dir.is_empty() { "." } else { dir })).unwrap_or_default() {
        let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
        while door.umount(&c(&path), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW) == 0 {}
        unmount(door, &path);
    }
}

/// Removes everything; returns the errors.
pub(crate) fn clear(door: &dyn Door) -> Vec<String> {
    unmount(door, "");
    let (mut errors, mut pending, mut dirs) = (Vec::new(), vec![String::new()], Vec::new());
    while let Some(dir) = pending.pop() {
        for name in door.names(&c(if dir.is_empty() { "." } else { &dir })).unwrap_or_default() {
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            let is_dir = door.facts(&c(&path)).is_ok_and(|facts| facts.mode & libc::S_IFMT == libc::S_IFDIR);
            if is_dir {
                dirs.push(path.clone());
                pending.push(path);
                continue;
            }
            let removed = door.unlink(&c(&path));
            if removed != 0 {
                errors.push(format!("unlink {path}: {removed}"));
            }
        }
    }
    for path in dirs.iter().rev() {
        let removed = door.rmdir(&c(path));
        if removed != 0 {
            errors.push(format!("rmdir {path}: {removed}"));
        }
    }
    errors
}
