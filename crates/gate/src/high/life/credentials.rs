//! The credentials that a thread's calls are checked against: the process's, or a record of its own.

use lp_abi::linux::{__NR_mmap, MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE};
use lp_region::process::{Process, caps};
use lp_region::sync::{AtomicU32, Ordering};
use lp_vfs::below::opened;
use lp_vfs::identity::copy_credentials;
use lp_vfs::load::{load_credentials, load_groups, load_securebits, set_securebits};
use lp_vfs::namespace;
use lp_vfs::task::Task;

use crate::High;
use crate::high::life::held;
use crate::high::life::way;
use crate::high::run::words::STALE;
use crate::low::above::Above;
use crate::low::cover::patch;
use crate::low::thread::current;
use crate::low::thread::record::Thread;
use crate::low::tools::report;

/// Makes a call that changes the thread's credentials, and reloads them unless it failed.
pub(crate) fn change(task: &'static Task<'static>, call: impl FnOnce() -> isize) -> isize {
    way::before_losing(task);
    let done = call();
    if done >= 0 {
        // Relaxed: only this thread can have created others.
        if is_shared(task) && task.process.threads.load(Ordering::Relaxed) != 0 {
            part(task);
        }
        load_credentials(task.credentials.get(), task.process);
    }
    done
}

/// [`change`] for setgroups(2), which changes the thread's groups.
pub(crate) fn change_groups(task: &'static Task<'static>, call: impl FnOnce() -> isize) -> isize {
    let done = change(task, call);
    if done >= 0 {
        load_groups(task.credentials.get(), task.process);
    }
    done
}

/// The process has entered a user namespace that was made in its own: from here on its calls go through
/// [`crate::high::table::mapped`].
#[cold]
pub(crate) fn entered_namespace(thread: &Thread, task: &Task) {
    namespace::entered(task);
    patch::change_calls(&High::calls(thread));
}

/// setns(2) has succeeded.
#[cold]
pub(crate) fn joined_namespace(thread: &Thread, task: &Task, target: &namespace::Target) {
    if namespace::joined(task, target) {
        patch::change_calls(&High::calls(thread));
    }
}

/// A call has changed the thread's securebits, unless it failed.
pub(crate) fn securebits_changed(task: &'static Task<'static>, bits: u32, done: isize) -> isize {
    // Relaxed, as in `change`.
    if done >= 0 && is_shared(task) && task.process.threads.load(Ordering::Relaxed) != 0 {
        part(task);
        load_credentials(task.credentials.get(), task.process);
    }
    if done >= 0 {
        set_securebits(task.credentials.get(), bits);
    }
    done
}

/// Gives the calling thread credentials of its own if there are other threads.
pub(crate) fn part_from_others(task: &'static Task<'static>) {
    // Relaxed, as in `change`.
    if is_shared(task) && task.process.threads.load(Ordering::Relaxed) != 0 {
        part(task);
    }
}

/// Whether a thread uses the process's credentials.
fn is_shared(task: &Task) -> bool {
    core::ptr::eq(task.credentials.get(), task.process)
}

/// Nonzero once a thread has had its own credentials. A new thread's must then be read from the kernel.
static PARTED: AtomicU32 = AtomicU32::new(0);

/// Gives the calling thread its own record for credentials; the caller fills it in.
#[cold]
fn part(task: &'static Task<'static>) {
    // Relaxed: the kernel's clone orders it for threads that this one creates.
    PARTED.store(1, Ordering::Relaxed);
    // SAFETY: the record belongs to this thread.
    let own = unsafe { &(*current::thread()).credentials };
    // SAFETY: the cell belongs to this thread. The new mapping lives as long as the thread, and its zeros are
    // a valid record of atomics.
    unsafe {
        if own.get().is_null() {
            let (protection, flags) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
            let bytes = size_of::<Process>();
            match lp_abi::syscall!(__NR_mmap, 0, bytes, protection, flags, -1i32, 0) {
                Ok(at) => own.set(at as *mut Process),
                Err(_) => report::refuse(&[b"no memory for a thread's credentials"]),
            }
        }
        // Not all of it can be read from the kernel.
        copy_credentials(task.credentials.get(), &*own.get());
        task.credentials.set(&*own.get());
    }
}

/// A thread has made its first call. It has the credentials of its creator, with this domain if it is known.
pub(crate) fn of_new_thread(task: &'static Task<'static>, domain: Option<u64>) {
    if PARTED.load(Ordering::Relaxed) != 0 {
        part(task);
        load_all(task.credentials.get(), task.process);
        held::inherit(task, domain);
    }
}

/// Reads all from the kernel.
fn load_all(credentials: &Process, process: &Process) {
    load_credentials(credentials, process);
    load_securebits(credentials);
}

/// The new image gets this thread's credentials; the process record may hold others. It may lack this one's
/// capabilities, unless it is root's: open files get what they lack.
pub(crate) fn before_exec(task: &Task) {
    // Relaxed: this thread's own.
    let (caps, user) = (&task.credentials.get().caps, &task.credentials.get().fsuid);
    let reads = caps.load(Ordering::Relaxed) & (caps::DAC_OVERRIDE | caps::DAC_READ_SEARCH) != 0;
    if reads && user.load(Ordering::Relaxed) != 0 {
        opened::complete(task);
    }
    if !is_shared(task) {
        // Relaxed, here and below: orders nothing.
        task.process.gate_words[STALE].store(1, Ordering::Relaxed);
        let domain = task.credentials.get().domain.load(Ordering::Relaxed);
        task.process.next_domain.store(domain, Ordering::Release); // Release: a scan for users sees it.
    }
}

/// Undoes [`before_exec`] after a failed exec.
pub(crate) fn exec_failed(task: &Task) {
    if !is_shared(task) {
        task.process.gate_words[STALE].store(0, Ordering::Relaxed);
        task.process.next_domain.store(0, Ordering::Relaxed);
    }
}

/// In the new image: reloads the credentials if the exec was such a thread's.
pub(crate) fn after_exec(task: &Task) {
    if task.process.gate_words[STALE].swap(0, Ordering::Relaxed) != 0 {
        load_all(task.process, task.process);
        let process = task.process;
        // Release: a scan for users sees one of the two.
        process.domain.store(process.next_domain.load(Ordering::Relaxed), Ordering::Release);
        process.next_domain.store(0, Ordering::Release);
    }
}
