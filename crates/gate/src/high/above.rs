//! What the low half tells the high half: the life of processes and threads.
//!
//! Every function runs in the gate (signal handlers wait) and may be called in a process without a region, where it
//! has nothing to do ([`Thread::task`] is null). The bodies belong to the high half.

use core::cell::{Cell, UnsafeCell};

use lp_abi::gated::GATED_SET;
use lp_abi::linux::{__NR_fstat, __NR_prctl, stat};
use lp_abi::{Errno, image};
use lp_region::process::Run;
use lp_region::sync::Ordering;
use lp_region::{DirentId, InodeId, InodeRef, LaneId, ProcessId, Region, RegionError, RunId, ucopy};
use lp_vfs::boot::ImageIds;
use lp_vfs::mounts::Prefix;
use lp_vfs::table::{self, entry};
use lp_vfs::task::Task;
use lp_vfs::{boot, close, fork, getcwd};

use crate::high::calls::credentials;
use crate::high::fd::{device, placeholder};
use crate::high::memory::areas;
use crate::high::route::libraries;
use crate::high::route::libraries::List;
use crate::high::run::{apart, mounts};
use crate::high::special::node;
use crate::high::watch::{shadow, shadow_end};
use crate::low::exec::known::Known;
use crate::low::live::signal;
use crate::low::thread::record::Thread;
use crate::low::thread::tls;
use crate::low::tools::report;
use crate::low::tools::text::{Writer, number};

/// Where the gate finds site images, and the program that makes them: paths without NUL.
pub struct Attached<'a> {
    /// The bundle.
    pub bundle: &'a [u8],
    /// The launcher, run as `LAUNCHER sites --bundle BUNDLE --build OBJECT...`.
    pub builder: &'static [u8],
    /// The preload library.
    pub preload: &'static [u8],
    /// The directory of the C library that has the gate in it; empty if there is none.
    pub library: &'static [u8],
}

/// Bytes for the path of a bundle.
pub const PATH: usize = 1024;

/// What LIGHTPATH_GATE says.
pub struct Place<'a> {
    /// The region's descriptor.
    pub fd: i32,
    /// The process's slot; the run's number where the process is to be apart.
    pub slot: u32,
    /// What followed.
    pub flags: &'a [u8],
}

/// `PR_SET_NAME` of linux/prctl.h.
const PR_SET_NAME: u32 = 15;

