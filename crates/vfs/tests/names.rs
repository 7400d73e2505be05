//! Names compared with the kernel's: the same calls on a tmpfs directory and here must give the same results.

use std::collections::BTreeMap;
use std::ffi::CString;

use lp_abi::linux::*;
use lp_abi::{Fd, Result};
use lp_region::sync::Ordering;
use lp_vfs::link::Two;
use lp_vfs::open::Opened;
use lp_vfs::{
    Place, access, chmod, chown, close, getdents, link, mkdir, mknod, open, readlink, rename, stat as ours,
    symlink, table, unlink,
};

mod setup;
use setup::{Fixture, Random, lent};

/// One of the compared calls.
#[derive(Clone, Debug)]
enum Call {
    Mkdir(String, u32),
    Mknod(String, u32),
    Create(String, u32),
    Unlink(String, u32),
    Link(String, String, u32),
    Symlink(String, String),
    Rename(String, String, u32),
    Readlink(String),
    Access(String, u32, u32),
    Stat(String, u32),
    Chmod(String, u32),
    Chown(String, u32, u32),
}

/// The outcome of a call: its error, or the comparable part of its result.
type Outcome = Result<Vec<u8>>;

/// A file system on which calls are made.
trait World {
    fn call(&self, call: &Call) -> Outcome;
    fn list(&self, dir: &str) -> Result<BTreeMap<Vec<u8>, u8>>;
    /// Makes later calls run as this user and group, without capabilities, or as root.
    fn become_user(&self, id: u32);
}

fn c(text: &str) -> CString {
    CString::new(text).unwrap()
}

fn inside<T>(place: Place<T>) -> T {
    match place {
        Place::Inside(value) => value,
        Place::Outside(outside) => panic!("left the mount: {outside:?}"),
    }
}

/// The attributes that are the same on both sides: type, permissions, links, size.
fn shown(stat: &stat) -> Vec<u8> {
    let size = if stat.st_mode & S_IFMT == S_IFREG { 0 } else { stat.st_size };
    format!("{:o} {} {}", stat.st_mode, stat.st_nlink, size).into_bytes()
}

fn records(buffer: &[u8], into: &mut BTreeMap<Vec<u8>, u8>) -> i64 {
    let (mut at, mut next) = (0, 0);
    while at < buffer.len() {
        let length = u16::from_le_bytes([buffer[at + 16], buffer[at + 17]]) as usize;
        next = i64::from_le_bytes(buffer[at + 8..at + 16].try_into().unwrap());
        let name = buffer[at + 19..at + length].split(|byte| *byte == 0).next().unwrap();
        assert!(into.insert(name.to_vec(), buffer[at + 18]).is_none(), "listed twice");
        at += length;
    }
    next
}

/// A supplementary group of the caller.
const GROUP: u32 = 2000;

/// The directory in which calls start, so deep that no path climbs out of what is compared.
const DEEP: &str = "/1/2/3/4/5/6/7/8/9/10";
/// The top of what is compared, from there.
const TOP: &str = "../../../../../../../../../..";

/// The kernel's tmpfs.
struct Kernel {
    dir: i32,
    path: String,
}

