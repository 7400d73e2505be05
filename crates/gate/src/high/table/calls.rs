//! The table of calls: each number of the kernel's, what the gate does with it, and what it does in a process
//! that is apart. The dispatch tables, `tests/README.md` and tests are derived from it.
//!
//! A new call needs a row here and, if the gate must see it, one in [`lp_abi::gated`], which the builder of
//! site images reads. `tests/call_table.rs` compares the two.

use crate::high::calls::{
    access, aio, allocate, cachestat, chdir, chmod, close, credentials, dup, exec, fcntl, file_attr, filter,
    fsopen, fsync, getdents, handle, inotify, ioctl, kcmp, landlock, link, listmount, lseek, madvise, mkdir,
    mlock, mmap, mount, mprotect, mremap, open, open_tree, other_kind, poll, read, refused, remap_file_pages,
    rename, rlimit, sendfile, shmop, sigprocmask, socket, stat, statfs, statmount, truncate, utimensat,
    watch, write, xattr,
};
use crate::high::table::apart;
use crate::low::arrive::sigaction;
use crate::low::dispatch::dispatch_table;
use crate::low::live::{process, wait};
use lp_abi::linux::*;

/// What the gate does with a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Has a handler, because it takes a path or a descriptor or changes what the gate knows of the process.
    Handled,
    /// Left to the kernel: takes a descriptor of a special kind and fails with `EBADF` on every other file,
    /// as the kernel does on a placeholder.
    Special,
    /// Left to the kernel: takes neither a path nor a descriptor.
    Neither,
    /// Left to the kernel: no kernel implements it, or none ever did.
    Never,
}

/// A property of a call, as a bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mark {
    /// Its sites are patched although it has no handler.
    Gated = 1,
    /// It has a fast-path entry: see [`crate::low::arrive::entry_quick`].
    Quick = 2,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The kernel's number.
    pub number: u32,
    /// `__NR_` and the call's name.
    pub name: &'static str,
    /// What the gate does with it.
    pub class: Class,
    marks: u8,
}

impl Call {
    /// Whether its sites are patched.
    pub fn is_gated(&self) -> bool {
        matches!(self.class, Class::Handled) || self.marks & Mark::Gated as u8 != 0
    }

    /// Whether it has a fast-path entry.
    pub fn is_quick(&self) -> bool {
        self.marks & Mark::Quick as u8 != 0
    }
}

/// Defines the table: `NUMBER: Handled(HANDLER, HANDLER IN A PROCESS THAT IS APART) MARKS;` in ascending
/// order. A call that cannot concern a mount while the process has nothing of ours has no second handler.
macro_rules! calls {
    ($($nr:ident: $class:ident $(($handler:path $(, $apart:path)?))? $($mark:ident)*;)*) => {
        dispatch_table! {
            /// All calls that the gate answers or passes on modified.
            pub CALLS "lp_table_calls": $($($nr => $handler,)?)* .. => refused::absent,
        }
        dispatch_table! {
            /// The calls that a process which has not met a mount must not leave to the kernel unexamined.
            pub APART "lp_table_apart": $($($($nr => $apart,)?)?)* .. => refused::absent,
        }
        /// Every number that has a name, in ascending order.
        pub const LIST: &[Call] = &[$(Call {
            number: $nr,
            name: stringify!($nr),
            class: Class::$class,
            marks: 0 $(| Mark::$mark as u8)*,
        }),*];
    };
}