/// The region and the slot of this process, for threads to come. A child that shares its parent's memory has a slot of
/// its own in its task, and makes no threads.
struct Home(UnsafeCell<Option<(Region<'static>, ProcessId)>>);

// SAFETY: written at attach and in the child of a fork, when there is one thread.
unsafe impl Sync for Home {}

static HOME: Home = Home(UnsafeCell::new(None));

fn task_of(thread: &Thread) -> Option<&'static Task<'static>> {
    // SAFETY: null, or the thread's task, which lives as long as its record.
    unsafe { thread.task.as_ref() }
}

/// Fills in the task of `thread` field by field: its buffers stay untouched, and so do their pages.
pub(crate) fn set_task(
    thread: &mut Thread,
    region: Region<'static>,
    process_id: ProcessId,
    lane_id: LaneId,
) -> &'static Task<'static> {
    let process = region.process(process_id);
    let task = thread.task_room.as_mut_ptr();
    // SAFETY: the room is the thread's own; its buffers are valid as they are, with whatever bytes.
    unsafe {
        (&raw mut (*task).region).write(region);
        (&raw mut (*task).process).write(process);
        (&raw mut (*task).process_id).write(process_id);
        (&raw mut (*task).credentials).write(Cell::new(process));
        (&raw mut (*task).lane).write(region.lane(lane_id));
        (&raw mut (*task).lane_id).write(lane_id);
        (&raw mut (*task).table).write(region.fd_table(process_id));
        // Relaxed: immutable while the slot is claimed.
        let run = region.run(RunId(process.run.load(Ordering::Relaxed)));
        (&raw mut (*task).run).write(run);
        (&raw mut (*task).root_device).write(lp_vfs::inode::device(region));
        (&raw mut (*task).prefix).write(Prefix::of(run));
        (&raw mut (*task).clock).write(lp_vfs::clock::now);
        (&raw mut (*task).interrupted).write(signal::interrupted);
        (&raw mut (*task).blocking).write(signal::blocking_syscall);
        (&raw mut (*task).notify).write(shadow::notify);
    }
    thread.task = task;
    tls::refresh();
    // SAFETY: all fields are there, and it lives as long as the record.
    unsafe { &*task }
}

pub(crate) fn set_home(region: Region<'static>, process: ProcessId) {
    // SAFETY: one thread: attach, or the child of a fork.
    unsafe { *HOME.0.get() = Some((region, process)) };
}

/// Does nothing; a field that [`set_task`] does not know of would not compile here.
#[allow(dead_code)]
fn fields_of(task: Task<'static>) {
    let Task {
        region: _,
        process: _,
        process_id: _,
        credentials: _,
        lane: _,
        lane_id: _,
        table: _,
        run: _,
        root_device: _,
        prefix: _,
        prefixes: _,
        clock: _,
        interrupted: _,
        blocking: _,
        notify: _,
        scratch: _,
    } = task;
}

/// Attaches to the region as `place` says, with the ids that the kernel gave the image. On success `thread.task` is set.
/// The bundle's path is put together in `room`.
///
/// # Errors
/// One line that says why not; the process is then refused.
pub fn attach<'a>(
    thread: &mut Thread,
    Place { fd, slot, flags }: Place<'_>,
    ids: ImageIds,
    room: &'a mut [u8; PATH],
) -> Result<Attached<'a>, &'static [u8]> {
    let region = map_region(fd, number(flags))?;
    let process = ProcessId(slot);
    let lane = boot::attach(region, process, thread.tid).map_err(|errno| match errno {
        Errno::EAGAIN => &b"the region has no place for another thread"[..],
        _ => b"the region has no place for this process any more",
    })?;
    let task = set_task(thread, region, process, lane);
    set_home(region, process);
    read_run(task.run);
    boot::arrive_by_exec(task, ids);
    credentials::after_exec(task);
    placeholder::after_exec(task);
    device::after_exec(task);
    for fd in boot::cloexec_fds(task) {
        if close::close(task, fd).is_ok() {
            placeholder::close_number(fd);
        }
    }
    if task.process.exe.load(Ordering::Relaxed) != 0 {
        name_thread(task);
    }
    attached(task.run, task.process.fsuid.load(Ordering::Relaxed), room)
}

/// The same for a process that is to be [`apart`].
///
/// # Errors
/// As [`attach`].
pub(crate) fn attach_apart<'a>(
    Place { fd, slot, flags }: Place<'_>,
    ids: ImageIds,
    room: &'a mut [u8; PATH],
) -> Result<Attached<'a>, &'static [u8]> {
    let length = number(flags).ok_or(&b"LIGHTPATH_GATE says no length"[..])?;
    attached(apart::start(fd, slot, length)?, ids.euid, room)
}

/// The kernel has named the thread after the memfd that it executed: it gets the program's name.
#[cold]
fn name_thread(task: &Task) {
    // Relaxed, all: the process's own words.
    let exe = InodeRef::from_word(task.process.exe.load(Ordering::Relaxed));
    let dirent = DirentId(task.process.exe_dirent.load(Ordering::Relaxed));
    let parent = InodeId(task.region.dirent(dirent).parent.load(Ordering::Relaxed));
    let Ok(path) = getcwd::of_entry(task, exe, dirent, parent) else { return };
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let mut comm = [0u8; 16];
    let length = name.len().min(comm.len() - 1);
    comm[..length].copy_from_slice(&name[..length]);
    // SAFETY: the kernel reads 16 bytes.
    let _ = unsafe { lp_abi::syscall!(__NR_prctl, PR_SET_NAME, comm.as_ptr()) };
}

/// Takes over what the gate looks at often: where mounts are, how to copy. Called by attach, when there is one thread.
pub(crate) fn read_run(run: &'static Run) {
    // SAFETY: one thread.
    unsafe { mounts::read(run) };
    ucopy::set_wide(run.avx2.load(Ordering::Relaxed) != 0); // Relaxed: immutable.
}

