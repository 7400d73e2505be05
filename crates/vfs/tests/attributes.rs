//! Calls on one open file, made here and on tmpfs, must agree in results, errors, attributes and content.

mod setup;

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use lp_abi::linux::*;
use lp_abi::{Errno, Fd, Result, syscall};
use lp_vfs::xattr::XattrValue;
use lp_vfs::{chmod, chown, fallocate, ioctl, lseek, read, stat, truncate, utimens, write, xattr};
use setup::{Fixture, Random, lent};

/// A file on tmpfs and one of ours, open for reading and writing.
struct Pair {
    fixture: Fixture,
    ours: Fd,
    host: std::fs::File,
    path: PathBuf,
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Pair {
    fn new(name: &str) -> Pair {
        let path = PathBuf::from(format!("/dev/shm/lightpath-test-{}-{name}", std::process::id()));
        let host =
            OpenOptions::new().read(true).write(true).create_new(true).open(&path).expect("a file on tmpfs");
        let fixture = Fixture::private(16 << 20);
        let ours = fixture.file(O_RDWR);
        let pair = Pair { fixture, ours, host, path };
        pair.agree(
            "chmod",
            |pair| chmod::fchmod(&pair.fixture.task, pair.ours, 0o644),
            |fd| {
                // SAFETY: fchmod(2) takes no pointers; the file is the test's.
                unsafe { syscall!(__NR_fchmod, fd, 0o644) }.map(drop)
            },
        );
        pair
    }

    fn agree<T: PartialEq + std::fmt::Debug>(
        &self,
        what: &str,
        ours: impl FnOnce(&Pair) -> Result<T>,
        host: impl FnOnce(i32) -> Result<T>,
    ) {
        let expected = host(self.host.as_raw_fd());
        assert_eq!(ours(self), expected, "{what}");
    }

    /// Type, permissions, owner, size, blocks, and whether times are unchanged.
    fn attributes(&self) -> [[i64; 5]; 2] {
        let mut seen = [[0; 5]; 2];
        // SAFETY: zeros are a valid stat.
        let mut value: [lp_abi::linux::stat; 2] = unsafe { std::mem::zeroed() };
        stat::fstat(&self.fixture.task, self.ours, lent::value(&mut value[0])).expect("fstat");
        // SAFETY: the kernel writes a stat.
        unsafe { syscall!(__NR_fstat, self.host.as_raw_fd(), &raw mut value[1]) }.expect("fstat");
        for (seen, value) in seen.iter_mut().zip(&value) {
            let (mode, size) = (i64::from(value.st_mode), value.st_size);
            *seen = [mode, value.st_uid.into(), value.st_gid.into(), size, value.st_blocks];
        }
        seen
    }

    fn attributes_agree(&self, what: &str) {
        let [ours, host] = self.attributes();
        assert_eq!(ours, host, "after {what}");
    }
}

fn content(read: impl Fn(&mut [u8], i64) -> Result<usize>) -> Vec<u8> {
    let mut bytes = vec![0u8; 1 << 20];
    let got = read(&mut bytes, 0).expect("read");
    bytes.truncate(got);
    bytes
}

#[test]
fn random_changes_of_one_file_agree_with_tmpfs() {
    changes("changes", false);
    changes("seeks", true);
}

/// Random changes; half of the runs allocate and punch holes, the others look for holes.
fn changes(name: &str, seeks: bool) {
    let pair = Pair::new(name);
    let (task, ours) = (&pair.fixture.task, pair.ours);
    let mut random = Random(11);
    let data: Vec<u8> = (0..=255).cycle().take(30_000).collect();
    for step in 0..3000 {
        let offset = random.below(100_000) as i64;
        let len = 1 + random.below(if step % 4 == 0 { 30_000 } else { 200 });
        let (from, mode) = (data.as_ptr(), [0o644, 0o4755, 0o2755, 0o6711, 0o2644, 0o600][random.below(6)]);
        // SAFETY: system calls on a file of the test's, with buffers that outlive them.
        let call = |nr: u32, a: i64, b: i64, c: i64| move |fd: i32| unsafe { syscall!(nr, fd, a, b, c) };
        match random.below(9) {
            0..3 => pair.agree(
                "pwrite",
                |_| write::pwrite(task, ours, lent::bytes(&data[..len]), offset),
                |fd| call(__NR_pwrite64, from as i64, len as i64, offset)(fd),
            ),
            3 => pair.agree(
                "ftruncate",
                |_| truncate::ftruncate(task, ours, offset).map(|()| 0),
                |fd| call(__NR_ftruncate, offset, 0, 0)(fd),
            ),
            // tmpfs treats what was allocated and never written as a hole when seeking; see
            // docs/differences.md.
            4 if !seeks => {
                let how = [
                    0,
                    FALLOC_FL_KEEP_SIZE,
                    FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    FALLOC_FL_PUNCH_HOLE,
                    64,
                ];
                let how = how[random.below(5)];
                let len = random.below(50_000) as i64;
                pair.agree(
                    "fallocate",
                    |_| fallocate::fallocate(task, ours, how, offset, len).map(|()| 0),
                    |fd| call(__NR_fallocate, how.into(), offset, len)(fd),
                );
            }
            5 => pair.agree(
                "fchmod",
                |_| chmod::fchmod(task, ours, mode).map(|()| 0),
                |fd| call(__NR_fchmod, mode.into(), 0, 0)(fd),
            ),
            6 => {
                let (uid, gid) = ([0, 1000, u32::MAX][random.below(3)], [0, 1000, u32::MAX][random.below(3)]);
                pair.agree(
                    "fchown",
                    |_| chown::fchown(task, ours, uid, gid).map(|()| 0),
                    |fd| call(__NR_fchown, uid.into(), gid.into(), 0)(fd),
                );
            }
            _ if !seeks => {}
            _ => {
                let whence = [SEEK_DATA, SEEK_HOLE, SEEK_END, SEEK_SET, 9][random.below(5)];
                let offset = offset - 10_000;
                pair.agree(
                    "lseek",
                    |_| lseek::lseek(task, ours, offset, whence).map(|at| at as usize),
                    |fd| call(__NR_lseek, offset, whence.into(), 0)(fd),
                );
            }
        }
        pair.attributes_agree(&format!("step {step}"));
    }
    let fd = pair.host.as_raw_fd();
    let here = content(|to, at| read::pread(task, ours, lent::room(to), at));
    // SAFETY: the kernel writes `len` bytes at most.
    let there = content(|to, at| unsafe { syscall!(__NR_pread64, fd, to.as_mut_ptr(), to.len(), at) });
    assert!(here == there);
}

/// An ACL as an extended attribute.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        bytes.extend(tag.to_le_bytes().iter().chain(&perm.to_le_bytes()).chain(&id.to_le_bytes()));
    }
    bytes
}

