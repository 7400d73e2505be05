//! Addresses of Unix sockets whose paths lie in a mount. The kernel gets the path of the host's object; the
//! program sees the path that it bound.

use lp_abi::linux::{
    __NR_bind, __NR_chmod, __NR_fstat, __NR_readlink, __NR_symlink, __NR_unlink, S_IFMT, S_IFSOCK, stat,
};
use lp_abi::{Errno, Fd, Result};
use lp_region::InodeRef;
use lp_region::sync::Ordering;
use lp_region::ucopy;
use lp_vfs::below::special;
use lp_vfs::permission;
use lp_vfs::task::{Place, Task};
use lp_vfs::walk::{self, Follow};

use crate::high::frame::at::{At, Last, Route, Which, buffer, spare_buffer};
use crate::high::route::hostlink::into_mount;
use crate::high::route::path::{leave, route};
use crate::high::special::node;
use crate::high::special::place;
use crate::low::dispatch::NOT_OURS;

/// `AF_UNIX`.
const UNIX: u16 = 1;
/// Bytes of `sun_path`.
const PATH: usize = 108;
/// Bytes of `sun_family`.
const FAMILY: usize = 2;
/// A path that never exists, nor the directory above it: whatever looks there gets `ENOENT`.
const NOWHERE: &[u8] = b"/proc/none/none";

/// A `struct sockaddr_un`, or what the kernel returns in place of one, with space for a NUL.
#[derive(Clone, Copy)]
pub(crate) struct Address {
    bytes: [u8; FAMILY + PATH + 2],
    /// Bytes in use.
    pub length: usize,
}

/// What the kernel gets in place of an address of the program's.
pub(crate) struct Target {
    /// The address.
    pub address: Address,
    /// What it means if the kernel finds nothing there.
    missing: Errno,
}

impl Target {
    /// The call's result, from the kernel's. A socket that takes no paths is the kernel's affair.
    pub(crate) fn result(&self, done: isize) -> isize {
        match Errno::from_ret(done) {
            Err(Errno::ENOENT) => self.missing.to_ret(),
            Err(Errno::EAFNOSUPPORT) => NOT_OURS,
            _ => done,
        }
    }
}

impl Address {
    /// Copies an address of the program's; `None` if it names no path.
    fn of_path(at: *const u8, length: usize) -> Option<Address> {
        if at.is_null() || length <= FAMILY || length > FAMILY + PATH {
            return None;
        }
        let mut address = Address { bytes: [0; FAMILY + PATH + 2], length };
        // SAFETY: the copy routine handles bad pointers; the address fits.
        unsafe { ucopy::copy(address.bytes.as_mut_ptr(), at, length) }.ok()?;
        let family = u16::from_ne_bytes([address.bytes[0], address.bytes[1]]);
        (family == UNIX && address.bytes[FAMILY] != 0).then_some(address)
    }

    /// An address with a path, as long as any, so that no kind of socket finds it too short.
    ///
    /// # Errors
    /// `ENAMETOOLONG`.
    fn with_path(path: &[u8]) -> Result<Address> {
        if path.len() < PATH { Ok(Address::of_short(path)) } else { Err(Errno::ENAMETOOLONG) }
    }

    /// One at which the kernel finds nothing.
    fn nowhere() -> Address {
        Address::of_short(NOWHERE)
    }

    fn of_short(path: &[u8]) -> Address {
        let mut address = Address { bytes: [0; FAMILY + PATH + 2], length: FAMILY + PATH };
        address.bytes[..FAMILY].copy_from_slice(&UNIX.to_ne_bytes());
        address.bytes[FAMILY..FAMILY + path.len()].copy_from_slice(path);
        address
    }

    /// Its path, without the NUL.
    fn path(&self) -> &[u8] {
        let path = &self.bytes[FAMILY..self.length.min(FAMILY + PATH)];
        &path[..path.iter().position(|byte| *byte == 0).unwrap_or(path.len())]
    }

    /// Its first byte, for the kernel.
    pub(crate) fn pointer(&self) -> *const u8 {
        self.bytes.as_ptr()
    }
}

/// The path that an address of the program's names, NUL-terminated. It is valid until the thread's second
/// buffer is used.
pub(crate) fn path_of(at: *const u8, length: usize) -> Option<&'static [u8]> {
    let address = Address::of_path(at, length)?;
    let room = buffer(Which::Second);
    let path = address.path();
    room[..path.len()].copy_from_slice(path);
    room[path.len()] = 0;
    Some(&room[..path.len()])
}

