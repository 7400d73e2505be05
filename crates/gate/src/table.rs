//! [`PROCESS`]: the low half's own calls.

use lp_abi::linux::*;

crate::dispatch_table! {
    /// The calls of the low half alone: file calls go to the kernel. A full table has these entries too, or handlers that
    /// end in them.
    PROCESS "lp_table_process":
    __NR_mmap => crate::mapping::mmap,
    __NR_munmap => crate::process::munmap,
    __NR_rt_sigaction => crate::signal::rt_sigaction,
    __NR_clone => crate::process::clone,
    __NR_fork => crate::process::fork,
    __NR_vfork => crate::process::vfork,
    __NR_execve => crate::exec::execve,
    __NR_exit => crate::process::exit,
    __NR_exit_group => crate::process::exit_group,
    __NR_execveat => crate::exec::execveat,
    __NR_clone3 => crate::process::clone3,
}
