//! [`Light`]: the calls, answered by Lightpath on a region.

use std::cell::Cell;
use std::ffi::{CStr, CString};

use lp_abi::linux::{
    AT_RECURSIVE, AT_REMOVEDIR, AT_SYMLINK_NOFOLLOW, MOVE_MOUNT_F_EMPTY_PATH, OPEN_TREE_CLONE, S_IFIFO,
};
use lp_abi::{Errno, Fd, Result as Answer, UserPtr, lent};
use lp_region::life::SlotState;
use lp_region::sync::Ordering;
use lp_region::{LaneId, ProcessId, Region, RunId};
use lp_vfs::landlock::{self, Entry, right};
use lp_vfs::link::Two;
use lp_vfs::mapping::MapAccess;
use lp_vfs::open::Opened;
use lp_vfs::xattr::XattrValue;
use lp_vfs::{
    Place, Task, boot, chdir, chmod, chown, clock, close, copy, dup, fallocate, flock, fork, getdents, link,
    lseek, mapping, mkdir, mknod, mount, move_mount, open, open_tree, read, readlink, reclaim, record_lock,
    rename, root, sharing, stat, statfs, symlink, table, truncate, umount, unlink, utimens, write, xattr,
};

use crate::actor;
use crate::control::Slot;
use crate::door::{CHANGED, Door, Facts, KEEP, KEPT, LOST, RangeLock};
use crate::kernel::waited;
use crate::step;

/// Descriptor of a copy of mounts.
const COPY: i32 = 30;
/// Mount point of the file system.
const MOUNT: &CStr = c"/light";

/// A process of a run.
pub(crate) struct Light {
    region: Region<'static>,
    run: RunId,
    id: Cell<ProcessId>,
    task: Cell<Option<&'static Task<'static>>>,
    kind: TaskKind,
    left: Cell<bool>,
}

fn done<T>(answer: Answer<T>) -> i64 {
    answer.map_or_else(|errno| -i64::from(errno.number()), |_| 0)
}

fn size(answer: Answer<usize>) -> i64 {
    answer.map_or_else(|errno| -i64::from(errno.number()), |size| size as i64)
}

fn placed<T>(answer: Answer<Place<T>>) -> Result<T, i64> {
    match answer {
        Ok(Place::Inside(value)) => Ok(value),
        Ok(Place::Outside(_)) => Err(-i64::from(Errno::EXDEV.number())),
        Err(errno) => Err(-i64::from(errno.number())),
    }
}

fn place<T>(answer: Answer<Place<T>>) -> i64 {
    placed(answer).map_or_else(|error| error, |_| 0)
}

fn two(answer: Answer<Two>) -> i64 {
    match answer {
        Ok(Two::Done) => 0,
        Ok(_) => -i64::from(Errno::EXDEV.number()),
        Err(errno) => -i64::from(errno.number()),
    }
}

fn tid() -> u32 {
    // SAFETY: gettid has no effect.
    unsafe { libc::gettid() as u32 }
}

/// Role of a [`Light`] in the process whose slot it has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TaskKind {
    /// The process itself.
    Process,
    /// One of its threads. It still has an address space of its own: exec kills threads, and a conductor can
    /// kill only processes.
    Thread,
}

impl Light {
    /// The process that slot `id` was claimed for; [`Door::born`] makes it the calling one. Without a slot,
    /// [`Door::join`] does that.
    pub(crate) fn new(region: Region<'static>, run: RunId, id: ProcessId) -> Light {
        let (id, kind) = (Cell::new(id), TaskKind::Process);
        Light { region, run, id, task: Cell::new(None), kind, left: Cell::new(false) }
    }

