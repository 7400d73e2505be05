//! The life file: what the processes of a region hold their record locks on ([`crate::liveness`]).
//!
//! A POSIX record lock goes when its process closes *any* descriptor of the file, so no program may ever get one. The life
//! file is therefore not the region's, which a program can open by name or through a mapping, but an empty, sealed memfd
//! of mode 0: it has no name, the kernel opens it through /proc for root alone, and the gate answers for the paths and the
//! numbers that lead to it. Its descriptor is beside the region's, one number higher, so that who knows the one knows the
//! other. All runs of a region share one life file.

use lp_abi::Result;
use lp_abi::linux::{
    __NR_close, __NR_fchmod, __NR_fcntl, __NR_memfd_create, F_ADD_SEALS, F_DUPFD, F_SEAL_GROW, F_SEAL_SEAL,
    F_SEAL_SHRINK, F_SEAL_WRITE, MFD_ALLOW_SEALING,
};

/// How the name of each life file starts.
pub const NAME: &[u8] = b"lightpath-life:";

/// Makes a life file; `name` starts with [`NAME`]. Nobody holds a lock on it.
///
/// # Errors
/// Those of memfd_create(2) and fcntl(2).
pub fn create(name: &core::ffi::CStr) -> Result<i32> {
    // SAFETY: the name is NUL-terminated; the call makes a descriptor.
    let fd = unsafe { lp_abi::syscall!(__NR_memfd_create, name.as_ptr(), MFD_ALLOW_SEALING) }? as i32;
    let seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    // SAFETY: changes the new file only.
    let sealed = unsafe {
        lp_abi::syscall!(__NR_fcntl, fd, F_ADD_SEALS, seals)
            .and_then(|_| lp_abi::syscall!(__NR_fchmod, fd, 0))
    };
    sealed.map(|_| fd).inspect_err(|_| close(fd))
}

/// Moves the descriptors of a region and of its life file to neighbouring numbers, at or above `min`, that exec keeps; gives
/// the region's. The caller holds no record lock on either.
///
/// # Errors
/// `EMFILE`, `EINVAL` as fcntl(2) gives for `F_DUPFD`; both descriptors are where they were then.
pub fn pair(region: i32, life: i32, min: i32) -> Result<i32> {
    let mut from = min;
    loop {
        let low = duplicate(region, from)?;
        let high = duplicate(life, low + 1).inspect_err(|_| close(low))?;
        if high == low + 1 {
            close(region);
            close(life);
            return Ok(low);
        }
        close(low);
        close(high);
        from = high;
    }
}

/// Gives the region behind `fd` a life file of its own, for a region that one program makes and its children use; the region's
/// new number.
///
/// # Errors
/// Those of [`create`] and [`pair`].
pub fn beside(fd: i32) -> Result<i32> {
    let life = create(c"lightpath-life:")?;
    pair(fd, life, 3).inspect_err(|_| close(life))
}

fn duplicate(fd: i32, min: i32) -> Result<i32> {
    // SAFETY: makes a descriptor.
    unsafe { lp_abi::syscall!(__NR_fcntl, fd, F_DUPFD, min) }.map(|made| made as i32)
}

fn close(fd: i32) {
    // SAFETY: the descriptor is this module's own, or the caller gave it away.
    let _ = unsafe { lp_abi::syscall!(__NR_close, fd) };
}
