//! [`Above`]: what the low half asks of the high half, and what it reports: the life of processes and
//! threads.
//!
//! Every function runs in the gate, with signal handlers deferred. A process without a region
//! ([`Thread::task`] is null) may call every function; it then does nothing.
//!
//! [`crate::High`] implements the trait. The low half names that type and nothing else of the high half.
//! Calls are direct, because their callers are entered from assembly and cannot be generic.

use lp_abi::OwnedFd;
use lp_region::records::PROGRAMS;
use lp_region::sync::AtomicU64;
use lp_region::{ProcessId, Region};
use lp_vfs::load::ImageIds;
use lp_vfs::task::Task;

use crate::low::dispatch::{Calls, Table};
use crate::low::thread::pending::Info;
use crate::low::thread::record::Thread;

/// Where the gate finds site images and the program that builds them. Paths without NUL.
pub(crate) struct Attached<'a> {
    /// The bundle.
    pub bundle: &'a [u8],
    /// The launcher, run as `LAUNCHER sites --bundle BUNDLE --build OBJECT...`.
    pub builder: &'static [u8],
    /// The preload library.
    pub preload: &'static [u8],
    /// The directory of the C library that contains the gate; empty if there is none.
    pub library: &'static [u8],
    /// The number in the name of the dynamic linker beside it that starts outlines; 0 if there is none.
    pub linker: u64,
}

/// Bytes for the path of a bundle.
pub(crate) const PATH: usize = 1024;

/// A list of paths in an environment: ld.so(8).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum List {
    /// LD_LIBRARY_PATH: directories.
    Directories,
    /// LD_PRELOAD: libraries. The loader searches for those without a slash.
    Libraries,
}

/// How an instruction accessed the address at which it faulted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// It read or executed.
    Read,
    /// It wrote.
    Write,
}