    /// Creates a file system in a new region, and its first process.
    pub(crate) fn found() -> Light {
        // SAFETY: the name is a string.
        let fd = unsafe { libc::memfd_create(c"explore".as_ptr(), libc::MFD_CLOEXEC) };
        let fd = lp_region::life_file::beside(Fd::new(fd)).expect("a life file");
        let geometry = lp_region::Geometry { data_bytes: 16 << 20, inodes: 1000, identity: 7 };
        let region = Region::create(fd, &geometry).expect("a region");
        let setup = boot::RunSetup { mounts: &[MOUNT.to_bytes()], ..boot::RunSetup::default() };
        let run = boot::claim_run(region, &setup).expect("a run");
        let id = boot::claim_process(region, run).expect("a process");
        let light = Light::new(region, run, id);
        let lane = boot::attach(region, id, tid()).expect("attach");
        let task = light.become_task(lane);
        boot::arrive(task);
        boot::mkfs(task, 0).expect("mkfs");
        assert_eq!(place(chdir::chdir(task, lent::path(MOUNT))), 0, "chdir");
        light
    }

    fn attach(&self) -> Answer<()> {
        let id = self.id.get();
        let lane = boot::attach(self.region, id, tid())?;
        let task = self.become_task(lane);
        boot::arrive(task);
        match root::of(task) {
            // The mount's path leads nowhere there. The working directory is the former image's.
            Some(_) => Ok(()),
            None => chdir::chdir(task, lent::path(MOUNT)).map(drop),
        }
    }

    fn is_read_only(&self, path: &CStr) -> bool {
        // SAFETY: a structure of integers.
        let mut to: lp_abi::linux::statfs = unsafe { std::mem::zeroed() };
        let got = place(statfs::statfs(self.task(), Fd::CWD, lent::path(path), lent::value(&mut to)));
        got == 0 && to.f_flags as u64 & libc::ST_RDONLY != 0
    }

    /// Another thread of the process with slot `id`.
    pub(crate) fn thread(&self, id: ProcessId) -> Light {
        Light { kind: TaskKind::Thread, ..Light::new(self.region, self.run, id) }
    }

    /// The slot.
    pub(crate) fn id(&self) -> ProcessId {
        self.id.get()
    }

    /// Makes the caller the owner of `lane`. Not single-stepped, because it clears much process memory.
    fn become_task(&self, lane: LaneId) -> &'static Task<'static> {
        if let Some(task) = self.task.get().filter(|task| task.lane_id == lane) {
            return task;
        }
        // Not freed: an actor has at most two.
        let new = || {
            let mut task = Task::new(self.region, self.id.get(), lane, clock::now);
            task.interrupted = step::is_signalled;
            Box::leak(Box::new(task))
        };
        let task: &'static Task<'static> = step::unstepped(new);
        self.task.set(Some(task));
        task
    }

    /// The process's task.
    pub(crate) fn task(&self) -> &'static Task<'static> {
        self.task.get().expect("born")
    }

    /// The region.
    pub(crate) fn region(&self) -> Region<'static> {
        self.region
    }

    /// A process of the run that has no slot yet.
    pub(crate) fn stranger(&self) -> Light {
        Light::new(self.region, self.run, ProcessId::NONE)
    }

    /// Claims a slot for a child that is about to be forked.
    pub(crate) fn child(&self) -> Light {
        let id = fork::before(self.task()).expect("a slot for an actor");
        Light::new(self.region, self.run, id)
    }

    /// Forks the process that this represents, which has a slot: the kernel writes its id there, as for the
    /// gate's children.
    pub(crate) fn fork_into(&self) -> libc::c_long {
        let has_slot = self.id().is_some() && self.kind == TaskKind::Process;
        let to = if has_slot { fork::announce_at(self.region, self.id()) } else { std::ptr::null_mut() };
        let flags = libc::SIGCHLD | if to.is_null() { 0 } else { libc::CLONE_PARENT_SETTID };
        // SAFETY: the process has one thread, so the child may continue as after fork(2).
        unsafe { libc::syscall(libc::SYS_clone, flags, 0, to, 0, 0) }
    }

    /// Calls `forked` with the child's pid before the caller can be stopped.
    fn fork_with(
        &self,
        before: fn(&Task) -> Answer<ProcessId>,
        child: &dyn Fn(Light) -> i32,
        forked: &dyn Fn(u32),
    ) -> i64 {
        let id = match before(self.task()) {
            Ok(id) => id,
            Err(errno) => return -i64::from(errno.number()),
        };
        let born = Light::new(self.region, self.run, id);
        step::unstepped(|| match born.fork_into() {
            0 => {
                let status = child(Light::new(self.region, self.run, id));
                // SAFETY: ends the child.
                unsafe { libc::_exit(status) }
            }
            pid => {
                forked(pid as u32);
                pid
            }
        })
    }
}

