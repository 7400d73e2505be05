//! The system calls that the gate must see.

use crate::linux::*;

/// Upper bound of the numbers that x86-64 Linux uses. Beyond are the kernel's x32 calls, which do not exist
/// in a run.
pub const CALLS: usize = 512;
/// First number without a call at the time of writing. Newer calls, from here on, do not exist in a run.
pub const UNKNOWN: u32 = __NR_file_setattr + 1;

/// Calls that must arrive at the gate: all that name a file, a descriptor, a mapping, a process, a debugger, a
/// signal's action or the credentials that file access is checked against. The others (futexes, clocks,
/// scheduling) are never patched.
///
/// A call that creates a descriptor is here even if it has nothing to do with files: a parked placeholder may
/// occupy the number that the kernel must return next.
const GATED: &[u32] = &[
    // Waiting for children.
    __NR_wait4,
    __NR_waitid,
    // Data.
    __NR_read,
    __NR_write,
    __NR_pread64,
    __NR_pwrite64,
    __NR_readv,
    __NR_writev,
    __NR_preadv,
    __NR_pwritev,
    __NR_preadv2,
    __NR_pwritev2,
    __NR_lseek,
    __NR_sendfile,
    __NR_splice,
    __NR_tee,
    __NR_vmsplice,
    __NR_copy_file_range,
    __NR_readahead,
    __NR_fadvise64,
    __NR_fsync,
    __NR_fdatasync,
    __NR_sync_file_range,
    __NR_syncfs,
    __NR_sync,
    __NR_truncate,
    __NR_ftruncate,
    __NR_fallocate,
    __NR_getdents,
    __NR_getdents64,
    __NR_cachestat,
    // Names and attributes.
    __NR_open,
    __NR_openat,
    __NR_openat2,
    __NR_creat,
    __NR_stat,
    __NR_lstat,
    __NR_fstat,
    __NR_newfstatat,
    __NR_statx,
    __NR_access,
    __NR_faccessat,
    __NR_faccessat2,
    __NR_mkdir,
    __NR_mkdirat,
    __NR_rmdir,
    __NR_unlink,
    __NR_unlinkat,
    __NR_rename,
    __NR_renameat,
    __NR_renameat2,
    __NR_link,
    __NR_linkat,
    __NR_symlink,
    __NR_symlinkat,
    __NR_readlink,
    __NR_readlinkat,
    __NR_mknod,
    __NR_mknodat,
    __NR_chmod,
    __NR_fchmod,
    __NR_fchmodat,
    __NR_fchmodat2,
    __NR_chown,
    __NR_lchown,
    __NR_fchown,
    __NR_fchownat,
    __NR_utime,
    __NR_utimes,
    __NR_futimesat,
    __NR_utimensat,
    __NR_statfs,
    __NR_fstatfs,
    __NR_setxattr,
    __NR_lsetxattr,
    __NR_fsetxattr,
    __NR_getxattr,
    __NR_lgetxattr,
    __NR_fgetxattr,
    __NR_listxattr,
    __NR_llistxattr,
    __NR_flistxattr,
    __NR_removexattr,
    __NR_lremovexattr,
    __NR_fremovexattr,
    __NR_setxattrat,
    __NR_getxattrat,
    __NR_listxattrat,
    __NR_removexattrat,
    __NR_file_getattr,
    __NR_file_setattr,
    __NR_name_to_handle_at,
    __NR_open_by_handle_at,
    __NR_chdir,
    __NR_fchdir,
    __NR_getcwd,
    __NR_chroot,
    __NR_pivot_root,
    __NR_umask,
    __NR_mount,
    __NR_umount2,
    __NR_move_mount,
    __NR_open_tree,
    __NR_open_tree_attr,
    __NR_mount_setattr,
    __NR_statmount,
    __NR_listmount,
    __NR_quotactl,
    __NR_swapon,
    __NR_swapoff,
    __NR_acct,
    __NR_uselib,
    // Descriptors.
    __NR_close,
    __NR_close_range,
    __NR_dup,
    __NR_dup2,
    __NR_dup3,
    __NR_fcntl,
    __NR_flock,
    __NR_ioctl,
    __NR_poll,
    __NR_ppoll,
    __NR_select,
    __NR_pselect6,
    __NR_epoll_create,
    __NR_epoll_create1,
    __NR_epoll_ctl,
    __NR_epoll_wait,
    __NR_epoll_pwait,
    __NR_epoll_pwait2,
    __NR_pipe,
    __NR_pipe2,
    __NR_eventfd,
    __NR_eventfd2,
    __NR_signalfd,
    __NR_signalfd4,
    __NR_timerfd_create,
    __NR_inotify_init,
    __NR_inotify_init1,
    __NR_inotify_add_watch,
    __NR_fanotify_init,
    __NR_fanotify_mark,
    __NR_memfd_create,
    __NR_memfd_secret,
    __NR_userfaultfd,
    __NR_perf_event_open,
    __NR_pidfd_open,
    __NR_pidfd_getfd,
    __NR_bpf,
    __NR_fsopen,
    __NR_fsmount,
    __NR_fspick,
    __NR_fsconfig,
    __NR_landlock_create_ruleset,
    __NR_landlock_add_rule,
    __NR_mq_open,
    __NR_kcmp,
    __NR_finit_module,
    __NR_quotactl_fd,
    __NR_timerfd_settime,
    __NR_timerfd_gettime,
    __NR_inotify_rm_watch,
    // Asynchronous calls, which bypass the gate.
    __NR_io_uring_setup,
    __NR_io_uring_enter,
    __NR_io_uring_register,
    __NR_io_setup,
    __NR_io_destroy,
    __NR_io_submit,
    __NR_io_cancel,
    __NR_io_getevents,
    __NR_io_pgetevents,
    // Sockets.
    __NR_socket,
    __NR_socketpair,
    __NR_connect,
    __NR_bind,
    __NR_listen,
    __NR_accept,
    __NR_accept4,
    __NR_getsockname,
    __NR_getpeername,
    __NR_sendto,
    __NR_recvfrom,
    __NR_sendmsg,
    __NR_recvmsg,
    __NR_sendmmsg,
    __NR_recvmmsg,
    __NR_shutdown,
    __NR_setsockopt,
    __NR_getsockopt,
    // Mappings.
    __NR_mmap,
    __NR_munmap,
    __NR_mremap,
    __NR_msync,
    __NR_process_madvise,
    __NR_mprotect,
    __NR_pkey_mprotect,
    __NR_madvise,
    __NR_mlock,
    __NR_mlock2,
    __NR_mlockall,
    __NR_munlockall,
    __NR_mseal,
    __NR_remap_file_pages,
    __NR_shmat,
    // Processes.
    __NR_fork,
    __NR_vfork,
    __NR_clone,
    __NR_clone3,
    __NR_execve,
    __NR_execveat,
    __NR_exit,
    __NR_exit_group,
    __NR_ptrace,
    __NR_unshare,
    __NR_setns,
    __NR_prlimit64,
    __NR_setrlimit,
    __NR_getrlimit,
    // Signals.
    __NR_rt_sigaction,
    __NR_rt_sigprocmask,
    // Credentials.
    __NR_setuid,
    __NR_setgid,
    __NR_setreuid,
    __NR_setregid,
    __NR_setresuid,
    __NR_setresgid,
    __NR_setfsuid,
    __NR_setfsgid,
    __NR_setgroups,
    __NR_capset,
    __NR_prctl,
    __NR_seccomp,
    __NR_landlock_restrict_self,
];

const TABLE: [bool; CALLS] = {
    let mut table = [false; CALLS];
    let mut unknown = UNKNOWN as usize;
    while unknown < CALLS {
        table[unknown] = true;
        unknown += 1;
    }
    let mut at = 0;
    while at < GATED.len() {
        table[GATED[at] as usize] = true;
        at += 1;
    }
    table
};

/// Whether call `nr` must arrive at the gate.
pub const fn is_gated(nr: u32) -> bool {
    (nr as usize) < CALLS && TABLE[nr as usize]
}

/// A value that changes with the set of gated calls, so that site images made for another set are not used.
pub const GATED_SET: u32 = {
    let mut hash = 0x811c_9dc5u32;
    let mut nr = 0;
    while nr < CALLS {
        hash = (hash ^ (TABLE[nr] as u32)).wrapping_mul(0x0100_0193);
        nr += 1;
    }
    hash
};