/// The high half.
pub(crate) trait Above: Quick {
    /// Joins what `gate`, the value of LIGHTPATH_GATE, names: a slot in a region, or a run. `ids` are the ids
    /// that the kernel gave the image. The bundle's path is written to `room`.
    ///
    /// # Errors
    /// One line with the reason. The caller refuses to run the process.
    fn attach<'a>(
        thread: &Thread,
        gate: &[u8],
        ids: ImageIds,
        room: &'a mut [u8; PATH],
    ) -> Result<Attached<'a>, &'static [u8]>;

    /// Whether the run records calls that go to the kernel, so that each process must join it at its start.
    fn records_all_calls() -> bool;

    /// The table that a tracer selects to have the process look for it.
    fn look_table() -> &'static Table;

    /// Records call `number` for a tracer, and returns its result. `start` is the processor's counter at its
    /// start, or 0. `registers` holds the arguments in reverse order.
    extern "sysv64" fn record(number: usize, result: isize, start: u64, registers: &[usize; 6]) -> isize;

    /// Joins the run. Does nothing if the process has joined already or belongs to no run.
    fn join(thread: &Thread);

    /// Selects the dispatch table and the entries' fast paths for the process.
    fn calls(thread: &Thread) -> Calls;

    /// A thread has made its first call, on the stack that `stack` is on: gives it a task.
    fn thread_start(thread: &Thread, stack: usize);

    /// A thread is about to be created that shares memory and descriptors with its creator: marks the
    /// descriptor table shared. Its stack ends at `stack`.
    fn before_thread(thread: &Thread, stack: usize);

    /// The thread announced by [`Self::before_thread`] was not created.
    fn thread_not_made(thread: &Thread);

    /// The thread ends: releases its record.
    fn thread_exit(thread: &Thread);

    /// The process ends by exit_group(2). It may be a child that shares memory with its parent.
    fn process_exit(thread: &Thread);

    /// Before a call that gives out the lowest free descriptor.
    fn before_descriptor(thread: &Thread);

    /// Before fork(2): marks open files shared and takes a process slot for the child. An error fails the
    /// call.
    fn before_fork(thread: &Thread) -> lp_abi::Result<()>;

    /// Where the kernel is to write the id of the child whose slot [`Self::before_fork`] or
    /// [`Self::before_vfork`] took.
    fn announce_child(thread: &Thread) -> Option<*mut u32>;

    /// The kernel will not write that child's id to the address of [`Self::announce_child`].
    fn make_unannounced(thread: &Thread);

    /// Before a child is made in a user namespace of its own, with fewer rights on the host: joins the run,
    /// and takes in what open files and mappings lack.
    fn before_namespace(thread: &Thread);

    /// Whether the process has a root directory in a mount.
    fn is_rooted(thread: &Thread) -> bool;

    /// Whether a child that is not a thread may share the kernel's descriptor table. It may while no file of
    /// ours is open, because each process has its own table of ours.
    fn may_share_table(thread: &Thread) -> bool;

    /// After fork(2). `result` is the child's process id, or `-errno`; in the latter case what `before_fork`
    /// took is released.
    fn after_fork_parent(thread: &Thread, result: isize);

    /// In the child of a fork. Its memory is a copy of the parent's and `thread` is its only thread.
    fn after_fork_child(thread: &Thread);

    /// Before a child that shares memory with `thread` but has its own descriptor table and directory until
    /// it execs or exits (vfork, posix_spawn). Gives `child` its own task: a process slot and a copy of the
    /// table. An error fails the call.
    fn before_vfork(thread: &Thread, child: &Thread) -> lp_abi::Result<()>;

    /// That child's first act, on its own kernel thread: takes its record lock.
    fn after_vfork_child(child: &Thread);

    /// The child has execed or exited (`result` is its process id) or was not created (`-errno`): releases
    /// what the parent's side keeps in `child`. The process slot stays with a child that execed.
    fn after_vfork_parent(thread: &Thread, child: &Thread, result: isize);

    /// Call `number`, a wait for children, has given `result`: what a dead child has left is settled before
    /// the program is told.
    fn waited(thread: &Thread, number: u32, arguments: [usize; 6], result: isize);

    /// The region's cache of programs that processes examined before an exec.
    fn known_programs(thread: &Thread) -> Option<&'static [AtomicU64; PROGRAMS]>;

    /// Whether the thread's process belongs to a run and so has mounts.
    fn has_run(thread: &Thread) -> bool;

    /// Whether `path`, which a program in the directory `origin` gives the loader, leads into a mount.
    fn leads_into_mount(thread: &Thread, origin: &[u8], path: &[u8]) -> bool;

    /// Bytes of thread-local storage of the library `name`, if it lies in `directory`, which a program in the
    /// directory `origin` gives the loader.
    fn storage_of(thread: &Thread, origin: &[u8], directory: &[u8], name: &[u8]) -> Option<u64>;

    /// Whether a directory where the loader looks by itself is in a mount, and has other names there than on
    /// the host.
    fn defaults_differ(thread: &Thread) -> bool;

    /// [`storage_of`](Self::storage_of) where the loader looks by itself.
    fn default_storage_of(thread: &Thread, name: &[u8]) -> Option<u64>;

    /// Whether an entry of `text`, a list in the program's environment, leads the loader into a mount.
    fn list_leads_into_mount(thread: &Thread, list: List, text: *const u8) -> bool;

    /// The exec has passed all checks. Waits for other threads' calls and sets the marks that the new image
    /// reads. An error fails the exec.
    fn before_exec(thread: &Thread) -> lp_abi::Result<()>;

    /// The exec failed with `errno` after [`before_exec`](Above::before_exec); the old image continues.
    fn exec_failed(thread: &Thread, errno: lp_abi::Errno);

    /// Writes the value of LIGHTPATH_GATE for an image that `thread` execs, without the name, and returns its
    /// length; 0 in a process without a region.
    fn gate_value(thread: &Thread, value: &mut [u8; 64]) -> usize;

    /// The region and the process's slot in it, which `gate`, the value of LIGHTPATH_GATE, names, in a
    /// process that is not attached. The caller unmaps the region.
    fn slot_of(gate: &[u8]) -> Option<(Region<'static>, ProcessId)>;

    /// The path of the dynamic linker that starts outlines in the run of a process, NUL-terminated; `None` if
    /// it has none.
    fn linker_of<'r>(region: Region, process: ProcessId, room: &'r mut [u8]) -> Option<&'r [u8]>;

    /// A memfd with the program that the process executes, if its file is in a mount and the kernel's link to
    /// it leads to an outline only.
    fn copy_of_program(thread: &Thread) -> Option<OwnedFd>;

    /// An instruction of the gate found a file's memory gone. Ends the process if the memory was the
    /// region's, because somebody truncated its file.
    fn end_if_cut();

    /// The program's own access to `address` raised `signal`. Returns whether to retry it, because the file
    /// mapped there has grown since, or has a hole there that now has pages. If that is unclear, the access
    /// is retried once, and a second fault is the program's.
    fn fault(thread: &Thread, signal: usize, address: usize, access: Access) -> bool;

    /// The program is about to handle a signal with a code of the kernel's: gives its siginfo the program's
    /// numbers.
    fn signalled(thread: &Thread, signal: usize, info: &mut Info);

    /// Whether a file of ours may be mapped in the process.
    fn has_mappings() -> bool;

    /// Whether `path` starts with a mount's path, compared as text. In a process whose root directory is in a
    /// mount, every absolute path does.
    fn holds(path: &[u8]) -> bool;
}