/// A child that verifies and ends.
fn brief(light: Light) -> i32 {
    let born = light.born();
    if born != 0 {
        return -born as i32;
    }
    let found = light.verify();
    light.exit();
    (-found).min(255) as i32
}

/// Before a fork of a child that shares the working directory.
fn before_sharing(task: &Task) -> Answer<ProcessId> {
    fork::before(task).inspect(|child| sharing::share(task, *child))
}

impl Door for Light {
    fn open(&self, fd: i32, path: &CStr, flags: i32, mode: u32) -> i64 {
        let task = self.task();
        match open::openat(task, Fd::CWD, lent::path(path), flags as u32, mode) {
            Ok(Place::Inside(Opened::File(id))) => done(table::install(task, Fd::new(fd), id, 0)),
            Ok(_) => -i64::from(Errno::EXDEV.number()),
            Err(errno) => -i64::from(errno.number()),
        }
    }

    fn close(&self, fd: i32) -> i64 {
        done(close::close(self.task(), Fd::new(fd)))
    }

    fn pwrite(&self, fd: i32, from: &[u8], at: i64) -> i64 {
        size(write::pwrite(self.task(), Fd::new(fd), lent::bytes(from), at))
    }

    fn write(&self, fd: i32, from: &[u8]) -> i64 {
        size(write::write(self.task(), Fd::new(fd), lent::bytes(from)))
    }

    fn read(&self, fd: i32, to: &mut [u8]) -> i64 {
        size(read::read(self.task(), Fd::new(fd), lent::room(to)))
    }

    fn seek(&self, fd: i32, to: i64) -> i64 {
        size(lseek::lseek(self.task(), Fd::new(fd), to, lp_abi::linux::SEEK_SET).map(|at| at as usize))
    }

    fn pread(&self, fd: i32, to: &mut [u8], at: i64) -> i64 {
        size(read::pread(self.task(), Fd::new(fd), lent::room(to), at))
    }

    fn copy(&self, from: i32, to: i32) -> i64 {
        let (mut at_from, mut at_to) = (0, 0);
        let offsets = (lent::value(&mut at_from), lent::value(&mut at_to));
        let copy = || {
            let (from, to) = (Fd::new(from), Fd::new(to));
            size(copy::copy_file_range(self.task(), from, offsets.0, to, offsets.1, 1 << 30, 0))
        };
        match copy() {
            // As after a handler with SA_RESTART.
            done if done == -i64::from(libc::EINTR) => {
                step::handle_signal();
                copy()
            }
            done => done,
        }
    }

    fn chroot(&self, path: &CStr) -> i64 {
        place(chdir::chroot(self.task(), Fd::CWD, lent::path(path)))
    }

    fn restrict(&self) -> i64 {
        let rights = right::MAKE_BLOCK | right::REFER;
        let draft = landlock::extend(self.task(), |add| {
            add(Entry::layer(rights))?;
            add(Entry { key: Entry::key_above(!0, true), rights })
        });
        done(draft.and_then(|draft| draft.commit()))
    }

    fn mkdir(&self, path: &CStr) -> i64 {
        place(mkdir::mkdirat(self.task(), Fd::CWD, lent::path(path), 0o755))
    }

    fn mkfifo(&self, path: &CStr) -> i64 {
        place(mknod::mknodat(self.task(), Fd::CWD, lent::path(path), S_IFIFO | 0o644, 0))
    }