/// What connect and send give the kernel. `None` if it knows what the program's address means.
///
/// That is an address even where the path leads nowhere: the kernel looks at the socket first.
pub(crate) fn peer(task: &Task, at: *const u8, length: usize) -> Option<Target> {
    let found = listener(task, at, length).transpose()?;
    Some(found.unwrap_or_else(|missing| Target { address: Address::nowhere(), missing }))
}

/// Whether a path of ours, or one that leads out of a mount, is at `at`.
pub(crate) fn names_ours(task: &Task, at: *const u8, length: usize) -> bool {
    !matches!(listener(task, at, length), Ok(None))
}

/// Where the path of an address leads: to the host's object for a node of ours, or out of a mount.
///
/// # Errors
/// Those of path_resolution(7); `ECONNREFUSED` if it is not a socket; `EACCES`.
fn listener(task: &Task, at: *const u8, length: usize) -> Result<Option<Target>> {
    let Some(address) = Address::of_path(at, length) else {
        return Ok(None);
    };
    let given = At::text(&address.bytes[FAMILY..]);
    let inside = match route(task, Which::First, given, Last::Follow).by_name() {
        Route::Ours(inside) => inside,
        Route::Host => match into_mount(Which::First, given, Last::Follow) {
            Some(inside) => inside,
            None => return Ok(None),
        },
        Route::Elsewhere(_) => return Ok(None),
        Route::Itself(..) => return Err(Errno::ECONNREFUSED),
        Route::Bad(errno) => return Err(errno),
    };
    let found = match walk::inode(task, inside.dirfd, inside.path, Follow::Link)? {
        Place::Inside(found) => found,
        Place::Outside(outside) => {
            let address = outside_path(leave(task, given, outside))?;
            return Ok(Some(Target { address, missing: Errno::ENOENT }));
        }
    };
    let inode = task.region.inode(found.inode.id);
    permission::check(task, inode, permission::WRITE)?;
    // Relaxed: an inode's type does not change.
    if inode.mode.load(Ordering::Relaxed) & S_IFMT != S_IFSOCK {
        return Err(Errno::ECONNREFUSED);
    }
    // A node made by mknod, or one whose socket is gone, has no object: nobody listens.
    Ok(Some(Target { address: host_address(task, found.inode)?, missing: Errno::ECONNREFUSED }))
}

fn outside_path(at: At) -> Result<Address> {
    let text = spare_buffer();
    // SAFETY: the copy routine handles bad pointers.
    let length = unsafe { ucopy::string(text, at.path.as_ptr()) }?;
    Address::with_path(&text[..length])
}

fn host_address(task: &Task, inode: InodeRef) -> Result<Address> {
    let path = spare_buffer();
    match special::host_path(task, inode.id) {
        Ok(None) => {
            let length = node::host_path(task, inode, path)?;
            Address::with_path(&path[..length])
        }
        Ok(Some(hosts)) if hosts.len() <= PATH => Address::with_path(&hosts[..hosts.len() - 1]),
        Ok(Some(hosts)) => {
            // Too long for an address.
            let (length, _) = place::prepare(task).path(task, inode, path)?;
            node::lead(&path[..length], hosts);
            Address::with_path(&path[..length])
        }
        // The socket that was seen is gone, and so is who listened.
        Err(Errno::EIO) => Err(Errno::ECONNREFUSED),
        Err(errno) => Err(errno),
    }
}

/// A socket inode created in a mount for bind.
pub(crate) struct Bound {
    /// The address for the kernel to bind.
    pub address: Address,
    given: Address,
    at: At,
}

/// What bind(2) gives the kernel.
pub(crate) enum Name {
    /// The program's own address.
    AsGiven,
    /// That of a path outside all mounts.
    Outside(Address),
    /// That of a new node.
    Node(Bound),
}