#[test]
fn random_extended_attributes_agree_with_tmpfs() {
    let pair = Pair::new("xattrs");
    let (task, ours) = (&pair.fixture.task, pair.ours);
    let none = u32::MAX;
    let long = format!("user.{}\0", "n".repeat(250));
    let too_long = format!("user.{}\0", "n".repeat(251));
    let names = [
        "user.a\0",
        "user.b\0",
        "user.\0",
        "user\0",
        "trusted.t\0",
        "security.s\0",
        "security.capability\0",
        "\0",
        "system.posix_acl_access\0",
        "system.posix_acl_access\0",
        "system.posix_acl_default\0",
        "system.x\0",
        "odd.x\0",
        &long,
        &too_long,
    ];
    let (full, minimal) = (
        acl(&[(1, 7, none), (2, 4, 1000), (4, 5, none), (8, 2, 7), (16, 6, none), (32, 4, none)]),
        acl(&[(1, 6, none), (4, 5, 3), (32, 4, none)]),
    );
    let values: [Vec<u8>; 9] = [
        vec![],
        vec![1; 10],
        vec![2; 5000],
        vec![3; 65536],
        vec![4; 65537],
        full,
        minimal,
        acl(&[]),
        acl(&[(1, 7, none), (2, 4, 1000), (4, 5, none), (32, 4, none)]),
    ];
    let mut random = Random(5);
    for step in 0..1500 {
        let name = lent::text(names[random.below(names.len())]);
        let value = &values[random.below(values.len())];
        let mut room = [vec![0u8; 70_000], vec![0u8; 70_000]];
        let size = [0, 4, 36, 70_000][random.below(4)];
        let to = lent::room(&mut room[0][..size]);
        let host_to = room[1].as_mut_ptr();
        match random.below(6) {
            0..3 => {
                let flags = [0, 0, XATTR_CREATE, XATTR_REPLACE, 3, 4][random.below(6)];
                let given = XattrValue { bytes: lent::bytes(&value), flags };
                pair.agree(
                    &format!("set, step {step}"),
                    |_| xattr::fsetxattr(task, ours, name, given),
                    |fd| {
                        // SAFETY: the buffers outlive the call.
                        unsafe { syscall!(__NR_fsetxattr, fd, name, value.as_ptr(), value.len(), flags) }
                            .map(drop)
                    },
                );
            }
            3 => pair.agree(
                &format!("get, step {step}"),
                |_| xattr::fgetxattr(task, ours, name, to),
                |fd| {
                    // SAFETY: the name is NUL-terminated, and the buffer has the given size.
                    unsafe { syscall!(__NR_fgetxattr, fd, name, host_to, size) }
                },
            ),
            4 => pair.agree(
                &format!("list, step {step}"),
                |_| xattr::flistxattr(task, ours, to),
                |fd| {
                    // SAFETY: the buffer has the given size.
                    unsafe { syscall!(__NR_flistxattr, fd, host_to, size) }
                },
            ),
            _ => pair.agree(
                &format!("remove, step {step}"),
                |_| xattr::fremovexattr(task, ours, name),
                |fd| {
                    // SAFETY: the name is NUL-terminated.
                    unsafe { syscall!(__NR_fremovexattr, fd, name) }.map(drop)
                },
            ),
        }
        if room[0] != room[1] {
            let at = room[0].iter().zip(&room[1]).position(|(ours, host)| ours != host).unwrap_or(0);
            panic!("step {step}: {:?} but tmpfs {:?}", &room[0][..at + 40], &room[1][..at + 40]);
        }
        pair.attributes_agree(&format!("step {step}"));
        if step % 50 == 0 {
            let mode = [0o640, 0o777, 0o2755][random.below(3)];
            pair.agree(
                "fchmod",
                |_| chmod::fchmod(task, ours, mode),
                |fd| {
                    // SAFETY: fchmod(2) takes no pointers.
                    unsafe { syscall!(__NR_fchmod, fd, mode) }.map(drop)
                },
            );
        }
    }
}