    fn symlink(&self, target: &CStr, path: &CStr) -> i64 {
        place(symlink::symlinkat(self.task(), lent::path(target), Fd::CWD, lent::path(path)))
    }

    fn link(&self, old: &CStr, new: &CStr) -> i64 {
        two(link::linkat(self.task(), Fd::CWD, lent::path(old), Fd::CWD, lent::path(new), 0))
    }

    fn unlink(&self, path: &CStr) -> i64 {
        place(unlink::unlinkat(self.task(), Fd::CWD, lent::path(path), 0))
    }

    fn rmdir(&self, path: &CStr) -> i64 {
        place(unlink::unlinkat(self.task(), Fd::CWD, lent::path(path), AT_REMOVEDIR))
    }

    fn rename(&self, old: &CStr, new: &CStr, flags: u32) -> i64 {
        two(rename::renameat2(self.task(), Fd::CWD, lent::path(old), Fd::CWD, lent::path(new), flags))
    }

    fn truncate(&self, path: &CStr, length: i64) -> i64 {
        place(truncate::truncate(self.task(), Fd::CWD, lent::path(path), length))
    }

    fn ftruncate(&self, fd: i32, length: i64) -> i64 {
        done(truncate::ftruncate(self.task(), Fd::new(fd), length))
    }

    fn fallocate(&self, fd: i32, mode: u32, at: i64, length: i64) -> i64 {
        done(fallocate::fallocate(self.task(), Fd::new(fd), mode, at, length))
    }

    fn chmod(&self, path: &CStr, mode: u32) -> i64 {
        place(chmod::fchmodat(self.task(), Fd::CWD, lent::path(path), mode, 0))
    }

    fn chown(&self, path: &CStr, owner: u32, group: u32) -> i64 {
        place(chown::fchownat(self.task(), Fd::CWD, lent::path(path), owner, group, 0))
    }

    fn utimens(&self, path: &CStr, second: i64) -> i64 {
        place(utimens::utimensat(self.task(), Fd::CWD, lent::path(path), Some([second, 0, second, 0]), 0))
    }

    fn setxattr(&self, path: &CStr, name: &CStr, value: &[u8]) -> i64 {
        let value = XattrValue { bytes: lent::bytes(value), flags: 0 };
        place(xattr::setxattr(self.task(), Fd::CWD, lent::path(path), 0, lent::path(name), value))
    }

    fn removexattr(&self, path: &CStr, name: &CStr) -> i64 {
        place(xattr::removexattr(self.task(), Fd::CWD, lent::path(path), 0, lent::path(name)))
    }

    fn dup(&self, fd: i32, to: i32) -> i64 {
        let task = self.task();
        done(dup::dup(task, Fd::new(fd)).and_then(|id| dup::install(task, Fd::new(to), id, 0)))
    }

    fn flock(&self, fd: i32, operation: i32) -> i64 {
        done(flock::flock(self.task(), Fd::new(fd), operation as u32))
    }

    fn lock(&self, fd: i32, lock: RangeLock) -> i64 {
        let mut asked = libc::flock {
            l_type: lock.kind as i16,
            l_whence: 0,
            l_start: lock.start,
            l_len: lock.len,
            l_pid: 0,
        };
        let argument = lent::value(&mut asked).cast();
        done(record_lock::fcntl(self.task(), Fd::new(fd), lock.command as u32, argument))
    }

    fn statfs(&self) -> i64 {
        // SAFETY: a structure of integers.
        let mut to: lp_abi::linux::statfs = unsafe { std::mem::zeroed() };
        place(statfs::statfs(self.task(), Fd::CWD, lent::path(MOUNT), lent::value(&mut to)))
    }

    fn mount(&self, source: Option<&CStr>, path: &CStr, flags: u64) -> i64 {
        let call = mount::MountArguments {
            source: lent::path(source.unwrap_or(c"none")),
            kind: lent::path(c"tmpfs"),
            flags: flags as u32,
            data: UserPtr::NULL,
        };
        place(mount::mount(self.task(), Fd::CWD, lent::path(path), &call))
    }