/// Maps the region, whose length LIGHTPATH_GATE says once a gate has checked it.
pub(crate) fn map_region(fd: i32, length: Option<usize>) -> Result<Region<'static>, &'static [u8]> {
    let region = match length {
        // SAFETY: a gate that had opened it, or the launcher, wrote this.
        Some(length) if length != 0 => unsafe { Region::attach(fd, length) }.map_err(RegionError::from),
        _ => Region::open(fd),
    };
    region.map_err(no_region)
}

/// Why there is no region.
pub(crate) fn no_region(error: RegionError) -> &'static [u8] {
    match error {
        RegionError::System(Errno::EBADF) => b"the region's descriptor was closed",
        RegionError::System(Errno::ENOMEM) => b"no address space for the region",
        _ => b"the region cannot be mapped",
    }
}

/// What a run record tells a process of `user`.
#[unsafe(link_section = ".text.startup.lp")]
fn attached<'a>(
    run: &'static Run,
    user: u32,
    room: &'a mut [u8; PATH],
) -> Result<Attached<'a>, &'static [u8]> {
    let mut path = Writer::new(&mut room[..]);
    let owner = run.owner.load(Ordering::Relaxed); // Relaxed: immutable.
    if user == owner || user == 0 {
        path.push(run.cache.get());
    } else {
        // Root's child that has changed to another user must not add to root's bundle: it has one of its own.
        path.push(b"/tmp/lightpath-");
        path.push_decimal(u64::from(user));
    }
    // As `lp_sites::Bundle::file_name` has it.
    path.push(b"/sites-");
    path.push_decimal(u64::from(image::VERSION));
    path.push(b"-");
    path.push_hex(u64::from(GATED_SET), 8);
    let length = path.finish().ok_or(&b"the cache directory's path is too long"[..])?;
    Ok(Attached {
        bundle: &room[..length],
        builder: run.launcher.get(),
        preload: run.preload.get(),
        library: run.library.get(),
    })
}

/// A thread has made its first call: it needs a task.
pub fn thread_start(thread: &mut Thread) {
    // SAFETY: written when there is one thread only.
    let Some((region, process)) = (unsafe { *HOME.0.get() }) else { return };
    match boot::thread_lane(region, process, thread.tid) {
        Ok(lane) => credentials::of_new_thread(set_task(thread, region, process, lane)),
        Err(_) => report::refuse(&[b"the region has no place for another thread"]),
    }
}

/// A thread is about to be made that shares memory, descriptors and all with its maker: the table is shared from now on.
pub fn before_thread(thread: &mut Thread) {
    apart::join(thread);
    if let Some(task) = task_of(thread) {
        boot::before_thread(task);
    }
}

/// The thread of [`before_thread`] was not made.
pub fn thread_not_made(thread: &mut Thread) {
    if let Some(task) = task_of(thread) {
        boot::thread_gone(task.process);
    }
}

/// The thread ends; its record is given back.
pub fn thread_exit(thread: &mut Thread) {
    if let Some(task) = task_of(thread) {
        boot::leave_lane(task);
        boot::thread_gone(task.process);
        thread.task = core::ptr::null_mut();
    }
}

/// The process ends by exit_group(2). It may be a child that shares memory with its parent.
pub fn process_exit(thread: &mut Thread) {
    if let Some(task) = task_of(thread) {
        boot::exit(task);
        node::left(task);
    }
}

/// fork(2) is about to happen: open files become shared, and the child needs a process slot. An error fails the call.
pub fn before_fork(thread: &mut Thread) -> lp_abi::Result<()> {
    let Some(task) = task_of(thread) else { return Ok(()) };
    areas::before_fork();
    let child = fork::before(task).inspect_err(|_| areas::after_fork())?;
    table_copied(task, child);
    thread.forked = child.0;
    Ok(())
}

/// Where the kernel is to write the id of the child for which [`before_fork`] or [`before_vfork`] has taken a
/// slot.
pub(crate) fn announce_child(thread: &Thread) -> Option<*mut u32> {
    task_of(thread).map(|task| fork::announce_at(task.region, ProcessId(thread.forked)))
}

/// The kernel writes the id of that child elsewhere, or nowhere.
pub(crate) fn make_unannounced(thread: &Thread) {
    if let Some(task) = task_of(thread) {
        fork::make_unannounced(task, ProcessId(thread.forked));
    }
}

