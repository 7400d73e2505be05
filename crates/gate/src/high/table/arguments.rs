//! Which arguments of a call are paths, and which are descriptors.

// Calls are patterns here, under the kernel's names.
#![allow(non_upper_case_globals)]

use lp_abi::Fd;
use lp_abi::linux::*;

use crate::high::frame::at::{At, Last};
use crate::high::frame::handler::given;

/// Position of a path among a call's arguments.
#[derive(Clone, Copy)]
pub(crate) struct PathArgument {
    /// The index of the directory's descriptor, if the call takes one.
    directory: Option<usize>,
    /// The index of the path itself.
    path: usize,
    /// Whether the call is about the name.
    is_name: bool,
}

impl PathArgument {
    /// The path in a call's arguments.
    pub(crate) fn of(&self, words: &[usize; 6]) -> At {
        let dirfd = self.directory.map_or(Fd::CWD, |index| Fd::new(words[index] as i32));
        At { dirfd, path: given(words[self.path]) }
    }

    /// [`Last::Name`] if the call is about the name. Whether another call follows a link in the last component
    /// makes no difference here.
    pub(crate) fn last(&self) -> Last {
        if self.is_name { Last::Name } else { Last::Follow }
    }

    const fn name(self) -> PathArgument {
        PathArgument { is_name: true, ..self }
    }
}

const fn alone(path: usize) -> PathArgument {
    PathArgument { directory: None, path, is_name: false }
}

const fn from(directory: usize, path: usize) -> PathArgument {
    PathArgument { directory: Some(directory), path, is_name: false }
}

/// The paths that a call takes.
pub(crate) const fn paths(nr: u32) -> &'static [PathArgument] {
    match nr {
        __NR_open | __NR_creat | __NR_execve | __NR_stat | __NR_lstat | __NR_access | __NR_truncate
        | __NR_chdir | __NR_readlink | __NR_chmod | __NR_chown | __NR_lchown | __NR_utime | __NR_utimes
        | __NR_statfs | __NR_chroot | __NR_acct | __NR_umount2 | __NR_swapon | __NR_swapoff | __NR_uselib
        | __NR_setxattr | __NR_lsetxattr | __NR_getxattr | __NR_lgetxattr | __NR_listxattr
        | __NR_llistxattr | __NR_removexattr | __NR_lremovexattr => const { &[alone(0)] },
        __NR_mkdir | __NR_rmdir | __NR_unlink | __NR_mknod => const { &[alone(0).name()] },
        __NR_inotify_add_watch | __NR_quotactl => const { &[alone(1)] },
        __NR_symlink => const { &[alone(1).name()] },
        __NR_mount | __NR_pivot_root => const { &[alone(0), alone(1)] },
        __NR_rename | __NR_link => const { &[alone(0), alone(1).name()] },
        __NR_openat
        | __NR_execveat
        | __NR_openat2
        | __NR_fchownat
        | __NR_futimesat
        | __NR_newfstatat
        | __NR_readlinkat
        | __NR_fchmodat
        | __NR_faccessat
        | __NR_utimensat
        | __NR_name_to_handle_at
        | __NR_statx
        | __NR_open_tree
        | __NR_open_tree_attr
        | __NR_faccessat2
        | __NR_fchmodat2
        | __NR_setxattrat
        | __NR_getxattrat
        | __NR_listxattrat
        | __NR_removexattrat
        | __NR_file_getattr
        | __NR_file_setattr
        | __NR_mount_setattr
        | __NR_fspick => const { &[from(0, 1)] },
        __NR_mkdirat | __NR_unlinkat | __NR_mknodat => const { &[from(0, 1).name()] },
        __NR_symlinkat => const { &[from(1, 2).name()] },
        __NR_move_mount => const { &[from(0, 1), from(2, 3)] },
        __NR_renameat | __NR_linkat | __NR_renameat2 => const { &[from(0, 1), from(2, 3).name()] },
        __NR_fanotify_mark | __NR_fsconfig => const { &[from(3, 4)] },
        _ => &[],
    }
}

/// The descriptors that a call without paths takes.
pub(crate) fn descriptors(nr: u32) -> &'static [usize] {
    match nr {
        __NR_mmap => &[4],
        __NR_dup2 | __NR_dup3 | __NR_sendfile | __NR_tee | __NR_pidfd_getfd => &[0, 1],
        __NR_splice | __NR_copy_file_range | __NR_epoll_ctl => &[0, 2],
        _ => &[0],
    }
}
