//! umask(2), and the calls that change ids, groups and capabilities. The kernel makes the change and the
//! process's slot follows, because the file system checks against the slot. In Linux credentials belong to
//! threads: a thread that changes them while there are others gets its own record.

use lp_abi::linux::*;
use lp_abi::{Errno, Fd};
use lp_region::sync::Ordering;
use lp_vfs::root;
use lp_vfs::{chdir, fork, namespace, sharing};

use crate::high::fd::descriptor;
use crate::high::fd::stand_in::stand_in_returns;
use crate::high::frame::handler::{handlers, kernel, thread};
use crate::high::life::credentials::{change, change_groups, entered_namespace, joined_namespace};
use crate::high::life::heritage;
use crate::high::life::way;
use crate::low::dispatch::NOT_OURS;

handlers! {
    /// umask(2).
    fn umask(task, mask: u32) {
        task.directories.get().umask.store(mask & 0o777, Ordering::Relaxed); // Relaxed: one word.
        NOT_OURS
    }

    /// setuid(2).
    fn setuid(task, id: usize) {
        change(task, || kernel!(__NR_setuid, id))
    }

    /// setgid(2).
    fn setgid(task, id: usize) {
        change(task, || kernel!(__NR_setgid, id))
    }

    /// setreuid(2).
    fn setreuid(task, real: usize, effective: usize) {
        change(task, || kernel!(__NR_setreuid, real, effective))
    }

    /// setregid(2).
    fn setregid(task, real: usize, effective: usize) {
        change(task, || kernel!(__NR_setregid, real, effective))
    }

    /// setresuid(2).
    fn setresuid(task, real: usize, effective: usize, saved: usize) {
        change(task, || kernel!(__NR_setresuid, real, effective, saved))
    }

    /// setresgid(2).
    fn setresgid(task, real: usize, effective: usize, saved: usize) {
        change(task, || kernel!(__NR_setresgid, real, effective, saved))
    }

    /// setfsuid(2), which returns the previous id.
    fn setfsuid(task, id: usize) {
        change(task, || kernel!(__NR_setfsuid, id))
    }

    /// setfsgid(2), which returns the previous id.
    fn setfsgid(task, id: usize) {
        change(task, || kernel!(__NR_setfsgid, id))
    }

    /// setgroups(2).
    fn setgroups(task, count: usize, list: usize) {
        change_groups(task, || kernel!(__NR_setgroups, count, list))
    }

    /// capset(2).
    fn capset(task, header: usize, data: usize) {
        change(task, || kernel!(__NR_capset, header, data))
    }

    /// unshare(2): in a new user namespace the process has all capabilities.
    fn unshare(task, flags: u32) {
        if flags & CLONE_NEWUSER != 0 && flags & !UNSHARED == 0 && root::of(task).is_some() {
            return Errno::EPERM.to_ret();
        }
        if flags & (CLONE_NEWNS | CLONE_NEWUSER) != 0 {
            way::before_losing(task);
        }
        if flags & CLONE_FILES != 0
            && let Err(errno) = fork::before_unsharing(task)
        {
            return errno.to_ret();
        }
        let call = || kernel!(__NR_unshare, flags);
        // The kernel's ksys_unshare: a new user or mount namespace implies CLONE_FS.
        let done = match flags & (CLONE_FS | CLONE_NEWNS | CLONE_NEWUSER) {
            0 => call(),
            _ => {
                heritage::expect();
                sharing::end(task, call)
            }
        };
        if done >= 0 && flags & CLONE_NEWUSER != 0 {
            entered_namespace(thread(), task);
        }
        done
    }

    /// setns(2).
    fn setns(task, fd: Fd, kinds: u32) {
        stand_in_returns!(task, fd, __NR_setns, kinds);
        if descriptor::is_hidden(task, fd) {
            return Errno::EBADF.to_ret();
        }
        if kinds != 0 && kinds & (CLONE_NEWUSER | CLONE_NEWNS) == 0 {
            return NOT_OURS;
        }
        way::before_losing(task);
        let has_mounts = kinds & CLONE_NEWNS != 0 || namespace::is_of_mounts(fd);
        let target = namespace::target(task, fd);
        let done = kernel!(__NR_setns, fd, kinds);
        if done >= 0 {
            joined_namespace(thread(), task, &target);
            // The working and the root directory are the namespace's.
            if has_mounts {
                chdir::left(task);
                chdir::root_left(task);
            }
        }
        done
    }
}

/// The flags of unshare(2).
const UNSHARED: u32 = CLONE_FS
    | CLONE_FILES
    | CLONE_SYSVSEM
    | CLONE_NEWNS
    | CLONE_NEWUTS
    | CLONE_NEWIPC
    | CLONE_NEWNET
    | CLONE_NEWUSER
    | CLONE_NEWPID
    | CLONE_NEWCGROUP
    | CLONE_NEWTIME;
