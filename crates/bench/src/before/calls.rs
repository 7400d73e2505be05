//! The five hot calls, with and without the synchronisation that each change removed.

use super::MOST_WORKERS;
use super::locks::{Count, Mutex, ReadLock, SpinLock};
use lp_abi::linux::{SEEK_SET, stat};
use lp_abi::{Fd, Result, lent};
use lp_vfs::{Place, Task};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Bytes of each file.
pub(super) const FILE_SIZE: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Design {
    /// The old synchronisation around the call.
    Before,
    /// Lightpath's.
    Now,
}

impl Design {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::Now => "now",
        }
    }
}

/// The historical change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// 2003: reader-writer lock on the descriptor table, atomic count on the file. `pread` of 1 byte.
    Lookup,
    /// 2009: the inode's mutex around lseek. One file, each worker's own open.
    Lseek,
    /// 2009: a per-processor spinlock and count, taken twice for each write of 256 bytes.
    Writers,
    /// 2009: the inode's spinlock around reading its ACL, for each directory of the path that the caller
    /// does not own. `stat` of one path.
    Acl,
    /// 2011: entry and exit of the file system, credentials held, an attribute structure allocated and
    /// filled under the inode's mutex, then converted. `fstat` of one file.
    Attributes,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [Self::Lookup, Self::Lseek, Self::Writers, Self::Acl, Self::Attributes];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Lseek => "lseek",
            Self::Writers => "writers",
            Self::Acl => "acl",
            Self::Attributes => "attributes",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Its title in the report.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Lookup => "pread 1 B: table lock and file count",
            Self::Lseek => "lseek: inode mutex",
            Self::Writers => "write 256 B: mount-writer spinlock",
            Self::Acl => "stat: locked ACL read",
            Self::Attributes => "fstat: full attribute build",
        }
    }
}

/// The old synchronisation. Zero is its initial state, so fresh shared memory will do. Each word has its own
/// cache line, the most favourable layout for the old designs.
#[repr(C)]
pub(super) struct Old {
    /// For each descriptor table; threads share the first.
    tables: [ReadLock; MOST_WORKERS],
    /// For each worker's open file.
    files: [Count; MOST_WORKERS],
    /// For each processor.
    writers: [SpinLock; MOST_WORKERS],
    /// For the shared file.
    shared_inode: Mutex,
    /// For `/`, `/a` and `/a/b`.
    directories: [SpinLock; 3],
    /// The file system's entry, and the count of its readers.
    entry: [Mutex; 1],
    credentials: Count,
}

/// What a call needs from the worker that makes it.
pub(super) struct Worker<'r> {
    pub(super) task: Box<Task<'r>>,
    /// Its number from 0.
    pub(super) index: usize,
    /// Index of its table: its own, or the one that all threads share.
    pub(super) table: usize,
    /// A processor for each worker, wrapping around.
    pub(super) processor: usize,
    /// Its own open of its own file.
    pub(super) own: Fd,
    /// Its own open of the file that all share.
    pub(super) shared: Fd,
}

/// The fields of ZFS's `struct vattr`.
struct Vattr {
    mode: u32,
    uid: u32,
    gid: u32,
    fsid: u64,
    nodeid: u64,
    nlink: u64,
    size: u64,
    times: [i64; 6],
    rdev: u64,
    blksize: u64,
    nblocks: u64,
}

