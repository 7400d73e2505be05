//! execve(2) and execveat(2) of host files.
//!
//! For files in a mount the high half finds what to execute (a memfd with the program, or the interpreter of
//! a script) and calls [`run`].

use core::mem::{ManuallyDrop, MaybeUninit};

use lp_abi::linux::{
    __NR_close, __NR_execveat, __NR_faccessat2, __NR_fcntl, AT_EACCESS, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW,
    F_SETFD, SIG_SETMASK,
};
use lp_abi::refusal::Refusal;
use lp_abi::sys::syscall6;
use lp_abi::{Errno, Fd};
use lp_region::ucopy;

use crate::High;
use crate::low::above::Above;
use crate::low::arrive::sigaction;
use crate::low::cover::build;
use crate::low::exec::check::Failure;
use crate::low::exec::environment::Environment;
use crate::low::exec::load::{Executed, LoaderHook, Named, Static};
use crate::low::exec::outline::Outline;
use crate::low::exec::privileges::Group;
use crate::low::exec::script::{HEAD, Script};
use crate::low::exec::{check, environment};
use crate::low::live::{deferred, signal};
use crate::low::thread::current;
use crate::low::thread::record::Thread;
use crate::low::tools::names;

/// execve(2) of a host file.
pub(crate) unsafe extern "sysv64" fn execve(
    path: usize,
    argv: usize,
    envp: usize,
    _: usize,
    _: usize,
    _: usize,
) -> isize {
    // SAFETY: in the gate `current` is set; `host` treats the pointers as the program's.
    let thread = unsafe { &*current::thread() };
    with_room(thread, || {
        // SAFETY: as above.
        let done =
            unsafe { host(thread, Executed::path(path as *const u8), None, argv, envp, check::SCRIPTS) };
        // A process without a region: the high half would handle the script.
        done.unwrap_or(Errno::ENOEXEC.to_ret())
    })
}

/// execveat(2) of a host file.
pub(crate) unsafe extern "sysv64" fn execveat(
    directory: usize,
    path: usize,
    argv: usize,
    envp: usize,
    flags: usize,
    _: usize,
) -> isize {
    // SAFETY: in the gate `current` is set; `host` treats the pointers as the program's.
    let thread = unsafe { &*current::thread() };
    let directory = Fd::new(directory as i32);
    let file = Executed { directory, path: path as *const u8, flags: flags as u32 as usize };
    with_room(thread, || {
        // SAFETY: as above.
        let done = unsafe { host(thread, file, None, argv, envp, check::SCRIPTS) };
        done.unwrap_or(Errno::ENOEXEC.to_ret()) // A process without a region, as in `execve`.
    })
}

/// Calls `exec`, on the stack in the thread's record if it is a child that shares memory and came with a
/// stack of its own: that of musl's posix_spawn(3) has 5 KiB.
#[inline(always)]
pub(crate) fn with_room<R>(thread: &Thread, exec: impl FnOnce() -> R) -> R {
    if thread.parent.get().is_null() || thread.own_stack.get() == 0 || thread.stack.holds_caller() {
        return exec();
    }
    elsewhere(thread, exec)
}

#[cold]
#[inline(never)]
fn elsewhere<R, F: FnOnce() -> R>(thread: &Thread, exec: F) -> R {
    extern "sysv64" fn enter<R, F: FnOnce() -> R>((exec, done): &mut (ManuallyDrop<F>, MaybeUninit<R>)) {
        // SAFETY: taken once, by the only call.
        done.write(unsafe { ManuallyDrop::take(exec) }());
    }
    let mut call = (ManuallyDrop::new(exec), MaybeUninit::uninit());
    // SAFETY: nothing else uses the stack: the child is in one call, which did not come by it. The function
    // returns, keeps r12, and writes the result.
    unsafe {
        core::arch::asm!(
            "mov r12, rsp",
            "mov rsp, {top}",
            "call {enter}",
            "mov rsp, r12",
            top = in(reg) thread.stack.top(),
            enter = in(reg) enter::<R, F>,
            in("rdi") &raw mut call,
            out("r12") _,
            clobber_abi("sysv64"),
        );
        call.1.assume_init()
    }
}

