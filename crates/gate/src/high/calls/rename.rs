//! rename(2), renameat(2), renameat2(2).

use lp_abi::linux::__NR_renameat2;
use lp_abi::{Errno, Fd, Result, UserPtr};
use lp_vfs::link::Two;
use lp_vfs::rename;
use lp_vfs::task::Task;

use crate::high::calls::{across, across_rename};
use crate::high::frame::at::{At, Last};
use crate::high::frame::handler::{handlers, kernel};
use crate::high::route::pair::{Pair, two};
use crate::high::route::path::is_plainly_ours;

handlers! {
    /// rename(2).
    fn rename(task, old: UserPtr, new: UserPtr) {
        move_entry(task, At::cwd(old), At::cwd(new), 0)
    }

    /// renameat(2).
    fn renameat(task, olddir: Fd, old: UserPtr, newdir: Fd, new: UserPtr) {
        move_entry(task, At { dirfd: olddir, path: old }, At { dirfd: newdir, path: new }, 0)
    }

    /// renameat2(2).
    fn renameat2(task, olddir: Fd, old: UserPtr, newdir: Fd, new: UserPtr, flags: u32) {
        move_entry(task, At { dirfd: olddir, path: old }, At { dirfd: newdir, path: new }, flags)
    }

    /// rename(2) by a thread that has restricted itself.
    fn rename_checked(task, old: UserPtr, new: UserPtr) {
        move_by(task, At::cwd(old), At::cwd(new), 0, rename::renameat2_checked)
    }

    /// renameat(2) by a thread that has restricted itself.
    fn renameat_checked(task, olddir: Fd, old: UserPtr, newdir: Fd, new: UserPtr) {
        let (old, new) = (At { dirfd: olddir, path: old }, At { dirfd: newdir, path: new });
        move_by(task, old, new, 0, rename::renameat2_checked)
    }

    /// renameat2(2) by a thread that has restricted itself.
    fn renameat2_checked(task, olddir: Fd, old: UserPtr, newdir: Fd, new: UserPtr, flags: u32) {
        let (old, new) = (At { dirfd: olddir, path: old }, At { dirfd: newdir, path: new });
        move_by(task, old, new, flags, rename::renameat2_checked)
    }
}

#[inline(always)]
fn move_entry(task: &Task, old: At, new: At, flags: u32) -> isize {
    if is_plainly_ours(task, old) && is_plainly_ours(task, new) {
        match rename::renameat2(task, old.dirfd, old.path, new.dirfd, new.path, flags) {
            Ok(Two::Done) => return 0,
            // Nothing has happened: a path leads out, or to another file system, or names a mount.
            Ok(Two::Outside { .. }) => {}
            Err(errno) if across_rename::REFUSALS.contains(&errno) => {}
            Err(errno) => return errno.to_ret(),
        }
    }
    move_routed(task, old, new, flags)
}

#[inline(never)]
fn move_routed(task: &Task, old: At, new: At, flags: u32) -> isize {
    move_by(task, old, new, flags, rename::renameat2)
}

/// Renames, in the file system by `renameat2`.
fn move_by(
    task: &Task,
    old: At,
    new: At,
    flags: u32,
    renameat2: impl Fn(&Task<'_>, Fd, UserPtr, Fd, UserPtr, u32) -> Result<Two>,
) -> isize {
    if let Err(errno) = rename::check_flags(flags) {
        return errno.to_ret();
    }
    let ours = |a: At, b: At| renameat2(task, a.dirfd, a.path, b.dirfd, b.path, flags);
    let host = |a: At, b: At| kernel!(__NR_renameat2, a.dirfd, a.path, b.dirfd, b.path, flags);
    let first = |old: At| across::parent(task, old);
    let pair = Pair { paths: [old, new], last: Last::Name, ours: &ours, host: &host, first: &first };
    let done = two(task, pair);
    match Errno::from_ret(done) {
        Err(errno) if across_rename::REFUSALS.contains(&errno) => {
            across_rename::rename(task, old, new, flags, errno)
        }
        _ => done,
    }
}
