//! One process that makes calls in a region.

use std::ffi::CString;

use lp_abi::linux::*;
use lp_abi::{Errno, Fd};
use lp_region::Region;
use lp_vfs::boot::{self, RunSetup};
use lp_vfs::link::Two;
use lp_vfs::open::Opened;
use lp_vfs::xattr::XattrValue;
use lp_vfs::{
    Place, Task, chmod, clock, close, getdents, link, mkdir, open, read, readlink, reclaim, rename, stat,
    symlink, table, truncate, unlink, write, xattr,
};

#[path = "../../../vfs/tests/setup/lent.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod lent;

/// The extended attribute that files have.
const ATTRIBUTE: &std::ffi::CStr = c"user.one";
/// Longest of its values, and longest target of a symbolic link.
const LONGEST: usize = 8192;

type Result<T> = std::result::Result<T, Errno>;

pub struct Caller(Box<Task<'static>>);

fn c(path: &str) -> CString {
    CString::new(path).expect("a path")
}

fn inside<T>(place: Place<T>) -> T {
    match place {
        Place::Inside(value) => value,
        Place::Outside(_) => panic!("a path outside the mount"),
    }
}

fn both_inside(places: Two) {
    assert!(matches!(places, Two::Done), "a path outside the mount");
}

impl Caller {
    pub fn new(region: Region<'static>) -> Caller {
        // SAFETY: the value is the kernel's.
        unsafe { clock::init(libc::getauxval(libc::AT_SYSINFO_EHDR) as usize) };
        let setup = RunSetup { mounts: &[b"/light"], ..RunSetup::default() };
        let run = boot::claim_run(region, &setup).expect("a run");
        let process = boot::claim_process(region, run).expect("a process");
        let lane = boot::attach(region, process, std::process::id()).expect("a lane");
        let caller = Caller(Box::new(Task::new(region, process, lane, clock::now)));
        boot::arrive(&caller.0);
        reclaim::dead(&caller.0);
        boot::mkfs(&caller.0, 0).expect("a root");
        caller
    }

    /// Gives everything back.
    pub fn leave(self) {
        boot::exit(&self.0);
    }

    pub fn open(&self, path: &str, flags: u32) -> Result<Fd> {
        let path = c(path);
        let opened = inside(open::openat(&self.0, Fd::CWD, lent::path(&path), flags, 0o644)?);
        let Opened::File(id) = opened else { panic!("not a file of the region") };
        let fd = self.0.table.lowest(3, 1000)?;
        table::install(&self.0, fd, id, 0)?;
        Ok(fd)
    }

    pub fn close(&self, fd: Fd) {
        close::close(&self.0, fd).expect("close");
    }

    pub fn create(&self, path: &str) -> Result<()> {
        self.open(path, O_CREAT | O_EXCL | O_RDWR).map(|fd| self.close(fd))
    }

    pub fn write(&self, path: &str, bytes: &[u8], at: u64) -> Result<()> {
        let fd = self.open(path, O_RDWR)?;
        let done = write::pwrite(&self.0, fd, lent::bytes(&bytes), at as i64);
        self.close(fd);
        assert_eq!(done?, bytes.len(), "a short write");
        Ok(())
    }

    pub fn read(&self, path: &str, len: usize) -> Result<Vec<u8>> {
        let fd = self.open(path, O_RDONLY)?;
        let mut bytes = vec![0; len];
        let done = read::pread(&self.0, fd, lent::room(&mut bytes[..len]), 0);
        self.close(fd);
        assert_eq!(done?, len, "a short read");
        Ok(bytes)
    }

    pub fn mkdir(&self, path: &str) -> Result<()> {
        mkdir::mkdirat(&self.0, Fd::CWD, lent::path(&c(path)), 0o755).map(inside)
    }

    pub fn unlink(&self, path: &str, flags: u32) -> Result<()> {
        unlink::unlinkat(&self.0, Fd::CWD, lent::path(&c(path)), flags).map(inside)
    }

    pub fn rename(&self, one: &str, two: &str, flags: u32) -> Result<()> {
        let (one, two) = (c(one), c(two));
        rename::renameat2(&self.0, Fd::CWD, lent::path(&one), Fd::CWD, lent::path(&two), flags)
            .map(both_inside)
    }

    pub fn link(&self, one: &str, two: &str) -> Result<()> {
        let (one, two) = (c(one), c(two));
        link::linkat(&self.0, Fd::CWD, lent::path(&one), Fd::CWD, lent::path(&two), 0).map(both_inside)
    }

    pub fn symlink(&self, target: &str, path: &str) -> Result<()> {
        let (target, path) = (c(target), c(path));
        symlink::symlinkat(&self.0, lent::path(&target), Fd::CWD, lent::path(&path)).map(inside)
    }

    pub fn readlink(&self, path: &str) -> Result<Vec<u8>> {
        let mut bytes = vec![0; LONGEST];
        let path = c(path);
        let got =
            readlink::readlinkat(&self.0, Fd::CWD, lent::path(&path), lent::room(&mut bytes[..LONGEST]))?;
        bytes.truncate(inside(got));
        Ok(bytes)
    }

    pub fn chmod(&self, path: &str, mode: u32) -> Result<()> {
        chmod::fchmodat(&self.0, Fd::CWD, lent::path(&c(path)), mode, 0).map(inside)
    }

    pub fn truncate(&self, path: &str, size: u64) -> Result<()> {
        truncate::truncate(&self.0, Fd::CWD, lent::path(&c(path)), size as i64).map(inside)
    }

    pub fn set_attribute(&self, path: &str, value: &[u8]) -> Result<()> {
        let value = XattrValue { bytes: lent::bytes(&value), flags: 0 };
        let path = c(path);
        xattr::setxattr(&self.0, Fd::CWD, lent::path(&path), 0, lent::path(ATTRIBUTE), value).map(inside)
    }

    pub fn attribute(&self, path: &str) -> Option<Vec<u8>> {
        let mut bytes = vec![0; LONGEST];
        let room = lent::room(&mut bytes);
        let path = c(path);
        let name = lent::path(ATTRIBUTE);
        let got = xattr::getxattr(&self.0, Fd::CWD, lent::path(&path), 0, name, room).ok()?;
        bytes.truncate(inside(got));
        Some(bytes)
    }

    pub fn stat(&self, path: &str) -> Result<lp_abi::linux::stat> {
        // SAFETY: a structure of integers.
        let mut found: lp_abi::linux::stat = unsafe { std::mem::zeroed() };
        let path = c(path);
        stat::fstatat(&self.0, Fd::CWD, lent::path(&path), lent::value(&mut found), AT_SYMLINK_NOFOLLOW)?;
        Ok(found)
    }

    /// Frees what was unlinked, so that its slots and pages are used again.
    pub fn reclaim(&self) {
        reclaim::all(&self.0);
    }

    /// Every path below the root.
    pub fn list(&self) -> Vec<String> {
        let (mut pending, mut found) = (vec!["/light".to_owned()], Vec::new());
        while let Some(directory) = pending.pop() {
            for (name, kind) in self.names(&directory) {
                let path = format!("{directory}/{name}");
                if kind == S_IFDIR >> 12 {
                    pending.push(path.clone());
                }
                found.push(path);
            }
        }
        found
    }

    fn names(&self, path: &str) -> Vec<(String, u32)> {
        let fd = self.open(path, O_RDONLY | O_DIRECTORY).expect("a directory");
        let (mut names, mut buffer) = (Vec::new(), [0u8; 4096]);
        while let got @ 1.. = getdents::getdents64(&self.0, fd, lent::room(&mut buffer)).expect("a listing") {
            let mut at = 0;
            while at < got {
                let length = u16::from_ne_bytes([buffer[at + 16], buffer[at + 17]]) as usize;
                let name = buffer[at + 19..at + length].split(|byte| *byte == 0).next().unwrap_or_default();
                if name != b"." && name != b".." {
                    names.push((String::from_utf8_lossy(name).into_owned(), u32::from(buffer[at + 18])));
                }
                at += length;
            }
        }
        self.close(fd);
        names
    }
}
