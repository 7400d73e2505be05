//! The calls of a process that has not met a mount yet ([`crate::high::run::apart`]): [`APART`].
//!
//! A handler finds out whether the call could concern a mount, and if so has the process join the run and the call made
//! again by the table of all calls. It may err on that side. Calls that cannot concern one are not in the table: nothing
//! that is open, mapped or the working directory is ours.

use crate::high::life::join;
use lp_abi::Errno;
use lp_abi::linux::*;
use lp_region::ucopy;

use crate::high::fd::directory;
use crate::high::frame::at::{At, Last, Route, Which};
use crate::high::frame::handler::{kernel, ret};
use crate::high::frame::message::Message;
use crate::high::route::hostlink;
use crate::high::route::path::{may_be_link, route_apart};
use crate::high::run::apart;
use crate::high::special::address;
use crate::low::dispatch::{AGAIN, NOT_OURS, RESTART};
use crate::low::live::deferred;
use crate::low::thread::current;

/// Where a path is among a call's arguments: the directory's place, if it has one, and its own.
type Place = (Option<usize>, usize);

/// Path arguments as calls have them.
const FIRST: &[Place] = &[(None, 0)];
const SECOND: &[Place] = &[(None, 1)];
const BOTH: &[Place] = &[(None, 0), (None, 1)];
const AT: &[Place] = &[(Some(0), 1)];
const AT_SECOND: &[Place] = &[(Some(1), 2)];
const AT_BOTH: &[Place] = &[(Some(0), 1), (Some(2), 3)];
const AT_FOURTH: &[Place] = &[(Some(3), 4)];

/// `PR_SET_SECCOMP` of linux/prctl.h.
const PR_SET_SECCOMP: u32 = 22;

/// Has the process join, and the call made again.
#[cold]
fn join() -> isize {
    // SAFETY: current is set in the gate, and the record is the thread's own.
    join::join(unsafe { &mut *current::thread() });
    AGAIN
}

fn at(words: &[usize; 6], place: Place) -> At {
    let dirfd = place.0.map_or(AT_FDCWD, |index| words[index] as i32);
    At { dirfd, path: words[place.1] as *const u8 }
}

/// Whether a path may lead into a mount.
fn concerns_mount(at: At) -> bool {
    !matches!(route_apart(Which::First, at), Route::Host)
}

/// Makes a call with paths, which the kernel alone can answer unless it fails as it does where a link leads into a mount.
fn by_path(words: [usize; 6], places: &[Place], host: impl Fn() -> isize) -> isize {
    if places.iter().any(|place| concerns_mount(at(&words, *place))) {
        return join();
    }
    let done = host();
    if may_be_link(done) && places.iter().any(|place| is_link_into_mount(at(&words, *place))) {
        return join();
    }
    done
}

fn is_link_into_mount(at: At) -> bool {
    hostlink::into_mount(Which::First, at, Last::Follow).is_some()
}

/// Makes a call on descriptors, which is the kernel's unless one of them is the gate's own.
fn by_descriptor(descriptors: &[usize]) -> isize {
    if descriptors.iter().any(|fd| apart::is_hidden(*fd as i32)) { join() } else { NOT_OURS }
}