calls! {
    __NR_read: Handled(read::read, apart::first) Quick;
    __NR_write: Handled(write::write, apart::first) Quick;
    __NR_open: Handled(open::open, apart::open);
    __NR_close: Handled(close::close, apart::first);
    __NR_stat: Handled(stat::stat, apart::stat);
    __NR_fstat: Handled(stat::fstat, apart::first) Quick;
    __NR_lstat: Handled(stat::lstat, apart::lstat);
    __NR_poll: Handled(poll::poll);
    __NR_lseek: Handled(lseek::lseek, apart::first) Quick;
    __NR_mmap: Handled(mmap::mmap, apart::mmap);
    __NR_mprotect: Handled(mprotect::mprotect, apart::on_memory);
    __NR_munmap: Handled(mmap::munmap, apart::munmap);
    __NR_brk: Neither;
    __NR_rt_sigaction: Handled(sigaction::rt_sigaction, sigaction::rt_sigaction);
    __NR_rt_sigprocmask: Handled(sigprocmask::rt_sigprocmask);
    __NR_rt_sigreturn: Neither;
    __NR_ioctl: Handled(ioctl::ioctl, apart::first);
    __NR_pread64: Handled(read::pread64, apart::first) Quick;
    __NR_pwrite64: Handled(write::pwrite64, apart::first) Quick;
    __NR_readv: Handled(read::readv, apart::first);
    __NR_writev: Handled(write::writev, apart::first);
    __NR_access: Handled(access::access, apart::access);
    __NR_pipe: Handled(allocate::makes_descriptor);
    __NR_select: Handled(poll::select);
    __NR_sched_yield: Neither;
    __NR_mremap: Handled(mremap::mremap, apart::mremap);
    __NR_msync: Handled(fsync::msync);
    __NR_mincore: Neither;
    __NR_madvise: Handled(madvise::madvise, apart::on_memory);
    __NR_shmget: Neither;
    __NR_shmat: Handled(shmop::shmat, apart::replaces_memory);
    __NR_shmctl: Neither;
    __NR_dup: Handled(dup::dup, apart::first);
    __NR_dup2: Handled(dup::dup2, apart::first_two);
    __NR_pause: Neither;
    __NR_nanosleep: Neither;
    __NR_getitimer: Neither;
    __NR_alarm: Neither;
    __NR_setitimer: Neither;
    __NR_getpid: Neither;
    __NR_sendfile: Handled(sendfile::sendfile, apart::first_two);
    __NR_socket: Handled(allocate::makes_descriptor);
    __NR_connect: Handled(socket::connect, apart::names_socket);
    __NR_accept: Handled(socket::accept, apart::names_peer);
    __NR_sendto: Handled(socket::sendto, apart::sendto);
    __NR_recvfrom: Handled(socket::recvfrom, apart::names_peer);
    __NR_sendmsg: Handled(socket::sendmsg, apart::sendmsg);
    __NR_recvmsg: Handled(socket::recvmsg, apart::recvmsg);
    __NR_shutdown: Handled(other_kind::shutdown);
    __NR_bind: Handled(socket::bind, apart::names_socket);
    __NR_listen: Handled(other_kind::listen);
    __NR_getsockname: Handled(socket::getsockname, apart::names_peer);
    __NR_getpeername: Handled(socket::getpeername, apart::names_peer);
    __NR_socketpair: Handled(allocate::makes_descriptor);
    __NR_setsockopt: Handled(other_kind::setsockopt);
    __NR_getsockopt: Handled(other_kind::getsockopt);
    __NR_clone: Handled(process::clone, process::clone);
    __NR_fork: Handled(process::fork, process::fork);
    __NR_vfork: Handled(process::vfork, process::vfork);
    __NR_execve: Handled(exec::execve, apart::execve);
    __NR_exit: Handled(process::exit, process::exit);
    __NR_wait4: Handled(wait::lp_wait, wait::lp_wait);
    __NR_kill: Neither;
    __NR_uname: Neither;
    __NR_semget: Neither;
    __NR_semop: Neither;
    __NR_semctl: Neither;
    __NR_shmdt: Neither;
    __NR_msgget: Neither;
    __NR_msgsnd: Neither;
    __NR_msgrcv: Neither;
    __NR_msgctl: Neither;
    __NR_fcntl: Handled(fcntl::fcntl, apart::first);
    __NR_flock: Handled(fcntl::flock, apart::first);
    __NR_fsync: Handled(fsync::fsync, apart::first);
    __NR_fdatasync: Handled(fsync::fdatasync, apart::first);
    __NR_truncate: Handled(truncate::truncate, apart::truncate);
    __NR_ftruncate: Handled(truncate::ftruncate, apart::first);
    __NR_getdents: Handled(getdents::getdents, apart::getdents);
    __NR_getcwd: Handled(chdir::getcwd);
    __NR_chdir: Handled(chdir::chdir, apart::chdir);
    __NR_fchdir: Handled(chdir::fchdir, apart::first);
    __NR_rename: Handled(rename::rename, apart::rename);
    __NR_mkdir: Handled(mkdir::mkdir, apart::mkdir);
    __NR_rmdir: Handled(mkdir::rmdir, apart::rmdir);
    __NR_creat: Handled(open::creat, apart::creat);
    __NR_link: Handled(link::link, apart::link);
    __NR_unlink: Handled(mkdir::unlink, apart::unlink);
    __NR_symlink: Handled(link::symlink, apart::symlink);
    __NR_readlink: Handled(link::readlink, apart::readlink);
    __NR_chmod: Handled(chmod::chmod, apart::chmod);
    __NR_fchmod: Handled(chmod::fchmod, apart::first);
    __NR_chown: Handled(chmod::chown, apart::chown);
    __NR_fchown: Handled(chmod::fchown, apart::first);
    __NR_lchown: Handled(chmod::lchown, apart::lchown);
    __NR_umask: Handled(credentials::umask);
    __NR_gettimeofday: Neither;
    __NR_getrlimit: Handled(rlimit::getrlimit);
    __NR_getrusage: Neither;
    __NR_sysinfo: Neither;
    __NR_times: Neither;
    __NR_ptrace: Handled(process::ptrace, process::ptrace);
    __NR_getuid: Neither;
    __NR_syslog: Neither;
    __NR_getgid: Neither;
    __NR_setuid: Handled(credentials::setuid);
    __NR_setgid: Handled(credentials::setgid);
    __NR_geteuid: Neither;
    __NR_getegid: Neither;
    __NR_setpgid: Neither;
    __NR_getppid: Neither;
    __NR_getpgrp: Neither;
    __NR_setsid: Neither;
    __NR_setreuid: Handled(credentials::setreuid);
    __NR_setregid: Handled(credentials::setregid);
    __NR_getgroups: Neither;
    __NR_setgroups: Handled(credentials::setgroups);
    __NR_setresuid: Handled(credentials::setresuid);
    __NR_getresuid: Neither;
    __NR_setresgid: Handled(credentials::setresgid);
    __NR_getresgid: Neither;
    __NR_getpgid: Neither;
    __NR_setfsuid: Handled(credentials::setfsuid);
    __NR_setfsgid: Handled(credentials::setfsgid);
    __NR_getsid: Neither;
    __NR_capget: Neither;
    __NR_capset: Handled(credentials::capset);
    __NR_rt_sigpending: Neither;
    __NR_rt_sigtimedwait: Neither;
    __NR_rt_sigqueueinfo: Neither;
    __NR_rt_sigsuspend: Neither;
    __NR_sigaltstack: Neither;
    __NR_utime: Handled(utimensat::utime, apart::utime);
    __NR_mknod: Handled(mkdir::mknod, apart::mknod);
    __NR_uselib: Handled(refused::uselib, apart::at_once);
    __NR_personality: Neither;
    __NR_ustat: Neither;
    __NR_statfs: Handled(statfs::statfs, apart::statfs);
    __NR_fstatfs: Handled(statfs::fstatfs, apart::first);
    __NR_sysfs: Neither;
    __NR_getpriority: Neither;
    __NR_setpriority: Neither;
    __NR_sched_setparam: Neither;
    __NR_sched_getparam: Neither;
    __NR_sched_setscheduler: Neither;
    __NR_sched_getscheduler: Neither;
    __NR_sched_get_priority_max: Neither;
    __NR_sched_get_priority_min: Neither;
    __NR_sched_rr_get_interval: Neither;
    __NR_mlock: Handled(mlock::mlock);
    __NR_munlock: Neither;
    __NR_mlockall: Handled(mlock::mlockall, apart::locks_memory);
    __NR_munlockall: Handled(mlock::munlockall);
    __NR_vhangup: Neither;
    __NR_modify_ldt: Neither;
    __NR_pivot_root: Handled(refused::pivot_root, apart::at_once);
    __NR__sysctl: Never;
    __NR_prctl: Handled(filter::prctl, apart::prctl);
    __NR_arch_prctl: Neither;
    __NR_adjtimex: Neither;
    __NR_setrlimit: Handled(rlimit::setrlimit, apart::setrlimit);
    __NR_chroot: Handled(chdir::chroot, apart::chroot);
    __NR_sync: Neither Gated;
    __NR_acct: Handled(watch::acct, apart::acct);
    __NR_settimeofday: Neither;
    __NR_mount: Handled(mount::mount, apart::at_once);
    __NR_umount2: Handled(mount::umount2, apart::umount2);
    __NR_swapon: Handled(watch::swapon, apart::swapon);
    __NR_swapoff: Handled(refused::swapoff, apart::at_once);
    __NR_reboot: Neither;
    __NR_sethostname: Neither;
    __NR_setdomainname: Neither;
    __NR_iopl: Neither;
    __NR_ioperm: Neither;
    __NR_create_module: Never;
    __NR_init_module: Neither;
    __NR_delete_module: Neither;
    __NR_get_kernel_syms: Never;
    __NR_query_module: Never;
    __NR_quotactl: Handled(refused::quotactl, apart::at_once);
    __NR_nfsservctl: Never;
    __NR_getpmsg: Never;
    __NR_putpmsg: Never;
    __NR_afs_syscall: Never;
    __NR_tuxcall: Never;
    __NR_security: Never;
    __NR_gettid: Neither;
    __NR_readahead: Handled(fsync::readahead, apart::first);
    __NR_setxattr: Handled(xattr::setxattr, apart::setxattr);
    __NR_lsetxattr: Handled(xattr::lsetxattr, apart::lsetxattr);
    __NR_fsetxattr: Handled(xattr::fsetxattr, apart::first);
    __NR_getxattr: Handled(xattr::getxattr, apart::getxattr);
    __NR_lgetxattr: Handled(xattr::lgetxattr, apart::lgetxattr);
    __NR_fgetxattr: Handled(xattr::fgetxattr, apart::first);
    __NR_listxattr: Handled(xattr::listxattr, apart::listxattr);
    __NR_llistxattr: Handled(xattr::llistxattr, apart::llistxattr);
    __NR_flistxattr: Handled(xattr::flistxattr, apart::first);
    __NR_removexattr: Handled(xattr::removexattr, apart::removexattr);
    __NR_lremovexattr: Handled(xattr::lremovexattr, apart::lremovexattr);
    __NR_fremovexattr: Handled(xattr::fremovexattr, apart::first);
    __NR_tkill: Neither;
    __NR_time: Neither;
    __NR_futex: Neither;
    __NR_sched_setaffinity: Neither;
    __NR_sched_getaffinity: Neither;
    __NR_set_thread_area: Neither;
    __NR_io_setup: Neither Gated;
    __NR_io_destroy: Neither Gated;
    __NR_io_getevents: Neither Gated;
    __NR_io_submit: Handled(aio::io_submit, apart::io_submit);
    __NR_io_cancel: Neither Gated;
    __NR_get_thread_area: Neither;
    __NR_lookup_dcookie: Never;
    __NR_epoll_create: Handled(allocate::makes_descriptor);
    __NR_epoll_ctl_old: Never;
    __NR_epoll_wait_old: Never;
    __NR_remap_file_pages: Handled(remap_file_pages::remap_file_pages);
    __NR_getdents64: Handled(getdents::getdents64, apart::getdents);
    __NR_set_tid_address: Neither;
    __NR_restart_syscall: Neither;
    __NR_semtimedop: Neither;
    __NR_fadvise64: Handled(fsync::fadvise64, apart::first);
    __NR_timer_create: Neither;
    __NR_timer_settime: Neither;
    __NR_timer_gettime: Neither;
    __NR_timer_getoverrun: Neither;
    __NR_timer_delete: Neither;
    __NR_clock_settime: Neither;
    __NR_clock_gettime: Neither;
    __NR_clock_getres: Neither;
    __NR_clock_nanosleep: Neither;
    __NR_exit_group: Handled(process::exit_group, process::exit_group);
    __NR_epoll_wait: Handled(other_kind::epoll_wait);
    __NR_epoll_ctl: Handled(poll::epoll_ctl);
    __NR_tgkill: Neither;
    __NR_utimes: Handled(utimensat::utimes, apart::utimes);
    __NR_vserver: Never;
    __NR_mbind: Neither;
    __NR_set_mempolicy: Neither;
    __NR_get_mempolicy: Neither;
    __NR_mq_open: Handled(allocate::makes_descriptor);
    __NR_mq_unlink: Neither;
    __NR_mq_timedsend: Special;
    __NR_mq_timedreceive: Special;
    __NR_mq_notify: Special;
    __NR_mq_getsetattr: Special;
    __NR_kexec_load: Neither;
    __NR_waitid: Handled(wait::lp_wait, wait::lp_wait);
    __NR_add_key: Neither;
    __NR_request_key: Neither;
    __NR_keyctl: Neither;
    __NR_ioprio_set: Neither;
    __NR_ioprio_get: Neither;
    __NR_inotify_init: Handled(allocate::makes_descriptor);
    __NR_inotify_add_watch: Handled(inotify::inotify_add_watch, apart::inotify_add_watch);
    __NR_inotify_rm_watch: Handled(other_kind::inotify_rm_watch);
    __NR_migrate_pages: Neither;
    __NR_openat: Handled(open::openat, apart::openat);
    __NR_mkdirat: Handled(mkdir::mkdirat, apart::mkdirat);
    __NR_mknodat: Handled(mkdir::mknodat, apart::mknodat);
    __NR_fchownat: Handled(chmod::fchownat, apart::fchownat);
    __NR_futimesat: Handled(utimensat::futimesat, apart::futimesat);
    __NR_newfstatat: Handled(stat::newfstatat, apart::newfstatat) Quick;
    __NR_unlinkat: Handled(mkdir::unlinkat, apart::unlinkat);
    __NR_renameat: Handled(rename::renameat, apart::renameat);
    __NR_linkat: Handled(link::linkat, apart::linkat);
    __NR_symlinkat: Handled(link::symlinkat, apart::symlinkat);
    __NR_readlinkat: Handled(link::readlinkat, apart::readlinkat);
    __NR_fchmodat: Handled(chmod::fchmodat, apart::fchmodat);
    __NR_faccessat: Handled(access::faccessat, apart::faccessat);
    __NR_pselect6: Handled(poll::pselect6);
    __NR_ppoll: Handled(poll::ppoll);
    __NR_unshare: Handled(credentials::unshare, apart::unshare);
    __NR_set_robust_list: Neither;
    __NR_get_robust_list: Neither;
    __NR_splice: Handled(sendfile::splice, apart::first_and_third);
    __NR_tee: Handled(sendfile::tee, apart::first_two);
    __NR_sync_file_range: Handled(fsync::sync_file_range, apart::first);
    __NR_vmsplice: Handled(sendfile::vmsplice, apart::first);
    __NR_move_pages: Neither;
    __NR_utimensat: Handled(utimensat::utimensat, apart::utimensat);
    __NR_epoll_pwait: Handled(other_kind::epoll_pwait);
    __NR_signalfd: Handled(other_kind::signalfd);
    __NR_timerfd_create: Handled(allocate::makes_descriptor);
    __NR_eventfd: Handled(allocate::makes_descriptor);
    __NR_fallocate: Handled(truncate::fallocate, apart::first);
    __NR_timerfd_settime: Handled(other_kind::timerfd_settime);
    __NR_timerfd_gettime: Handled(other_kind::timerfd_gettime);
    __NR_accept4: Handled(socket::accept4, apart::names_peer);
    __NR_signalfd4: Handled(other_kind::signalfd4);
    __NR_eventfd2: Handled(allocate::makes_descriptor);
    __NR_epoll_create1: Handled(allocate::makes_descriptor);
    __NR_dup3: Handled(dup::dup3, apart::first_two);
    __NR_pipe2: Handled(allocate::makes_descriptor);
    __NR_inotify_init1: Handled(allocate::makes_descriptor);
    __NR_preadv: Handled(read::preadv, apart::first);
    __NR_pwritev: Handled(write::pwritev, apart::first);
    __NR_rt_tgsigqueueinfo: Neither;
    __NR_perf_event_open: Handled(allocate::makes_descriptor);
    __NR_recvmmsg: Handled(socket::recvmmsg, apart::recvmmsg);
    __NR_fanotify_init: Handled(allocate::makes_descriptor);
    __NR_fanotify_mark: Handled(watch::fanotify_mark, apart::fanotify_mark);
    __NR_prlimit64: Handled(rlimit::prlimit64, apart::prlimit64);
    __NR_name_to_handle_at: Handled(handle::name_to_handle_at, apart::name_to_handle_at);
    __NR_open_by_handle_at: Handled(handle::open_by_handle_at);
    __NR_clock_adjtime: Neither;
    __NR_syncfs: Handled(fsync::syncfs, apart::first);
    __NR_sendmmsg: Handled(socket::sendmmsg, apart::sendmmsg);
    __NR_setns: Handled(credentials::setns, apart::setns);
    __NR_getcpu: Neither;
    __NR_process_vm_readv: Neither;
    __NR_process_vm_writev: Neither;
    __NR_kcmp: Handled(kcmp::kcmp);
    __NR_finit_module: Handled(refused::finit_module);
    __NR_sched_setattr: Neither;
    __NR_sched_getattr: Neither;
    __NR_renameat2: Handled(rename::renameat2, apart::renameat2);
    __NR_seccomp: Handled(filter::seccomp, apart::at_once);
    __NR_getrandom: Neither;
    __NR_memfd_create: Handled(allocate::makes_descriptor);
    __NR_kexec_file_load: Special;
    __NR_bpf: Handled(refused::bpf, apart::at_once);
    __NR_execveat: Handled(exec::execveat, apart::execveat);
    __NR_userfaultfd: Handled(allocate::makes_descriptor);
    __NR_membarrier: Neither;
    __NR_mlock2: Handled(mlock::mlock2);
    __NR_copy_file_range: Handled(sendfile::copy_file_range, apart::first_and_third);
    __NR_preadv2: Handled(read::preadv2, apart::first);
    __NR_pwritev2: Handled(write::pwritev2, apart::first);
    __NR_pkey_mprotect: Handled(mprotect::pkey_mprotect, apart::on_memory);
    __NR_pkey_alloc: Neither;
    __NR_pkey_free: Neither;
    __NR_statx: Handled(stat::statx, apart::statx);
    __NR_io_pgetevents: Neither Gated;
    __NR_rseq: Neither;
    __NR_uretprobe: Neither;
    __NR_pidfd_send_signal: Special;
    __NR_io_uring_setup: Handled(refused::absent, refused::absent);
    __NR_io_uring_enter: Handled(refused::absent, refused::absent);
    __NR_io_uring_register: Handled(refused::absent, refused::absent);
    __NR_open_tree: Handled(open_tree::open_tree, apart::open_tree);
    __NR_move_mount: Handled(mount::move_mount, apart::at_once);
    __NR_fsopen: Handled(fsopen::fsopen, apart::at_once);
    __NR_fsconfig: Handled(fsopen::fsconfig, apart::at_once);
    __NR_fsmount: Handled(fsopen::fsmount);
    __NR_fspick: Handled(fsopen::fspick, apart::at_once);
    __NR_pidfd_open: Handled(allocate::makes_descriptor);
    __NR_clone3: Handled(process::clone3, process::clone3);
    __NR_close_range: Handled(close::close_range, apart::close_range);
    __NR_openat2: Handled(open::openat2, apart::openat2);
    __NR_pidfd_getfd: Handled(refused::pidfd_getfd, apart::at_once);
    __NR_faccessat2: Handled(access::faccessat2, apart::faccessat2);
    __NR_process_madvise: Handled(madvise::process_madvise, apart::at_once);
    __NR_epoll_pwait2: Handled(other_kind::epoll_pwait2);
    __NR_mount_setattr: Handled(mount::mount_setattr, apart::at_once);
    __NR_quotactl_fd: Handled(refused::quotactl_fd);
    __NR_landlock_create_ruleset: Handled(landlock::create_ruleset, apart::landlock_create_ruleset);
    __NR_landlock_add_rule: Handled(landlock::add_rule, apart::at_once);
    __NR_landlock_restrict_self: Handled(landlock::restrict_self, apart::at_once);
    __NR_memfd_secret: Handled(allocate::makes_descriptor);
    __NR_process_mrelease: Special;
    __NR_futex_waitv: Neither;
    __NR_set_mempolicy_home_node: Neither;
    __NR_cachestat: Handled(cachestat::cachestat);
    __NR_fchmodat2: Handled(chmod::fchmodat2, apart::fchmodat2);
    __NR_map_shadow_stack: Neither;
    __NR_futex_wake: Neither;
    __NR_futex_wait: Neither;
    __NR_futex_requeue: Neither;
    __NR_statmount: Handled(statmount::statmount, apart::at_once);
    __NR_listmount: Handled(listmount::listmount, apart::at_once);
    __NR_lsm_get_self_attr: Neither;
    __NR_lsm_set_self_attr: Neither;
    __NR_lsm_list_modules: Neither;
    __NR_mseal: Handled(mlock::mseal);
    __NR_setxattrat: Handled(xattr::setxattrat, apart::setxattrat);
    __NR_getxattrat: Handled(xattr::getxattrat, apart::getxattrat);
    __NR_listxattrat: Handled(xattr::listxattrat, apart::listxattrat);
    __NR_removexattrat: Handled(xattr::removexattrat, apart::removexattrat);
    __NR_open_tree_attr: Handled(open_tree::open_tree_attr, apart::at_once);
    __NR_file_getattr: Handled(file_attr::file_getattr, apart::at_once);
    __NR_file_setattr: Handled(file_attr::file_setattr, apart::at_once);
}