    fn mount_copy(&self, of: &CStr, path: &CStr) -> i64 {
        let (task, fd) = (self.task(), Fd::new(COPY));
        let flags = OPEN_TREE_CLONE | AT_RECURSIVE;
        let file = match placed(open_tree::copy(task, (Fd::CWD, lent::path(of)), flags)) {
            Ok(file) => file,
            Err(error) => return error,
        };
        let installed = done(table::install(task, fd, file, 0));
        if installed < 0 {
            return installed;
        }
        let (from, to) = ((fd, lent::path(c"")), (Fd::CWD, lent::path(path)));
        let moved = two(move_mount::move_mount(task, from, to, MOVE_MOUNT_F_EMPTY_PATH));
        self.close(COPY);
        moved
    }

    fn umount(&self, path: &CStr, flags: i32) -> i64 {
        place(umount::umount2(self.task(), Fd::CWD, lent::path(path), flags as u32))
    }

    fn map(&self, fd: i32) -> i64 {
        match mapping::begin(self.task(), Fd::new(fd), 0, 4096, MapAccess::SharedWrite) {
            Ok(of) => {
                mapping::end(self.task(), of, 4096);
                0
            }
            Err(errno) => -i64::from(errno.number()),
        }
    }

    fn map_to_stay(&self, fd: i32) -> i64 {
        done(mapping::begin(self.task(), Fd::new(fd), 0, 16384, MapAccess::SharedWrite).map(|_| 0u32))
    }

    fn fork(&self) -> i64 {
        match self.fork_with(fork::before, &brief, &|_| ()) {
            pid @ 0.. => waited(pid as i32),
            errno => errno,
        }
    }

    fn vfork(&self) -> i64 {
        // The child has its own memory here, so it registers for barriers itself.
        match self.fork_with(fork::before_vfork, &brief, &|_| ()) {
            pid @ 0.. => waited(pid as i32),
            errno => errno,
        }
    }

    fn fork_to_stay(&self, slot: &'static Slot) -> i64 {
        let note = |pid| slot.pid.store(pid, std::sync::atomic::Ordering::Release);
        self.fork_with(fork::before, &|light| actor::stay(&light, slot), &note).min(0)
    }

    fn share(&self) -> i64 {
        match self.fork_with(before_sharing, &brief, &|_| ()) {
            pid @ 0.. => waited(pid as i32),
            errno => errno,
        }
    }

    fn share_to_stay(&self, slot: &'static Slot) -> i64 {
        let note = |pid| slot.pid.store(pid, std::sync::atomic::Ordering::Release);
        self.fork_with(before_sharing, &|light| actor::stay(&light, slot), &note).min(0)
    }

    fn unshare(&self) -> i64 {
        sharing::end(self.task(), || 0) as i64
    }

    fn born(&self) -> i64 {
        let id = self.id.get();
        let lane = match self.kind {
            TaskKind::Process => fork::child(self.region, id, tid()),
            TaskKind::Thread => boot::thread_lane(self.region, id, tid()),
        };
        match lane {
            Ok(lane) => {
                let task = self.become_task(lane);
                if self.kind == TaskKind::Thread {
                    boot::before_thread(task);
                }
                0
            }
            Err(errno) => -i64::from(errno.number()),
        }
    }

    fn join(&self) -> i64 {
        match boot::claim_own_process(self.region, self.run) {
            Ok(id) => self.id.set(id),
            Err(errno) => return -i64::from(errno.number()),
        }
        let joined = done(self.attach());
        if joined == 0 { self.open(KEEP, c"keep", libc::O_RDONLY, 0) } else { joined }
    }

    fn arrive(&self) -> i64 {
        done(self.attach())
    }

    fn exit(&self) -> i64 {
        let task = self.task.get().filter(|_| self.kind == TaskKind::Process);
        if let Some(task) = task.filter(|_| !self.left.replace(true)) {
            boot::exit(task);
        }
        0
    }

