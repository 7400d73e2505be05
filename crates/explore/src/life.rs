//! Calls of [`crate::inside`] that begin, replace or end a process or thread, and that mount: what they need
//! beforehand, and how the conductor learns that they are over.

use std::arch::asm;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use crate::control::{CHILDREN, Page, Slot, VICTIM};
use crate::mine::{Mine, ended_well, errno, right};

/// How a victim shows that its call is over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It reports.
    Report,
    /// It reports from a new image of the program.
    Image,
    /// Its thread is gone.
    Thread,
    /// The program has ended.
    Program,
}

/// The end of a victim.
pub(crate) fn end_of(victim: &str) -> End {
    match victim {
        "exec" => End::Image,
        "exit" => End::Thread,
        "exit_group" => End::Program,
        _ => End::Report,
    }
}

/// A child that executes a program in its parent's memory.
pub(crate) fn vfork(_: &Mine) -> i64 {
    let program = c"/bin/true";
    let (arguments, environment) = ([program.as_ptr(), std::ptr::null()], [std::ptr::null::<i8>()]);
    let pid: i32;
    // SAFETY: the child only executes or ends, and changes nothing of this function's but below its stack;
    // strings and arrays live across the call.
    unsafe {
        asm!(
            "call {vfork}",
            "test eax, eax",
            "jnz 2f",
            "mov rdi, r12",
            "mov rsi, r13",
            "mov rdx, r14",
            "call {execve}",
            "mov edi, 127",
            "call {exit}",
            "2:",
            vfork = sym vfork_of_libc,
            execve = sym libc::execve,
            exit = sym libc::_exit,
            in("r12") program.as_ptr(),
            in("r13") arguments.as_ptr(),
            in("r14") environment.as_ptr(),
            lateout("eax") pid,
            clobber_abi("C"),
        );
    }
    right(ended_well(pid))
}

unsafe extern "C" {
    #[link_name = "vfork"]
    fn vfork_of_libc() -> i32;
}

/// The program again, from a thread that is not its first.
pub(crate) fn exec(mine: &Mine) -> i64 {
    again(mine);
    right(false)
}

/// exec(2) of this program, which goes on as the actor.
pub(crate) fn again(mine: &Mine) {
    let text = |text: String| CString::new(text).unwrap_or_default();
    let arguments = [
        c"lp-explore".to_owned(),
        c"--gate".to_owned(),
        c"--control".to_owned(),
        text(mine.control.to_string()),
        c"--inside".to_owned(),
        text(format!("again:{}:{}", mine.index, mine.fd)),
    ];
    let mut pointers: Vec<*const libc::c_char> = arguments.iter().map(|argument| argument.as_ptr()).collect();
    pointers.push(std::ptr::null());
    // SAFETY: strings and array end where they should.
    unsafe { libc::execv(c"/proc/self/exe".as_ptr(), pointers.as_ptr()) };
}

/// The end of the calling thread.
pub(crate) fn exit(_: &Mine) -> i64 {
    // SAFETY: nothing of the thread's is used by others.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    right(false)
}

/// The end of the program.
pub(crate) fn exit_group(_: &Mine) -> i64 {
    // SAFETY: ends the process as it is.
    unsafe { libc::_exit(0) }
}

/// The names that [`CHILD`] changes: there is always one of them.
const NAMES: [&CStr; 2] = [c"/light/k0", c"/light/k1"];
/// The child that changes names until it is killed.
static CHILD: AtomicI32 = AtomicI32::new(0);

/// What a victim needs while the program still has one thread.
pub(crate) fn prepare(victim: &str, page: &'static Page) {
    match victim {
        "waitpid" => start_child(&page.slots[CHILDREN + VICTIM]),
        // SAFETY: mounts of this process's from here on. Without the right to, mount(2) says so as well.
        "mount" => unsafe {
            libc::unshare(libc::CLONE_NEWNS);
        },
        _ => {}
    }
}

fn start_child(slot: &'static Slot) {
    let [one, other] = NAMES.map(CStr::as_ptr);
    // SAFETY: the process has one thread; the paths end in NUL. The child ends with its parent.
    unsafe {
        libc::close(libc::open(one, libc::O_CREAT | libc::O_RDWR, 0o600));
        let pid = libc::fork();
        if pid == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            loop {
                libc::rename(one, other);
                libc::link(other, one);
                libc::unlink(other);
                slot.made.fetch_add(1, Ordering::Release);
            }
        }
        CHILD.store(pid, Ordering::Relaxed);
    }
    while slot.made.load(Ordering::Acquire) < 3 {
        std::thread::yield_now();
    }
}

/// Kills the child and waits for it: its names are as some moment had them, and stay so.
pub(crate) fn waitpid(_: &Mine) -> i64 {
    let pid = CHILD.load(Ordering::Relaxed);
    let mut status = 0;
    // SAFETY: a child of this process's, which waits for it here alone.
    let waited = unsafe {
        libc::kill(pid, libc::SIGKILL);
        loop {
            match libc::waitpid(pid, &raw mut status, 0) {
                -1 if errno() == libc::EINTR => {}
                got => break got,
            }
        }
    };
    let seen = NAMES.map(look);
    let present = seen.iter().flatten().count();
    let agree = seen.iter().flatten().all(|(_, links)| *links == present as u64);
    right(waited == pid && status == libc::SIGKILL && present > 0 && agree && NAMES.map(look) == seen)
}

/// The inode and the links of a name.
fn look(name: &CStr) -> Option<(u64, u64)> {
    let mut found = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the path ends in NUL, and zeros are a valid structure.
    unsafe {
        let done = libc::lstat(name.as_ptr(), found.as_mut_ptr());
        let found = found.assume_init();
        (done == 0).then_some((found.st_ino, found.st_nlink))
    }
}

/// Mounts a file system over a directory and takes it away again. Who may not mount learns that.
pub(crate) fn mount(mine: &Mine) -> i64 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let text = |text: String| CString::new(text).unwrap_or_default();
    let point = text(format!("/light/{}/m{}", mine.index, NEXT.fetch_add(1, Ordering::Relaxed)));
    let file = text(format!("{}/file", point.to_string_lossy()));
    // SAFETY: all strings end in NUL.
    unsafe {
        let made = libc::mkdir(point.as_ptr(), 0o700) == 0;
        let (kind, none) = (c"tmpfs".as_ptr(), std::ptr::null());
        if libc::mount(kind, point.as_ptr(), kind, 0, none) != 0 {
            return right(made && errno() == libc::EPERM);
        }
        let fd = libc::open(file.as_ptr(), libc::O_CREAT | libc::O_RDWR, 0o600);
        let is_there = fd >= 0 && libc::close(fd) == 0 && look(&file).is_some();
        let is_busy = libc::rmdir(point.as_ptr()) == -1 && errno() == libc::EBUSY;
        let unmounted = libc::umount2(point.as_ptr(), 0) == 0 && look(&file).is_none();
        right(made && is_there && is_busy && unmounted && libc::rmdir(point.as_ptr()) == 0)
    }
}