/// Executes a host file for `thread`: checked, with our environment. If it is the interpreter of a script,
/// `script` is what the program has named. Scripts may be `scripts` deep. Returns only with an error. `None`
/// if the file is a script whose interpreter is a static program; the caller must then build the arguments.
///
/// # Safety
/// The paths, `argv` and `envp` must be the program's, or valid.
pub(crate) unsafe fn host(
    thread: &Thread,
    file: Executed,
    script: Option<Named>,
    argv: usize,
    envp: usize,
    scripts: usize,
) -> Option<isize> {
    let Executed { directory, path, .. } = file;
    let named = script.unwrap_or(Named { directory, path });
    let environment = match Environment::survey(thread, envp) {
        Ok(environment) => environment,
        Err(errno) => return Some(errno.to_ret()),
    };
    // SAFETY: the caller guarantees that `path` is the program's, or valid.
    match unsafe { check::host_file(thread, &environment, file, scripts) } {
        Ok(Some(load)) => {
            // SAFETY: the caller guarantees that `path` and `argv` are the program's, or valid.
            let done = unsafe { run(thread, named, file, argv, &environment, load) };
            if let LoaderHook::Static(program) = load {
                // SAFETY: the descriptor was opened for this exec, and nothing else uses it.
                let _ = unsafe { lp_abi::syscall!(__NR_close, program.fd) };
            }
            Some(done)
        }
        Ok(None) => None,
        Err(Failure::Refused(refusal)) => Some(refuse(thread, refusal, path)),
        Err(Failure::Fails(errno)) => Some(errno.to_ret()),
    }
}

/// Reports that the program's `path` is refused, and returns the exec's result.
#[cold]
fn refuse(thread: &Thread, refusal: Refusal, path: *const u8) -> isize {
    let mut room = [0u8; 512];
    // SAFETY: the copy routine handles bad pointers.
    let length = unsafe { ucopy::string(&mut room, path) }.unwrap_or(0);
    let name: &[u8] = if length == 0 { b"the program" } else { &room[..length] };
    check::refuse(thread, refusal, name).to_ret()
}

/// Whether the kernel finds an executable file. Shells try one directory after the other.
#[cold]
fn may_be_executed(file: Executed) -> bool {
    const X_OK: u32 = 1;
    let Executed { directory, path, flags } = file;
    let flags = flags & (AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) as usize | AT_EACCESS as usize;
    // SAFETY: faccessat2(2) changes nothing, and the kernel handles bad pointers.
    let asked = unsafe { lp_abi::syscall!(__NR_faccessat2, directory, path, X_OK, flags) };
    asked.is_ok() || check::is_missing(asked)
}

/// The exec itself, of `file`, which the program has named as `named`. Returns only with an error.
///
/// # Safety
/// Both paths and `argv` must be the program's, or valid.
pub(crate) unsafe fn run(
    thread: &Thread,
    named: Named,
    file: Executed,
    argv: usize,
    environment: &Environment,
    load: LoaderHook,
) -> isize {
    if !environment::is_in_reach(load) && may_be_executed(file) {
        build::restore();
        if !environment::is_in_reach(load) {
            return refuse(thread, Refusal::OutOfReach, named.path);
        }
    }
    let Ok(_group) = environment.group.get().map(Group::take).transpose() else {
        return refuse(thread, Refusal::SetGroup, named.path);
    };
    let is_by_its_name = (named.directory, named.path) == (file.directory, file.path);
    let told = (!is_by_its_name).then_some(named);
    // SAFETY: the caller guarantees the paths and `argv`.
    unsafe {
        match load {
            LoaderHook::Within => outlined(thread, named, file, argv, environment),
            LoaderHook::Static(Static { fd, .. }) => {
                return by_gate(thread, Static { fd, named }, argv, environment);
            }
            _ => {}
        }
        execute(thread, (file, told), argv, environment, load)
    }
}