impl Kernel {
    fn new(name: &str) -> Self {
        let path = format!("/dev/shm/lightpath-{name}-{}", std::process::id());
        std::fs::create_dir_all(format!("{path}{DEEP}")).expect("a tmpfs at /dev/shm");
        let text = c(&format!("{path}{DEEP}"));
        // SAFETY: the path is NUL-terminated.
        let dir =
            unsafe { lp_abi::syscall!(__NR_open, text.as_ptr(), O_DIRECTORY | O_CLOEXEC) }.unwrap() as i32;
        Kernel { dir, path }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

impl World for Kernel {
    fn call(&self, call: &Call) -> Outcome {
        let d = self.dir;
        let none = |result: Result<usize>| result.map(|_| Vec::new());
        // SAFETY: all pointers are to NUL-terminated strings and buffers that outlive the call.
        unsafe {
            match call {
                Call::Mkdir(path, mode) => none(lp_abi::syscall!(__NR_mkdirat, d, c(path).as_ptr(), *mode)),
                Call::Mknod(path, mode) => {
                    none(lp_abi::syscall!(__NR_mknodat, d, c(path).as_ptr(), *mode, 0))
                }
                Call::Create(path, flags) => {
                    let fd = lp_abi::syscall!(__NR_openat, d, c(path).as_ptr(), *flags | O_CLOEXEC, 0o640)?;
                    none(lp_abi::syscall!(__NR_close, fd))
                }
                Call::Unlink(path, flags) => {
                    none(lp_abi::syscall!(__NR_unlinkat, d, c(path).as_ptr(), *flags))
                }
                Call::Link(old, new, flags) => {
                    none(lp_abi::syscall!(__NR_linkat, d, c(old).as_ptr(), d, c(new).as_ptr(), *flags))
                }
                Call::Symlink(target, path) => {
                    none(lp_abi::syscall!(__NR_symlinkat, c(target).as_ptr(), d, c(path).as_ptr()))
                }
                Call::Rename(old, new, flags) => {
                    none(lp_abi::syscall!(__NR_renameat2, d, c(old).as_ptr(), d, c(new).as_ptr(), *flags))
                }
                Call::Readlink(path) => {
                    let mut buffer = vec![0u8; 100];
                    let got =
                        lp_abi::syscall!(__NR_readlinkat, d, c(path).as_ptr(), buffer.as_mut_ptr(), 100)?;
                    buffer.truncate(got);
                    Ok(buffer)
                }
                Call::Access(path, mode, flags) => {
                    none(lp_abi::syscall!(__NR_faccessat2, d, c(path).as_ptr(), *mode, *flags))
                }
                Call::Stat(path, flags) => {
                    let mut value: stat = core::mem::zeroed();
                    lp_abi::syscall!(__NR_newfstatat, d, c(path).as_ptr(), &raw mut value, *flags)?;
                    Ok(shown(&value))
                }
                Call::Chmod(path, mode) => none(lp_abi::syscall!(__NR_fchmodat, d, c(path).as_ptr(), *mode)),
                Call::Chown(path, uid, gid) => {
                    none(lp_abi::syscall!(__NR_fchownat, d, c(path).as_ptr(), *uid, *gid, 0))
                }
            }
        }
    }

    fn become_user(&self, id: u32) {
        // SAFETY: the calls change only the credentials of this thread's file calls.
        unsafe {
            lp_abi::syscall!(__NR_setgroups, 1, [GROUP].as_ptr()).expect("tests run as root");
            let _ = lp_abi::syscall!(__NR_setfsgid, id);
            let _ = lp_abi::syscall!(__NR_setfsuid, id);
        }
    }

    fn list(&self, dir: &str) -> Result<BTreeMap<Vec<u8>, u8>> {
        let mut all = BTreeMap::new();
        // SAFETY: the paths are NUL-terminated, and the buffers have the given sizes.
        unsafe {
            let fd = lp_abi::syscall!(__NR_openat, self.dir, c(dir).as_ptr(), O_DIRECTORY | O_CLOEXEC)?;
            let mut buffer = vec![0u8; 4096];
            loop {
                let got = lp_abi::syscall!(__NR_getdents64, fd, buffer.as_mut_ptr(), buffer.len())?;
                if got == 0 {
                    break;
                }
                records(&buffer[..got], &mut all);
            }
            lp_abi::syscall!(__NR_close, fd)?;
        }
        Ok(all)
    }
}

/// Ours.
struct Light {
    fixture: Fixture,
    dir: Fd,
    /// Root's capabilities.
    caps: u32,
}

impl Light {
    fn new() -> Self {
        let fixture = Fixture::private(64 << 20);
        let mut path = String::from("/light/base");
        for level in std::iter::once("").chain(DEEP.split_inclusive('/').skip(1)) {
            path.push('/');
            path.push_str(level.trim_end_matches('/'));
            let made = mkdir::mkdirat(&fixture.task, Fd::CWD, lent::path(&c(&path)), 0o755);
            inside(made.unwrap());
        }
        let dir = open_ours(&fixture, Fd::CWD, &path, O_DIRECTORY).unwrap();
        let caps = fixture.task.process.caps.load(Ordering::Relaxed);
        Light { fixture, dir, caps }
    }
}

fn open_ours(fixture: &Fixture, dir: Fd, path: &str, flags: u32) -> Result<Fd> {
    let task = &fixture.task;
    match inside(open::openat(task, dir, lent::path(&c(path)), flags, 0o640)?) {
        Opened::File(id) => {
            let fd = task.table.lowest(0, 1024)?;
            table::install(task, fd, id, 0)?;
            Ok(fd)
        }
        // The kernel would open a FIFO or return ENXIO; doors handle that.
        other => panic!("{path}: {other:?}"),
    }
}

fn two(two: Two) -> Vec<u8> {
    assert_eq!(two, Two::Done);
    Vec::new()
}

impl World for Light {
    fn call(&self, call: &Call) -> Outcome {
        let (task, d) = (&self.fixture.task, self.dir);
        let none = |place: Place<()>| {
            inside(place);
            Vec::new()
        };
        match call {
            Call::Mkdir(path, mode) => mkdir::mkdirat(task, d, lent::path(&c(path)), *mode).map(none),
            Call::Mknod(path, mode) => mknod::mknodat(task, d, lent::path(&c(path)), *mode, 0).map(none),
            Call::Create(path, flags) => {
                let fd = open_ours(&self.fixture, d, path, *flags)?;
                close::close(task, fd).map(|()| Vec::new())
            }
            Call::Unlink(path, flags) => unlink::unlinkat(task, d, lent::path(&c(path)), *flags).map(none),
            Call::Link(old, new, flags) => {
                link::linkat(task, d, lent::path(&c(old)), d, lent::path(&c(new)), *flags).map(two)
            }
            Call::Symlink(target, path) => {
                symlink::symlinkat(task, lent::path(&c(target)), d, lent::path(&c(path))).map(none)
            }
            Call::Rename(old, new, flags) => {
                rename::renameat2(task, d, lent::path(&c(old)), d, lent::path(&c(new)), *flags).map(two)
            }
            Call::Readlink(path) => {
                let mut buffer = vec![0u8; 100];
                let got =
                    readlink::readlinkat(task, d, lent::path(&c(path)), lent::room(&mut buffer[..100]))?;
                buffer.truncate(inside(got));
                Ok(buffer)
            }
            Call::Access(path, mode, flags) => {
                access::faccessat(task, d, lent::path(&c(path)), *mode, *flags).map(none)
            }
            Call::Stat(path, flags) => {
                // SAFETY: a structure of integers, for which zeros are valid.
                let mut value: stat = unsafe { core::mem::zeroed() };
                inside(ours::fstatat(task, d, lent::path(&c(path)), lent::value(&mut value), *flags)?);
                Ok(shown(&value))
            }
            Call::Chmod(path, mode) => chmod::fchmodat(task, d, lent::path(&c(path)), *mode, 0).map(none),
            Call::Chown(path, uid, gid) => {
                chown::fchownat(task, d, lent::path(&c(path)), *uid, *gid, 0).map(none)
            }
        }
    }

    fn become_user(&self, id: u32) {
        let process = self.fixture.task.process;
        process.fsuid.store(id, Ordering::Relaxed);
        process.fsgid.store(id, Ordering::Relaxed);
        process.groups[0].store(GROUP, Ordering::Relaxed);
        process.group_count.store(1, Ordering::Relaxed);
        process.caps.store(if id == 0 { self.caps } else { 0 }, Ordering::Relaxed);
    }

    fn list(&self, dir: &str) -> Result<BTreeMap<Vec<u8>, u8>> {
        let task = &self.fixture.task;
        let mut all = BTreeMap::new();
        let fd = open_ours(&self.fixture, self.dir, dir, O_DIRECTORY)?;
        let mut buffer = vec![0u8; 4096];
        loop {
            let got = getdents::getdents64(task, fd, lent::room(&mut buffer))?;
            if got == 0 {
                break;
            }
            records(&buffer[..got], &mut all);
        }
        close::close(task, fd)?;
        Ok(all)
    }
}

fn compare_trees(kernel: &Kernel, light: &Light, dir: &str, trace: &[Call]) {
    let (theirs, mine) = (kernel.list(dir), light.list(dir));
    assert_eq!(theirs, mine, "entries of {dir} after {:?}", trace.last());
    for (name, kind) in theirs.unwrap_or_default() {
        let name = String::from_utf8(name).unwrap();
        if name == "." || name == ".." {
            continue;
        }
        let path = format!("{dir}/{name}");
        let call = Call::Stat(path.clone(), AT_SYMLINK_NOFOLLOW);
        assert_eq!(kernel.call(&call), light.call(&call), "{path} after {:?}", trace.last());
        if kind == (S_IFDIR >> 12) as u8 {
            compare_trees(kernel, light, &path, trace);
        }
    }
}

fn name(random: &mut Random) -> String {
    const NAMES: [&str; 8] = [
        "a",
        "b",
        "c",
        "dir",
        "exactly-24-bytes-long-ab",
        "a-name-of-more-than-24-bytes-in-all",
        "x.y",
        "...",
    ];
    NAMES[random.below(NAMES.len())].to_string()
}

fn path(random: &mut Random) -> String {
    let mut path = name(random);
    while random.below(3) == 0 {
        path.push('/');
        path.push_str(&match random.below(12) {
            0 => "..".to_string(),
            1 => ".".to_string(),
            2 => String::new(),
            _ => name(random),
        });
    }
    if random.below(15) == 0 {
        path.push('/');
    }
    path
}

fn random_call(random: &mut Random) -> Call {
    const LINKS: [&str; 7] =
        ["a", "../b", "dir/", "c/../a", "nowhere", "a-name-of-more-than-24-bytes-in-all", "."];
    match random.below(20) {
        0..=2 => Call::Mkdir(path(random), [0o777, 0o1750, 0o4711][random.below(3)]),
        3 => Call::Mknod(
            path(random),
            [S_IFREG | 0o600, 0o644, S_IFSOCK | 0o700, S_IFDIR, 0o150000][random.below(5)],
        ),
        4..=5 => Call::Create(
            path(random),
            [O_CREAT, O_CREAT | O_EXCL, O_CREAT | O_NOFOLLOW, O_DIRECTORY, O_CREAT | O_WRONLY]
                [random.below(5)],
        ),
        6..=7 => Call::Unlink(path(random), 0),
        8..=9 => Call::Unlink(path(random), AT_REMOVEDIR),
        10 => Call::Link(path(random), path(random), [0, AT_SYMLINK_FOLLOW][random.below(2)]),
        11..=12 => {
            let long = "long/".repeat(20 + random.below(3));
            let target =
                if random.below(6) == 0 { long } else { LINKS[random.below(LINKS.len())].to_string() };
            Call::Symlink(target, path(random))
        }
        13..=16 => Call::Rename(
            path(random),
            path(random),
            [0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT][random.below(6)],
        ),
        17 => Call::Readlink(path(random)),
        18 => Call::Access(path(random), random.below(9) as u32, [0, AT_SYMLINK_NOFOLLOW][random.below(2)]),
        _ => Call::Stat(path(random), [0, AT_SYMLINK_NOFOLLOW][random.below(2)]),
    }
}

/// Whether a call is comparable: doors handle an open of a socket.
fn comparable(kernel: &Kernel, call: &Call) -> bool {
    let Call::Create(path, _) = call else { return true };
    !matches!(kernel.call(&Call::Stat(path.clone(), 0)), Ok(shown) if shown.starts_with(b"14"))
        && !matches!(kernel.call(&Call::Stat(path.clone(), 0)), Ok(shown) if shown.starts_with(b"2"))
}

#[test]
fn random_calls_agree_with_tmpfs() {
    let seeds = std::env::var("NAMES_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(30);
    for seed in 1..=seeds {
        let kernel = Kernel::new(&format!("names-{seed}"));
        let light = Light::new();
        let mut random = Random(seed * 0x9e37_79b9 + 1);
        let mut trace = Vec::new();
        for step in 0..600 {
            let call = random_call(&mut random);
            if !comparable(&kernel, &call) {
                continue;
            }
            trace.push(call.clone());
            let (theirs, mine) = (kernel.call(&call), light.call(&call));
            assert_eq!(theirs, mine, "seed {seed} step {step}: {call:?}");
            if step % 40 == 39 || std::env::var_os("NAMES_STEP").is_some() {
                compare_trees(&kernel, &light, TOP, &trace);
            }
        }
    }
}

#[test]
fn permissions_agree_with_tmpfs() {
    for seed in 1..=20 {
        let kernel = Kernel::new(&format!("permissions-{seed}"));
        let light = Light::new();
        let worlds: [&dyn World; 2] = [&kernel, &light];
        let mut random = Random(seed * 0x51_7cc1 + 5);
        let mut trace = Vec::new();
        let mut id = 0;
        for step in 0..800 {
            if step % 20 == 0 {
                id = [0, 1000, 2000, 3000][random.below(4)];
                worlds.iter().for_each(|world| world.become_user(id));
            }
            let call = match random.below(8) {
                // No sticky directories, to which the protected_* sysctls apply.
                0 => Call::Chmod(path(&mut random), random.below(0o10000) as u32 & !0o1000),
                1 => {
                    let id = |random: &mut Random| [0, 1000, 2000, u32::MAX][random.below(4)];
                    Call::Chown(path(&mut random), id(&mut random), id(&mut random))
                }
                2 => Call::Access(path(&mut random), random.below(8) as u32, AT_EACCESS),
                _ => random_call(&mut random),
            };
            // access(2) without a flag checks the real user, who stays root.
            let real_user = matches!(call, Call::Access(_, _, flags) if flags & AT_EACCESS == 0);
            // The kernel follows the setting of fs.protected_hardlinks; ours always restricts links.
            let protected = id != 0 && matches!(call, Call::Link(..));
            if real_user || protected || !comparable(&kernel, &call) {
                continue;
            }
            trace.push(call.clone());
            let (theirs, mine) = (kernel.call(&call), light.call(&call));
            assert_eq!(theirs, mine, "seed {seed} step {step}: {call:?}");
        }
        worlds.iter().for_each(|world| world.become_user(0));
        compare_trees(&kernel, &light, TOP, &trace);
    }
}
