//! A file system in private memory and a task on it.

#![allow(dead_code, reason = "each test file uses a part")]

pub mod death;
pub mod fsck;
pub mod lent;

use std::sync::Mutex;

use lp_abi::Fd;
use lp_abi::linux::{O_ACCMODE, O_RDONLY, O_WRONLY, S_IFREG};
use lp_region::records::{Inode, file_mode};
use lp_region::{DirentId, Geometry, InodeId, Region, RunId};
use lp_vfs::file::Opening;
use lp_vfs::{Task, boot, clock, file, inode, page, table, truncate};

/// getauxval(3): address of the vDSO.
const AT_SYSINFO_EHDR: u64 = 33;

/// Process slots are claimed with the real process's credentials, so only one test at a time may do so.
static SETUP: Mutex<()> = Mutex::new(());

/// Another process, as far as the file system can see.
pub fn another(region: Region<'static>, run: RunId) -> Task<'static> {
    let process = boot::claim_process(region, run).expect("process");
    let lane = boot::attach(region, process, 1).expect("attach");
    let task = Task::new(region, process, lane, clock::now);
    boot::arrive(&task);
    task
}

/// A test's own file system with one root.
pub struct Fixture {
    /// The caller of the test's calls.
    pub task: Task<'static>,
    /// Free pages before the first call.
    pub empty: u64,
}

impl Fixture {
    /// In private memory, with space for `bytes` of data.
    pub fn private(bytes: usize) -> Fixture {
        let geometry = Geometry { data_bytes: bytes as u64, inodes: 100_000, identity: 42 };
        Self::on(Region::create_private(&geometry).expect("region"))
    }

    /// On a new region.
    pub fn on(region: Region<'static>) -> Fixture {
        let _one = SETUP.lock().unwrap();
        if !cfg!(miri) {
            // SAFETY: the value comes from the kernel.
            unsafe { clock::init(auxiliary(AT_SYSINFO_EHDR)) };
        }
        let setup = boot::RunSetup { mounts: &[b"/light"], ..boot::RunSetup::default() };
        let run = boot::claim_run(region, &setup).expect("run");
        let task = another(region, run);
        boot::mkfs(&task, 0).expect("mkfs");
        let empty = page::free_count(region);
        Fixture { task, empty }
    }

    /// The root directory.
    pub fn root(&self) -> InodeId {
        boot::root(&self.task, 0).expect("root").id
    }

    /// Creates a file without a name, open with `flags`, and returns its descriptor.
    pub fn file(&self, flags: u32) -> Fd {
        let task = &self.task;
        let parent = self.root();
        let mount = boot::root_spot(task, 0).expect("root").mount;
        let made =
            inode::create(task, task.region.inode(parent), S_IFREG | 0o644, 0).expect("inode").linked_in();
        task.region.settle::<Inode>(task.lane);
        let access = match flags & O_ACCMODE {
            O_RDONLY => file_mode::READ,
            O_WRONLY => file_mode::WRITE,
            _ => file_mode::READ | file_mode::WRITE,
        };
        let mode = access | file_mode::REGULAR;
        let opening = Opening { inode: made, flags, mode, parent, dirent: DirentId::NONE, mount };
        let id = file::create(task, &opening).expect("file").hand_over();
        let fd = task.table.lowest(0, 1024).expect("descriptor");
        table::install(task, fd, id, 0).expect("install");
        fd
    }

    /// The inode of an open file.
    pub fn inode_id(&self, fd: Fd) -> InodeId {
        self.task.fget(fd).expect("open").inode_id()
    }

    /// The inode of an open file.
    pub fn inode(&self, fd: Fd) -> &'static Inode {
        self.task.region.inode(self.inode_id(fd))
    }

    /// Changes the size of an open file.
    pub fn resize(&self, fd: Fd, size: u64) {
        let id = self.inode_id(fd);
        let _held = inode::lock(&self.task, id);
        truncate::resize(&self.task, id, self.inode(fd), size).expect("resize");
    }
}

/// A value from the process's auxiliary vector: getauxval(3).
fn auxiliary(kind: u64) -> usize {
    let bytes = std::fs::read("/proc/self/auxv").expect("auxv");
    let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
    (0..bytes.len()).step_by(16).find(|at| word(*at) == kind).map_or(0, |at| word(at + 8) as usize)
}

/// A small pseudo-random number generator (xorshift64*).
pub struct Random(pub u64);

impl Random {
    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }
}

/// A task sent to the thread that uses it.
pub struct Sent(pub Task<'static>);

// SAFETY: only one thread at a time uses it: the one to which it was sent.
unsafe impl Send for Sent {}
