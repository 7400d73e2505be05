//! What the low half tells the high half: the life of processes and threads.
//!
//! Every function runs in the gate (signal handlers wait) and may be called in a process without a region, where it
//! has nothing to do ([`Thread::task`] is null). The bodies belong to the high half.

use crate::thread::Thread;

/// Where the gate finds site images, and the program that makes them: paths without NUL.
pub struct Attached {
    /// The bundle.
    pub bundle: &'static [u8],
    /// The launcher, run as `LAUNCHER sites --bundle BUNDLE --build OBJECT...`.
    pub builder: &'static [u8],
}

/// Attaches to the region: `fd` and `slot` are what LIGHTPATH_GATE named, `flags` what followed. On success
/// `thread.task` is set.
///
/// # Errors
/// One line that says why not; the process is then refused.
pub fn attach(thread: &mut Thread, fd: i32, slot: u32, flags: &[u8]) -> Result<Attached, &'static [u8]> {
    let _ = (thread, fd, slot, flags);
    Err(b"this gate has no file system in it")
}

/// A thread has made its first call: it needs a task.
pub fn thread_start(thread: &mut Thread) {
    let _ = thread;
}

/// A thread is about to be made that shares memory, descriptors and all with its maker: the table is shared from now on.
pub fn before_thread(thread: &mut Thread) {
    let _ = thread;
}

/// The thread ends; its record is given back.
pub fn thread_exit(thread: &mut Thread) {
    let _ = thread;
}

/// The process ends by exit_group(2). It may be a child that shares memory with its parent.
pub fn process_exit(thread: &mut Thread) {
    let _ = thread;
}

/// fork(2) is about to happen: open files become shared, and the child needs a process slot. An error fails the call.
pub fn before_fork(thread: &mut Thread) -> lp_abi::Result<()> {
    let _ = thread;
    Ok(())
}

/// fork(2) has happened: `result` is the child's process id, or `-errno`, and then what `before_fork` took goes back.
pub fn after_fork_parent(thread: &mut Thread, result: isize) {
    let _ = (thread, result);
}

/// The child of a fork: its memory is a copy of the parent's, `thread` is its only thread.
pub fn after_fork_child(thread: &mut Thread) {
    let _ = thread;
}

/// A child is about to start that shares memory with `thread` but has a descriptor table and directory of its own until
/// it execs or exits (vfork, posix_spawn). `child` needs a task of its own: a process slot, and a copy of the table. An
/// error fails the call.
pub fn before_vfork(thread: &mut Thread, child: &mut Thread) -> lp_abi::Result<()> {
    let _ = (thread, child);
    Ok(())
}

/// That child's first moment, on its own kernel thread: it can take its record lock now.
pub fn after_vfork_child(child: &mut Thread) {
    let _ = child;
}

/// The child has execed or exited (`result` is its process id) or was not made (`-errno`): what the parent's side keeps
/// in `child` is not needed any more. The process slot stays with the process that execed.
pub fn after_vfork_parent(thread: &mut Thread, child: &mut Thread, result: isize) {
    let _ = (thread, child, result);
}

/// exec is about to happen for sure as far as the gate can tell (the file was checked): the place to wait for other
/// threads' calls or to set marks that the new image reads. An error fails the exec.
pub fn before_exec(thread: &mut Thread) -> lp_abi::Result<()> {
    let _ = thread;
    Ok(())
}

/// The exec failed with `errno` after all; the old image goes on.
pub fn exec_failed(thread: &mut Thread, errno: lp_abi::Errno) {
    let _ = (thread, errno);
}

/// Writes what LIGHTPATH_GATE must be for an image that `thread` execs, without the name, and gives its length; 0 in a
/// process without a region.
pub fn gate_value(thread: &Thread, value: &mut [u8; 64]) -> usize {
    let _ = (thread, value);
    0
}
