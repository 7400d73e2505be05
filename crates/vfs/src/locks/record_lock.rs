//! fcntl(2)'s record locks: `F_GETLK`, `F_SETLK`, `F_SETLKW` and their open file description variants.

use lp_abi::linux::{
    F_GETLK, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_RDLCK, F_SETLK, F_SETLKW, F_UNLCK, F_WRLCK, SEEK_CUR,
    SEEK_END, SEEK_SET,
};
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_region::process::Process;
use lp_region::records::file_mode;
use lp_region::sync::{Ordering, full_fence};
use lp_region::{ProcessId, ucopy};

use crate::caller::task::Task;
use crate::descriptors::fget::HeldFile;
use crate::descriptors::table;
use crate::inodes::inode;
use crate::locks::file_lock::{self, LockWait};
use crate::locks::lock::{ByteRange, Lock, LockType, Owner, TO_END, family};

/// `struct flock`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Flock {
    kind: i16,
    whence: i16,
    pad: u32,
    start: i64,
    len: i64,
    pid: i32,
    end: u32,
}

/// Whether a command belongs to this file.
pub fn is_command(command: u32) -> bool {
    matches!(command, F_GETLK | F_SETLK | F_SETLKW | F_OFD_GETLK | F_OFD_SETLK | F_OFD_SETLKW)
}

/// Performs one of the commands; `argument` is the program's `struct flock`. The door must restart on
/// `EINTR`.
///
/// # Errors
/// `EBADF`, also for a lock that the access mode does not allow and for `O_PATH`; `EFAULT`, `EINVAL`,
/// `EOVERFLOW`, `EAGAIN`, `EDEADLK`, `EINTR`, `ENOLCK`.
pub fn fcntl(task: &Task, fd: Fd, command: u32, argument: UserPtr) -> Result<()> {
    let held = task.fget(fd)?;
    if held.file.mode.load(Ordering::Relaxed) & file_mode::PATH != 0 {
        return Err(Errno::EBADF);
    }
    // SAFETY: the copy routine handles bad pointers; the structure consists of integers.
    let asked: Flock = unsafe { ucopy::get(argument.cast().as_ptr()) }?;
    let owner = match command {
        F_GETLK | F_SETLK | F_SETLKW => file_lock::process_owner(task),
        _ => file_lock::file_owner(task, held.id, family::OFD),
    };
    match command {
        F_GETLK | F_OFD_GETLK => get(task, &held, owner, asked, argument),
        F_SETLK | F_OFD_SETLK => set(task, (fd, &held), owner, &asked, LockWait::No),
        F_SETLKW | F_OFD_SETLKW => set(task, (fd, &held), owner, &asked, LockWait::Yes),
        _ => Err(Errno::EINVAL),
    }
}

fn get(task: &Task, held: &HeldFile, owner: Owner, asked: Flock, argument: UserPtr) -> Result<()> {
    let posix = owner.family == family::POSIX;
    if posix && kind_of(&asked)?.is_none() {
        return Err(Errno::EINVAL);
    }
    let (range, kind) = (range_of(held, &asked)?, kind_of(&asked)?);
    if !posix && asked.pid != 0 {
        return Err(Errno::EINVAL);
    }
    let found = match kind {
        Some(kind) => {
            let lock = Lock { owner, range, kind, pid: 0, through: held.id };
            file_lock::conflict(task, held.inode_id(), &lock)
        }
        // posix_test_locks_conflict: F_OFD_GETLK with F_UNLCK asks for the owner's own locks.
        None => file_lock::own(task, held.inode_id(), owner, range),
    };
    let mut answer = asked;
    match found {
        None => answer.kind = F_UNLCK as i16,
        Some(found) => {
            answer.kind = if found.kind == LockType::Shared { F_RDLCK } else { F_WRLCK } as i16;
            answer.whence = SEEK_SET as i16;
            answer.start = found.range.start as i64;
            answer.len =
                if found.range.end == TO_END { 0 } else { (found.range.end - found.range.start + 1) as i64 };
            answer.pid = shown_pid(task, &found);
        }
    }
    // SAFETY: the copy routine handles bad pointers.
    unsafe { ucopy::put(argument.cast().as_ptr(), &answer) }
}

