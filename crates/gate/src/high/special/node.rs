//! FIFOs, Unix sockets and devices in a mount: the inode is ours; a hidden host object carries the data.
//!
//! What came from a host tree has the host's own object. The objects of all others lie in `nodes/IDENTITY` in
//! the run's cache directory, named after slot and generation of their inode. Every process of every run on a
//! region therefore finds the same object, and never that of a freed inode. If the region is not a file, the
//! last process that exits normally removes the directory.
//!
//! The gate checks the inodes' permissions. To the kernel every object is open to all, because the processes
//! of root's run may change users; the identity is a random number, and `nodes` can be read by its owner
//! only. Directories and FIFOs get their modes, which the umask limits, under another name.

use lp_abi::linux::__NR_openat;
use lp_abi::linux::{
    __NR_access, __NR_chmod, __NR_getdents64, __NR_gettid, __NR_link, __NR_mkdir, __NR_mknod, __NR_open,
    __NR_rename, __NR_rmdir, __NR_symlink, __NR_unlink, __NR_unlinkat, F_OK, O_CLOEXEC, O_CREAT, O_DIRECTORY,
    O_EXCL, O_NOFOLLOW, O_TRUNC, S_IFCHR, S_IFIFO, S_IFMT,
};
use lp_abi::{Errno, Fd, PATH_MAX, Result, dirent64};
use lp_region::InodeRef;
use lp_region::process::Run;
use lp_region::sync::Ordering;
use lp_vfs::below::special;
use lp_vfs::open::Node;
use lp_vfs::table::{self, entry};
use lp_vfs::task::Task;

use crate::high::fd::{descriptor, placeholder};
use crate::high::frame::at::{Which, buffer, spare_buffer};
use crate::high::run::words::NODES;
use crate::low::live::deferred;
use crate::low::tools::close::close_number;
use lp_abi::text::Writer;

/// Room for a path, and for what makes another name of it.
const OTHER: usize = 144;
/// Longest path of the directory: a socket's 108 bytes less the name.
const DIRECTORY: usize = 80;

/// Writes the path of the object of `inode` to `to`, NUL-terminated. Returns its length and that of the
/// directory's path.
///
/// # Errors
/// `ENAMETOOLONG`.
pub(crate) fn host_path(task: &Task, inode: InodeRef, to: &mut [u8]) -> Result<(usize, usize)> {
    let cache = task.run.cache.get();
    let mut path = Writer::new(to);
    if cache.len() + 23 <= DIRECTORY {
        path.push(cache);
        path.push(b"/nodes/");
    } else {
        path.push(b"/tmp/lightpath-nodes-");
    }
    path.push_hex(task.region.header().identity.load(Ordering::Relaxed), 16); // Relaxed: immutable.
    let directory = path.length();
    path.push(b"/");
    path.push_decimal(u64::from(inode.id.0));
    path.push(b"-");
    path.push_decimal(u64::from(inode.generation));
    Ok((path.finish().ok_or(Errno::ENAMETOOLONG)?, directory))
}

/// Whether any inode of the run may have an object on the host.
pub(crate) fn any(task: &Task) -> bool {
    any_of(task.run)
}

/// [`any`] for the record of a run.
pub(crate) fn any_of(run: &Run) -> bool {
    // Relaxed: a node's maker also tells us by other means.
    run.host_objects.load(Ordering::Relaxed) & NODES != 0
}

/// Creates the directory of objects, and sets [`NODES`].
pub(crate) fn prepare(task: &Task, path: &mut [u8], directory: usize) {
    task.run.host_objects.fetch_or(NODES, Ordering::Relaxed); // Relaxed: see `any_of`.
    let slash = core::mem::replace(&mut path[directory], 0);
    if !exists(path)
        && let Some(other) = other_name(&path[..directory])
    {
        // Everyone can read the names in /tmp.
        let mode = if path.starts_with(b"/tmp/lightpath-nodes-") { 0o700 } else { 0o777 };
        // SAFETY: NUL-terminated paths. It fails if another process was faster, and its directory is in use.
        unsafe {
            let _ = lp_abi::syscall!(__NR_mkdir, other.as_ptr(), mode);
            let _ = lp_abi::syscall!(__NR_chmod, other.as_ptr(), mode);
            if lp_abi::syscall!(__NR_rename, other.as_ptr(), path.as_ptr()).is_err() {
                let _ = lp_abi::syscall!(__NR_rmdir, other.as_ptr());
            }
        }
    }
    path[directory] = slash;
}

