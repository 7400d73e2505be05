//! The life file, on which the processes of a region hold their record locks ([`crate::liveness`]).
//!
//! A process loses its POSIX record locks when it closes *any* descriptor of the file, so no program may ever
//! get one. The region's own file is therefore unsuitable: a program can open it by name or through a
//! mapping. The life file is an empty, sealed memfd of mode 0. It has no name, the kernel opens it through
//! /proc only for root, and the gate refuses the paths and descriptor numbers that lead to it. Its descriptor
//! is one number above the region's, so one number implies the other. All runs of a region share one life
//! file.

use lp_abi::linux::{
    __NR_close, __NR_fchmod, __NR_fcntl, __NR_memfd_create, F_ADD_SEALS, F_DUPFD, F_SEAL_GROW, F_SEAL_SEAL,
    F_SEAL_SHRINK, F_SEAL_WRITE, MFD_ALLOW_SEALING,
};
use lp_abi::{Fd, Result};

/// Prefix of the name of each life file.
pub const NAME: &[u8] = b"lightpath-life:";

/// Creates a life file; `name` starts with [`NAME`]. No lock is held on it.
///
/// # Errors
/// Those of memfd_create(2) and fcntl(2).
pub fn create(name: &core::ffi::CStr) -> Result<Fd> {
    // SAFETY: the name is NUL-terminated; the call makes a descriptor.
    let fd = unsafe { lp_abi::syscall!(__NR_memfd_create, name.as_ptr(), MFD_ALLOW_SEALING) }?;
    let fd = Fd::new(fd as i32);
    let seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    // SAFETY: changes the new file only.
    let sealed = unsafe {
        lp_abi::syscall!(__NR_fcntl, fd, F_ADD_SEALS, seals)
            .and_then(|_| lp_abi::syscall!(__NR_fchmod, fd, 0))
    };
    sealed.map(|_| fd).inspect_err(|_| close(fd))
}

/// Moves the descriptors of a region and of its life file to adjacent numbers at or above `min` that survive
/// exec; returns the region's. The caller holds no record lock on either.
///
/// # Errors
/// `EMFILE`, `EINVAL`, as from fcntl(2) with `F_DUPFD`; both descriptors then keep their numbers.
pub fn pair(region: Fd, life: Fd, min: i32) -> Result<Fd> {
    let mut from = min;
    loop {
        let low = duplicate(region, from)?;
        let high = duplicate(life, low.next().raw()).inspect_err(|_| close(low))?;
        if high == low.next() {
            close(region);
            close(life);
            return Ok(low);
        }
        close(low);
        close(high);
        from = high.raw();
    }
}

/// Gives the region behind `fd` a life file of its own, for a region that one program creates and its
/// children use. Returns the region's new number.
///
/// # Errors
/// Those of [`create`] and [`pair`].
pub fn beside(fd: Fd) -> Result<Fd> {
    let life = create(c"lightpath-life:")?;
    pair(fd, life, 3).inspect_err(|_| close(life))
}

fn duplicate(fd: Fd, min: i32) -> Result<Fd> {
    // SAFETY: makes a descriptor.
    unsafe { lp_abi::syscall!(__NR_fcntl, fd, F_DUPFD, min) }.map(|made| Fd::new(made as i32))
}

fn close(fd: Fd) {
    // SAFETY: the descriptor is this module's own, or the caller gave it away.
    let _ = unsafe { lp_abi::syscall!(__NR_close, fd) };
}