/// Creates the inode of a socket that `fd` is to be bound to, if the address is a path in a mount and the
/// socket can have one.
///
/// # Errors
/// `EADDRINUSE` if the name exists; those of mknod(2).
pub(crate) fn bind(task: &Task, fd: Fd, at: *const u8, length: usize) -> Result<Name> {
    let Some(given) = Address::of_path(at, length).filter(|_| takes_paths(fd)) else {
        return Ok(Name::AsGiven);
    };
    let name = At::text(&given.bytes[FAMILY..]);
    let inside = match route(task, Which::First, name, Last::Name).by_name() {
        Route::Ours(inside) => inside,
        Route::Host => match into_mount(Which::First, name, Last::Name) {
            Some(inside) => inside,
            None => return Ok(Name::AsGiven),
        },
        Route::Elsewhere(_) => return Ok(Name::AsGiven),
        Route::Itself(..) => return Err(Errno::EADDRINUSE),
        Route::Bad(errno) => return Err(errno),
    };
    match lp_vfs::mknod::mknodat(task, inside.dirfd, inside.path, S_IFSOCK | mode_of(fd), 0) {
        Ok(Place::Inside(())) => {}
        Ok(Place::Outside(outside)) => return outside_path(leave(task, name, outside)).map(Name::Outside),
        Err(Errno::EEXIST) => return Err(Errno::EADDRINUSE),
        Err(errno) => return Err(errno),
    }
    let found = match walk::inode(task, inside.dirfd, inside.path, Follow::No)? {
        Place::Inside(found) => found,
        Place::Outside(_) => return Err(Errno::ENOENT),
    };
    let path = spare_buffer();
    let (length, _) = place::prepare(task).path(task, found.inode, path)?;
    let address = Address::with_path(&path[..length])?;
    Ok(Name::Node(Bound { address, given, at: inside }))
}

/// Permission bits that a socket's name gets: those of the socket, which fchmod(2) changes.
fn mode_of(fd: Fd) -> u32 {
    // SAFETY: zeros are a valid `stat`, and the kernel fills it in.
    unsafe {
        let mut found: stat = core::mem::zeroed();
        match lp_abi::syscall!(__NR_fstat, fd, &raw mut found) {
            Ok(_) => found.st_mode & !S_IFMT,
            Err(_) => 0o777,
        }
    }
}

/// Whether bind(2) of this descriptor looks at paths, as only Unix sockets do.
fn takes_paths(fd: Fd) -> bool {
    let nowhere = Address::nowhere();
    // SAFETY: the kernel reads the address. This is the program's own call, so filters allow it.
    let done = unsafe { lp_abi::syscall!(__NR_bind, fd, nowhere.pointer(), nowhere.length) };
    done == Err(Errno::ENOENT)
}

impl Bound {
    /// The kernel has bound it: opens it to all users, and records the address as the program gave it.
    pub(crate) fn keep(&self) {
        // SAFETY: the path is NUL-terminated.
        let _ = unsafe { lp_abi::syscall!(__NR_chmod, self.address.path().as_ptr(), 0o777) };
        let mut beside = [0u8; PATH + 4];
        let length = beside_name(self.address.path(), &mut beside);
        if length != 0 {
            let target = self.given.bytes[FAMILY..].as_ptr();
            // SAFETY: the path is NUL-terminated.
            let _ = unsafe { lp_abi::syscall!(__NR_unlink, beside.as_ptr()) };
            // SAFETY: both paths are NUL-terminated.
            let _ = unsafe { lp_abi::syscall!(__NR_symlink, target, beside.as_ptr()) };
        }
    }

    /// The kernel has failed to bind it: removes the inode.
    pub(crate) fn undo(&self, task: &Task) {
        let _ = lp_vfs::unlink::unlinkat(task, self.at.dirfd, self.at.path, 0);
    }
}

/// The name of the symbolic link that stores the address of the object at `path`.
fn beside_name(path: &[u8], to: &mut [u8]) -> usize {
    let mut name = lp_abi::text::Writer::new(to);
    name.push(path);
    name.push(b".a");
    name.finish().unwrap_or(0)
}

/// Replaces an address that the kernel returned, `length` bytes at `address`, by the one that a program
/// bound. Returns the new length.
pub(crate) fn translate(task: &Task, address: &mut [u8; 128], length: usize) -> usize {
    if length <= FAMILY || length > FAMILY + PATH + 1 || u16::from_ne_bytes([address[0], address[1]]) != UNIX
    {
        return length;
    }
    let path = &address[FAMILY..length];
    let path = &path[..path.iter().position(|byte| *byte == 0).unwrap_or(path.len())];
    if !place::holds(task, path) {
        return length;
    }
    let mut beside = [0u8; PATH + 4];
    beside_name(path, &mut beside);
    let mut given = [0u8; PATH];
    // SAFETY: the name is NUL-terminated, and the kernel writes within `given`.
    match unsafe { lp_abi::syscall!(__NR_readlink, beside.as_ptr(), given.as_mut_ptr(), given.len()) } {
        Ok(got) => {
            address[FAMILY..].fill(0);
            address[FAMILY..FAMILY + got].copy_from_slice(&given[..got]);
            FAMILY + got + 1
        }
        Err(_) => length,
    }
}