/// A writer may be stopped while it has the inode's lock.
#[test]
fn attributes_are_read_without_a_lock() {
    let pair = Pair::new("stopped");
    let (task, ours) = (&pair.fixture.task, pair.ours);
    let none = u32::MAX;
    let list = acl(&[(1, 7, none), (2, 4, 1000), (4, 5, none), (16, 6, none), (32, 4, none)]);
    let (access, own) = ("system.posix_acl_access\0", "user.a\0");
    for (name, value) in [(access, &list), (own, &vec![3; 65536])] {
        let given = XattrValue { bytes: lent::bytes(value), flags: 0 };
        xattr::fsetxattr(task, ours, lent::text(name), given).expect(name);
    }
    let id = pair.fixture.inode_id(ours);
    let run = lp_region::RunId(task.process.run.load(lp_region::sync::Ordering::Relaxed));
    let reader = setup::Sent(setup::another(task.region, run));
    let _held = lp_vfs::inode::lock(task, id);
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let setup::Sent(reader) = { reader };
        let mut room = vec![0; 70_000];
        let mut get = |name| {
            let size = xattr::getxattr_of(&reader, id, lent::text(name), lent::room(&mut room)).expect(name);
            room[..size].to_vec()
        };
        let values = (get(access), get(own));
        let names = xattr::listxattr_of(&reader, id, lent::room(&mut room)).expect("names");
        done.send((values, room[..names].to_vec())).expect("a listener");
    });
    let ((seen, value), names) = is_done.recv_timeout(std::time::Duration::from_secs(10)).expect("an answer");
    assert_eq!((seen, value), (list, vec![3; 65536]));
    assert_eq!(names, [access, own].concat().into_bytes());
}