/// The slot of a child has a copy of the table.
fn table_copied(task: &Task, child: ProcessId) {
    let process = task.region.process(child);
    placeholder::copy_to(task, process);
    shadow_end::copy_to(task, process);
    device::copied(task, process, task.region.fd_table(child));
}

/// A child is about to be made that is to share the kernel's table of descriptors, and is not a thread. It
/// may while no file of ours is open: each has a table of ours of its own.
pub fn may_share_table(thread: &mut Thread) -> bool {
    apart::join(thread);
    let Some(task) = task_of(thread) else { return true };
    placeholder::flush(task);
    let may = !table::open_entries(task).any(|(_, word)| word & entry::HOST == 0);
    if may {
        device::distrust(task);
    }
    may
}

/// The child of a limited process, which had nothing of ours: it has no part in the run.
pub(crate) fn leave_run(thread: &mut Thread) {
    thread.task = core::ptr::null_mut();
    tls::refresh();
    // SAFETY: the child of a fork: one thread.
    unsafe { *HOME.0.get() = None };
}

/// fork(2) has happened: `result` is the child's process id, or `-errno`, and then what `before_fork` took goes back.
pub fn after_fork_parent(thread: &mut Thread, result: isize) {
    let Some(task) = task_of(thread) else { return };
    areas::after_fork();
    fork::copied(task);
    if result < 0 {
        fork::failed(task, ProcessId(thread.forked));
    }
}

/// The child of a fork: its memory is a copy of the parent's, `thread` is its only thread.
pub fn after_fork_child(thread: &mut Thread) {
    let Some(task) = task_of(thread) else { return };
    let (region, child) = (task.region, ProcessId(thread.forked));
    let started = match thread.shares_table {
        true => fork::child_that_shares(region, child, thread.tid),
        false => fork::child(region, child, thread.tid),
    };
    match started {
        Ok(lane) => {
            let task = set_task(thread, region, child, lane);
            set_home(region, child);
            areas::after_fork();
            placeholder::after_fork(task);
        }
        Err(_) => report::refuse(&[b"the region has no place for this process"]),
    }
}

/// A child is about to start that shares memory with `thread` but has a descriptor table and directory of its own until
/// it execs or exits (vfork, posix_spawn). `child` needs a task of its own: a process slot, and a copy of the table. An
/// error fails the call.
pub fn before_vfork(thread: &mut Thread, child: &mut Thread) -> lp_abi::Result<()> {
    let Some(task) = task_of(thread) else { return Ok(()) };
    let slot = fork::before_vfork(task)?;
    table_copied(task, slot);
    thread.forked = slot.0;
    // Its lane comes when it runs.
    set_task(child, task.region, slot, LaneId::NONE);
    Ok(())
}

/// That child's first moment, on its own kernel thread: it can take its record lock now.
pub fn after_vfork_child(child: &mut Thread) {
    let Some(task) = task_of(child) else { return };
    let (region, slot) = (task.region, task.process_id);
    // SAFETY: the parent waits, and its record stays valid.
    let parent = unsafe { child.parent.as_ref() };
    if let Some(parent) = parent.and_then(task_of) {
        fork::copied(parent);
    }
    let started = match parent.is_some_and(|parent| parent.shares_table) {
        true => fork::child_that_shares(region, slot, child.tid),
        false => fork::child_in_parent(region, slot, child.tid),
    };
    match started {
        Ok(lane) => placeholder::after_fork(set_task(child, region, slot, lane)),
        Err(_) => report::refuse(&[b"the region has no place for this process"]),
    }
}

/// The child has execed or exited (`result` is its process id) or was not made (`-errno`): what the parent's side keeps
/// in `child` is not needed any more. The process slot stays with the process that execed.
pub fn after_vfork_parent(thread: &mut Thread, child: &mut Thread, result: isize) {
    areas::settle_child(child);
    let Some(task) = task_of(thread) else {
        child.task = core::ptr::null_mut();
        return apart::follow_child(thread);
    };
    let Some(started) = task_of(child) else { return };
    fork::copied(task);
    if result < 0 {
        fork::failed(task, started.process_id);
    } else {
        fork::after_vfork(task, started.process_id);
    }
    child.task = core::ptr::null_mut();
}