/// Writes handlers of one kind each, with the arguments as words.
macro_rules! handlers {
    ($($(#[$doc:meta])* fn $name:ident($words:ident) $body:block)*) => {$(
        $(#[$doc])*
        unsafe extern "sysv64" fn $name(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
            let $words = [a, b, c, d, e, f];
            $body
        }
    )*};
}

/// Writes a handler for each call that has paths at the same places.
macro_rules! path_handlers {
    ($($places:ident: $($name:ident $nr:ident)*;)*) => {$($(
        unsafe extern "sysv64" fn $name(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
            by_path([a, b, c, d, e, f], $places, || kernel!($nr, a, b, c, d, e, f))
        }
    )*)*};
}

/// The same for calls that may wait: a FIFO's or a terminal's other end.
macro_rules! open_handlers {
    ($($places:ident: $($name:ident $nr:ident)*;)*) => {$($(
        unsafe extern "sysv64" fn $name(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
            let words = [a, b, c, d, e, f];
            by_path(words, $places, || {
                // SAFETY: the program's own call.
                let done = ret(unsafe { deferred::blocking_syscall($nr, words) });
                if done == Errno::EINTR.to_ret() { RESTART } else { done }
            })
        }
    )*)*};
}

open_handlers! {
    FIRST: open __NR_open creat __NR_creat;
    AT: openat __NR_openat openat2 __NR_openat2;
}

path_handlers! {
    FIRST: stat __NR_stat lstat __NR_lstat access __NR_access truncate __NR_truncate chdir __NR_chdir
        mkdir __NR_mkdir rmdir __NR_rmdir unlink __NR_unlink readlink __NR_readlink chmod __NR_chmod
        chown __NR_chown lchown __NR_lchown utime __NR_utime mknod __NR_mknod statfs __NR_statfs
        chroot __NR_chroot acct __NR_acct umount2 __NR_umount2 swapon __NR_swapon setxattr __NR_setxattr
        lsetxattr __NR_lsetxattr getxattr __NR_getxattr lgetxattr __NR_lgetxattr listxattr __NR_listxattr
        llistxattr __NR_llistxattr removexattr __NR_removexattr lremovexattr __NR_lremovexattr
        utimes __NR_utimes;
    SECOND: symlink __NR_symlink inotify_add_watch __NR_inotify_add_watch;
    BOTH: rename __NR_rename link __NR_link;
    AT: mkdirat __NR_mkdirat mknodat __NR_mknodat fchownat __NR_fchownat futimesat __NR_futimesat
        unlinkat __NR_unlinkat readlinkat __NR_readlinkat fchmodat __NR_fchmodat faccessat __NR_faccessat
        utimensat __NR_utimensat name_to_handle_at __NR_name_to_handle_at statx __NR_statx
        open_tree __NR_open_tree faccessat2 __NR_faccessat2 fchmodat2 __NR_fchmodat2
        setxattrat __NR_setxattrat getxattrat __NR_getxattrat listxattrat __NR_listxattrat
        removexattrat __NR_removexattrat;
    AT_SECOND: symlinkat __NR_symlinkat;
    AT_BOTH: renameat __NR_renameat linkat __NR_linkat renameat2 __NR_renameat2;
    AT_FOURTH: fanotify_mark __NR_fanotify_mark;
}

handlers! {
    /// newfstatat(2): with an empty path it is fstat(2).
    fn newfstatat(words) {
        // SAFETY: the copy routine answers bad pointers.
        if unsafe { ucopy::get(words[1] as *const u8) } == Ok(0) {
            return by_descriptor(&words[..1]);
        }
        let [dirfd, path, to, flags, ..] = words;
        by_path(words, AT, || kernel!(__NR_newfstatat, dirfd, path, to, flags))
    }

    /// Calls on the descriptor that is their first argument.
    fn first(words) {
        by_descriptor(&words[..1])
    }

    /// On the first two.
    fn first_two(words) {
        by_descriptor(&words[..2])
    }

    /// On the first and the third.
    fn first_and_third(words) {
        by_descriptor(&[words[0], words[2]])
    }

    /// getdents(2) of a directory of descriptors: the gate's own must not show.
    fn getdents(words) {
        if directory::is_one(words[0] as i32) { join() } else { by_descriptor(&words[..1]) }
    }

    /// close_range(2).
    fn close_range(words) {
        let closed = words[0] as u32..=words[1] as u32;
        if apart::hidden().iter().any(|fd| closed.contains(&(*fd as u32))) { join() } else { NOT_OURS }
    }

    /// mmap(2).
    fn mmap(words) {
        let [address, length, protection, flags, fd, offset] = words;
        if flags & MAP_ANONYMOUS as usize == 0 && apart::is_hidden(fd as i32) {
            return join();
        }
        // SAFETY: the program's call.
        unsafe { crate::low::cover::mapping::mmap(address, length, protection, flags, fd, offset) }
    }

    /// execve(2).
    fn execve(words) {
        let [path, argv, envp, ..] = words;
        execute(words, FIRST, |thread| {
            // SAFETY: the program's own call.
            unsafe { crate::low::exec::run::host(thread, AT_FDCWD as isize, path as *const u8, argv, envp, 0) }
        })
    }

    /// execveat(2).
    fn execveat(words) {
        let [dirfd, path, argv, envp, flags, _] = words;
        execute(words, AT, |thread| {
            let dirfd = dirfd as i32 as isize;
            // SAFETY: the program's own call.
            unsafe { crate::low::exec::run::host(thread, dirfd, path as *const u8, argv, envp, flags as u32 as usize) }
        })
    }

    /// bind(2), connect(2): to a path.
    fn names_socket(words) {
        by_address(words[1], words[2])
    }

    /// sendto(2).
    fn sendto(words) {
        by_address(words[4], words[5])
    }

    /// sendmsg(2).
    fn sendmsg(words) {
        // SAFETY: the copy routine answers bad pointers; every bit pattern is a message.
        unsafe { ucopy::get(words[1] as *const Message) }.map_or(NOT_OURS, |message| by_message(&message))
    }

    /// sendmmsg(2).
    fn sendmmsg(words) {
        let [_, vector, count, ..] = words;
        let concerns = |message: Message| by_message(&message) != NOT_OURS;
        match crate::high::frame::message::messages(vector, count as u32).any(concerns) {
            true => AGAIN,
            false => NOT_OURS,
        }
    }

    /// recvmsg(2), which may bring descriptors of ours.
    fn recvmsg(words) {
        // SAFETY: as above.
        match unsafe { ucopy::get(words[1] as *const Message) } {
            Ok(message) if message.control != 0 => join(),
            _ => gives_address(),
        }
    }

    /// accept(2), getsockname(2), getpeername(2), recvfrom(2): the address may be that of a socket in a mount, once there is one.
    fn names_peer(_words) {
        gives_address()
    }

    /// setrlimit(2): there may be no room for the region afterwards.
    fn setrlimit(words) {
        if words[0] as u32 == RLIMIT_AS { join() } else { NOT_OURS }
    }

    /// prlimit64(2), likewise.
    fn prlimit64(words) {
        if words[1] as u32 == RLIMIT_AS && words[2] != 0 { join() } else { NOT_OURS }
    }

    /// prctl(2): a filter might not let the process join afterwards.
    fn prctl(words) {
        if words[0] as u32 == PR_SET_SECCOMP { join() } else { NOT_OURS }
    }

    /// seccomp(2), landlock_restrict_self(2), likewise; pidfd_getfd(2), which may name a descriptor of the
    /// gate's own; and calls so rare that a look at their paths is not worth its code.
    fn at_once(_words) {
        join()
    }
}

/// Executes a file of the host; a link, or a script's interpreter that is not there, may lead into a mount.
fn execute(
    words: [usize; 6],
    places: &[Place],
    host: impl Fn(&mut crate::low::thread::record::Thread) -> Option<isize>,
) -> isize {
    // SAFETY: the record is the thread's own.
    by_path(words, places, || match host(unsafe { &mut *current::thread() }) {
        Some(done) if may_be_link(done) && exists(at(&words, places[0])) => join(),
        Some(done) => done,
        None => join(),
    })
}

fn exists(at: At) -> bool {
    // SAFETY: the kernel reads the path.
    unsafe { lp_abi::syscall!(__NR_faccessat, at.dirfd, at.path, 0) }.is_ok()
}

/// A call with the address of a socket.
fn by_address(at: usize, length: usize) -> isize {
    let path = address::path_of(at as *const u8, length).map(|path| At::cwd(path.as_ptr()));
    match path.is_some_and(|path| concerns_mount(path) || is_link_into_mount(path)) {
        true => join(),
        false => NOT_OURS,
    }
}

/// The same for a message, which may also carry a descriptor of the gate's own.
fn by_message(message: &Message) -> isize {
    if message.control != 0 { join() } else { by_address(message.name, message.name_length as usize) }
}

/// A call that gives the address of a socket.
fn gives_address() -> isize {
    if apart::run().is_some_and(crate::high::special::node::any_of) { join() } else { NOT_OURS }
}

crate::low::dispatch::dispatch_table! {
    /// What a process that has not met a mount must not leave to the kernel unseen, in rising order.
    APART "lp_table_apart":
    __NR_read => first,
    __NR_write => first,
    __NR_open => open,
    __NR_close => first,
    __NR_stat => stat,
    __NR_fstat => first,
    __NR_lstat => lstat,
    __NR_lseek => first,
    __NR_mmap => mmap,
    __NR_munmap => crate::low::live::process::munmap,
    __NR_rt_sigaction => crate::low::arrive::sigaction::rt_sigaction,
    __NR_ioctl => first,
    __NR_pread64 => first,
    __NR_pwrite64 => first,
    __NR_readv => first,
    __NR_writev => first,
    __NR_access => access,
    __NR_dup => first,
    __NR_dup2 => first_two,
    __NR_sendfile => first_two,
    __NR_connect => names_socket,
    __NR_accept => names_peer,
    __NR_sendto => sendto,
    __NR_recvfrom => names_peer,
    __NR_sendmsg => sendmsg,
    __NR_recvmsg => recvmsg,
    __NR_bind => names_socket,
    __NR_getsockname => names_peer,
    __NR_getpeername => names_peer,
    __NR_clone => crate::low::live::process::clone,
    __NR_fork => crate::low::live::process::fork,
    __NR_vfork => crate::low::live::process::vfork,
    __NR_execve => execve,
    __NR_exit => crate::low::live::process::exit,
    __NR_fcntl => first,
    __NR_flock => first,
    __NR_fsync => first,
    __NR_fdatasync => first,
    __NR_truncate => truncate,
    __NR_ftruncate => first,
    __NR_getdents => getdents,
    __NR_chdir => chdir,
    __NR_fchdir => first,
    __NR_rename => rename,
    __NR_mkdir => mkdir,
    __NR_rmdir => rmdir,
    __NR_creat => creat,
    __NR_link => link,
    __NR_unlink => unlink,
    __NR_symlink => symlink,
    __NR_readlink => readlink,
    __NR_chmod => chmod,
    __NR_fchmod => first,
    __NR_chown => chown,
    __NR_fchown => first,
    __NR_lchown => lchown,
    __NR_utime => utime,
    __NR_mknod => mknod,
    __NR_uselib => at_once,
    __NR_statfs => statfs,
    __NR_fstatfs => first,
    __NR_pivot_root => at_once,
    __NR_prctl => prctl,
    __NR_setrlimit => setrlimit,
    __NR_chroot => chroot,
    __NR_acct => acct,
    __NR_mount => at_once,
    __NR_umount2 => umount2,
    __NR_swapon => swapon,
    __NR_swapoff => at_once,
    __NR_quotactl => at_once,
    __NR_readahead => first,
    __NR_setxattr => setxattr,
    __NR_lsetxattr => lsetxattr,
    __NR_fsetxattr => first,
    __NR_getxattr => getxattr,
    __NR_lgetxattr => lgetxattr,
    __NR_fgetxattr => first,
    __NR_listxattr => listxattr,
    __NR_llistxattr => llistxattr,
    __NR_flistxattr => first,
    __NR_removexattr => removexattr,
    __NR_lremovexattr => lremovexattr,
    __NR_fremovexattr => first,
    __NR_io_setup => crate::high::calls::refused::absent,
    __NR_io_destroy => crate::high::calls::refused::absent,
    __NR_io_getevents => crate::high::calls::refused::absent,
    __NR_io_submit => crate::high::calls::refused::absent,
    __NR_io_cancel => crate::high::calls::refused::absent,
    __NR_getdents64 => getdents,
    __NR_fadvise64 => first,
    __NR_exit_group => crate::low::live::process::exit_group,
    __NR_utimes => utimes,
    __NR_inotify_add_watch => inotify_add_watch,
    __NR_openat => openat,
    __NR_mkdirat => mkdirat,
    __NR_mknodat => mknodat,
    __NR_fchownat => fchownat,
    __NR_futimesat => futimesat,
    __NR_newfstatat => newfstatat,
    __NR_unlinkat => unlinkat,
    __NR_renameat => renameat,
    __NR_linkat => linkat,
    __NR_symlinkat => symlinkat,
    __NR_readlinkat => readlinkat,
    __NR_fchmodat => fchmodat,
    __NR_faccessat => faccessat,
    __NR_splice => first_and_third,
    __NR_tee => first_two,
    __NR_sync_file_range => first,
    __NR_vmsplice => first,
    __NR_utimensat => utimensat,
    __NR_fallocate => first,
    __NR_accept4 => names_peer,
    __NR_dup3 => first_two,
    __NR_preadv => first,
    __NR_pwritev => first,
    __NR_fanotify_mark => fanotify_mark,
    __NR_prlimit64 => prlimit64,
    __NR_name_to_handle_at => name_to_handle_at,
    __NR_syncfs => first,
    __NR_sendmmsg => sendmmsg,
    __NR_renameat2 => renameat2,
    __NR_seccomp => at_once,
    __NR_bpf => at_once,
    __NR_execveat => execveat,
    __NR_copy_file_range => first_and_third,
    __NR_preadv2 => first,
    __NR_pwritev2 => first,
    __NR_statx => statx,
    __NR_io_pgetevents => crate::high::calls::refused::absent,
    __NR_io_uring_setup => crate::high::calls::refused::absent,
    __NR_io_uring_enter => crate::high::calls::refused::absent,
    __NR_io_uring_register => crate::high::calls::refused::absent,
    __NR_open_tree => open_tree,
    __NR_move_mount => at_once,
    __NR_fsconfig => at_once,
    __NR_fspick => at_once,
    __NR_clone3 => crate::low::live::process::clone3,
    __NR_close_range => close_range,
    __NR_openat2 => openat2,
    __NR_pidfd_getfd => at_once,
    __NR_faccessat2 => faccessat2,
    __NR_mount_setattr => at_once,
    __NR_landlock_restrict_self => at_once,
    __NR_fchmodat2 => fchmodat2,
    __NR_setxattrat => setxattrat,
    __NR_getxattrat => getxattrat,
    __NR_listxattrat => listxattrat,
    __NR_removexattrat => removexattrat,
    __NR_open_tree_attr => at_once,
    __NR_file_getattr => at_once,
    __NR_file_setattr => at_once,
    .. => crate::high::calls::refused::absent,
}
