//! FIFOs, Unix sockets and devices in a mount: the inode is ours; a hidden host object carries the data.
//!
//! What came from a host tree has the host's own object. The objects of all others lie in a directory of the
//! region's ([`Place`]), named after slot and generation of their inode. Every process of every run on a
//! region therefore finds the same object, and never that of a freed inode. If the region is not a file, the
//! last process that exits normally removes the directory.
//!
//! The gate checks the inodes' permissions. To the kernel every object is open to all, because the processes
//! of root's run may change users; the identity is a random number, and `nodes` can be read by its owner
//! only. Directories and FIFOs get their modes, which the umask limits, under another name.

use lp_abi::linux::__NR_openat;
use lp_abi::linux::{
    __NR_chmod, __NR_getdents64, __NR_link, __NR_mknod, __NR_open, __NR_rename, __NR_rmdir, __NR_symlink,
    __NR_unlink, __NR_unlinkat, O_CLOEXEC, O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_TRUNC, S_IFCHR,
    S_IFIFO, S_IFMT,
};
use lp_abi::{Errno, Fd, PATH_MAX, Result, dirent64};
use lp_region::InodeRef;
use lp_region::process::Run;
use lp_region::sync::Ordering;
use lp_vfs::below::special;
use lp_vfs::open::Node;
use lp_vfs::table::{self, entry};
use lp_vfs::task::Task;

use super::place::{self, Place, exists, other_name};
use crate::high::fd::{descriptor, placeholder};
use crate::high::frame::at::{Which, buffer, spare_buffer};
use crate::high::run::words::NODES;
use crate::low::live::deferred;
use crate::low::tools::close::close_number;

/// Writes the path of the object of `inode`, which may be missing, to `to`, NUL-terminated. Returns its
/// length.
///
/// # Errors
/// `ENAMETOOLONG`.
pub(crate) fn host_path(task: &Task, inode: InodeRef, to: &mut [u8]) -> Result<usize> {
    let first = Place::first(task.run);
    for place in Place::used(task.run) {
        let (length, _) = place.path(task, inode, to)?;
        if place == first || exists(to) {
            return Ok(length);
        }
    }
    Err(Errno::ENOENT)
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

/// Creates the FIFO of `inode` unless it is there, and writes its path to `path`, NUL-terminated.
fn make_fifo(task: &Task, inode: InodeRef, path: &mut [u8]) -> Result<()> {
    loop {
        let place = place::prepare(task);
        let (length, _) = place.path(task, inode, path)?;
        if !exists(path) && !lead_to_earlier(task, place, inode, path) {
            make_fifo_at(path, length);
        }
        if Place::current(task.run) == place {
            return Ok(());
        }
        // Others may have missed ours. They agree on what is at the new place.
    }
}

/// If the object of `inode` is at a place before `place`, creates a link to it at `path`.
fn lead_to_earlier(task: &Task, place: Place, inode: InodeRef, path: &[u8]) -> bool {
    let mut earlier = [0; place::PATH];
    let mut places = Place::used(task.run).filter(|other| *other < place);
    if !places.any(|other| other.path(task, inode, &mut earlier).is_ok() && exists(&earlier)) {
        return false;
    }
    // SAFETY: NUL-terminated paths. It fails if another process was faster.
    let _ = unsafe { lp_abi::syscall!(__NR_symlink, earlier.as_ptr(), path.as_ptr()) };
    true
}

/// Creates a FIFO at `path`, `length` bytes long.
fn make_fifo_at(path: &[u8], length: usize) {
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
fn make_device(path: &[u8], length: usize, kind: u32, rdev: u32) -> Option<[u8; place::OTHER]> {
    let other = other_name(&path[..length])?;
    // SAFETY: a NUL-terminated path.
    unsafe {
        let _ = lp_abi::syscall!(__NR_unlink, other.as_ptr());
        lp_abi::syscall!(__NR_mknod, other.as_ptr(), kind | 0o600, rdev).ok()?;
    }
    Some(other)
}

/// Removes the directories of objects.
pub(crate) fn remove_all(task: &Task) {
    for place in Place::used(task.run) {
        let path: &mut [u8; PATH_MAX] = spare_buffer();
        if let Ok((_, end)) = place.path(task, InodeRef::NONE, path) {
            path[end] = 0;
            remove_directory(path);
        }
    }
}

/// Removes a directory of objects, whose path is NUL-terminated.
fn remove_directory(path: &[u8]) {
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
    if kind == S_IFIFO {
        return match make_fifo(task, node.found.inode, path) {
            Ok(()) => open_at(task, node, path.as_ptr(), || {}),
            Err(errno) => errno.to_ret(),
        };
    }
    let length = match place::prepare(task).path(task, node.found.inode, path) {
        Ok((length, _)) => length,
        Err(errno) => return errno.to_ret(),
    };
    let Some(device) = make_device(path, length, kind, rdev) else { return Errno::EACCES.to_ret() };
    open_at(task, node, device.as_ptr(), || {
        // SAFETY: the NUL-terminated name of the object made above.
        let _ = unsafe { lp_abi::syscall!(__NR_unlink, device.as_ptr()) };
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
    for place in Place::used(task.run) {
        let path: &mut [u8; PATH_MAX] = spare_buffer();
        let Ok((length, _)) = place.path(task, inode, path) else { return };
        // SAFETY: a NUL-terminated path in a directory of our own.
        let _ = unsafe { lp_abi::syscall!(__NR_unlink, path.as_ptr()) };
        // A socket's object has its address beside it.
        path[length..length + 3].copy_from_slice(b".a\0");
        // SAFETY: a NUL-terminated path in a directory of our own.
        let _ = unsafe { lp_abi::syscall!(__NR_unlink, path.as_ptr()) };
    }
}
