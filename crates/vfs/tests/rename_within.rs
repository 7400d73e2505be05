//! Renames within a directory, for which rename(2) has a fast path: which pairs of paths take it, and that it
//! leaves the directory as the general path does.

use std::ffi::CString;

use lp_abi::linux::{AT_REMOVEDIR, S_IFREG, stat};
use lp_abi::{Errno, Fd, Result};
use lp_region::sync::Ordering;
use lp_vfs::{chmod, chown, mkdir, mknod, rename, stat as attributes, unlink};

mod setup;
use setup::{Fixture, fsck, lent};

fn c(path: &str) -> CString {
    CString::new(path).unwrap()
}

fn dir(f: &Fixture, path: &str) {
    mkdir::mkdirat(&f.task, Fd::CWD, lent::path(&c(path)), 0o755).expect(path);
}

fn file(f: &Fixture, path: &str) {
    mknod::mknodat(&f.task, Fd::CWD, lent::path(&c(path)), S_IFREG | 0o644, 0).expect(path);
}

fn mv(f: &Fixture, old: &str, new: &str) -> Result<()> {
    rename::renameat2(&f.task, Fd::CWD, lent::path(&c(old)), Fd::CWD, lent::path(&c(new)), 0).map(drop)
}

fn number(f: &Fixture, path: &str) -> Result<u64> {
    // SAFETY: a structure of integers, for which zeros are valid.
    let mut stat: stat = unsafe { core::mem::zeroed() };
    attributes::fstatat(&f.task, Fd::CWD, lent::path(&c(path)), lent::value(&mut stat), 0)?;
    Ok(stat.st_ino)
}

/// Two paths are of one directory only if all bytes up to the last slash are the same.
#[test]
fn prefixes_that_differ_in_one_byte_are_different_directories() {
    let f = Fixture::private(8 << 20);
    for length in 1..20 {
        for at in 0..length {
            let name = |byte: char| {
                (0..length).map(|index| if index == at { byte } else { 'd' }).collect::<String>()
            };
            let (one, other) = (format!("/light/{}", name('x')), format!("/light/{}", name('y')));
            dir(&f, &one);
            dir(&f, &other);
            let (old, new) = (format!("{one}/a"), format!("{other}/b"));
            file(&f, &old);
            let inode = number(&f, &old).unwrap();
            // Twice each, so that the prefixes are known.
            for _ in 0..2 {
                mv(&f, &old, &new).unwrap();
                assert_eq!((number(&f, &old), number(&f, &new)), (Err(Errno::ENOENT), Ok(inode)));
                mv(&f, &new, &old).unwrap();
                assert_eq!((number(&f, &old), number(&f, &new)), (Ok(inode), Err(Errno::ENOENT)));
            }
            unlink::unlink(&f.task, Fd::CWD, lent::path(&c(&old))).unwrap();
            for path in [one, other] {
                unlink::unlinkat(&f.task, Fd::CWD, lent::path(&c(&path)), AT_REMOVEDIR).unwrap();
            }
        }
    }
    fsck::check(&f.task, f.root());
}

/// Entries move to the end of the directory's array, over its pages, which are counted and freed.
#[test]
fn names_that_change_often_leave_no_pages_behind() {
    let f = Fixture::private(8 << 20);
    dir(&f, "/light/d");
    for index in 0..700 {
        file(&f, &format!("/light/d/{index}"));
    }
    let inodes: Vec<_> = (0..700).map(|index| number(&f, &format!("/light/d/{index}")).unwrap()).collect();
    for round in 0..8 {
        for index in 0..700 {
            mv(
                &f,
                &format!("/light/d/{}", index + 1000 * round),
                &format!("/light/d/{}", index + 1000 * round + 1000),
            )
            .unwrap();
        }
        let found = fsck::check(&f.task, f.root());
        assert_eq!(found.tree.len(), 701);
    }
    for (index, inode) in inodes.iter().enumerate() {
        assert_eq!(number(&f, &format!("/light/d/{}", index + 8000)), Ok(*inode));
    }
}

/// What the fast path does not look at, it leaves to the general one.
#[test]
fn permissions_are_checked() {
    let f = Fixture::private(8 << 20);
    let task = &f.task;
    let become_user = |id: u32, caps: u32| {
        for word in [&task.process.fsuid, &task.process.fsgid] {
            word.store(id, Ordering::Relaxed);
        }
        task.process.caps.store(caps, Ordering::Relaxed);
    };
    let caps = task.process.caps.load(Ordering::Relaxed);
    let root = task.process.fsuid.load(Ordering::Relaxed);
    let cases: &[(u32, u32, u32, Result<()>)] = &[
        // Mode of the directory, its owner, owner of the file, result for user 1000.
        (0o755, 1000, 1001, Ok(())),
        (0o777, 1001, 1001, Ok(())),
        (0o755, 1001, 1000, Err(Errno::EACCES)),
        (0o1777, 1001, 1000, Ok(())),
        (0o1777, 1001, 1001, Err(Errno::EPERM)),
        (0o1777, 1000, 1001, Ok(())),
        (0o577, 1000, 1000, Err(Errno::EACCES)),
    ];
    for (index, (mode, owner, of_file, expected)) in cases.iter().enumerate() {
        let path = format!("/light/{index}");
        let (old, new) = (format!("{path}/a"), format!("{path}/b"));
        dir(&f, &path);
        file(&f, &old);
        let (path, old_path) = (c(&path), c(&old));
        chown::fchownat(task, Fd::CWD, lent::path(&old_path), *of_file, *of_file, 0).unwrap();
        chown::fchownat(task, Fd::CWD, lent::path(&path), *owner, *owner, 0).unwrap();
        chmod::fchmodat(task, Fd::CWD, lent::path(&path), *mode, 0).unwrap();
        for _ in 0..2 {
            become_user(1000, 0);
            let done = mv(&f, &old, &new);
            let back = done.and_then(|()| mv(&f, &new, &old));
            become_user(root, caps);
            assert_eq!((done, back), (*expected, *expected), "case {index}");
        }
        become_user(1000, 0);
        let done = unlink::unlink(task, Fd::CWD, lent::path(&old_path)).map(drop);
        become_user(root, caps);
        assert_eq!(done, *expected, "unlink in case {index}");
    }
}
