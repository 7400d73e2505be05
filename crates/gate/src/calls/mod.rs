//! The file calls: one module per family, each handler decodes its arguments and asks `lp-vfs`.

use lp_abi::linux::*;

crate::dispatch_table! {
    /// All calls that the gate answers or passes on changed, in rising order.
    CALLS "lp_table_calls":
    __NR_mmap => crate::mapping::mmap,
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
