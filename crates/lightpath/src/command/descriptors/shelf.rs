//! The socket in whose queue the processes of a run keep copies of programs (the gate's
//! `high/run/shelf.rs`).

use std::io::{Error, Result};
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// A datagram socket that is connected to itself, so that what is sent to it is what it receives, and nobody
/// else can send to it (unix(7)).
///
/// # Errors
/// Those of socket(2), bind(2), getsockname(2) and connect(2).
pub(crate) fn open() -> Result<OwnedFd> {
    // SAFETY: the call takes numbers.
    let fd = checked(unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_NONBLOCK, 0) })?;
    // SAFETY: the descriptor was just made, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: zeros are a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let at = (&raw mut address).cast::<libc::sockaddr>();
    // With the family alone the kernel chooses a name.
    let family = size_of::<libc::sa_family_t>() as libc::socklen_t;
    let mut length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    let mut byte = 0u8;
    // SAFETY: the kernel reads and writes the address and its length, and one byte; all of them live here.
    unsafe {
        checked(libc::bind(fd, at, family))?;
        checked(libc::getsockname(fd, at, &raw mut length))?;
        checked(libc::connect(fd, at, length))?;
        // What others sent before the socket was connected.
        while libc::recv(fd, (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT) >= 0 {}
    }
    debug_assert_eq!(fd, socket.as_raw_fd());
    Ok(socket)
}

fn checked(result: i32) -> Result<i32> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result) }
}