/// `l_pid` of a lock: its process in the caller's pid namespace, 0 if it is not seen there; -1 for a lock of an
/// open file.
pub fn shown_pid(task: &Task, lock: &Lock) -> i32 {
    let namespace = |process: &Process| process.pid_namespace.load(Ordering::Relaxed); // Relaxed: immutable.
    let owner = ProcessId(lock.owner.id);
    let number = match lock.owner.family {
        family::OFD => return -1,
        family::POSIX if namespace(task.region.process(owner)) != namespace(task.process) => {
            task.region.process_number(owner).unwrap_or(lock.pid)
        }
        _ => lock.pid,
    };
    number as i32
}

fn set(task: &Task, (fd, held): (Fd, &HeldFile), owner: Owner, asked: &Flock, wait: LockWait) -> Result<()> {
    let (range, kind) = (range_of(held, asked)?, kind_of(asked)?);
    let needed = match kind {
        Some(LockType::Shared) => file_mode::READ,
        Some(LockType::Exclusive) => file_mode::WRITE,
        None => 0,
    };
    if held.file.mode.load(Ordering::Relaxed) & needed != needed {
        return Err(Errno::EBADF);
    }
    if owner.family != family::POSIX && asked.pid != 0 {
        return Err(Errno::EINVAL);
    }
    let Some(kind) = kind else {
        return file_lock::release(task, held.inode_id(), owner, range);
    };
    match owner.family {
        family::POSIX => closes_look(task),
        _ => held.file.locked.store(1, Ordering::Release),
    }
    let pid = task.process.pid.load(Ordering::Relaxed);
    let lock = Lock { owner, range, kind, pid, through: held.id };
    file_lock::acquire(task, held.inode_id(), &lock, wait)?;
    // Relaxed: only this thread can have created the second thread.
    if owner.family == family::POSIX && task.process.threads.load(Ordering::Relaxed) != 0 {
        check_still_open(task, fd, held)?;
    }
    Ok(())
}

/// Checks that no other thread has closed the descriptor before it could see the new lock, which nothing
/// would then release. Like the kernel's fcntl_setlk, drops all that a close drops.
///
/// # Errors
/// `EBADF`.
fn check_still_open(task: &Task, fd: Fd, held: &HeldFile) -> Result<()> {
    // PAIRS: the exchange in `table_lock::leave_beside`: either this load finds the entry changed, or the
    // close finds the lock in `open_file::drop_locks`.
    full_fence();
    let word = task.table.load(fd);
    if word & table::entry::OPEN != 0 && word as u32 == held.id.0 {
        return Ok(());
    }
    file_lock::drop_posix(task, held.inode_id());
    Err(Errno::EBADF)
}

/// Makes each close of the process look for its locks, if none does yet.
fn closes_look(task: &Task) {
    // Relaxed: once set it stays, and only threads of the process set and read it.
    if task.process.posix_locks.load(Ordering::Relaxed) & table::closing::LOCKS == 0 {
        task.process.closes_look(table::closing::LOCKS);
    }
}

/// The requested type of lock; `None` to unlock.
fn kind_of(asked: &Flock) -> Result<Option<LockType>> {
    match asked.kind as u32 {
        F_RDLCK => Ok(Some(LockType::Shared)),
        F_WRLCK => Ok(Some(LockType::Exclusive)),
        F_UNLCK => Ok(None),
        _ => Err(Errno::EINVAL),
    }
}

/// The kernel's flock_to_posix_lock.
fn range_of(held: &HeldFile, asked: &Flock) -> Result<ByteRange> {
    let base = match asked.whence as u32 {
        SEEK_SET => 0,
        SEEK_CUR => held.file.position.load(Ordering::Relaxed) as i64, // Relaxed: one word, as seen.
        // Relaxed: the type does not change.
        SEEK_END => inode::size_and_blocks(held.inode, held.inode.mode.load(Ordering::Relaxed)).0 as i64,
        _ => return Err(Errno::EINVAL),
    };
    let start = base.checked_add(asked.start).ok_or(Errno::EOVERFLOW)?;
    if start < 0 {
        return Err(Errno::EINVAL);
    }
    let (start, end) = match asked.len {
        0 => (start, i64::MAX),
        len if len > 0 => (start, start.checked_add(len - 1).ok_or(Errno::EOVERFLOW)?),
        len => (start + len, start - 1),
    };
    if start < 0 {
        return Err(Errno::EINVAL);
    }
    Ok(ByteRange { start: start as u64, end: end as u64 })
}