#[test]
fn ioctl_requests_agree_with_tmpfs() {
    let pair = Pair::new("ioctls");
    let (task, ours) = (&pair.fixture.task, pair.ours);
    pair.agree(
        "write",
        |_| write::write(task, ours, lent::bytes(&[7u8; 100])),
        |fd| {
            // SAFETY: the buffer holds 100 bytes.
            unsafe { syscall!(__NR_write, fd, [7u8; 100].as_ptr(), 100) }
        },
    );
    use lp_abi::ioctl::*;
    let requests = [
        FIBMAP,
        FIGETBSZ,
        FIONREAD,
        FIONBIO,
        FIOASYNC,
        FIOQSIZE,
        FS_IOC_GETFLAGS,
        FS_IOC_SETFLAGS,
        FS_IOC_FSGETXATTR,
        FS_IOC_FSSETXATTR,
        FIFREEZE,
        FS_IOC_FIEMAP,
        TCGETS,
        TIOCGWINSZ,
        0x1234,
    ];
    for request in requests {
        for fill in [0u8, 64, 1] {
            let mut room = [[fill; 256], [fill; 256]];
            let (here, there) = room.split_at_mut(1);
            pair.agree(
                &format!("request {request:#x} with {fill}"),
                |_| ioctl::ioctl(task, ours, request, lent::room(&mut here[0]).start()),
                // SAFETY: no request writes more than the buffer holds.
                |fd| unsafe { syscall!(__NR_ioctl, fd, request, there[0].as_mut_ptr()) }.map(drop),
            );
            assert_eq!(here, there, "request {request:#x} with {fill}");
        }
    }
}

#[test]
fn times_are_set_as_on_tmpfs() {
    let pair = Pair::new("times");
    let (task, ours) = (&pair.fixture.task, pair.ours);
    let (now, omit) = (i64::from(UTIME_NOW), i64::from(UTIME_OMIT));
    let cases = [
        [5, 6, 7, 8],
        [-5, 999_999_999, 1 << 40, 0],
        [0, omit, 9, 9],
        [9, 9, 0, omit],
        [0, omit, 0, omit],
        [1, 1_000_000_000, 1, 1],
        [1, -1, 1, 1],
        [0, now, 3, 3],
    ];
    for case in cases {
        pair.agree(
            &format!("{case:?}"),
            |_| utimens::futimens(task, ours, Some(case)),
            |fd| {
                // SAFETY: the times outlive the call.
                unsafe { syscall!(__NR_utimensat, fd, 0, case.as_ptr(), 0) }.map(drop)
            },
        );
        // SAFETY: zeros are a valid stat.
        let mut seen: [lp_abi::linux::stat; 2] = unsafe { std::mem::zeroed() };
        stat::fstat(task, ours, lent::value(&mut seen[0])).expect("fstat");
        // SAFETY: the kernel writes a stat.
        unsafe { syscall!(__NR_fstat, pair.host.as_raw_fd(), &raw mut seen[1]) }.expect("fstat");
        let times = |s: &lp_abi::linux::stat| {
            (s.st_atime as i64, s.st_atime_nsec, s.st_mtime as i64, s.st_mtime_nsec)
        };
        let (here, there) = (times(&seen[0]), times(&seen[1]));
        let is_recent = |sec: i64| sec > 1_700_000_000 && sec < 1 << 35;
        if is_recent(here.0) && is_recent(there.0) {
            assert_eq!((here.2, here.3), (there.2, there.3), "{case:?}");
        } else if !is_recent(here.2) {
            assert_eq!(here, there, "{case:?}");
        }
    }
    assert_eq!(utimens::futimens(task, Fd::new(999), None), Err(Errno::EBADF));
}