/// Creates the FIFO at `path`, `length` bytes long, unless it is there.
fn make_fifo(path: &[u8], length: usize) {
    if exists(path) {
        return;
    }
    let Some(other) = other_name(&path[..length]) else { return };
    // SAFETY: NUL-terminated paths. It fails if another process was faster.
    unsafe {
        let _ = lp_abi::syscall!(__NR_mknod, other.as_ptr(), S_IFIFO | 0o666, 0);
        let _ = lp_abi::syscall!(__NR_chmod, other.as_ptr(), 0o666);
        let _ = lp_abi::syscall!(__NR_link, other.as_ptr(), path.as_ptr());
        let _ = lp_abi::syscall!(__NR_unlink, other.as_ptr());
    }
}

/// Makes the object at `path` a symbolic link to another path, NUL-terminated.
pub(crate) fn lead(path: &[u8], to: &[u8]) {
    let Some(other) = other_name(path) else { return };
    // SAFETY: NUL-terminated paths; one follows `path`. What another process has put there leads there too.
    unsafe {
        let _ = lp_abi::syscall!(__NR_symlink, to.as_ptr(), other.as_ptr());
        let _ = lp_abi::syscall!(__NR_rename, other.as_ptr(), path.as_ptr());
    }
}

/// Creates an object for a device, under a name of the thread's own, for the caller to remove again: nobody
/// else must find a device that only the inode's mode protects. Takes `CAP_MKNOD`.
fn make_device(path: &[u8], length: usize, kind: u32, rdev: u32) -> Option<[u8; OTHER]> {
    let other = other_name(&path[..length])?;
    // SAFETY: a NUL-terminated path.
    unsafe {
        let _ = lp_abi::syscall!(__NR_unlink, other.as_ptr());
        lp_abi::syscall!(__NR_mknod, other.as_ptr(), kind | 0o600, rdev).ok()?;
    }
    Some(other)
}

/// Whether there is an object at a NUL-terminated path.
fn exists(path: &[u8]) -> bool {
    // SAFETY: the kernel reads up to the NUL.
    unsafe { lp_abi::syscall!(__NR_access, path.as_ptr(), F_OK) }.is_ok()
}

/// A name beside `path` that no other thread uses.
fn other_name(path: &[u8]) -> Option<[u8; OTHER]> {
    let mut name = [0; OTHER];
    let mut text = Writer::new(&mut name);
    text.push(path);
    text.push(b".");
    // SAFETY: gettid(2) takes no arguments.
    text.push_decimal(unsafe { lp_abi::syscall!(__NR_gettid) }.ok()? as u64);
    text.finish()?;
    Some(name)
}

/// Removes the directory of objects.
pub(crate) fn remove_all(task: &Task) {
    let path: &mut [u8; PATH_MAX] = spare_buffer();
    let Ok((_, end)) = host_path(task, InodeRef::NONE, path) else { return };
    path[end] = 0;
    let flags = O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    // SAFETY: a NUL-terminated path.
    let Ok(directory) = (unsafe { lp_abi::syscall!(__NR_open, path.as_ptr(), flags) }) else { return };
    let records = buffer(Which::First);
    loop {
        let room = records.len();
        // SAFETY: the kernel writes within the buffer.
        let got = unsafe { lp_abi::syscall!(__NR_getdents64, directory, records.as_mut_ptr(), room) };
        let Ok(got @ 1..) = got else { break };
        for (_, name) in dirent64::names(&records[..got]) {
            // SAFETY: the name is NUL-terminated.
            let _ = unsafe { lp_abi::syscall!(__NR_unlinkat, directory, name.as_ptr(), 0) };
        }
    }
    close_number(Fd::new(directory as i32));
    // SAFETY: a NUL-terminated path.
    let _ = unsafe { lp_abi::syscall!(__NR_rmdir, path.as_ptr()) };
}