    fn leave(&self) -> i64 {
        let task = self.task.get().filter(|_| self.kind == TaskKind::Process);
        if let Some(task) = task.filter(|_| !self.left.get()) {
            self.left.set(boot::leave_to_parent(task));
        }
        0
    }

    fn reap(&self) -> i64 {
        reclaim::dead(self.task());
        0
    }

    fn reclaim(&self) -> i64 {
        reclaim::all(self.task());
        0
    }

    fn verify(&self) -> i64 {
        // An actor that has left, or that was not needed and never born, has nothing.
        let Some(task) = self.task.get().filter(|_| !self.left.get()) else { return 0 };
        // Relaxed: one party acts at a time.
        let lives = task.process.life.get().state() == SlotState::Live
            && task.lane.process.load(Ordering::Relaxed) == self.id.get().0;
        let mut bytes = [0; KEPT.len()];
        match self.pread(KEEP, &mut bytes, 0) {
            _ if !lives => LOST,
            got if got < 0 => got,
            _ if bytes == *KEPT => 0,
            _ => CHANGED,
        }
    }

    fn facts(&self, path: &CStr) -> Result<Facts, i64> {
        // SAFETY: a structure of integers.
        let mut to: lp_abi::linux::stat = unsafe { std::mem::zeroed() };
        placed(stat::fstatat(
            self.task(),
            Fd::CWD,
            lent::path(path),
            lent::value(&mut to),
            AT_SYMLINK_NOFOLLOW,
        ))?;
        Ok(Facts {
            mode: to.st_mode,
            nlink: to.st_nlink as u64,
            owner: (to.st_uid, to.st_gid),
            size: to.st_size as i64,
            blocks: to.st_blocks as i64,
            mtime: to.st_mtime as i64,
            read_only: self.is_read_only(path),
        })
    }

    fn names(&self, path: &CStr) -> Result<Vec<String>, i64> {
        let opened = self.open(crate::door::NEW + 1, path, libc::O_RDONLY | libc::O_DIRECTORY, 0);
        if opened < 0 {
            return Err(opened);
        }
        let (mut names, mut buffer) = (Vec::new(), [0u8; 8192]);
        loop {
            let fd = crate::door::NEW + 1;
            let got = size(getdents::getdents64(self.task(), Fd::new(fd), lent::room(&mut buffer)));
            if got <= 0 {
                self.close(fd);
                return if got < 0 { Err(got) } else { Ok(names) };
            }
            let mut from = 0;
            while from < got as usize {
                let length = u16::from_ne_bytes([buffer[from + 16], buffer[from + 17]]) as usize;
                let name = buffer[from + 19..].split(|byte| *byte == 0).next().unwrap_or_default();
                names.push(String::from_utf8_lossy(name).into_owned());
                from += length;
            }
            names.retain(|name| name != "." && name != "..");
        }
    }

    fn readlink(&self, path: &CStr) -> Result<Vec<u8>, i64> {
        let mut bytes = vec![0u8; 4096];
        let got = readlink::readlinkat(self.task(), Fd::CWD, lent::path(path), lent::room(&mut bytes));
        bytes.truncate(placed(got)?);
        Ok(bytes)
    }

    fn xattrs(&self, path: &CStr) -> Result<Vec<(String, Vec<u8>)>, i64> {
        let mut list = vec![0u8; 4096];
        let into = lent::room(&mut list);
        let got =
            placed(xattr::listxattr(self.task(), Fd::CWD, lent::path(path), AT_SYMLINK_NOFOLLOW, into))?;
        list.truncate(got);
        let value_of = |name: &[u8]| {
            let (mut value, cname) = (vec![0u8; 65_536], CString::new(name).unwrap_or_default());
            let into = lent::room(&mut value);
            let flags = AT_SYMLINK_NOFOLLOW;
            let got =
                xattr::getxattr(self.task(), Fd::CWD, lent::path(path), flags, lent::path(&cname), into);
            value.truncate(placed(got)?);
            Ok((String::from_utf8_lossy(name).into_owned(), value))
        };
        list.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(value_of).collect()
    }
}
