//! What is done to a region: filling the template, and a fixed set of calls whose results do not matter.

use std::ffi::CString;

use lp_abi::linux::*;
use lp_abi::{Fd, UserPtr};
use lp_region::sync::Ordering::Relaxed;
use lp_region::{FileId, Region};
use lp_vfs::boot::{self, RunSetup};
use lp_vfs::open::Opened;
use lp_vfs::xattr::XattrValue;
use lp_vfs::{
    Place, Task, chdir, clock, close, copy, dup, fallocate, flock, getcwd, getdents, link, lseek, mkdir,
    open, read, readlink, reclaim, record_lock, rename, stat, statfs, symlink, table, truncate, unlink,
    write, xattr,
};

#[path = "../../../vfs/tests/setup/lent.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod lent;

/// Directories that a listing goes through, and buffers that it reads of each.
const DIRECTORIES: usize = 40;
const BUFFERS: usize = 8;
/// Removed files kept open: more than a lane lists without putting them into its chain.
const KEPT: usize = 70;
/// Size of a file that is read and written.
const WORTH: i64 = 100;
/// An access ACL: owner, user 7, group, mask, others.
const ACL: [u8; 44] = [
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 6, 0, 7, 0, 0, 0, 4, 0, 5, 0, 255, 255, 255, 255, 16,
    0, 7, 0, 255, 255, 255, 255, 32, 0, 4, 0, 255, 255, 255, 255,
];

fn c(path: &str) -> CString {
    CString::new(path).expect("a path")
}