/// The exec of a static program: of the gate's file in its place.
///
/// # Safety
/// As for [`run`].
#[inline(never)]
unsafe fn by_gate(thread: &Thread, program: Static, argv: usize, environment: &Environment) -> isize {
    let mut room = [0u8; names::ROOM];
    let Some(gate) = environment::static_gate(&mut room) else { return Errno::ENOEXEC.to_ret() };
    let file = Executed { directory: Fd::CWD, path: gate.as_ptr(), flags: 0 };
    // The new image uses the descriptor by its number and closes it. SAFETY: the descriptor belongs to the
    // gate; the caller guarantees `argv`.
    unsafe {
        let _ = lp_abi::syscall!(__NR_fcntl, program.fd, F_SETFD, 0);
        execute(thread, (file, None), argv, environment, LoaderHook::Static(program))
    }
}

/// The exec by an outline of the program, or of the script's interpreter, if there is one. Returns if the
/// kernel refuses it: what it says of the outline, it need not say of the program.
///
/// # Safety
/// As for [`run`].
#[inline(never)]
unsafe fn outlined(thread: &Thread, named: Named, file: Executed, argv: usize, environment: &Environment) {
    // SAFETY: the caller guarantees the paths and `argv`.
    unsafe {
        let mut head = [0u8; HEAD];
        let by_outline = match Outline::of(thread, file) {
            Some(outline) => Some((outline, argv)),
            None => Script::of(thread, file, argv, &mut head)
                .and_then(|script| Some((Outline::of(thread, script.interpreter)?, script.argv))),
        };
        if let Some((outline, argv)) = by_outline {
            let file = Executed::descriptor(outline.pass());
            let _ = execute(thread, (file, None), argv, environment, LoaderHook::Outline(named));
        }
    }
}

/// Environment, signals, and the kernel's call for a file. The new image is told the name beside it, unless
/// `load` tells it. Returns only with an error.
///
/// A signal that has arrived by the time of the kernel's call is sent again and blocked across the exec.
/// Running its handler first could go on for ever, because preparing an exec takes longer than some timers.
/// The new image is told the mask, and its gate sets it; the signal then has its effect on that image.
///
/// # Safety
/// The file's path and `argv` must be the program's, or valid.
unsafe fn execute(
    thread: &Thread,
    (file, named): (Executed, Option<Named>),
    argv: usize,
    environment: &Environment,
    load: LoaderHook,
) -> isize {
    let environment = match environment.build(thread, load, named) {
        Ok(environment) => environment,
        Err(errno) => return errno.to_ret(),
    };
    if let Err(errno) = High::before_exec(thread) {
        return errno.to_ret();
    }
    sigaction::before_exec();
    let Executed { directory, path, flags } = file;
    let arguments = [directory.word(), path as usize, argv, environment.vector() as usize, flags, 0];
    // SAFETY: the program's own exec; the environment is ours and valid.
    let mut result = match unsafe { deferred::blocking_syscall(__NR_execveat, arguments) } {
        Ok(_) => 0,
        Err(errno) => errno.to_ret(),
    };
    if deferred::interrupted() && result == Errno::EINTR.to_ret() {
        let (mask, _) = deferred::release();
        environment.tell_mask(mask);
        let [a, b, c, d, e, f] = arguments;
        // SAFETY: the program's own exec; the environment is ours and valid.
        result = unsafe { syscall6(__NR_execveat, a, b, c, d, e, f) };
        signal::set_mask(SIG_SETMASK, mask);
    }
    sigaction::exec_failed();
    High::exec_failed(thread, Errno::new(-result as i32));
    result
}
