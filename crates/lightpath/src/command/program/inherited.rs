//! What a run must not inherit: a system call filter (seccomp(2)) that denies calls of the gate, and
//! instances of io_uring(7), whose calls bypass the gate.

use std::os::fd::RawFd;

use crate::command::output::failure::{CANNOT_RUN, Failure};

/// A call as the gate makes it, with arguments that have no effect.
struct Call {
    name: &'static str,
    nr: libc::c_long,
    arguments: [usize; 4],
}

/// Lists the calls with their arguments; missing ones are zero.
macro_rules! calls {
    ($($name:ident($($argument:expr),*);)*) => {
        [$(Call { name: stringify!($name), nr: libc::$name, arguments: first_of(&[$($argument as usize),*]) }),*]
    };
}

const fn first_of(given: &[usize]) -> [usize; 4] {
    let mut all = [0; 4];
    let mut at = 0;
    while at < given.len() {
        all[at] = given[at];
        at += 1;
    }
    all
}

/// No descriptor.
const NONE: usize = usize::MAX;
/// `MEMBARRIER_CMD_GLOBAL_EXPEDITED` and the command that registers for it.
const BARRIERS: [usize; 2] = [1 << 1, 1 << 2];

/// The calls that must succeed.
fn needed() -> impl Iterator<Item = Call> {
    calls! {
        SYS_membarrier(BARRIERS[1]);
        SYS_membarrier(BARRIERS[0]);
        SYS_fcntl(NONE, libc::F_SETLK);
        SYS_fcntl(NONE, libc::F_GETLK);
        SYS_fcntl(NONE, libc::F_OFD_SETLK);
        SYS_fcntl(NONE, libc::F_OFD_GETLK);
        SYS_fcntl(NONE, libc::F_DUPFD);
        SYS_fcntl(NONE, libc::F_DUPFD_CLOEXEC);
        SYS_fcntl(NONE, libc::F_ADD_SEALS);
        SYS_mmap(0, 0, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        SYS_mmap(0, 0, libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_FIXED);
        SYS_mprotect(1, 0, libc::PROT_READ | libc::PROT_EXEC);
        SYS_munmap(1);
        SYS_madvise(0, 0, libc::MADV_POPULATE_WRITE);
        SYS_madvise(0, 0, libc::MADV_DONTDUMP);
        SYS_futex(0, libc::FUTEX_WAIT);
        SYS_futex(0, libc::FUTEX_WAKE);
        SYS_nanosleep();
        SYS_clock_gettime();
        SYS_memfd_create();
        SYS_dup3(NONE, NONE);
        SYS_fallocate(NONE);
        SYS_fchmod(NONE);
        SYS_pread64(NONE);
        SYS_pwrite64(NONE);
        SYS_writev(NONE);
        SYS_open();
        SYS_openat(NONE);
        SYS_fstat(NONE);
        SYS_newfstatat(NONE);
        SYS_stat();
        SYS_faccessat(NONE);
        SYS_readlink();
        SYS_lseek(NONE);
        SYS_getcwd();
        SYS_gettid();
        SYS_getresuid();
        SYS_getgroups();
        SYS_setfsuid(NONE);
        SYS_setfsgid(NONE);
        SYS_capget();
        SYS_prlimit64(0, libc::RLIMIT_FSIZE);
        SYS_prctl(libc::PR_SET_NAME);
        SYS_prctl(libc::PR_GET_SECCOMP);
        SYS_rt_sigaction();
        SYS_rt_sigprocmask(0, 0, 0, 8);
        SYS_rt_tgsigqueueinfo();
        SYS_execve();
        SYS_execveat(NONE);
        SYS_access();
        SYS_flock(NONE);
        SYS_ftruncate(NONE);
        SYS_statfs();
        SYS_sysinfo();
        SYS_getrandom();
        SYS_getpid();
        SYS_getuid();
        SYS_geteuid();
        SYS_getgid();
        SYS_getegid();
    }
    .into_iter()
}

/// Calls that Lightpath does without if they fail, as they may with an old kernel or in a container: they
/// must not kill.
fn tried() -> impl Iterator<Item = Call> {
    calls! {
        SYS_statx(NONE);
        SYS_openat2(NONE);
        SYS_faccessat2(NONE);
        SYS_fstatfs(NONE);
        SYS_getdents64(NONE);
        SYS_mincore(1);
        SYS_umask();
        SYS_socket(NONE);
        SYS_bind(NONE);
        SYS_connect(NONE);
        SYS_recvfrom(NONE);
        SYS_getsockname(NONE);
    }
    .into_iter()
}

/// Refuses to start under a filter that denies one of these calls. None of them may have been made before.
pub(crate) fn check_filter() -> Result<(), Failure> {
    if is_filtered()
        && let Some(name) = denied()
    {
        let line = format!("a filter in force here (seccomp) denies {name}(2), which Lightpath needs");
        return Err(Failure::new(CANNOT_RUN, line));
    }
    Ok(())
}

/// Whether the kernel reports that the process has a filter. Only opens and reads.
fn is_filtered() -> bool {
    let mut status = Vec::with_capacity(8192);
    let mut room = [0; 4096];
    if let Ok(mut file) = std::fs::File::open("/proc/self/status") {
        while let Ok(got @ 1..) = std::io::Read::read(&mut file, &mut room) {
            status.extend_from_slice(&room[..got]);
        }
    }
    let status = String::from_utf8_lossy(&status);
    status.lines().any(|line| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() != "0"))
}