impl Worker<'_> {
    /// Makes the call once; `turn` counts them.
    #[inline(always)]
    pub(super) fn call(&self, design: Design, kind: Kind, old: &Old, turn: usize) -> Result<()> {
        match (kind, design) {
            (Kind::Lookup, Design::Now) => self.read(),
            (Kind::Lookup, Design::Before) => {
                let file = &old.files[self.index];
                old.tables[self.table].with(|| file.get());
                let done = self.read();
                file.put();
                done
            }
            (Kind::Lseek, Design::Now) => self.seek(turn),
            (Kind::Lseek, Design::Before) => old.shared_inode.with(|| self.seek(turn)),
            (Kind::Writers, Design::Now) => self.write(turn),
            (Kind::Writers, Design::Before) => {
                let count = &old.writers[self.processor];
                count.with(|| ());
                let done = self.write(turn);
                count.with(|| ());
                done
            }
            (Kind::Acl, Design::Now) => self.stat(),
            (Kind::Acl, Design::Before) => {
                for directory in &old.directories {
                    directory.with(|| ());
                }
                self.stat()
            }
            (Kind::Attributes, Design::Now) => self.fstat().map(|_| ()),
            (Kind::Attributes, Design::Before) => self.fstat_before(old),
        }
    }

    fn read(&self) -> Result<()> {
        let mut byte = [0];
        lp_vfs::read::pread(&self.task, self.own, lent::room(&mut byte), 4000).map(|_| ())
    }

    fn seek(&self, turn: usize) -> Result<()> {
        let offset = (turn * 4096 % FILE_SIZE) as i64;
        lp_vfs::lseek::lseek(&self.task, self.shared, offset, SEEK_SET).map(|_| ())
    }

    fn write(&self, turn: usize) -> Result<()> {
        let bytes = [b'x'; 256];
        let offset = (turn * 256 % FILE_SIZE) as i64;
        lp_vfs::write::pwrite(&self.task, self.own, lent::bytes(&bytes), offset).map(|_| ())
    }

    fn stat(&self) -> Result<()> {
        let mut to = MaybeUninit::<stat>::uninit();
        let found = lp_vfs::stat::fstatat(
            &self.task,
            Fd::CWD,
            lent::path(c"/a/b/shared"),
            lent::value(&mut to).cast(),
            0,
        )?;
        match found {
            Place::Inside(()) => Ok(()),
            Place::Outside(_) => Err(lp_abi::Errno::ENOENT),
        }
    }

    fn fstat(&self) -> Result<stat> {
        let mut to = MaybeUninit::<stat>::uninit();
        lp_vfs::stat::fstat(&self.task, self.shared, lent::value(&mut to).cast())?;
        // SAFETY: the call succeeded, so it filled the structure.
        Ok(unsafe { to.assume_init() })
    }

    /// The old `zfs_getattr`: enter, hold the credentials, build a vattr under the lock, convert, leave.
    fn fstat_before(&self, old: &Old) -> Result<()> {
        // rrw_enter and rrw_exit each take the mutex of the file system's count.
        old.entry[0].with(|| ());
        old.credentials.get();
        let attributes = old.shared_inode.with(|| self.fstat().map(|seen| Box::new(Vattr::of(&seen))));
        let done = attributes.map(|attributes| {
            let mut converted = MaybeUninit::<stat>::zeroed();
            attributes.convert(NonNull::from(&mut converted).cast());
            std::hint::black_box(&converted);
        });
        old.credentials.put();
        old.entry[0].with(|| ());
        done
    }
}

impl Vattr {
    fn of(seen: &stat) -> Self {
        Self {
            mode: seen.st_mode,
            uid: seen.st_uid,
            gid: seen.st_gid,
            fsid: seen.st_dev,
            nodeid: seen.st_ino,
            nlink: seen.st_nlink,
            size: seen.st_size as u64,
            times: [
                seen.st_atime as i64,
                seen.st_atime_nsec as i64,
                seen.st_mtime as i64,
                seen.st_mtime_nsec as i64,
                seen.st_ctime as i64,
                seen.st_ctime_nsec as i64,
            ],
            rdev: seen.st_rdev,
            blksize: seen.st_blksize as u64,
            nblocks: seen.st_blocks as u64,
        }
    }

    /// Fills a zeroed `struct stat`.
    fn convert(&self, mut to: NonNull<stat>) {
        // SAFETY: the caller's structure, which nobody else uses; all zeros is a valid stat.
        let to = unsafe { to.as_mut() };
        (to.st_mode, to.st_uid, to.st_gid) = (self.mode, self.uid, self.gid);
        (to.st_dev, to.st_ino, to.st_nlink) = (self.fsid, self.nodeid, self.nlink);
        (to.st_size, to.st_rdev) = (self.size as _, self.rdev);
        (to.st_blksize, to.st_blocks) = (self.blksize as _, self.nblocks as _);
        (to.st_atime, to.st_atime_nsec) = (self.times[0] as _, self.times[1] as _);
        (to.st_mtime, to.st_mtime_nsec) = (self.times[2] as _, self.times[3] as _);
        (to.st_ctime, to.st_ctime_nsec) = (self.times[4] as _, self.times[5] as _);
    }
}
