//! Every number of the kernel's call table is classified: a call that takes a path or a descriptor is
//! handled, or the kernel's own answer for a placeholder is Linux's for any file; a call that could pass the
//! gate by does not exist.

use lp_abi::gated::{CALLS, UNKNOWN, is_gated};
use lp_abi::linux::*;
use lp_gate::calls;

/// What is known of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    /// It has a handler.
    Handled,
    /// It takes a descriptor of a special kind. On every other file Linux gives `EBADF`, as the kernel does
    /// on a placeholder.
    Special,
    /// It takes neither a path nor a descriptor.
    Neither,
    /// No kernel has it any more, or it was never more than a number.
    Never,
}
use Class::{Handled, Neither, Never, Special};

macro_rules! numbers {
    ($($name:ident)*) => { &[$($name),*] };
}

const SPECIAL: &[u32] = numbers! {
    __NR_mq_timedsend __NR_mq_timedreceive __NR_mq_notify __NR_mq_getsetattr __NR_pidfd_send_signal
    __NR_process_madvise __NR_process_mrelease __NR_kexec_file_load
};

/// mq_unlink: its names are not paths.
const NEITHER: &[u32] = numbers! {
    __NR_rt_sigprocmask __NR_rt_sigreturn __NR_brk __NR_sched_yield __NR_mincore __NR_madvise __NR_shmget __NR_shmat
    __NR_shmctl __NR_pause __NR_nanosleep __NR_getitimer __NR_alarm __NR_setitimer __NR_getpid __NR_kill
    __NR_uname __NR_semget __NR_semop __NR_semctl __NR_shmdt __NR_msgget __NR_msgsnd __NR_msgrcv __NR_msgctl
    __NR_gettimeofday __NR_getrlimit __NR_getrusage __NR_sysinfo __NR_times __NR_ptrace __NR_getuid __NR_syslog
    __NR_getgid __NR_geteuid __NR_getegid __NR_setpgid __NR_getppid __NR_getpgrp __NR_setsid __NR_getgroups
    __NR_getresuid __NR_getresgid __NR_getpgid __NR_getsid __NR_capget __NR_rt_sigpending __NR_rt_sigtimedwait
    __NR_rt_sigqueueinfo __NR_rt_sigsuspend __NR_sigaltstack __NR_personality __NR_ustat __NR_sysfs __NR_getpriority
    __NR_setpriority __NR_sched_setparam __NR_sched_getparam __NR_sched_setscheduler __NR_sched_getscheduler
    __NR_sched_get_priority_max __NR_sched_get_priority_min __NR_sched_rr_get_interval __NR_mlock __NR_munlock
    __NR_mlockall __NR_munlockall __NR_vhangup __NR_modify_ldt __NR_arch_prctl __NR_adjtimex __NR_sync
    __NR_settimeofday __NR_reboot __NR_sethostname __NR_setdomainname __NR_iopl __NR_ioperm __NR_init_module
    __NR_delete_module __NR_gettid __NR_tkill __NR_time __NR_futex __NR_sched_setaffinity __NR_sched_getaffinity
    __NR_set_thread_area __NR_get_thread_area __NR_set_tid_address __NR_restart_syscall __NR_semtimedop
    __NR_timer_create __NR_timer_settime __NR_timer_gettime __NR_timer_getoverrun __NR_timer_delete
    __NR_clock_settime __NR_clock_gettime __NR_clock_getres __NR_clock_nanosleep __NR_tgkill __NR_mbind
    __NR_set_mempolicy __NR_get_mempolicy __NR_mq_unlink __NR_kexec_load __NR_add_key __NR_request_key __NR_keyctl
    __NR_ioprio_set __NR_ioprio_get __NR_migrate_pages __NR_unshare __NR_set_robust_list __NR_get_robust_list
    __NR_move_pages __NR_rt_tgsigqueueinfo __NR_clock_adjtime __NR_getcpu __NR_process_vm_readv
    __NR_process_vm_writev __NR_sched_setattr __NR_sched_getattr __NR_getrandom __NR_membarrier
    __NR_mlock2 __NR_pkey_mprotect __NR_pkey_alloc __NR_pkey_free __NR_rseq __NR_uretprobe __NR_futex_waitv
    __NR_set_mempolicy_home_node __NR_map_shadow_stack __NR_futex_wake __NR_futex_wait __NR_futex_requeue
    __NR_statmount __NR_listmount __NR_lsm_get_self_attr __NR_lsm_set_self_attr __NR_lsm_list_modules __NR_mseal
};

const NEVER: &[u32] = numbers! {
    __NR__sysctl __NR_create_module __NR_get_kernel_syms __NR_query_module __NR_nfsservctl __NR_getpmsg __NR_putpmsg
    __NR_afs_syscall __NR_tuxcall __NR_security __NR_lookup_dcookie __NR_epoll_ctl_old __NR_epoll_wait_old
    __NR_vserver
};

/// uprobe(2), which only the kernel's own trampolines make.
const UPROBE: u32 = 336;
/// Numbers between the old calls and those that all machines share.
const GAP: std::ops::Range<u32> = UPROBE + 1..424;

fn classes(nr: u32) -> Vec<Class> {
    let mut classes = Vec::new();
    let known = [
        (calls::CALLS.handles(nr), Handled),
        (SPECIAL.contains(&nr), Special),
        (NEITHER.contains(&nr) || nr == UPROBE, Neither),
        (NEVER.contains(&nr) || GAP.contains(&nr), Never),
    ];
    classes.extend(known.iter().filter(|(is_it, _)| *is_it).map(|(_, class)| *class));
    classes
}

#[test]
fn each_number_has_one_class() {
    let wrong: Vec<_> =
        (0..CALLS as u32).map(|nr| (nr, classes(nr))).filter(|(_, classes)| classes.len() != 1).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn what_is_handled_arrives() {
    let missed: Vec<u32> =
        (0..CALLS as u32).filter(|nr| calls::CALLS.handles(*nr) && !is_gated(*nr)).collect();
    assert!(missed.is_empty(), "no site of these is patched: {missed:?}");
}

#[test]
fn unknown_and_asynchronous_calls_do_not_exist() {
    let absent = [
        __NR_io_uring_setup,
        __NR_io_uring_enter,
        __NR_io_uring_register,
        __NR_io_setup,
        __NR_io_submit,
        __NR_io_destroy,
        __NR_io_cancel,
        __NR_io_getevents,
        __NR_io_pgetevents,
    ];
    let handler = |nr: u32| calls::CALLS.handler(nr).expect("a handler") as usize;
    let expected = handler(UNKNOWN);
    for nr in absent.into_iter().chain(UNKNOWN..CALLS as u32) {
        assert_eq!(handler(nr), expected, "{nr}");
    }
    // SAFETY: it looks at nothing.
    let answer = unsafe { calls::CALLS.handler(UNKNOWN).expect("a handler")(0, 0, 0, 0, 0, 0) };
    assert_eq!(answer, lp_abi::Errno::ENOSYS.to_ret());
}