/// The programs that processes of the region have looked at before an exec.
pub fn known_programs(thread: &Thread) -> Option<Known<'static>> {
    let joined = task_of(thread).map(|task| Known(&task.region.header().programs));
    joined.or_else(apart::known_programs)
}

/// Whether a thread's process is one of a run, and so has mounts.
pub(crate) fn has_run(thread: &Thread) -> bool {
    !thread.task.is_null() || apart::run().is_some()
}

/// Whether a path that a program in the directory `origin` has for the loader leads into a mount.
#[cold]
pub(crate) fn leads_into_mount(thread: &Thread, origin: &[u8], path: &[u8]) -> bool {
    has_run(thread) && libraries::leads_into_mount(task_of(thread), origin, path)
}

/// Bytes of thread-local storage for the library `name`, if it lies in a directory that such a program has for the loader.
#[cold]
pub(crate) fn storage_of(thread: &mut Thread, origin: &[u8], directory: &[u8], name: &[u8]) -> Option<u64> {
    apart::join(thread);
    task_of(thread).and_then(|task| libraries::storage_of(task, origin, directory, name))
}

/// Whether an entry of a list in an environment, a string of the program's, leads the loader into a mount.
#[cold]
pub(crate) fn list_leads_into_mount(thread: &Thread, list: List, text: *const u8) -> bool {
    has_run(thread) && libraries::list_leads_into_mount(task_of(thread), list, text)
}

/// exec is about to happen for sure as far as the gate can tell (the file was checked): the place to wait for other
/// threads' calls or to set marks that the new image reads. An error fails the exec.
pub fn before_exec(thread: &mut Thread) -> lp_abi::Result<()> {
    if let Some(task) = task_of(thread) {
        boot::before_exec(task);
        credentials::before_exec(task);
        // The new image must not inherit what is closed.
        placeholder::flush(task);
    }
    Ok(())
}

/// The exec failed with `errno` after all; the old image goes on.
pub fn exec_failed(thread: &mut Thread, errno: lp_abi::Errno) {
    let _ = errno;
    if let Some(task) = task_of(thread) {
        credentials::exec_failed(task);
    }
}

/// Writes what LIGHTPATH_GATE must be for an image that `thread` execs, without the name, and gives its length; 0 in a
/// process without a region.
pub fn gate_value(thread: &Thread, value: &mut [u8; 64]) -> usize {
    let mut text = Writer::new(value);
    match task_of(thread) {
        Some(task) => {
            text.push_decimal(task.region.fd() as u64);
            text.push(b":");
            text.push_decimal(u64::from(task.process_id.0));
            text.push(b":");
            text.push_decimal(task.region.length() as u64);
        }
        None => apart::write_gate_value(&mut text),
    }
    text.finish().unwrap_or(0)
}

/// Memory of a file has gone from under an instruction: if it was the region's, because somebody cut its file short, there is
/// nothing to go on with.
#[cold]
pub fn end_if_cut() {
    // SAFETY: written when there is one thread only.
    let region = unsafe { *HOME.0.get() }.map(|(region, _)| (region.fd(), region.length()));
    let Some((fd, length)) = region.or_else(apart::extent).filter(|(fd, _)| *fd >= 0) else { return };
    // SAFETY: all zeros is a valid `stat`, and the kernel fills it in.
    let size = unsafe {
        let mut found: stat = core::mem::zeroed();
        match lp_abi::syscall!(__NR_fstat, fd, &raw mut found) {
            Ok(_) => found.st_size as usize,
            Err(_) => return,
        }
    };
    if size < length {
        report::refuse(&[b"somebody cut the region's file short while it was in use: what it held is lost"]);
    }
}

/// The program's own access to `address` has faulted. Whether to make it again: a file that is mapped there
/// has grown since. Where that is unclear it is made again once, and then the fault is the program's.
pub fn fault(thread: &mut Thread, address: usize) -> bool {
    let Some(task) = task_of(thread) else { return false };
    let before = core::mem::take(&mut thread.unclear_fault);
    match areas::fault(task, address) {
        areas::Fault::Real => false,
        areas::Fault::Mended => true,
        areas::Fault::Unclear => {
            thread.unclear_fault = address;
            before != address
        }
    }
}
