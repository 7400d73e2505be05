//! The calls of a process that has not met a mount ([`crate::high::run::apart`]): [`APART`].
//!
//! A handler decides whether the call could concern a mount. If so, the process joins the run and the call
//! restarts through the table of all calls. False positives are allowed. Calls that cannot concern a mount
//! are not in the table, because nothing of ours is open, mapped or the working directory.

use crate::high::calls::shmop::SHM_REMAP;
use crate::high::life::join;
use crate::high::table::arguments::{PathArgument, paths};
use lp_abi::Fd;
use lp_abi::linux::*;
use lp_abi::prctl::{PR_SET_SECCOMP, PR_SET_SYSCALL_USER_DISPATCH};
use lp_region::ucopy;

use crate::high::calls::open_how::flags_of;
use crate::high::calls::{landlock, openat2};
use crate::high::fd::{directory, parent, placeholder};
use crate::high::frame::at::{At, Last, Route, Which};
use crate::high::frame::handler::{given, kernel};
use crate::high::frame::message::Message;
use crate::high::route::hostlink;
use crate::high::route::path::{is_hosts_without_links, may_be_link, route_apart};
use crate::high::run::{apart, own};
use crate::high::special::address;
use crate::low::dispatch::{AGAIN, NOT_OURS};
use crate::low::exec::check::SCRIPTS;
use crate::low::exec::load::Executed;
use crate::low::exec::run;
use crate::low::live::deferred;
use crate::low::thread::current;

/// Makes the process join, and the call restart.
#[cold]
fn join() -> isize {
    // SAFETY: in the gate `current` is set, and the record is the thread's own.
    join::join(unsafe { &*current::thread() });
    AGAIN
}

/// Whether a path may lead into a mount.
fn concerns_mount(at: At, last: Last) -> bool {
    !matches!(route_apart(Which::First, at, last), Route::Host)
}

/// Makes a call with paths. The kernel answers it unless a path may concern a mount, or the call fails as it
/// does where a link leads into a mount.
fn by_path(words: [usize; 6], places: &[PathArgument], host: impl Fn() -> isize) -> isize {
    if places.iter().any(|place| concerns_mount(place.of(&words), place.last())) {
        return join();
    }
    let done = host();
    if may_be_link(done) && places.iter().any(|place| is_link_into_mount(place.of(&words))) {
        return join();
    }
    done
}

fn is_link_into_mount(at: At) -> bool {
    hostlink::into_mount(Which::First, at, Last::Follow).is_some()
}

/// Makes a call on descriptors, which the kernel answers unless one of them is the gate's own.
fn by_descriptor(descriptors: &[usize]) -> isize {
    if descriptors.iter().any(|fd| apart::is_hidden(Fd::new(*fd as i32))) { join() } else { NOT_OURS }
}

