//! [`Above`]: what the low half asks of the high half, and tells it: the life of processes and threads.
//!
//! Every function runs in the gate (signal handlers wait) and may be called in a process without a region,
//! where it has nothing to do ([`Thread::task`] is null).
//!
//! [`crate::High`] implements it. The low half names that type and nothing else of the high half; calls are
//! direct ones, for what is below is entered from assembly and cannot be generic.

use lp_region::records::PROGRAMS;
use lp_region::sync::AtomicU64;
use lp_vfs::boot::ImageIds;
use lp_vfs::task::Task;

use crate::low::dispatch::Calls;
use crate::low::thread::record::Thread;

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

/// A list of paths in an environment, by ld.so(8).
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// LD_LIBRARY_PATH: directories.
    Directories,
    /// LD_PRELOAD: libraries; those without a slash are searched for.
    Libraries,
}

/// The high half.
pub(crate) trait Above: Quick {
    /// Takes part in what `gate`, LIGHTPATH_GATE's value, names: a slot in a region, or a run. The process
    /// has the ids that the kernel gave the image. The bundle's path is put together in `room`.
    ///
    /// # Errors
    /// One line that says why not; the process is then refused.
    fn attach<'a>(
        thread: &Thread,
        gate: &[u8],
        ids: ImageIds,
        room: &'a mut [u8; PATH],
    ) -> Result<Attached<'a>, &'static [u8]>;

    /// Whether the run counts its calls, so that each process takes part from its start.
    fn counts_calls() -> bool;

    /// Has the process take part in the run, unless it does already or has no part in any.
    fn join(thread: &Thread);

    /// By which table the calls of a process are answered, and on which ways.
    fn calls(thread: &Thread) -> Calls;

    /// A thread has made its first call: it needs a task.
    fn thread_start(thread: &Thread);

    /// A thread is about to be made that shares memory, descriptors and all with its maker: the table is
    /// shared from now on.
    fn before_thread(thread: &Thread);

    /// The thread of [`before_thread`] was not made.
    fn thread_not_made(thread: &Thread);

    /// The thread ends; its record is given back.
    fn thread_exit(thread: &Thread);

    /// The process ends by exit_group(2). It may be a child that shares memory with its parent.
    fn process_exit(thread: &Thread);

    /// fork(2) is about to happen: open files become shared, and the child needs a process slot. An error
    /// fails the call.
    fn before_fork(thread: &Thread) -> lp_abi::Result<()>;

    /// Where the kernel is to write the id of the child for which [`before_fork`] or [`before_vfork`] has
    /// taken a slot.
    fn announce_child(thread: &Thread) -> Option<*mut u32>;

    /// The kernel writes the id of that child elsewhere, or nowhere.
    fn make_unannounced(thread: &Thread);

    /// A child is about to be made that is to share the kernel's table of descriptors, and is not a thread.
    /// It may while no file of ours is open: each has a table of ours of its own.
    fn may_share_table(thread: &Thread) -> bool;

    /// fork(2) has happened: `result` is the child's process id, or `-errno`, and then what `before_fork`
    /// took goes back.
    fn after_fork_parent(thread: &Thread, result: isize);

    /// The child of a fork: its memory is a copy of the parent's, `thread` is its only thread.
    fn after_fork_child(thread: &Thread);

    /// A child is about to start that shares memory with `thread` but has a descriptor table and directory of
    /// its own until it execs or exits (vfork, posix_spawn). `child` needs a task of its own: a process slot,
    /// and a copy of the table. An error fails the call.
    fn before_vfork(thread: &Thread, child: &Thread) -> lp_abi::Result<()>;

    /// That child's first moment, on its own kernel thread: it can take its record lock now.
    fn after_vfork_child(child: &Thread);

    /// The child has execed or exited (`result` is its process id) or was not made (`-errno`): what the
    /// parent's side keeps in `child` is not needed any more. The process slot stays with the process that
    /// execed.
    fn after_vfork_parent(thread: &Thread, child: &Thread, result: isize);

    /// Call `number`, a wait for children, has given `result`: what a dead child has left is settled before
    /// the program is told.
    fn waited(thread: &Thread, number: u32, arguments: [usize; 6], result: isize);

    /// The programs that processes of the region have looked at before an exec.
    fn known_programs(thread: &Thread) -> Option<&'static [AtomicU64; PROGRAMS]>;

    /// Whether a thread's process is one of a run, and so has mounts.
    fn has_run(thread: &Thread) -> bool;

    /// Whether a path that a program in the directory `origin` has for the loader leads into a mount.
    fn leads_into_mount(thread: &Thread, origin: &[u8], path: &[u8]) -> bool;

    /// Bytes of thread-local storage for the library `name`, if it lies in a directory that such a program
    /// has for the loader.
    fn storage_of(thread: &Thread, origin: &[u8], directory: &[u8], name: &[u8]) -> Option<u64>;

    /// Whether an entry of a list in an environment, a string of the program's, leads the loader into a
    /// mount.
    fn list_leads_into_mount(thread: &Thread, list: List, text: *const u8) -> bool;

    /// exec is about to happen for sure as far as the gate can tell (the file was checked): the place to wait
    /// for other threads' calls or to set marks that the new image reads. An error fails the exec.
    fn before_exec(thread: &Thread) -> lp_abi::Result<()>;

    /// The exec failed with `errno` after all; the old image goes on.
    fn exec_failed(thread: &Thread, errno: lp_abi::Errno);

    /// Writes what LIGHTPATH_GATE must be for an image that `thread` execs, without the name, and gives its
    /// length; 0 in a process without a region.
    fn gate_value(thread: &Thread, value: &mut [u8; 64]) -> usize;

    /// Memory of a file has gone from under an instruction: if it was the region's, because somebody cut its
    /// file short, there is nothing to go on with.
    fn end_if_cut();

    /// The program's own access to `address` has faulted. Whether to make it again: a file that is mapped
    /// there has grown since. Where that is unclear it is made again once, and then the fault is the
    /// program's.
    fn fault(thread: &Thread, address: usize) -> bool;

    /// Whether a file of ours may be mapped in the process.
    fn has_mappings() -> bool;

    /// Whether `path` starts with a mount's path, as written.
    fn holds(path: &[u8]) -> bool;
}

/// The calls that programs make most, where one look at the descriptor's entry decides. The arguments are
/// the program's, the task and the entry (not 0) of the first; the answer is `rax`, or
/// [`AGAIN`](crate::low::dispatch::AGAIN) for what is not the common case.
pub(crate) trait Quick {
    /// read(2).
    ///
    /// # Safety
    /// For the entry only: the calling thread's task, the entry of descriptor `a`, and a program's arguments.
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
    /// For the entry only: the calling thread's task, the entry of descriptor `a`, and a program's arguments.
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
    /// For the entry only: the calling thread's task, the entry of descriptor `a`, and a program's arguments.
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
    /// For the entry only: the calling thread's task, the entry of descriptor `a`, and a program's arguments.
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
    /// For the entry only: the calling thread's task, the entry of descriptor `a`, and a program's arguments.
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
    /// For the entry only: the calling thread's task, the entry of descriptor `a`, and a program's arguments.
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
    /// For the entry only: the calling thread's task, the entry of descriptor `a`, and a program's arguments.
    unsafe extern "sysv64" fn newfstatat(
        a: usize,
        b: usize,
        c: usize,
        d: usize,
        task: &Task<'static>,
        entry: u64,
    ) -> isize;
}
