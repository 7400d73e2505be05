//! Addresses of Unix sockets whose paths lie in a mount. The kernel gets the path of the host's object; the
//! program sees the path that it bound.

use lp_abi::linux::{
    __NR_access, __NR_chmod, __NR_readlink, __NR_symlink, __NR_unlink, F_OK, S_IFMT, S_IFSOCK,
};
use lp_abi::{Errno, Result};
use lp_region::InodeRef;
use lp_region::sync::Ordering;
use lp_region::ucopy;
use lp_vfs::permission;
use lp_vfs::task::{Place, Task};
use lp_vfs::walk::{self, Follow};

use crate::high::frame::at::{At, Last, Route, Which, buffer, spare_buffer};
use crate::high::route::path::{leave, route};
use crate::high::special::node;

/// `AF_UNIX`.
const UNIX: u16 = 1;
/// Bytes of `sun_path`.
const PATH: usize = 108;
/// Bytes of `sun_family`.
const FAMILY: usize = 2;

/// A `struct sockaddr_un`, or what the kernel returns in place of one, with space for a NUL.
#[derive(Clone, Copy)]
pub(crate) struct Address {
    bytes: [u8; FAMILY + PATH + 2],
    /// Bytes in use.
    pub length: usize,
}

/// What an address of the program's denotes.
pub(crate) enum Meaning {
    /// The kernel's own namespace: pass the address unchanged.
    Host,
    /// Pass this path to the kernel instead.
    Other(Address),
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

    /// An address with a path.
    ///
    /// # Errors
    /// `ENAMETOOLONG`.
    fn with_path(path: &[u8]) -> Result<Address> {
        if path.len() >= PATH {
            return Err(Errno::ENAMETOOLONG);
        }
        let mut address = Address { bytes: [0; FAMILY + PATH + 2], length: FAMILY + path.len() + 1 };
        address.bytes[..FAMILY].copy_from_slice(&UNIX.to_ne_bytes());
        address.bytes[FAMILY..FAMILY + path.len()].copy_from_slice(path);
        Ok(address)
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

/// The socket that an address names, for connect and send.
///
/// # Errors
/// Those of path_resolution(7); `ECONNREFUSED` if it is not a socket; `EACCES`.
pub(crate) fn peer(task: &Task, at: *const u8, length: usize) -> Result<Meaning> {
    let Some(address) = Address::of_path(at, length) else {
        return Ok(Meaning::Host);
    };
    let given = At::text(&address.bytes[FAMILY..]);
    let inside = match route(task, Which::First, given, Last::Follow) {
        Route::Ours(inside) => inside,
        Route::Host => match crate::high::route::hostlink::into_mount(Which::First, given, Last::Follow) {
            Some(inside) => inside,
            None => return Ok(Meaning::Host),
        },
        Route::Elsewhere(_) => return Ok(Meaning::Host),
        Route::Nameless(_) => return Err(Errno::ECONNREFUSED),
        Route::Bad(errno) => return Err(errno),
    };
    let found = match walk::inode(task, inside.dirfd, inside.path, Follow::Link)? {
        Place::Inside(found) => found,
        Place::Outside(outside) => return outside_path(leave(task, given, outside)),
    };
    let inode = task.region.inode(found.inode.id);
    permission::check(task, inode, permission::WRITE)?;
    // Relaxed: an inode's type does not change.
    if inode.mode.load(Ordering::Relaxed) & S_IFMT != S_IFSOCK {
        return Err(Errno::ECONNREFUSED);
    }
    let address = host_address(task, found.inode)?;
    // SAFETY: the path is NUL-terminated.
    match unsafe { lp_abi::syscall!(__NR_access, address.path().as_ptr(), F_OK) } {
        // A node made by mknod, or one whose socket is gone: nobody listens.
        Err(Errno::ENOENT) => Err(Errno::ECONNREFUSED),
        _ => Ok(Meaning::Other(address)),
    }
}

fn outside_path(at: At) -> Result<Meaning> {
    let text = spare_buffer();
    // SAFETY: the copy routine handles bad pointers.
    let length = unsafe { ucopy::string(text, at.path.as_ptr()) }?;
    Address::with_path(&text[..length]).map(Meaning::Other)
}

fn host_address(task: &Task, inode: InodeRef) -> Result<Address> {
    let path = spare_buffer();
    let (length, _) = node::host_path(task, inode, path)?;
    Address::with_path(&path[..length])
}

/// A socket inode created in a mount for bind.
pub(crate) struct Bound {
    /// The address for the kernel to bind.
    pub address: Address,
    given: Address,
    at: At,
}

/// Whether an address is a path.
pub(crate) fn is_path(at: *const u8, length: usize) -> bool {
    Address::of_path(at, length).is_some()
}

/// Creates the inode of a socket to be bound; `None` if the address is the host's, or leads outside.
///
/// # Errors
/// `EADDRINUSE` if the name exists; those of mknod(2).
pub(crate) fn bind(task: &Task, at: *const u8, length: usize) -> Result<(Meaning, Option<Bound>)> {
    let Some(given) = Address::of_path(at, length) else {
        return Ok((Meaning::Host, None));
    };
    let name = At::text(&given.bytes[FAMILY..]);
    let inside = match route(task, Which::First, name, Last::Link) {
        Route::Ours(inside) => inside,
        Route::Host => match crate::high::route::hostlink::into_mount(Which::First, name, Last::Link) {
            Some(inside) => inside,
            None => return Ok((Meaning::Host, None)),
        },
        Route::Elsewhere(_) => return Ok((Meaning::Host, None)),
        Route::Nameless(_) => return Err(Errno::EADDRINUSE),
        Route::Bad(errno) => return Err(errno),
    };
    match lp_vfs::mknod::mknodat(task, inside.dirfd, inside.path, S_IFSOCK | 0o777, 0) {
        Ok(Place::Inside(())) => {}
        Ok(Place::Outside(outside)) => return Ok((outside_path(leave(task, name, outside))?, None)),
        Err(Errno::EEXIST) => return Err(Errno::EADDRINUSE),
        Err(errno) => return Err(errno),
    }
    let found = match walk::inode(task, inside.dirfd, inside.path, Follow::No)? {
        Place::Inside(found) => found,
        Place::Outside(_) => return Err(Errno::ENOENT),
    };
    let path = spare_buffer();
    let (length, directory) = node::host_path(task, found.inode, path)?;
    node::prepare(task, path, directory);
    let address = Address::with_path(&path[..length])?;
    Ok((Meaning::Host, Some(Bound { address, given, at: inside })))
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
    let nodes = spare_buffer();
    let Ok((_, directory)) = node::host_path(task, InodeRef::NONE, nodes) else {
        return length;
    };
    if !path.starts_with(&nodes[..directory]) {
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