/// Fast paths of the most frequent calls, where one look at the descriptor's table entry decides. The
/// arguments are the program's, then the task and the first argument's entry (not 0). The result is `rax`, or
/// [`AGAIN`](crate::low::dispatch::AGAIN) to fall back to the general handler.
pub(crate) trait Quick {
    /// read(2).
    ///
    /// # Safety
    /// Only the entry may call it, with the calling thread's task, the entry of descriptor `a`, and a
    /// program's arguments.
    unsafe extern "sysv64" fn read(
        a: usize,
        b: usize,
        c: usize,
        d: usize,
        task: &Task<'static>,
        entry: u64,
    ) -> isize;

    /// write(2).
    ///
    /// # Safety
    /// Only the entry may call it, with the calling thread's task, the entry of descriptor `a`, and a
    /// program's arguments.
    unsafe extern "sysv64" fn write(
        a: usize,
        b: usize,
        c: usize,
        d: usize,
        task: &Task<'static>,
        entry: u64,
    ) -> isize;

    /// fstat(2).
    ///
    /// # Safety
    /// Only the entry may call it, with the calling thread's task, the entry of descriptor `a`, and a
    /// program's arguments.
    unsafe extern "sysv64" fn fstat(
        a: usize,
        b: usize,
        c: usize,
        d: usize,
        task: &Task<'static>,
        entry: u64,
    ) -> isize;

    /// lseek(2).
    ///
    /// # Safety
    /// Only the entry may call it, with the calling thread's task, the entry of descriptor `a`, and a
    /// program's arguments.
    unsafe extern "sysv64" fn lseek(
        a: usize,
        b: usize,
        c: usize,
        d: usize,
        task: &Task<'static>,
        entry: u64,
    ) -> isize;

    /// pread64(2).
    ///
    /// # Safety
    /// Only the entry may call it, with the calling thread's task, the entry of descriptor `a`, and a
    /// program's arguments.
    unsafe extern "sysv64" fn pread64(
        a: usize,
        b: usize,
        c: usize,
        d: usize,
        task: &Task<'static>,
        entry: u64,
    ) -> isize;

    /// pwrite64(2).
    ///
    /// # Safety
    /// Only the entry may call it, with the calling thread's task, the entry of descriptor `a`, and a
    /// program's arguments.
    unsafe extern "sysv64" fn pwrite64(
        a: usize,
        b: usize,
        c: usize,
        d: usize,
        task: &Task<'static>,
        entry: u64,
    ) -> isize;

    /// newfstatat(2) with `AT_EMPTY_PATH` and an empty path: glibc's fstat.
    ///
    /// # Safety
    /// Only the entry may call it, with the calling thread's task, the entry of descriptor `a`, and a
    /// program's arguments.
    unsafe extern "sysv64" fn newfstatat(
        a: usize,
        b: usize,
        c: usize,
        d: usize,
        task: &Task<'static>,
        entry: u64,
    ) -> isize;
}
