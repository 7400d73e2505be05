//! Dead processes own no locks, no matter who is about to clean up after them.

use std::ffi::CString;

use lp_abi::Fd;
use lp_abi::linux::{LOCK_EX, LOCK_NB, O_RDWR, S_IFREG};
use lp_region::RunId;
use lp_region::sync::Ordering;
use lp_vfs::open::Opened;
use lp_vfs::task::Place;
use lp_vfs::{Task, boot, clock, close, dup, flock, mknod, open, table};

mod setup;
use setup::death;
use setup::lent;

const AT_ONCE: u32 = LOCK_EX | LOCK_NB;
const FILES: usize = 2;

/// Files of the mount. Paths are created in advance, because the child of a threaded program may not
/// allocate.
fn files(task: &Task) -> [CString; FILES] {
    let names = ["/light/locked", "/light/other"].map(|name| CString::new(name).expect("name"));
    for name in &names {
        mknod::mknodat(task, Fd::CWD, lent::path(name), S_IFREG | 0o600, 0).expect("file");
    }
    names
}

fn open(task: &Task, name: &CString) -> Fd {
    let Ok(Place::Inside(Opened::File(id))) = open::openat(task, Fd::CWD, lent::path(name), O_RDWR, 0) else {
        std::process::abort()
    };
    let Ok(fd) = task.table.lowest(0, 1024) else { std::process::abort() };
    let Ok(()) = table::install(task, fd, id, 0) else { std::process::abort() };
    fd
}

/// Creates a process of the run that stops itself when `work` is done, and waits for that.
fn child(task: &Task, work: &dyn Fn(&Task)) -> libc::pid_t {
    let run = RunId(task.process.run.load(Ordering::Relaxed));
    let id = boot::claim_process(task.region, run).expect("process");
    // SAFETY: the child calls only what the child of a process with threads may call.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let Ok(lane) = boot::attach(task.region, id, 2) else { std::process::abort() };
        let task = Task::new(task.region, id, lane, clock::now);
        boot::arrive(&task);
        work(&task);
        std::process::abort()
    }
    pid
}

fn stop() {
    // SAFETY: raise(3) with SIGSTOP only stops this process.
    unsafe { libc::raise(libc::SIGSTOP) };
}

fn wait_until_stopped(pid: libc::pid_t) {
    let mut status = 0;
    // SAFETY: the child is this process's own.
    unsafe { libc::waitpid(pid, &raw mut status, libc::WUNTRACED) };
    assert!(libc::WIFSTOPPED(status), "the child ended: {status:x}");
}

fn kill(pid: libc::pid_t) {
    let mut status = 0;
    // SAFETY: the child is this process's own.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::waitpid(pid, &raw mut status, 0);
    }
    assert!(libc::WIFSIGNALED(status));
}

/// Makes a child take the lock and die with it.
fn lock_and_die(task: &Task, name: &CString) {
    let holder = child(task, &|task| {
        let fd = open(task, name);
        if flock::flock(task, fd, AT_ONCE).is_ok() {
            stop();
        }
    });
    wait_until_stopped(holder);
    let fd = open(task, name);
    assert!(flock::flock(task, fd, AT_ONCE).is_err(), "a stopped process has the lock");
    close::close(task, fd).expect("close");
    kill(holder);
}

#[test]
fn a_stopped_reaper_keeps_nobody_from_a_lock_of_the_dead() {
    let task = death::task();
    let [name, _] = files(&task);
    lock_and_die(&task, &name);
    let reaper = child(&task, &|task| {
        for id in task.region.processes() {
            if let Some(life) = task.region.left_by_the_dead(id, task.process_id) {
                task.region.begin_emptying(id, life, task.lane_id);
            }
        }
        stop();
    });
    wait_until_stopped(reaper);
    let fd = open(&task, &name);
    flock::flock(&task, fd, AT_ONCE).expect("the holder is dead");
    kill(reaper);
}

#[test]
fn references_that_move_all_the_time_keep_nobody_from_a_lock_of_the_dead() {
    let task = death::task();
    let [name, other] = files(&task);
    let mover = child(&task, &|task| {
        let from = open(task, &other);
        for round in 0u64.. {
            let Ok(id) = dup::dup(task, from) else { return };
            let Ok(fd) = task.table.lowest(0, 1024) else { return };
            if dup::install(task, fd, id, 0).is_err() || close::close(task, fd).is_err() {
                return;
            }
            if round == 0 {
                stop();
            }
        }
    });
    wait_until_stopped(mover);
    // SAFETY: the child is this process's own.
    unsafe { libc::kill(mover, libc::SIGCONT) };
    for _ in 0..100 {
        lock_and_die(&task, &name);
        let fd = open(&task, &name);
        flock::flock(&task, fd, AT_ONCE).expect("the holder is dead");
        close::close(&task, fd).expect("close");
    }
    kill(mover);
}