/// The first call that the filter denies. A child makes them all, and reports each before it makes it, since
/// it may be killed there.
fn denied() -> Option<&'static str> {
    let (mut reader, writer) = std::io::pipe().ok()?;
    // SAFETY: the child makes only system calls; the launcher has one thread.
    match unsafe { libc::fork() } {
        0 => {
            drop(reader);
            try_all(std::os::fd::AsRawFd::as_raw_fd(&writer))
        }
        -1 => Some("fork"),
        child => {
            drop(writer);
            let mut said = Vec::new();
            let read = std::io::Read::read_to_end(&mut reader, &mut said);
            // SAFETY: the child is this process's own.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            let reached = read.map_or(0, |_| said.len());
            let mut calls = needed().chain(tried());
            // One byte before each call, and one more after the last.
            (reached <= needed().count() + tried().count())
                .then(|| calls.nth(reached.saturating_sub(1)).map_or("write", |call| &call.name[4..]))
        }
    }
}

fn try_all(out: RawFd) -> ! {
    let step = || {
        // SAFETY: one byte is read.
        unsafe { libc::syscall(libc::SYS_write, out, c"".as_ptr(), 1) };
    };
    for call in needed() {
        step();
        if [libc::EPERM, libc::ENOSYS, libc::EACCES].contains(&make(&call)) {
            // SAFETY: ends the child.
            unsafe { libc::_exit(1) };
        }
    }
    for call in tried() {
        step();
        make(&call);
    }
    step();
    // SAFETY: ends the child.
    unsafe { libc::_exit(0) }
}

/// Makes a call; returns its errno, or 0.
fn make(call: &Call) -> i32 {
    let [a, b, c, d] = call.arguments;
    // SAFETY: in the child, none of the calls has an effect with these arguments.
    match unsafe { libc::syscall(call.nr, a, b, c, d, 0, 0) } {
        -1 => std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
        _ => 0,
    }
}

/// Closes instances of io_uring.
pub(crate) fn close_rings() {
    let Ok(listed) = std::fs::read_dir("/proc/self/fd") else { return };
    let is_ring = |entry: &std::fs::DirEntry| {
        std::fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str() == "anon_inode:[io_uring]")
    };
    let rings: Vec<RawFd> = listed
        .flatten()
        .filter(is_ring)
        .filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()))
        .collect();
    for ring in rings {
        // SAFETY: the descriptor is inherited, and nothing in this process uses it.
        unsafe { libc::close(ring) };
    }
}
