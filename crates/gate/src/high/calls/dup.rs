//! dup(2), dup2(2), dup3(2), and fcntl(2)'s `F_DUPFD`.

use lp_abi::linux::{__NR_dup2, __NR_dup3, O_CLOEXEC};
use lp_abi::{Errno, Fd, Result};
use lp_region::sync::Ordering;
use lp_vfs::table::{Alone, entry};
use lp_vfs::task::Task;
use lp_vfs::{dup, table};

use crate::high::fd::{descriptor, mark, placeholder};
use crate::high::frame::handler::{failed_with, handlers, kernel, ret};
use crate::high::watch::shadow_fd;
use crate::low::dispatch::NOT_OURS;
use crate::low::tools::close::close_number;

handlers! {
    /// dup(2).
    fn dup(task, fd: Fd) {
        let done = match descriptor::is_file(task, fd) {
            true => ret(duplicate(task, fd, 0, 0)),
            false => dup_other(task, fd, 0, 0),
        };
        // Where the limit is 0, no number is a minimum that F_DUPFD takes.
        if failed_with(done, Errno::EINVAL) { Errno::EMFILE.to_ret() } else { done }
    }

    /// dup2(2).
    fn dup2(task, old: Fd, new: Fd) {
        if old == new {
            return dup2_same(task, old);
        }
        replace(task, old, new, None)
    }

    /// dup3(2).
    fn dup3(task, old: Fd, new: Fd, flags: u32) {
        if flags & !O_CLOEXEC != 0 || old == new {
            return Errno::EINVAL.to_ret();
        }
        replace(task, old, new, Some(flags))
    }
}

/// Duplicates a file of ours to the lowest number at or above `min`. `flags` is [`entry::CLOEXEC`] or 0.
///
/// # Errors
/// `EBADF`, `EMFILE`, `EINVAL` as from fcntl(2).
pub(crate) fn duplicate(task: &'static Task<'static>, fd: Fd, min: u32, flags: u64) -> Result<Fd> {
    let file = dup::dup(task, fd)?;
    let number = match placeholder::allocate(task, min) {
        Ok(number) => number,
        Err(errno) => {
            dup::abandon(task);
            return Err(errno);
        }
    };
    dup::install(task, number, file, flags)?;
    shadow_fd::duplicate(task, fd, number);
    Ok(number)
}

/// dup and `F_DUPFD` of anything but a file of ours. The kernel duplicates the host object behind an inode of
/// ours, and the duplicate's entry names the inode too.
#[cold]
pub(crate) fn dup_other(task: &'static Task<'static>, fd: Fd, min: u32, flags: u64) -> isize {
    use lp_abi::linux::{__NR_fcntl, F_DUPFD, F_DUPFD_CLOEXEC};
    if descriptor::is_hidden(task, fd) {
        return Errno::EBADF.to_ret();
    }
    placeholder::flush(task);
    let known = mark::of(task, fd);
    let is_listed = descriptor::is_listed(task, fd);
    if !is_listed && known == 0 {
        return NOT_OURS;
    }
    let command = if flags & entry::CLOEXEC == 0 { F_DUPFD } else { F_DUPFD_CLOEXEC };
    let number = kernel!(__NR_fcntl, fd, command, min);
    if number < 0 {
        return number;
    }
    if !is_listed {
        mark::duplicated(task, known, Fd::new(number as i32), flags);
        return number;
    }
    let done = dup::dup(task, fd)
        .and_then(|file| dup::install(task, Fd::new(number as i32), file, flags | entry::HOST));
    if done.is_err() {
        close_number(Fd::new(number as i32));
    }
    ret(done.map(|()| number))
}

/// dup2 of a descriptor onto itself: only checks that it is open.
fn dup2_same(task: &Task, fd: Fd) -> isize {
    if descriptor::is_listed(task, fd) {
        fd.raw() as isize
    } else if descriptor::is_hidden(task, fd) {
        Errno::EBADF.to_ret()
    } else {
        NOT_OURS
    }
}

/// dup2 and dup3; only dup3 has flags.
fn replace(task: &'static Task<'static>, old: Fd, new: Fd, flags: Option<u32>) -> isize {
    if descriptor::is_hidden(task, old) || placeholder::is_guarded(task, new) {
        return Errno::EBADF.to_ret();
    }
    let cloexec = if flags.unwrap_or(0) & O_CLOEXEC != 0 { entry::CLOEXEC } else { 0 };
    if descriptor::is_file(task, old) {
        return ret(replace_by_ours(task, old, new, cloexec));
    }
    mark::forget(task, new);
    let known = mark::of(task, old);
    if !descriptor::is_listed(task, old) && known | descriptor::word(task, new) == 0 {
        return NOT_OURS;
    }
    let done = replace_by_other(task, old, new, flags, cloexec);
    if done >= 0 {
        mark::duplicated(task, known, new, cloexec);
    }
    done
}

/// Puts a file of ours on `new`, in place of what is there.
pub(super) fn replace_by_ours(task: &'static Task<'static>, old: Fd, new: Fd, cloexec: u64) -> Result<Fd> {
    let file = dup::dup(task, old)?;
    let replaced = placeholder::replace(task, new, entry::naming(file, cloexec));
    dup::arrived(task);
    table::let_go(task, replaced?);
    shadow_fd::duplicate(task, old, new);
    Ok(new)
}

/// Puts a host descriptor on `new`, where ours or a parked placeholder may be; or one that has an inode of
/// ours, on any number.
fn replace_by_other(
    task: &'static Task<'static>,
    old: Fd,
    new: Fd,
    flags: Option<u32>,
    cloexec: u64,
) -> isize {
    let listed = match descriptor::is_listed(task, old).then(|| dup::dup(task, old)).transpose() {
        Ok(listed) => listed,
        Err(errno) => return errno.to_ret(),
    };
    let word = listed.map_or(0, |file| entry::naming(file, entry::HOST | cloexec));
    let locked = Alone::take(task);
    let replaced = replace_both(task, old, new, flags, word);
    drop(locked);
    dup::arrived(task);
    ret(replaced.map(|replaced| {
        table::let_go(task, replaced);
        new
    }))
}

/// Makes the kernel put its descriptor `old` on `new`, then puts `word` into our table. Returns the table's
/// previous word. The caller must hold the lock.
fn replace_both(
    task: &'static Task<'static>,
    old: Fd,
    new: Fd,
    flags: Option<u32>,
    word: u64,
) -> Result<u64> {
    let place = if word == 0 { task.table.covered(new) } else { Some(table::reach(task, new)?) };
    if place.is_some_and(|place| place.load(Ordering::Relaxed) == entry::TRANSIT) {
        return Err(Errno::EBUSY);
    }
    match flags {
        // SAFETY: the program's own call; dup2(2) takes no pointers.
        None => unsafe { lp_abi::syscall!(__NR_dup2, old, new) },
        // SAFETY: the program's own call; dup3(2) takes no pointers.
        Some(flags) => unsafe { lp_abi::syscall!(__NR_dup3, old, new, flags) },
    }?;
    Ok(place.map_or(0, |place| {
        placeholder::unmark_parked(task, new);
        table::replace(task, place, word)
    }))
}
