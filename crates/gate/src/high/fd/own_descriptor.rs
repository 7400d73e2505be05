//! Ways to the gate's own descriptors that bypass their numbers: paths under /proc, of this process or
//! another of the run, and pidfd_getfd(2).
//!
//! A process that opens the life file and closes it again drops its own record lock
//! ([`lp_region::life_file`]). The kernel is therefore asked where a path leads with an `O_PATH` descriptor,
//! whose closing drops no lock.

use lp_abi::Fd;
use lp_abi::linux::{__NR_open, __NR_openat, __NR_read, O_CLOEXEC, O_PATH, O_RDONLY};
use lp_region::Region;

use crate::high::frame::at::At;
use crate::low::tools::close::close_number;
use crate::low::tools::identity;
use lp_abi::text::{Writer, parse_decimal};

/// Whether `at`, whose text is `path`, leads to the life file beside the region's descriptor `region`, or to
/// some process's descriptor of it. Only a path that ends in a number is examined.
#[cold]
pub(crate) fn is_behind(region: Fd, at: At, path: &[u8]) -> bool {
    let digits = path.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (directory, name) = path.split_at(path.len() - digits);
    let Some((number, [])) = parse_decimal(name) else { return false };
    if directory.last().is_some_and(|byte| *byte != b'/') || region == Fd::NONE {
        return false;
    }
    // SAFETY: the kernel reads the path; the descriptor is closed again.
    let found = unsafe {
        match lp_abi::syscall!(__NR_openat, at.dirfd, at.path, O_PATH | O_CLOEXEC, 0) {
            Ok(fd) => {
                let found = identity::of(Fd::new(fd as i32));
                close_number(Fd::new(fd as i32));
                found
            }
            Err(_) => None,
        }
    };
    let is = |own: Fd| found.is_some() && found == identity::of(own);
    is(region.next()) || number == region.raw() as u32 && directory.ends_with(b"/fd/") && is(region)
}

/// [`is_behind`] for descriptor `target` of the process behind `pidfd`.
#[cold]
pub(crate) fn is_target(region: Region, pidfd: Fd, target: Fd) -> bool {
    let Some(pid) = process_behind(pidfd) else { return false };
    let mut path = [0u8; 64];
    let mut text = Writer::new(&mut path);
    text.push(b"/proc/");
    text.push_decimal(u64::from(pid));
    text.push(b"/fd/");
    text.push_decimal(target.index() as u64);
    let Some(length) = text.finish() else { return false };
    is_behind(region.fd(), At::text(&path), &path[..length])
}

/// The process id of a pidfd, according to /proc.
pub(super) fn process_behind(pidfd: Fd) -> Option<u32> {
    const LABEL: &[u8] = b"\nPid:\t";
    let mut path = [0u8; 48];
    let mut text = Writer::new(&mut path);
    text.push(b"/proc/self/fdinfo/");
    text.push_decimal(u64::try_from(pidfd.raw()).ok()?);
    text.finish()?;
    let mut text = [0u8; 512];
    // SAFETY: the path is NUL-terminated, and the kernel writes within the buffer; the descriptor is closed
    // again.
    let got = unsafe {
        let fd = lp_abi::syscall!(__NR_open, path.as_ptr(), O_RDONLY | O_CLOEXEC, 0).ok()?;
        let got = lp_abi::syscall!(__NR_read, fd, text.as_mut_ptr(), text.len());
        close_number(Fd::new(fd as i32));
        got.ok()?
    };
    let text = text.get(..got)?;
    let at = text.windows(LABEL.len()).position(|window| window == LABEL)? + LABEL.len();
    Some(parse_decimal(&text[at..])?.0)
}
