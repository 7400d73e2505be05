//! A host directory as a layer.
//!
//! It is reached by its absolute path, so that any process of the run can do so, whichever descriptors it
//! has. A process that has changed its root or its user sees what the kernel shows it there. The path follows
//! the lists by name without following symbolic links, and what is found is compared with its record. The
//! descriptor that a look needs is closed before the call returns. If the process has none left, its soft
//! limit is raised for that moment.

use core::mem::MaybeUninit;
use core::ops::Range;

use lp_abi::linux::{
    __NR_fstat, __NR_fstatfs, __NR_getdents64, __NR_lgetxattr, __NR_listxattrat, __NR_llistxattr, __NR_lseek,
    __NR_openat, __NR_pread64, __NR_prlimit64, __NR_readlinkat, __NR_statx, AT_EMPTY_PATH, AT_NO_AUTOMOUNT,
    AT_SYMLINK_NOFOLLOW, O_CLOEXEC, O_DIRECTORY, O_NOATIME, O_NOFOLLOW, O_NONBLOCK, O_PATH, O_RDONLY,
    RLIMIT_NOFILE, S_IFMT, SEEK_DATA, SEEK_HOLE, STATX_BASIC_STATS, STATX_BTIME, STATX_MNT_ID, stat as Stat,
    statfs as Statfs, statx as Statx,
};
use lp_abi::text::Writer;
use lp_abi::{Errno, Fd, NAME_MAX, OwnedFd, PATH_MAX, Result, dirent64};
use lp_region::Region;
use lp_region::records::ABOVE_LAYER;

use crate::below::list::{self, Record, RecordAt};
use crate::below::memory::Memory;
use crate::below::{Dir, Each, File, Layer, Names, Seen, Use};
use crate::caller::id_map::{self, IdKind};
use crate::caller::task::{Task, Time};

/// The layer of a host tree. Its lists say where that is.
pub(super) struct HostTree;

/// An open directory.
pub(super) struct HostDir {
    fd: OwnedFd,
    /// Its device.
    dev: u64,
    /// Its mount, 0 if the kernel does not say.
    mount: u64,
    /// When it had last changed.
    changed: Time,
}

/// File systems on which getdents(2) has the type of a name, and the number that stat(2) has, unless it is a
/// directory: ext2 to ext4, XFS, btrfs, f2fs, tmpfs.
const LISTS_NUMBERS: [i64; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x0102_1994];

/// Maximum bytes of a path opened at once.
const STEP: usize = PATH_MAX - NAME_MAX - 2;

impl Layer for HostTree {
    type Dir = HostDir;
    type File = OwnedFd;

    fn dir(&self, task: &Task<'_>, at: RecordAt, how: Use) -> Result<HostDir> {
        let access = match how {
            Use::List => O_RDONLY,
            Use::Search => O_PATH,
        };
        let fd = found(open(task, at, access | O_DIRECTORY))?;
        let (seen, (now, mount)) = (list::record(task.region, at)?, of(&fd)?);
        if is_same(&seen, &now) {
            Ok(HostDir { fd, dev: now.dev, mount, changed: change_time(&now) })
        } else {
            Err(Errno::EIO)
        }
    }

    fn file(&self, task: &Task<'_>, at: RecordAt) -> Result<OwnedFd> {
        // Only the file's owner may leave the access time alone (O_NOATIME).
        let opened = match open(task, at, O_RDONLY | O_NONBLOCK | O_NOATIME) {
            Err(Errno::EPERM) => open(task, at, O_RDONLY | O_NONBLOCK),
            opened => opened,
        };
        found(opened)
    }
}

/// Something that is missing is a conflict.
pub(super) fn found<T>(opened: Result<T>) -> Result<T> {
    match opened {
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => Err(Errno::EIO),
        opened => opened,
    }
}

/// Whether what is there now is what was seen: by its identity and type.
pub(super) fn is_same(seen: &Record, now: &Record) -> bool {
    (seen.dev, seen.ino) == (now.dev, now.ino) && (seen.mode ^ now.mode) & S_IFMT == 0
}