/// One process that makes calls.
struct Caller(Box<Task<'static>>);

impl Caller {
    fn new(region: Region<'static>) -> Option<Caller> {
        let setup = RunSetup { mounts: &[b"/light"], ..RunSetup::default() };
        let run = boot::claim_run(region, &setup).ok()?;
        let process = boot::claim_process(region, run).ok()?;
        let lane = boot::attach(region, process, std::process::id()).ok()?;
        let caller = Caller(Box::new(Task::new(region, process, lane, clock::now)));
        boot::arrive(&caller.0);
        reclaim::dead(&caller.0);
        boot::mkfs(&caller.0, 0).ok()?;
        Some(caller)
    }

    fn open(&self, path: &str, flags: u32) -> Option<Fd> {
        let path = c(path);
        let Ok(Place::Inside(Opened::File(id))) =
            open::openat(&self.0, Fd::CWD, lent::path(&path), flags, 0o644)
        else {
            return None;
        };
        let fd = self.0.table.lowest(3, 1000).ok()?;
        table::install(&self.0, fd, id, 0).ok()?;
        Some(fd)
    }

    /// Copies a file to a new one.
    fn copy(&self, one: &str, two: &str) {
        if let (Some(from), Some(to)) = (self.open(one, O_RDONLY), self.open(two, O_CREAT | O_RDWR)) {
            let _ = copy::copy_file_range(&self.0, from, UserPtr::NULL, to, UserPtr::NULL, 1 << 20, 0);
            self.close(from);
            self.close(to);
        }
    }

    fn close(&self, fd: Fd) {
        let _ = close::close(&self.0, fd);
    }

    fn file(&self, path: &str, bytes: usize, at: i64) {
        let text = vec![b'x'; bytes];
        if let Some(fd) = self.open(path, O_CREAT | O_RDWR) {
            let _ = write::pwrite(&self.0, fd, lent::bytes(&text), at);
            self.close(fd);
        }
    }

    fn mkdir(&self, path: &str) {
        let _ = mkdir::mkdirat(&self.0, Fd::CWD, lent::path(&c(path)), 0o755);
    }

    fn unlink(&self, path: &str, flags: u32) {
        let _ = unlink::unlinkat(&self.0, Fd::CWD, lent::path(&c(path)), flags);
    }

    fn rename(&self, one: &str, two: &str, flags: u32) {
        let (one, two) = (c(one), c(two));
        let _ = rename::renameat2(&self.0, Fd::CWD, lent::path(&one), Fd::CWD, lent::path(&two), flags);
    }

    fn link(&self, one: &str, two: &str) {
        let (one, two) = (c(one), c(two));
        let _ = link::linkat(&self.0, Fd::CWD, lent::path(&one), Fd::CWD, lent::path(&two), 0);
    }

    fn symlink(&self, target: &str, path: &str) {
        let (target, path) = (c(target), c(path));
        let _ = symlink::symlinkat(&self.0, lent::path(&target), Fd::CWD, lent::path(&path));
    }

    fn setxattr(&self, path: &str, name: &str, value: &[u8]) {
        let value = XattrValue { bytes: lent::bytes(&value), flags: 0 };
        let (path, name) = (c(path), c(name));
        let _ = xattr::setxattr(&self.0, Fd::CWD, lent::path(&path), 0, lent::path(&name), value);
    }

    /// Looks at what a path names in every way.
    fn look(&self, path: &str) -> u32 {
        let (task, text) = (&*self.0, c(path));
        let at = lent::path(&text);
        // SAFETY: a structure of integers.
        let mut attributes: lp_abi::linux::stat = unsafe { std::mem::zeroed() };
        let _ = stat::fstatat(task, Fd::CWD, at, lent::value(&mut attributes), AT_SYMLINK_NOFOLLOW);
        let mut buffer = [0u8; 4096];
        let _ = readlink::readlinkat(task, Fd::CWD, at, lent::room(&mut buffer[..4096]));
        let _ = xattr::listxattr(task, Fd::CWD, at, 0, lent::room(&mut buffer[..4096]));
        for name in [c"user.one", c"system.posix_acl_access", c"system.posix_acl_default"] {
            let room = lent::room(&mut buffer[..4096]);
            let _ = xattr::getxattr(task, Fd::CWD, at, 0, lent::path(name), room);
        }
        if attributes.st_mode & S_IFMT == S_IFREG
            && attributes.st_size >= WORTH
            && let Some(fd) = self.open(path, O_RDWR)
        {
            self.content(fd);
            self.close(fd);
        }
        attributes.st_mode
    }

    /// Reads, writes and measures an open file.
    fn content(&self, fd: Fd) {
        let task = &*self.0;
        let mut buffer = vec![0u8; 20_000];
        let _ = read::read(task, fd, lent::room(&mut buffer));
        for at in [0, 4095, 1 << 22, (1 << 34) - 5, i64::MAX - 100] {
            let _ = read::pread(task, fd, lent::room(&mut buffer[..5000]), at);
        }
        let mut at = 0;
        for _ in 0..20 {
            let Ok(data) = lseek::lseek(task, fd, at, SEEK_DATA) else { break };
            let Ok(hole) = lseek::lseek(task, fd, data as i64, SEEK_HOLE) else { break };
            at = hole as i64;
        }
        let _ = lseek::lseek(task, fd, 0, SEEK_END);
        let _ = write::write(task, fd, lent::bytes(&buffer[..100]));
        let _ = write::pwrite(task, fd, lent::bytes(&buffer[..9000]), 3000);
        let _ = fallocate::fallocate(task, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5000, 6000);
        let _ = fallocate::fallocate(task, fd, 0, 0, 30_000);
    }

    /// Lists the tree, looking at everything.
    fn list(&self) -> Vec<String> {
        let mut pending = vec!["/light".to_owned()];
        let (mut seen, mut next) = (Vec::new(), 0);
        while next < pending.len().min(DIRECTORIES) {
            let directory = pending[next].clone();
            next += 1;
            let Some(fd) = self.open(&directory, O_RDONLY | O_DIRECTORY) else { continue };
            for name in self.names(fd) {
                let path = format!("{directory}/{name}");
                if self.look(&path) & S_IFMT == S_IFDIR && path.len() < 2000 {
                    pending.push(path.clone());
                }
                seen.push(path);
            }
            self.close(fd);
        }
        seen
    }

    fn names(&self, fd: Fd) -> Vec<String> {
        let mut names = Vec::new();
        let mut buffer = [0u8; 4096];
        for _ in 0..BUFFERS {
            let Ok(got @ 1..) = getdents::getdents64(&self.0, fd, lent::room(&mut buffer)) else {
                break;
            };
            let mut at = 0;
            while at < got {
                let length = u16::from_ne_bytes([buffer[at + 16], buffer[at + 17]]) as usize;
                let name = buffer[at + 19..at + length].split(|byte| *byte == 0).next().unwrap_or_default();
                if name != b"." && name != b".." && !name.is_empty() && !name.contains(&b'/') {
                    names.push(String::from_utf8_lossy(name).into_owned());
                }
                at += length.max(1);
            }
        }
        names
    }
}

/// Something of everything.
pub fn populate(region: Region<'static>) {
    // SAFETY: the value is the kernel's.
    unsafe { clock::init(libc::getauxval(libc::AT_SYSINFO_EHDR) as usize) };
    let caller = Caller::new(region).expect("a new region");
    for path in ["/light/a", "/light/a/b", "/light/a/b/c", "/light/empty", "/light/many"] {
        caller.mkdir(path);
    }
    let long = "n".repeat(200);
    (0..150).for_each(|number| caller.file(&format!("/light/many/f{number}"), 90 + number / 12, 0));
    (0..20).for_each(|number| caller.file(&format!("/light/a/{long}{number}"), 10, 0));
    caller.file("/light/small", 100, 0);
    caller.file("/light/pages", 50_000, 0);
    caller.file("/light/sparse", 10, 1 << 33);
    caller.file("/light/a/b/c/deep", 5000, 1 << 23);
    caller.file("/light/whole", 20_000, 0);
    caller.copy("/light/whole", "/light/a/same");
    caller.copy("/light/whole", "/light/a/too");
    caller.copy("/light/whole", "/light/a/most");
    caller.file("/light/a/most", 10, 5000);
    caller.link("/light/small", "/light/a/hard");
    caller.symlink("small", "/light/link");
    caller.symlink(&format!("/light/a/{long}1"), "/light/a/longer");
    caller.setxattr("/light/small", "user.one", b"value");
    caller.setxattr("/light/pages", "user.one", &[1; 3000]);
    caller.setxattr("/light/a/b", "system.posix_acl_access", &ACL);
    caller.setxattr("/light/a/b", "system.posix_acl_default", &ACL);
    (0..40).for_each(|number| caller.unlink(&format!("/light/many/f{}", number * 3), 0));
    reclaim::run(&caller.0);
    boot::exit(&caller.0);
}

/// Dies with files open, locked and removed, some of which wait in its lane's chains to be freed.
pub fn die_busy(region: Region<'static>) -> ! {
    let caller = Caller::new(region).expect("a region");
    for number in 0..KEPT {
        let path = format!("/light/kept{number}");
        caller.open(&path, O_CREAT | O_RDWR).expect("a new file");
        caller.unlink(&path, 0);
    }
    for number in [1, 2, 4, 5, 7] {
        let fd = caller.open(&format!("/light/many/f{number}"), O_RDWR).expect("a file");
        // As fork does: another table might name it, which a sweep finds out.
        let id = FileId(caller.0.table.load(fd) as u32);
        region.file(id).shared.store(2, Relaxed);
        caller.close(fd);
    }
    caller.file("/light/gone", 9000, 0);
    for path in ["/light/gone", "/light/small", "/light/pages", "/light/a/b"] {
        let fd = caller.open(path, if path == "/light/a/b" { O_RDONLY } else { O_RDWR }).expect(path);
        let mut lock = [0u8; 32];
        lock[0] = F_WRLCK as u8;
        let _ = record_lock::fcntl(&caller.0, fd, F_SETLK, lent::room(&mut lock).start());
        let _ = flock::flock(&caller.0, fd, LOCK_SH);
    }
    caller.unlink("/light/gone", 0);
    let _ = chdir::chdir(&caller.0, lent::path(&c("/light/a/b")));
    // SAFETY: ends the child.
    unsafe { libc::_exit(0) }
}

/// A fixed set of calls.
pub fn all(region: Region<'static>) {
    // SAFETY: what comes later in this process's calls must not reach the limit's signal.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let Some(caller) = Caller::new(region) else { return };
    let task = &*caller.0;
    let seen = caller.list();
    // SAFETY: a structure of integers.
    let mut space: lp_abi::linux::statfs = unsafe { std::mem::zeroed() };
    let _ = statfs::statfs(task, Fd::CWD, lent::path(&c("/light")), lent::value(&mut space));
    caller.mkdir("/light/new");
    (0..80).for_each(|number| caller.file(&format!("/light/new/{number}"), 5000, number << 14));
    caller.file("/light/sparse", 10, 1 << 35);
    caller.copy("/light/a/too", "/light/new/same");
    caller.file("/light/a/same", 10, 15_000);
    caller.file("/light/a/most", 10, 9000);
    caller.copy("/light/a/most", "/light/new/most");
    caller.unlink("/light/whole", 0);
    caller.rename("/light/new/1", "/light/a/moved", 0);
    caller.rename("/light/a", "/light/new/a", 0);
    caller.rename("/light/many", "/light/new", RENAME_EXCHANGE);
    caller.rename("/light/a", "/light/a/b/under", 0);
    caller.link("/light/pages", "/light/empty/pages");
    caller.symlink("/light/a/b", "/light/empty/link");
    caller.setxattr("/light/small", "user.two", &[2; 100]);
    caller.setxattr("/light/empty", "system.posix_acl_default", &ACL);
    let mut buffer = [0u8; 4096];
    let _ = chdir::chdir(task, lent::path(&c("/light/a/b/c")));
    let _ = getcwd::getcwd(task, lent::room(&mut buffer));
    if let (Some(from), Some(to)) =
        (caller.open("/light/pages", O_RDWR), caller.open("/light/copy", O_CREAT | O_RDWR))
    {
        let null = UserPtr::NULL;
        let _ = copy::copy_file_range(task, from, null, to, null, 40_000, 0);
        let mut lock = [0u8; 32];
        lock[0] = F_WRLCK as u8;
        let _ = record_lock::fcntl(task, from, F_SETLK, lent::room(&mut lock).start());
        let _ = flock::flock(task, to, LOCK_EX | LOCK_NB);
        if let (Ok(id), Ok(fd)) = (dup::dup(task, to), task.table.lowest(3, 1000)) {
            let _ = dup::install(task, fd, id, 0);
            caller.close(fd);
        }
        caller.close(from);
        caller.close(to);
    }
    for path in ["/light/sparse", "/light/pages", "/light/a/b/c/deep"] {
        for length in [1 << 22, 5000, 0] {
            let _ = truncate::truncate(task, Fd::CWD, lent::path(&c(path)), length);
        }
    }
    // Everything can be removed.
    for path in seen.iter().rev() {
        caller.unlink(path, 0);
        caller.unlink(path, AT_REMOVEDIR);
    }
    caller.list().iter().rev().take(60).for_each(|path| caller.unlink(path, 0));
    reclaim::all(task);
    boot::exit(task);
}
