//! The process's name, as `comm` in /proc and `PR_GET_NAME` of prctl(2) show it.

use lp_abi::Errno;
use lp_abi::Fd;
use lp_abi::linux::{__NR_execveat, __NR_prctl, AT_EXECVE_CHECK};

use crate::low::exec::inherited::ExecutedAs;
use crate::low::tools::names;

/// `PR_SET_NAME` of linux/prctl.h.
pub(crate) const PR_SET_NAME: u32 = 15;
/// Bytes of a name, with its NUL.
const ROOM: usize = 16;

/// Names the process as the kernel names one: after the last component of the path, or after the program's
/// file if its descriptor alone was given. `object` is what [`names::known`] takes for the program.
pub(crate) fn set(executed: ExecutedAs, object: &[u8]) {
    let mut room = [0; names::ROOM];
    let file = match executed.by_descriptor && names_by_file() {
        true => names::known(object, &mut room),
        false => None,
    };
    let file = file.map(|path| path.strip_suffix(names::DELETED).unwrap_or(path));
    let path = file.unwrap_or(executed.path.to_bytes());
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let mut text = [0u8; ROOM];
    let length = name.len().min(ROOM - 1);
    text[..length].copy_from_slice(&name[..length]);
    // SAFETY: the kernel reads the text.
    let _ = unsafe { lp_abi::syscall!(__NR_prctl, PR_SET_NAME, text.as_ptr()) };
}

/// Whether the kernel names a process after its program's file (Linux 6.14). `AT_EXECVE_CHECK` came with the
/// same version.
fn names_by_file() -> bool {
    // SAFETY: the path is NUL-terminated, and the kernel executes nothing: there is no such file.
    let checked =
        unsafe { lp_abi::syscall!(__NR_execveat, Fd::NONE, c"".as_ptr(), 0usize, 0usize, AT_EXECVE_CHECK) };
    checked != Err(Errno::EINVAL)
}