/// Opens a FIFO or a device of ours. The descriptor is the kernel's own; its table entry also names our
/// inode.
pub(crate) fn open(task: &'static Task<'static>, node: &Node) -> isize {
    let inode = task.region.inode(node.found.inode.id);
    // Relaxed, both: an inode's type and device do not change.
    let (kind, rdev) = (inode.mode.load(Ordering::Relaxed) & S_IFMT, inode.rdev.load(Ordering::Relaxed));
    if kind == S_IFCHR && rdev == 0 {
        return Errno::ENXIO.to_ret(); // A whiteout.
    }
    if descriptor::is_listed(task, node.again) && !descriptor::is_file(task, node.again) {
        // The object may have lost its name.
        return open_at(task, node, node.again.link().as_ptr(), || {});
    }
    match special::host_path(task, node.found.inode.id) {
        Ok(Some(path)) => return open_at(task, node, path.as_ptr(), || {}),
        Ok(None) => {}
        Err(errno) => return errno.to_ret(),
    }
    let path: &mut [u8; PATH_MAX] = spare_buffer();
    let (length, directory) = match host_path(task, node.found.inode, path) {
        Ok(lengths) => lengths,
        Err(errno) => return errno.to_ret(),
    };
    prepare(task, path, directory);
    let device = (kind != S_IFIFO).then(|| make_device(path, length, kind, rdev));
    let name = match &device {
        None => {
            make_fifo(path, length);
            path.as_ptr()
        }
        Some(Some(name)) => name.as_ptr(),
        Some(None) => return Errno::EACCES.to_ret(),
    };
    open_at(task, node, name, || {
        if device.is_some() {
            // SAFETY: the NUL-terminated name of the object made above.
            let _ = unsafe { lp_abi::syscall!(__NR_unlink, name) };
        }
    })
}

/// Opens what is at a NUL-terminated path, and calls `opened` before anything else is done.
fn open_at(task: &'static Task<'static>, node: &Node, path: *const u8, opened: impl Fn()) -> isize {
    placeholder::flush(task);
    let flags = node.flags & !(O_CREAT | O_EXCL | O_TRUNC | O_NOFOLLOW);
    // Waits for the other end. SAFETY: a NUL-terminated path; the call only creates a descriptor.
    let done =
        unsafe { deferred::programs_syscall(__NR_openat, [0, path as usize, flags as usize, 0, 0, 0]) };
    opened();
    let fd = match done {
        fd @ 0.. => Fd::new(fd as i32),
        done => return done,
    };
    let cloexec = if flags & O_CLOEXEC != 0 { entry::CLOEXEC } else { 0 };
    let installed = lp_vfs::open::node_file(task, node)
        .and_then(|file| table::install(task, fd, file, entry::HOST | cloexec));
    if let Err(errno) = installed {
        close_number(fd);
        return errno.to_ret();
    }
    fd.raw() as isize
}

/// Removes the object of an unlinked inode.
#[cold]
pub(crate) fn remove(task: &Task, inode: InodeRef) {
    let path: &mut [u8; PATH_MAX] = spare_buffer();
    let Ok((length, _)) = host_path(task, inode, path) else { return };
    // SAFETY: a NUL-terminated path in a directory of our own.
    let _ = unsafe { lp_abi::syscall!(__NR_unlink, path.as_ptr()) };
    // A socket's object has its address beside it.
    path[length..length + 3].copy_from_slice(b".a\0");
    // SAFETY: a NUL-terminated path in a directory of our own.
    let _ = unsafe { lp_abi::syscall!(__NR_unlink, path.as_ptr()) };
}
