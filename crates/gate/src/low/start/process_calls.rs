//! [`PROCESS`]: the low half's calls.

use lp_abi::linux::*;

crate::low::dispatch::dispatch_table! {
    /// The calls of the low half alone; file calls go to the kernel. A full table has these entries too, or
    /// handlers that end in them.
    pub PROCESS "lp_table_process":
    __NR_mmap => crate::low::cover::mapped_code::mmap,
    __NR_munmap => crate::low::live::process::munmap,
    __NR_rt_sigaction => crate::low::arrive::sigaction::rt_sigaction,
    __NR_clone => crate::low::live::process::clone,
    __NR_fork => crate::low::live::process::fork,
    __NR_vfork => crate::low::live::process::vfork,
    __NR_execve => crate::low::exec::run::execve,
    __NR_exit => crate::low::live::process::exit,
    __NR_ptrace => crate::low::live::process::ptrace,
    __NR_exit_group => crate::low::live::process::exit_group,
    __NR_execveat => crate::low::exec::run::execveat,
    __NR_clone3 => crate::low::live::process::clone3,
}