/// Defines handlers of one kind each, with the arguments as words.
macro_rules! handlers {
    ($($(#[$doc:meta])* fn $name:ident($words:ident) $body:block)*) => {$(
        $(#[$doc])*
        pub(crate) unsafe extern "sysv64" fn $name(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
            let $words = [a, b, c, d, e, f];
            $body
        }
    )*};
}

/// Writes a handler for each call that takes paths.
macro_rules! path_handlers {
    ($($name:ident $nr:ident)*) => {$(
        pub(crate) unsafe extern "sysv64" fn $name(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
            by_path([a, b, c, d, e, f], const { paths($nr) }, || kernel!($nr, a, b, c, d, e, f))
        }
    )*};
}

/// The same for calls that may wait for the other end of a FIFO or a terminal. `$how` finds the flags and the
/// mode among the arguments.
macro_rules! open_handlers {
    ($($name:ident $nr:ident ($how:expr))*) => {$(
        pub(crate) unsafe extern "sysv64" fn $name(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
            let words = [a, b, c, d, e, f];
            let at = const { paths($nr) }[0].of(&words);
            let how: fn([usize; 6]) -> [usize; 2] = $how;
            opened(at, how(words)).unwrap_or_else(|| by_path(words, const { paths($nr) }, || {
                // SAFETY: the program's own call with its own arguments.
                let done = unsafe { deferred::programs_syscall($nr, words) };
                if done >= 0 {
                    parent::opened(Fd::new(done as i32), at);
                }
                done
            }))
        }
    )*};
}

/// Opens a file unless a symbolic link is on the way, if that needs to be known first: looking for one and
/// opening is one call then. `None` if the open is to be made otherwise.
fn opened(at: At, [flags, mode]: [usize; 2]) -> Option<isize> {
    let (flags, mode) = (flags as u32, mode as u32);
    if Last::of_open(flags) == Last::Name && concerns_mount(at, Last::Name) {
        return Some(join());
    }
    let how = hostlink::straight(flags, mode)?;
    let makes = hostlink::makes_behind_link(flags);
    if !(is_hosts_without_links(None, at) || makes && !concerns_mount(at, Last::Follow)) {
        return None;
    }
    let words = [at.dirfd.word(), at.path.addr(), (&raw const how).addr(), size_of::<open_how>(), 0, 0];
    // SAFETY: the program's own path, and a `how` that lives until the call returns.
    let done = unsafe { deferred::programs_syscall(__NR_openat2, words) };
    if done >= 0 {
        parent::opened(Fd::new(done as i32), at);
    }
    if hostlink::met_no_link(done) {
        return Some(done);
    }
    (makes && hostlink::by_links(Which::First, at, Last::Follow).is_some()).then(join)
}

open_handlers! {
    open __NR_open (|words| [words[1], words[2]])
    openat __NR_openat (|words| [words[2], words[3]])
    creat __NR_creat (|words| [(O_CREAT | O_WRONLY | O_TRUNC) as usize, words[1]])
}

path_handlers! {
    stat __NR_stat lstat __NR_lstat access __NR_access truncate __NR_truncate chdir __NR_chdir
    mkdir __NR_mkdir rmdir __NR_rmdir unlink __NR_unlink readlink __NR_readlink chmod __NR_chmod
    chown __NR_chown lchown __NR_lchown utime __NR_utime mknod __NR_mknod statfs __NR_statfs
    chroot __NR_chroot acct __NR_acct umount2 __NR_umount2 swapon __NR_swapon setxattr __NR_setxattr
    lsetxattr __NR_lsetxattr getxattr __NR_getxattr lgetxattr __NR_lgetxattr listxattr __NR_listxattr
    llistxattr __NR_llistxattr removexattr __NR_removexattr lremovexattr __NR_lremovexattr
    utimes __NR_utimes symlink __NR_symlink inotify_add_watch __NR_inotify_add_watch rename __NR_rename
    link __NR_link mkdirat __NR_mkdirat mknodat __NR_mknodat fchownat __NR_fchownat futimesat __NR_futimesat
    unlinkat __NR_unlinkat readlinkat __NR_readlinkat fchmodat __NR_fchmodat faccessat __NR_faccessat
    utimensat __NR_utimensat name_to_handle_at __NR_name_to_handle_at statx __NR_statx
    open_tree __NR_open_tree faccessat2 __NR_faccessat2 fchmodat2 __NR_fchmodat2 setxattrat __NR_setxattrat
    getxattrat __NR_getxattrat listxattrat __NR_listxattrat removexattrat __NR_removexattrat
    symlinkat __NR_symlinkat renameat __NR_renameat linkat __NR_linkat renameat2 __NR_renameat2
    fanotify_mark __NR_fanotify_mark
}

handlers! {
    /// newfstatat(2). With an empty path it is fstat(2).
    fn newfstatat(words) {
        // SAFETY: the copy routine handles bad pointers.
        if unsafe { ucopy::get(words[1] as *const u8) } == Ok(0) {
            return by_descriptor(&words[..1]);
        }
        let [dirfd, path, to, flags, ..] = words;
        by_path(words, const { paths(__NR_newfstatat) }, || kernel!(__NR_newfstatat, dirfd, path, to, flags))
    }

    /// openat2(2). `RESOLVE_IN_ROOT` makes absolute paths start from the directory.
    fn openat2(words) {
        let at = At { dirfd: Fd::new(words[0] as i32), path: given(words[1]) };
        let (flags, resolve) = flags_of(words[2], words[3]);
        let may_make = |at| hostlink::makes_behind_link(flags) && hostlink::meets_link(at, Last::Follow);
        let concerns = |(at, _)| concerns_mount(at, Last::of_open(flags)) || may_make(at);
        if openat2::start(at, resolve).is_ok_and(concerns) {
            return join();
        }
        by_path(words, const { paths(__NR_openat2) }, || {
            // SAFETY: the program's own call with its own arguments.
            unsafe { deferred::programs_syscall(__NR_openat2, words) }
        })
    }

    /// unshare(2): the map of a new user namespace is kept in the process's slot.
    fn unshare(words) {
        if words[0] as u32 & CLONE_NEWUSER != 0 { join() } else { NOT_OURS }
    }

    /// setns(2).
    fn setns(words) {
        let kinds = words[1] as u32;
        if kinds & CLONE_NEWUSER != 0 || kinds == 0 { join() } else { by_descriptor(&words[..1]) }
    }

    /// Calls on the descriptor in their first argument.
    fn first(words) {
        by_descriptor(&words[..1])
    }

    /// Calls on the descriptors in their first two arguments.
    fn first_two(words) {
        by_descriptor(&words[..2])
    }

    /// Calls on the descriptors in their first and third arguments.
    fn first_and_third(words) {
        by_descriptor(&[words[0], words[2]])
    }

    /// getdents(2) of a directory of descriptors must hide the gate's own, and one in which a mount appears
    /// lists it.
    fn getdents(words) {
        let fd = Fd::new(words[0] as i32);
        if directory::is_one(fd) || parent::is_one(fd) { join() } else { by_descriptor(&words[..1]) }
    }

    /// close_range(2).
    fn close_range(words) {
        let closed = words[0] as u32..=words[1] as u32;
        if apart::hidden().iter().any(|fd| closed.contains(&(fd.raw() as u32))) { join() } else { NOT_OURS }
    }

    /// mmap(2).
    fn mmap(words) {
        let [address, length, protection, flags, fd, offset] = words;
        if flags as u32 & (MAP_FIXED | MAP_FIXED_NOREPLACE) == MAP_FIXED
            && let Some(refused) = own::refused(address, length)
        {
            return refused;
        }
        if flags & MAP_ANONYMOUS as usize == 0 && apart::is_hidden(Fd::new(fd as i32)) {
            return join();
        }
        // SAFETY: the program's own call with its own arguments.
        unsafe { crate::low::cover::mapped_code::mmap(address, length, protection, flags, fd, offset) }
    }

    /// munmap(2).
    fn munmap(words) {
        let [address, length, a, b, c, d] = words;
        // SAFETY: the program's own call with its own arguments.
        let munmap = || unsafe { crate::low::live::process::munmap(address, length, a, b, c, d) };
        own::refused(address, length).unwrap_or_else(munmap)
    }

    /// mremap(2).
    fn mremap(words) {
        let [old, old_length, new_length, flags, new, _] = words;
        let moves_to = if flags as u32 & MREMAP_FIXED != 0 { own::refused(new, new_length) } else { None };
        own::refused(old, old_length.max(1)).or(moves_to).unwrap_or(NOT_OURS)
    }

    /// mprotect(2), pkey_mprotect(2), madvise(2).
    fn on_memory(words) {
        own::refused(words[0], words[1]).unwrap_or(NOT_OURS)
    }

    /// mlockall(2): with MCL_FUTURE the kernel would fill the region when it is mapped.
    fn locks_memory(_words) {
        join()
    }

    /// shmat(2): with `SHM_REMAP` it replaces what is mapped.
    fn replaces_memory(words) {
        if words[2] as u32 & SHM_REMAP != 0 { join() } else { NOT_OURS }
    }

    /// execve(2).
    fn execve(words) {
        let [path, argv, envp, ..] = words;
        execute(words, const { paths(__NR_execve) }, |thread| {
            // SAFETY: the program's own call; the pointers are the program's.
            unsafe { run::host(thread, Executed::path(path as *const u8), None, argv, envp, SCRIPTS) }
        })
    }

    /// execveat(2).
    fn execveat(words) {
        let [dirfd, path, argv, envp, flags, _] = words;
        execute(words, const { paths(__NR_execveat) }, |thread| {
            let (directory, flags) = (Fd::new(dirfd as i32), flags as u32 as usize);
            let file = Executed { directory, path: path as *const u8, flags };
            // SAFETY: the program's own call; the pointers are the program's.
            unsafe { run::host(thread, file, None, argv, envp, SCRIPTS) }
        })
    }

    /// bind(2) and connect(2) to a path.
    fn names_socket(words) {
        by_address(words[1], words[2])
    }

    /// sendto(2).
    fn sendto(words) {
        by_address(words[4], words[5])
    }

    /// sendmsg(2).
    fn sendmsg(words) {
        // SAFETY: the copy routine handles bad pointers; every bit pattern is a valid message.
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

    /// io_submit(2): the descriptors are in the program's memory.
    fn io_submit(_words) {
        join()
    }

    /// recvmsg(2), which may bring descriptors of ours.
    fn recvmsg(words) {
        // SAFETY: the copy routine handles bad pointers; every bit pattern is a valid message.
        match unsafe { ucopy::get(words[1] as *const Message) } {
            Ok(message) if message.control != 0 => join(),
            _ => gives_address(),
        }
    }

    /// recvmmsg(2).
    fn recvmmsg(words) {
        let [_, vector, count, ..] = words;
        match crate::high::frame::message::messages(vector, count as u32).any(|message| message.control != 0) {
            true => join(),
            false => gives_address(),
        }
    }

    /// accept(2), getsockname(2), getpeername(2), recvfrom(2): the address may be that of a socket in a
    /// mount, once one exists.
    fn names_peer(_words) {
        gives_address()
    }

    /// setrlimit(2): joining, or making a placeholder, may be impossible under a lower limit.
    fn setrlimit(words) {
        limits(words[0] as u32, words[1])
    }

    /// prlimit64(2): as for setrlimit.
    fn prlimit64(words) {
        limits(words[1] as u32, words[2])
    }

    /// landlock_create_ruleset(2): with flags it makes none.
    fn landlock_create_ruleset(words) {
        if words[2] as u32 == 0 { join() } else { landlock::about(words[0], words[1], words[2] as u32) }
    }

    /// prctl(2): under a filter joining may be impossible, and traps are refused.
    fn prctl(words) {
        match words[0] as u32 {
            PR_SET_SECCOMP | PR_SET_SYSCALL_USER_DISPATCH => join(),
            _ => NOT_OURS,
        }
    }

    /// seccomp(2), after which joining may be impossible; pidfd_getfd(2), which may name a descriptor of the
    /// gate's own; and calls too rare to examine their paths.
    fn at_once(_words) {
        join()
    }
}

/// Sets a limit; `new` may be null.
fn limits(resource: u32, new: usize) -> isize {
    // SAFETY: the copy routine handles bad pointers. The soft limit is the first word.
    let Ok(soft) = (unsafe { ucopy::get(new as *const u64) }) else { return NOT_OURS };
    let region = apart::extent().map_or(Fd::NONE, |(region, _)| region);
    match resource {
        RLIMIT_AS => join(),
        RLIMIT_NOFILE if placeholder::needs_base(region, soft) => join(),
        _ => NOT_OURS,
    }
}

/// Executes a host file. A link, or a script's missing interpreter, may lead into a mount.
fn execute(
    words: [usize; 6],
    places: &[PathArgument],
    host: impl Fn(&crate::low::thread::record::Thread) -> Option<isize>,
) -> isize {
    // SAFETY: the record is the thread's own.
    let thread = unsafe { &*current::thread() };
    by_path(words, places, || match run::with_room(thread, || host(thread)) {
        Some(done) if may_be_link(done) && exists(places[0].of(&words)) => join(),
        Some(done) => done,
        None => join(),
    })
}

fn exists(at: At) -> bool {
    // SAFETY: the kernel reads the path.
    unsafe { lp_abi::syscall!(__NR_faccessat, at.dirfd, at.path, 0) }.is_ok()
}

/// A call with a socket address.
fn by_address(at: usize, length: usize) -> isize {
    let path = address::path_of(at as *const u8, length).map(At::text);
    match path.is_some_and(|path| concerns_mount(path, Last::Follow) || is_link_into_mount(path)) {
        true => join(),
        false => NOT_OURS,
    }
}

/// The same for a message, which may also carry a descriptor of the gate's own.
fn by_message(message: &Message) -> isize {
    if message.control != 0 { join() } else { by_address(message.name, message.name_length as usize) }
}

/// A call that returns a socket address.
fn gives_address() -> isize {
    if apart::run().is_some_and(crate::high::special::node::any_of) { join() } else { NOT_OURS }
}