/// Opens the origin of a record.
fn open(task: &Task<'_>, at: RecordAt, flags: u32) -> Result<OwnedFd> {
    let region = task.region;
    let above = far_above(region, at)?;
    let base = match above {
        Some(above) => Some(open(task, above, O_PATH | O_DIRECTORY)?),
        None => None,
    };
    // SAFETY: the buffer belongs to the task, and any path left in it has been used.
    let room = unsafe { &mut *task.scratch.outside.get() };
    let start = path(region, at, above, room)?;
    let dirfd = base.as_ref().map_or(Fd::CWD, OwnedFd::get);
    openat(dirfd, room[start..].as_ptr(), flags | O_NOFOLLOW | O_CLOEXEC)
}

/// The ancestor from which the path to a record is short enough; `None` if the whole path is.
fn far_above(region: Region<'_>, at: RecordAt) -> Result<Option<RecordAt>> {
    let (mut here, mut bytes) = (at, 0);
    loop {
        bytes += list::record(region, here)?.length as usize + 1;
        let Some(up) = list::up(&list::head(region, here.list)?) else { return Ok(None) };
        if bytes > STEP {
            return Ok(Some(up));
        }
        here = up;
    }
}

/// Writes the path of a record below `above`, or from the root of the host, to the end of a buffer,
/// NUL-terminated. Returns where it starts.
pub(super) fn path(
    region: Region<'_>,
    at: RecordAt,
    above: Option<RecordAt>,
    room: &mut [u8],
) -> Result<usize> {
    let mut start = room.len() - 1;
    room[start] = 0;
    let mut here = at;
    loop {
        let length = list::record(region, here)?.length as usize;
        let up = list::up(&list::head(region, here.list)?);
        // A root has its whole path for a name: that of the host's root directory is a slash already.
        let is_slash = up.is_none() && length == 1;
        let slash = usize::from(start != room.len() - 1 && !is_slash);
        start = start.checked_sub(length + slash).ok_or(Errno::ENAMETOOLONG)?;
        if slash == 1 {
            room[start + length] = b'/';
        }
        list::bytes(region, here, 0, &mut room[start..start + length])?;
        match up {
            Some(up) if Some(up) != above => here = up,
            _ => return Ok(start),
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Limit {
    soft: u64,
    hard: u64,
}

fn openat(dirfd: Fd, path: *const u8, flags: u32) -> Result<OwnedFd> {
    // SAFETY: the path is NUL-terminated.
    let open = || unsafe { lp_abi::syscall!(__NR_openat, dirfd, path, flags, 0) };
    let opened = match open() {
        Err(Errno::EMFILE) => with_room(open),
        Err(Errno::EINTR) => open(),
        opened => opened,
    };
    opened.map(OwnedFd::new)
}

/// Makes a call with the soft limit of descriptors raised to the hard limit.
fn with_room(open: impl FnOnce() -> Result<usize>) -> Result<usize> {
    let mut limit = Limit { soft: 0, hard: 0 };
    // SAFETY: the kernel fills the structure in.
    unsafe { lp_abi::syscall!(__NR_prlimit64, 0, RLIMIT_NOFILE, 0, &raw mut limit) }?;
    let raised = Limit { soft: limit.hard, ..limit };
    let set = |limit: &Limit| {
        let limit = core::ptr::from_ref(limit);
        // SAFETY: the kernel only reads the structure.
        unsafe { lp_abi::syscall!(__NR_prlimit64, 0, RLIMIT_NOFILE, limit, 0) }
    };
    set(&raised)?;
    let opened = open();
    set(&limit)?;
    opened
}

/// The attributes of what a name denotes or, if it is empty, of the descriptor itself; and its mount, 0 if
/// the kernel does not say.
pub(super) fn attributes(dirfd: Fd, name: *const u8) -> Result<(Record, u64)> {
    let mut found = MaybeUninit::<Statx>::uninit();
    let flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH;
    let mask = STATX_BASIC_STATS | STATX_BTIME | STATX_MNT_ID;
    // SAFETY: the name is NUL-terminated, and the kernel fills all of the structure in.
    let found = unsafe {
        lp_abi::syscall!(__NR_statx, dirfd, name, flags, mask, found.as_mut_ptr())?;
        found.assume_init()
    };
    let number = |major: u32, minor: u32| {
        u64::from(minor & 0xff) | u64::from(major & 0xfff) << 8 | u64::from(minor & !0xff) << 12
    };
    let times = [&found.stx_atime, &found.stx_mtime, &found.stx_ctime, &found.stx_btime];
    let mount = if found.stx_mask & STATX_MNT_ID == 0 { 0 } else { found.stx_mnt_id };
    let record = Record {
        dev: number(found.stx_dev_major, found.stx_dev_minor),
        ino: found.stx_ino,
        size: found.stx_size,
        blocks: found.stx_blocks,
        seconds: times.map(|time| time.tv_sec),
        nanoseconds: times.map(|time| time.tv_nsec),
        mode: u32::from(found.stx_mode),
        uid: found.stx_uid,
        gid: found.stx_gid,
        nlink: found.stx_nlink,
        rdev: number(found.stx_rdev_major, found.stx_rdev_minor) as u32,
        ..Record::default()
    };
    Ok((record, mount))
}

fn change_time(record: &Record) -> Time {
    Time { sec: record.seconds[2], nsec: record.nanoseconds[2] }
}

fn of(file: &OwnedFd) -> Result<(Record, u64)> {
    attributes(file.get(), c"".as_ptr().cast())
}

/// The record of a tree's root; `path` is NUL-terminated.
///
/// # Errors
/// Those of open(2) and statx(2); `ENOTDIR`.
pub(super) fn root(path: *const u8) -> Result<Record> {
    let (seen, _) = of(&openat(Fd::CWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)?)?;
    Ok(Record { number: if seen.ino < ABOVE_LAYER { seen.ino } else { 0 }, ..seen })
}

impl Dir for HostDir {
    fn names(&self, task: &Task<'_>, each: Names<'_>) -> Result<()> {
        // SAFETY: the buffer belongs to the task, and the path that was in it has been used.
        let room = unsafe { &mut *task.scratch.outside.get() };
        loop {
            // SAFETY: the kernel writes within the buffer.
            let got =
                unsafe { lp_abi::syscall!(__NR_getdents64, self.fd.get(), room.as_mut_ptr(), room.len()) }?;
            let mut rest = &room[..got];
            if rest.is_empty() {
                return Ok(());
            }
            while let Some(&[low, high]) = rest.get(dirent64::LENGTH..dirent64::TYPE) {
                let (entry, next) =
                    rest.split_at_checked(u16::from_le_bytes([low, high]).into()).ok_or(Errno::EIO)?;
                rest = next;
                let (number, name) =
                    entry.first_chunk().zip(entry.get(dirent64::NAME..)).ok_or(Errno::EIO)?;
                let length = name.iter().position(|byte| *byte == 0).ok_or(Errno::EIO)?;
                if !matches!(&name[..length], b"." | b"..") {
                    each(&name[..length], u64::from_le_bytes(*number), entry[dirent64::TYPE])?;
                }
            }
        }
    }

    fn look(&self, task: &Task<'_>, name: &[u8]) -> Result<Option<Record>> {
        match attributes(self.fd.get(), name.as_ptr()) {
            Ok((mut record, on)) => {
                let beside = self.mount != 0 && (on, record.dev) == (self.mount, self.dev);
                record.number = if beside { record.ino } else { 0 };
                // An owner without an id here is shown as the overflow id.
                let in_run = |kind, id| id_map::to_run(task.process, kind, id).unwrap_or(id);
                record.uid = in_run(IdKind::User, record.uid);
                record.gid = in_run(IdKind::Group, record.gid);
                Ok(Some(record))
            }
            // It has been removed since.
            Err(Errno::ENOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn lists_numbers(&self) -> Result<Option<Time>> {
        let mut found = MaybeUninit::<Statfs>::zeroed();
        // SAFETY: the kernel fills the structure in.
        let found = unsafe {
            lp_abi::syscall!(__NR_fstatfs, self.fd.get(), found.as_mut_ptr())?;
            found.assume_init()
        };
        Ok((self.mount != 0 && LISTS_NUMBERS.contains(&found.f_type)).then_some(self.changed))
    }

    fn changed(&self) -> Result<Time> {
        of(&self.fd).map(|(now, _)| change_time(&now))
    }

    fn target(&self, name: &[u8], to: &mut [u8]) -> Result<usize> {
        // SAFETY: the name is followed by a NUL, and the kernel writes within the buffer.
        unsafe { lp_abi::syscall!(__NR_readlinkat, self.fd.get(), name.as_ptr(), to.as_mut_ptr(), to.len()) }
    }

    fn attributes(&self, name: &[u8], each: Each<'_>) -> Result<Seen> {
        let mut path = [0; Fd::LINK + NAME_MAX + 1];
        let path = proc_path(&mut path, self.fd.get(), name);
        let flags = AT_SYMLINK_NOFOLLOW;
        // SAFETY: the name is NUL-terminated.
        let size =
            match unsafe { lp_abi::syscall!(__NR_listxattrat, self.fd.get(), name.as_ptr(), flags, 0, 0) } {
                // Linux before 6.13. SAFETY: the path is NUL-terminated.
                Err(Errno::ENOSYS) => unsafe { lp_abi::syscall!(__NR_llistxattr, path, 0, 0) },
                size => size,
            };
        if matches!(size, Ok(0) | Err(Errno::EOPNOTSUPP | Errno::ENOENT | Errno::ENOTDIR)) {
            return Ok(Seen::All);
        }
        let mut all = Seen::All;
        let mut room = Memory::new()?;
        let (names, values) = room.halves();
        // SAFETY: the path is NUL-terminated, and the kernel writes within the buffer.
        let listed = unsafe { lp_abi::syscall!(__NR_llistxattr, path, names.as_mut_ptr(), names.len()) }?;
        for name in names[..listed].split_inclusive(|byte| *byte == 0) {
            let (to, len) = (values.as_mut_ptr(), values.len());
            // SAFETY: path and name are NUL-terminated, and the kernel writes within the buffer.
            match unsafe { lp_abi::syscall!(__NR_lgetxattr, path, name.as_ptr(), to, len) } {
                Ok(length) => each(&name[..name.len() - 1], &values[..length])?,
                // Removed since, or not visible to this user.
                Err(Errno::ENODATA | Errno::EOPNOTSUPP) => {}
                Err(Errno::EACCES | Errno::EPERM) => all = Seen::Some,
                Err(errno) => return Err(errno),
            }
        }
        Ok(all)
    }
}

/// The path of a name in an open directory, for calls without a descriptor argument.
fn proc_path(room: &mut [u8], fd: Fd, name: &[u8]) -> *const u8 {
    let mut text = Writer::new(room);
    text.push_link(fd);
    text.push(b"/");
    text.push(name);
    let _ = text.finish(); // The caller's room is for the longest name.
    room.as_ptr()
}

impl File for OwnedFd {
    unsafe fn read(&self, to: *mut u8, len: usize, at: u64) -> Result<usize> {
        loop {
            // SAFETY: `to` is valid for `len` bytes, as `read` requires.
            match unsafe { lp_abi::syscall!(__NR_pread64, self.get(), to, len, at) } {
                Err(Errno::EINTR) => {}
                done => return done,
            }
        }
    }

    fn data(&self, at: u64) -> Result<Option<Range<u64>>> {
        // SAFETY: the position is used by nobody.
        let seek = |at: u64, whence: u32| unsafe { lp_abi::syscall!(__NR_lseek, self.get(), at, whence) };
        let start = match seek(at, SEEK_DATA) {
            Err(Errno::ENXIO) => return Ok(None),
            // A file system that does not tell.
            Err(Errno::EINVAL) => return Ok(Some(at..u64::MAX)),
            start => start? as u64,
        };
        Ok(Some(start..seek(start, SEEK_HOLE)? as u64))
    }

    fn check(&self, seen: &Record) -> Result<()> {
        let mut now = MaybeUninit::<Stat>::uninit();
        // SAFETY: the kernel fills all of the structure in.
        let now = unsafe {
            lp_abi::syscall!(__NR_fstat, self.get(), now.as_mut_ptr())?;
            now.assume_init()
        };
        let changed = Time { sec: now.st_ctime as i64, nsec: now.st_ctime_nsec as u32 };
        let is_same = (now.st_dev, now.st_ino, now.st_size as u64) == (seen.dev, seen.ino, seen.size)
            && changed == change_time(seen);
        if is_same { Ok(()) } else { Err(Errno::EIO) }
    }
}
